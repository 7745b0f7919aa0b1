"""Finds expressions that can never work, without evaluating them. Pure.

Loaded with the first template of a manifest. A plain `lookup('…')` is checked without Jinja2; `references.py` reads
the syntax tree of every other expression.
"""

from __future__ import annotations

from mainstay.converge.manifest.scope import (
    EACH,
    MISSING,
    NOT_RENDERED,
    USUAL_NAMES,
    Reference,
    hint,
    quoted,
    step,
)
from mainstay.foundation import Struct
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from mainstay.converge.manifest.expressions import Expression, Template
    from mainstay.converge.manifest.sandbox import Sandbox
    from mainstay.converge.manifest.scope import TemplateScope

# Members of `result('type#name')`; `_describe_result` of run.py sets them.
RESULT_MEMBERS = ("outcome", "changed", "stdout", "output", "exit_code", "state", "outputs")
# Roots that do not depend on the host and the caller.
SAME_EVERYWHERE = ("data", EACH)
# Functions and operators of other template languages.
ELSEWHERE_CALLED = {
    "now": "an expression has no clock; pass the time with --set",
    "env": "write environ.NAME",
    "getenv": "write environ.NAME",
    "fact": "write lookup('facts.NAME')",
    "hiera": "write lookup('data.NAME')",
    "include": "write template('PATH')",
}
# Names of the item of a loop, outside of a repeated resource or in other tools.
ITEM_NAMES = {
    "each": "only a resource with `for_each` has it",
    "item": "the item of `for_each` is lookup('each.value')",
}


class Problem(Struct):
    """Why an expression can never work.

    `shows_source`: the message quotes more than the path of a look-up. `is_undefined`: a value does not exist here.
    """

    message: str
    shows_source: bool
    is_undefined: bool = False


class StaticCheck(Struct):
    """Checks the expressions of one place in a manifest.

    `note_result` receives the references of `result('type#name')`: whether a resource is declared earlier is known
    only after all resources are read. `is_conditional`: facts and other values of the host may never be read, because
    the resource has a `control`.
    """

    scope: TemplateScope
    note_result: Callable[[str], None] | None = None
    is_conditional: bool = False

    def problems(self, template: Template, *, items_only: bool = False) -> list[Problem]:
        """The problems of all expressions of a template. `items_only`: the rest was checked with an earlier item."""
        found = []
        for part in template.parts:
            if not isinstance(part, str):
                found += self.expression_problems(part, items_only=items_only)
        return found

    def expression_problems(self, expression: Expression, *, items_only: bool = False) -> list[Problem]:
        if expression.constant is None:
            return list(self._item_problems(expression) if items_only else self._compiled_problems(expression))
        reference = _constant_reference(expression.constant)
        if items_only and reference.name != EACH:
            return []
        return list(self._look_up(reference))

    def _item_problems(self, expression: Expression) -> Iterator[Problem]:
        for reference in expression.references().found:
            if reference.name.lower() == EACH and reference.function != "result":
                yield from self._look_up(reference)

    def _compiled_problems(self, expression: Expression) -> Iterator[Problem]:
        references = expression.references()
        place = f" in {quoted(expression.source)}"
        for kind, names, known in (
            ("filter", references.filters, _environment().filters),
            ("test", references.tests, _environment().tests),
        ):
            for name in names:
                message = f"unknown {kind} {shorten(name)!r}{did_you_mean(name, known)}{place}"
                yield Problem(message, shows_source=True)
        for path in references.templates:
            if path.endswith(".jet"):
                yield Problem(
                    f"template('{shorten(path)}'): *.jet templates are not supported{place}", shows_source=True
                )
        # `x is defined` makes another use of x in the same expression a matter of the caller's roots.
        tested = {each.name for each in references.found if each.has_default and each.function is None}
        for reference in references.found:
            if reference.function == "result":
                yield from (Problem(message, shows_source=False) for message in self._result(reference))
            elif reference.function == "lookup" or reference.name in self.scope.spellings():
                yield from self._look_up(reference, "" if reference.function else place)
            elif reference.name not in tested and reference.name not in self._functions():
                yield Problem(self._unknown_name(reference) + place, shows_source=True)

    def _functions(self) -> frozenset[str]:
        return frozenset(("lookup", *self.scope.functions, *_environment().globals))

    # ---- look-ups ----
    def _look_up(self, reference: Reference, place: str = "") -> Iterator[Problem]:
        name = reference.name if reference.function else self.scope.spellings()[reference.name]
        if not self.scope.has_root(name):
            message = self.scope.root_problem(".".join([reference.name, *map(str, reference.steps)]))
            yield Problem(message, shows_source=False)
            return
        if reference.has_default or reference.in_branch or (self.is_conditional and name not in SAME_EVERYWHERE):
            return
        if not reference.steps:
            return
        root = self.scope.root(name)
        if _is_reachable(root, reference):
            return
        path = ".".join(map(str, reference.steps))
        message = f"{shorten(f'{name}.{path}', 200)} is not defined" + hint(root, name, path) + place
        yield Problem(message, shows_source=False, is_undefined=True)

    def _result(self, reference: Reference) -> Iterator[str]:
        if self.note_result is None or reference.has_default or reference.in_branch:
            return
        self.note_result(reference.name)
        member = reference.steps[0] if reference.steps else RESULT_MEMBERS[0]
        if member not in RESULT_MEMBERS:
            close = did_you_mean(str(member), RESULT_MEMBERS)
            yield (
                f"result('{shorten(reference.name)}') has no {shorten(str(member))!r}{close};"
                f" it has {', '.join(RESULT_MEMBERS)}"
            )

    # ---- names ----
    def _unknown_name(self, reference: Reference) -> str:
        name = shorten(reference.name)
        if reference.name.lower() == "data" and not reference.is_called:
            return "data is not available while data itself is read"
        if reference.name in USUAL_NAMES:
            return f"{name} is not available here"
        what = "function" if reference.is_called else "name"
        if reference.is_called and reference.name in _environment().filters:
            return f"unknown function {name!r}; it is a filter: write `value | {name}`"
        if reference.is_called and reference.name in ELSEWHERE_CALLED:
            return f"unknown function {name!r}; {ELSEWHERE_CALLED[reference.name]}"
        close = did_you_mean(reference.name, (*USUAL_NAMES, *self._functions(), *self.scope.sources))
        if close:
            return f"unknown {what} {name!r}{close}"
        if reference.is_called:
            return f"unknown function {name!r}; known functions: {', '.join(sorted(self._functions()))}"
        if reference.name in ITEM_NAMES:
            return f"unknown name {name!r}; {ITEM_NAMES[reference.name]}"
        return f"unknown name {name!r}; for text write it in quotes, for data lookup('data.{name}')"


def _environment() -> Sandbox:
    from mainstay.converge.manifest.sandbox import environment

    return environment()


def _constant_reference(path: str) -> Reference:
    name, _, rest = path.partition(".")
    steps = tuple(rest.split(".")) if rest else ()
    return Reference(name, steps, function="lookup", looked_up=len(steps))


def _is_reachable(value: Any, reference: Reference) -> bool:
    """Whether the steps lead to a value, or to something that only an evaluation can tell."""
    for index, part in enumerate(reference.steps):
        if value is NOT_RENDERED:
            return True
        following = step(value, str(part))
        if following is MISSING:
            # A method, an item of a text, or a member that only an evaluation finds.
            is_text_index = isinstance(value, str) and isinstance(part, int)
            return index >= reference.looked_up and (is_text_index or hasattr(value, str(part)))
        value = following
    return True
