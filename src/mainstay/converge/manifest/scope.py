"""The names that expressions refer to: roots, read on first use, and functions; marks of values that come from secrets.

`expressions.py` reads templates, `sandbox.py` evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mainstay.converge.contract import KEPT_SECRET, NEW_SECRET, NO_SECRET, PRIVATE_VALUE
from mainstay.converge.value_kinds import to_text
from mainstay.foundation import Any, Struct
from mainstay.foundation.suggestions import closest
from mainstay.foundation.text import KeptSecret, PrivateText, Tainted, shorten

MOST_ITEMS = 1_000_000
MISSING: Any = object()
# The classes of texts by the kind of secrets they come from.
MARKS: dict[int, type[Tainted]] = {PRIVATE_VALUE: PrivateText, KEPT_SECRET: KeptSecret, NEW_SECRET: Tainted}
# The root of the current item of `for_each`.
EACH = "each"
# Names that are defined in most places, for did-you-mean.
USUAL_NAMES = ("lookup", "file", "template", "result", "facts", "data", "environ")


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


class Reference(Struct):
    """One name, with the steps below it if they are constant.

    `in_branch`: evaluated only on a condition. `has_default`: the expression accepts that the value is undefined.
    """

    # The root or function; of `lookup('data.x')` the root, of `result('exec#x')` the resource.
    name: str
    steps: tuple[str | int, ...] = ()
    # `lookup` or `result`, if that call leads to the value.
    function: str | None = None
    # How many steps are those of a look-up, which finds no methods.
    looked_up: int = 0
    is_called: bool = False
    in_branch: bool = False
    has_default: bool = False


class References(Struct):
    """Everything that one expression refers to."""

    found: list[Reference] = []
    # Names of filters and tests that do not exist. Jinja2 itself accepts them inside a branch.
    filters: list[str] = []
    tests: list[str] = []
    # Constant paths of `template('…')` and `file('…')`.
    templates: list[str] = []
    files: list[str] = []


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
        value = self.find(path)
        if value is MISSING:
            raise UndefinedValue(self.undefined_problem(path))
        return value

    def find(self, path: str) -> Any:
        """The value of a path; `MISSING` if it is not defined."""
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

    def undefined_problem(self, path: str) -> str:
        name, _, rest = path.partition(".")
        return f"{shorten(path, 200)} is not defined" + hint(self.root(name), name, rest)

    def note_secret(self, value: Any) -> None:
        self.tainted = max(self.tainted, _secret_kind(value))

    def note_access(self, value: Any, member: object) -> None:
        if isinstance(value, SecretMembers) and member in value.secrets:
            # What replaces a secret that is not set counts as new: the request may have cleared the secret.
            self.tainted = max(self.tainted, _secret_kind(value.get(str(member))) or NEW_SECRET)

    def spellings(self) -> Mapping[str, str]:
        """How expressions may write the roots: as they are, and with a capital letter."""
        if not self._spellings:
            for names in (tuple(self.sources), (*self.sources, EACH)):
                capitals = {name[:1].upper() + name[1:]: name for name in names}
                self._spellings.append({**{name: name for name in names}, **capitals})
        return self._spellings[self.each is not None]


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


def quoted(source: str) -> str:
    return f"{{{{ {shorten(source.strip())} }}}}"
