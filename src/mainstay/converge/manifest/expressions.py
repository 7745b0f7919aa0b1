"""Templates: `{{ expression }}` in text, sandboxed and strict. All other text is kept as it is.

Expressions are those of Jinja2, which is imported only when a manifest uses more than a plain `lookup('…')`: the
import takes longer than most runs.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mainstay.converge.contract import KEPT_SECRET, NEW_SECRET, NO_SECRET, PRIVATE_VALUE
from mainstay.converge.value_kinds import to_text
from mainstay.foundation.suggestions import closest, did_you_mean
from mainstay.foundation.text import KeptSecret, PrivateText, Tainted, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mainstay.converge.manifest.static_checks import References

# Compiled on first use: most manifests have no templates.
PLAIN_LOOKUP = r"\s*lookup\(\s*(?:'([^'\\]*)'|\"([^\"\\]*)\")\s*\)\s*"
# Operators of other languages: pattern, name, and what to write instead.
FOREIGN = (
    (r"&&", "&&", "and"),
    (r"\|\|", "||", "or"),
    (r"\$\{", "${", "{{ … }}"),
    (r"\?\?", "??", "value | default(other)"),
    (r"\?\.", "?.", "value | default(other)"),
    (r"\?", "?:", "a if condition else b"),
    (r"===", "===", "=="),
    (r"!==", "!==", "!="),
    (r"!(?!=)", "!", "not"),
)
# How Jinja2 calls text after a whole expression.
TEXT_AFTER = "chunk after expression"
LONGEST_REPETITION = 10_000_000
LONGEST_EXPRESSION = 20_000
MOST_ITEMS = 1_000_000
MISSING: Any = object()
# The classes of texts by the kind of secrets they come from.
MARKS: dict[int, type[Tainted]] = {PRIVATE_VALUE: PrivateText, KEPT_SECRET: KeptSecret, NEW_SECRET: Tainted}
# The root of the current item of `for_each`.
EACH = "each"
HIDDEN_REASON = "the evaluation fails on a secret value"


class BadExpression(ValueError):
    """The text between the braces is not a valid expression."""


class Unresolved(ValueError):
    """An expression that cannot be evaluated: an undefined value, or an operation that failed."""

    # The `error_kind` of an event, as in `Failure`.
    kind = "TemplateFailed"
    # Whether the message may contain a computed value; otherwise it contains only text of the manifest.
    is_computed = True


class UndefinedValue(Unresolved):
    """A value that an expression needs is not defined."""


class FollowUp(Unresolved):
    """The expression needs a value of `data` that has a fault itself; a second fault would only distract."""


class NotRendered:
    """The placeholder of a value of `data` whose template has a fault."""


NOT_RENDERED = NotRendered()


class SecretMembers(dict[str, "Any"]):
    """A map that knows which of its members are secrets, set or not. The default for an unset secret is a secret too,
    because it may replace an earlier value and be compared with it."""

    def __init__(self, members: Mapping[str, Any], secrets: frozenset[str]) -> None:
        super().__init__(members)
        self.secrets = secrets


class TemplateFunction:
    """A function or method in an expression. It can be called, but has no text."""

    __slots__ = ("_function", "_name")

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def __str__(self) -> str:
        raise TypeError(self.problem())

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        raise TypeError(self.problem())

    def problem(self) -> str:
        return f"{shorten(self._name)} is a function and has no value of its own; call it: {shorten(self._name)}(…)"


class TemplateScope:
    """The names available to expressions: roots, read on first use, and functions.

    `tainted` is the kind of secrets from which the values come that an evaluation touched.
    """

    def __init__(
        self,
        roots: Mapping[str, Callable[[], Any]],
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.sources = roots
        self.loaded: dict[str, Any] = {}
        # Without and with `each`.
        self._spellings: list[dict[str, str]] = []
        self.functions = dict(functions or {})
        self.tainted = NO_SECRET
        # `key` and `value` of the current item of `for_each`; None: the current resource is not repeated.
        self.each: dict[str, Any] | None = None

    def has_root(self, name: str) -> bool:
        return name in self.sources or (name == EACH and self.each is not None)

    def root(self, name: str) -> Any:
        if name == EACH and self.each is not None:
            return self.each
        if name not in self.loaded:
            self.loaded[name] = self.sources[name]()
        return self.loaded[name]

    def lookup(self, path: str) -> Any:
        value = self._find(path)
        if value is MISSING:
            raise UndefinedValue(self._undefined_problem(path))
        return value

    def _lookup_or_undefined(self, path: str, default: Any = MISSING) -> Any:
        """`lookup` for Jinja2: the filter `default` and the test `defined` accept a value that is not defined."""
        value = self._find(str(path))
        if value is not MISSING:
            return value
        if default is MISSING:
            return environment().undefined(self._undefined_problem(str(path)), exc=UndefinedValue)
        return default

    def _find(self, path: str) -> Any:
        name, _, rest = path.partition(".")
        if not self.has_root(name):
            raise Unresolved(self.root_problem(path))
        value = self.root(name)
        for part in rest.split(".") if rest else ():
            self.note_access(value, part)
            value = step(value, part)
            if value is MISSING:
                return MISSING
        if value is NOT_RENDERED:
            raise FollowUp(path)
        self.note_secret(value)
        return value

    def root_problem(self, path: str) -> str:
        """Why a path does not begin with a root."""
        name = path.partition(".")[0]
        if name == EACH:
            return f"lookup('{shorten(path)}'): only a resource with `for_each` has items"
        if name == "data":
            return f"lookup('{shorten(path)}'): data is not available while data itself is read"
        known = ", ".join(sorted(self.sources))
        return f"lookup('{shorten(path)}'): there is no root {shorten(name)!r}; known roots: {known}"

    def _undefined_problem(self, path: str) -> str:
        name, _, rest = path.partition(".")
        return f"{shorten(path, 200)} is not defined" + hint(self.root(name), name, rest)

    def note_secret(self, value: Any) -> None:
        self.tainted = max(self.tainted, _secret_kind(value))

    def note_access(self, value: Any, member: object) -> None:
        if isinstance(value, SecretMembers) and member in value.secrets:
            # What replaces a secret that is not set counts as new: the request may have cleared the secret.
            self.tainted = max(self.tainted, _secret_kind(value.get(str(member))) or NEW_SECRET)

    def names(self) -> dict[str, Any]:
        """All names for an expression; roots also with a capital letter."""
        found: dict[str, Any] = {
            name: TemplateFunction(function, name)
            for name, function in (("lookup", self._lookup_or_undefined), *self.functions.items())
        }
        found.update((spelling, RootView(self, name)) for spelling, name in self.spellings().items())
        return found

    def spellings(self) -> Mapping[str, str]:
        """How expressions may write the roots: as they are, and with a capital letter."""
        if not self._spellings:
            for names in (tuple(self.sources), (*self.sources, EACH)):
                capitals = {name[:1].upper() + name[1:]: name for name in names}
                self._spellings.append({**{name: name for name in names}, **capitals})
        return self._spellings[self.each is not None]


class RootView:
    """A root as a name in expressions, read on first use."""

    def __init__(self, scope: TemplateScope, name: str) -> None:
        self._scope = scope
        self._name = name

    def keys(self) -> Any:
        return self._value().keys()

    def values(self) -> Any:
        return self._value().values()

    def items(self) -> Any:
        return self._value().items()

    def get(self, key: str, default: Any = None) -> Any:
        self._scope.note_access(self._scope.root(self._name), key)
        return self._value().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._scope.note_access(self._scope.root(self._name), key)
        return self._scope.root(self._name)[key]

    def __contains__(self, key: object) -> bool:
        self._scope.note_access(self._scope.root(self._name), key)
        return key in self._scope.root(self._name)

    def __iter__(self) -> Any:
        return iter(self._value())

    def __len__(self) -> int:
        return len(self._value())

    def __str__(self) -> str:
        return to_text(self._value())

    __repr__ = __str__

    def _value(self) -> Any:
        value = self._scope.root(self._name)
        self._scope.note_secret(value)
        return value


class Template:
    """Text with expressions in it, compiled once."""

    __slots__ = ("parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts = split(text)
        for part in self.parts:
            if isinstance(part, Expression):
                part.check()

    def computed(self) -> list[Expression]:
        """The expressions that are more than plain look-ups."""
        return [part for part in self.parts if isinstance(part, Expression) and part.constant is None]

    def render(self, scope: TemplateScope) -> Any:
        """Returns the value, which keeps its type if the text is exactly one expression."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return tainted_if(scope, lambda: self.parts[0].evaluate(scope))  # type: ignore[union-attr]
        return tainted_if(
            scope,
            lambda: "".join(part if isinstance(part, str) else to_text(part.evaluate(scope)) for part in self.parts),
        )

    def render_escaped(self, scope: TemplateScope, escape: Callable[[str], str]) -> str | None:
        """Returns the text with every value escaped; None if it is exactly one expression, which gives null."""
        return tainted_if(scope, lambda: self._escaped(scope, escape))  # type: ignore[no-any-return]

    def _escaped(self, scope: TemplateScope, escape: Callable[[str], str]) -> str | None:
        texts = []
        for index, part in enumerate(self.parts):
            if isinstance(part, str):
                texts.append(part)
                continue
            before = self.parts[index - 1] if index else ""
            if isinstance(before, str) and (len(before) - len(before.rstrip("\\"))) % 2:
                # The backslash would give the first character of the value a meaning.
                raise BadExpression("a backslash before {{ is not supported: values are escaped; remove it")
            value = part.evaluate(scope)
            if value is None and len(self.parts) == 1:
                return None
            texts.append(escape(to_text(value)))
        return "".join(texts)


class Expression:
    """The text between the braces."""

    __slots__ = ("_compiled", "constant", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        plain = re.fullmatch(PLAIN_LOOKUP, source)
        self.constant: str | None = (plain[1] or plain[2] or "") if plain else None
        self._compiled: Callable[..., Any] | None = None

    def check(self) -> None:
        """Raises `BadExpression` if the syntax is wrong."""
        if self.constant is None:
            self._compiled = _compile_expression(self.source)[0]

    def references(self) -> References:
        """What an expression refers to that is more than a plain `lookup('…')`."""
        return _compile_expression(self.source)[1]

    def evaluate(self, scope: TemplateScope) -> Any:
        if self.constant is not None:
            return self._look_up(scope)
        compiled = self._compiled or _compile_expression(self.source)[0]
        self._compiled = compiled
        from mainstay.converge.manifest.sandbox import evaluate

        return evaluate(compiled, scope, self.source)

    def ends_in_quote(self) -> bool:
        """Whether the filter `quote` is applied to the whole value."""
        if self.constant is not None:
            return False
        from mainstay.converge.manifest.sandbox import is_quoted

        return is_quoted(self.source)

    def _look_up(self, scope: TemplateScope) -> Any:
        try:
            return scope.lookup(self.constant or "")
        except Unresolved as error:
            error.is_computed = False
            raise


def split(text: str) -> list[str | Expression]:
    """Splits a template into text and expressions. Braces and quotes inside an expression belong to it."""
    parts: list[str | Expression] = []
    start = 0
    while (opening := text.find("{{", start)) >= 0:
        if opening > start:
            parts.append(text[start:opening])
        closing = _end_of_expression(text, opening + 2)
        source = text[opening + 2 : closing]
        if source[:1] in ("-", "+") and source[1:2] in (" ", "\n"):
            raise BadExpression("{{- and -}} do not trim here: text is kept as written; write {{ … }}")
        parts.append(Expression(source))
        start = closing + 2
    if start < len(text):
        parts.append(text[start:])
    return parts


def _end_of_expression(text: str, start: int) -> int:
    depth = 0
    quote = ""
    index = start
    while index < len(text):
        character = text[index]
        if quote:
            if character == "\\":
                index += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character == "}" and depth == 0 and text.startswith("}}", index):
            return index
        elif character in ")]}":
            depth -= 1
        index += 1
    raise BadExpression(
        f"{{{{ is never closed: {shorten(text[start - 2 :])!r}; for a literal {{{{ write {{{{ '{{{{' }}}}"
    )


def tainted_if(scope: TemplateScope, produce: Callable[[], Any]) -> Any:
    """Returns the produced value, marked as secret if a secret was touched."""
    before, scope.tainted = scope.tainted, NO_SECRET
    try:
        value = produce()
        return taint(value, keys=True, mark=MARKS[scope.tainted]) if scope.tainted else value
    finally:
        scope.tainted = max(scope.tainted, before)


def taint(value: Any, *, keys: bool = False, mark: type[Tainted] = Tainted) -> Any:
    """Marks the texts and numbers in a value as secret. `keys`: names in maps too, which may be computed.

    A private value stays a number: a manifest may compute with it."""
    if isinstance(value, str):
        return value if mark is PrivateText and isinstance(value, Tainted) else mark(value)
    if isinstance(value, dict):
        return {mark(key) if keys else key: taint(child, keys=keys, mark=mark) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [taint(child, keys=keys, mark=mark) for child in value]
    return value if value is None or isinstance(value, bool) or mark is PrivateText else mark(to_text(value))


def holds_secret(value: Any) -> bool:
    return _secret_kind(value) != NO_SECRET


def _secret_kind(value: Any) -> int:
    """`NEW_SECRET` also if the value holds kept secrets beside new ones."""
    if isinstance(value, Tainted):
        return next((kind for kind, mark in MARKS.items() if value.__class__ is mark), NEW_SECRET)
    if isinstance(value, dict):
        return max((max(_secret_kind(key), _secret_kind(child)) for key, child in value.items()), default=NO_SECRET)
    if isinstance(value, (list, tuple)):
        return max(map(_secret_kind, value), default=NO_SECRET)
    return NO_SECRET


def step(value: Any, part: str) -> Any:
    """Takes one step of a dotted path; returns `MISSING` if there is no such member."""
    if isinstance(value, dict):
        if part not in value and hasattr(value, "item_at"):
            return _numbered_item(value, part)
        return value.get(part, MISSING)
    if isinstance(value, list):
        from mainstay.foundation.numbers import parse_count

        index = parse_count(part, 0, len(value) - 1)
        return MISSING if index is None else value[index]
    return MISSING


def _numbered_item(value: Any, part: str) -> Any:
    """An item of a map that also has an order, such as the network interfaces."""
    from mainstay.foundation.numbers import parse_count

    number = parse_count(part, 0, MOST_ITEMS)
    found = None if number is None else value.item_at(number)
    return MISSING if found is None else found


def hint(root: Any, name: str, path: str) -> str:
    """Suggests a name for the first part of the path that is not defined."""
    walked = name
    value = root
    for part in path.split("."):
        following = step(value, part)
        if following is MISSING:
            if isinstance(value, dict):
                close = closest(part, value)
                is_shown = close is not None and not holds_secret(value)
                return f" (did you mean {walked}.{close}?)" if is_shown else ""
            return ""
        walked, value = f"{walked}.{part}", following
    return ""


# ---- Jinja2, imported on first use ----
@lru_cache(maxsize=1)
def environment() -> Any:
    """One sandbox per process: it keeps no state of a run."""
    from mainstay.converge.manifest.sandbox import make_environment

    return make_environment()


@lru_cache(maxsize=4096)
def _compile_expression(source: str) -> tuple[Callable[..., Any], References]:
    """The function that evaluates the expression, and what it refers to: parsed once for both."""
    import jinja2

    from mainstay.converge.manifest.sandbox import compile_expression

    if not source.strip():
        raise BadExpression("the expression between {{ and }} is empty")
    if len(source) > LONGEST_EXPRESSION:
        raise BadExpression(f"the expression is longer than {LONGEST_EXPRESSION} characters: {quoted(source)}")
    try:
        return compile_expression(source)
    except (RecursionError, MemoryError):
        raise BadExpression(f"the expression is too large: {quoted(source)}") from None
    except (jinja2.TemplateSyntaxError, SyntaxError, ValueError) as error:
        message = shorten(getattr(error, "message", None) or str(error), 200)
        message = _foreign_operator(source, is_assigned=message == TEXT_AFTER) or message
        raise BadExpression(f"{reword(message)} in {quoted(source)}") from None


def _foreign_operator(source: str, *, is_assigned: bool) -> str | None:
    """The first operator of another language outside quotes, with what to write instead.

    `=` is also part of a call; `is_assigned` says that the fault is text after an expression."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", source)
    for pattern, foreign, ours in FOREIGN:
        if re.search(pattern, bare):
            return f"{foreign} is not supported; write `{ours}`"
    if is_assigned and re.search(r"(?<![=!<>])=(?!=)", bare):
        return "= is not supported; write `==`"
    return None


def quoted(source: str) -> str:
    return f"{{{{ {shorten(source.strip())} }}}}"


def reword(message: str) -> str:
    """Replaces internal terms in a message of Jinja2, and suggests the name of a filter."""
    message = message.removesuffix(".")
    if "end of template" in message:
        return "the expression ends too early"
    if message == TEXT_AFTER:
        return "unexpected text after the expression"
    kind, found, name = message.partition(" named ")
    if found and kind in ("No filter", "No test"):
        known = environment().filters if kind == "No filter" else environment().tests
        return f"unknown {kind[3:]} {name}" + did_you_mean(name.strip("'"), known)
    return message
