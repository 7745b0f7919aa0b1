"""The Jinja2 environment that expressions and `template()` files run in: sandboxed, strict, bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from types import GeneratorType
from typing import Any

import jinja2
from jinja2 import utils
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import missing

from mainstay.converge.command_words import join_words, quote_word
from mainstay.converge.manifest.scope import NOT_RENDERED, USUAL_NAMES, FollowUp, TemplateScope, hint
from mainstay.converge.value_kinds import to_text
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import line_problem, shorten

LONGEST_REPETITION = 10_000_000
LARGEST_VALUE = 100_000_000
# Methods that take a width and return text of that length.
WIDTH_METHODS = frozenset(("center", "expandtabs", "ljust", "rjust", "to_bytes", "zfill"))
# Methods whose result is not bounded by their arguments.
ENDLESS_METHODS = frozenset(("maketrans", "translate"))
WIDE_FORMAT = re.compile(r"%[^%a-zA-Z]*(?:\d{7}|\*)|\{[^{}]*:[^{}]*(?:\d{7}|\{)")
# Filters that repeat something, with the largest number they accept.
BOUNDED_FILTERS = {"batch": 100_000, "center": 100_000, "indent": 1000, "round": 300, "slice": 100_000, "tojson": 100}
# Threads may run manifests concurrently, each with its own scope.
WATCHER: ContextVar[TemplateScope | None] = ContextVar("WATCHER", default=None)


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


class LazyItems:
    """Items that a filter has not computed yet. They can be iterated over, but have no text."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)

    def __iter__(self) -> Iterator[Any]:
        return self._items

    def __next__(self) -> Any:
        return next(self._items)

    def __str__(self) -> str:
        raise TypeError("the items of a filter have no text before they are a list; add `| list`")

    __repr__ = __str__


class Joiner(utils.Joiner):
    def __repr__(self) -> str:
        raise TypeError("a joiner has no text; call it")


class Cycler(utils.Cycler):
    def __repr__(self) -> str:
        raise TypeError("a cycler has no text; call its `next`")


class Sandbox(SandboxedEnvironment):
    """Keys of maps win over methods, the memory of an expression is bounded, and functions have no text."""

    intercepted_binops = frozenset(("*", "**", "%"))

    @contextmanager
    def watched_by(self, scope: TemplateScope) -> Iterator[None]:
        """Marks `scope` as tainted when a value that comes from a secret is touched."""
        token = WATCHER.set(scope)
        try:
            yield
        finally:
            WATCHER.reset(token)

    def call(self, context: Any, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """Bounds the methods of text that can return text of any length."""
        if isinstance(function, TemplateFunction):
            function = function._function
        owner = getattr(function, "__self__", None)
        if isinstance(owner, (str, bytes, int)):
            _refuse_long_text(owner, function.__name__, (*arguments, *named.values()))
        return super().call(context, function, *arguments, **named)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in ENDLESS_METHODS and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _refuse_wide_format(value.__self__)
        return wrapped

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, (dict, RootView)) and attribute in obj:
            return self._watched(obj[attribute])
        return _without_text(super().getattr(obj, attribute), attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, RootView) and argument in obj:
            return self._watched(obj[argument])
        if isinstance(argument, int) and hasattr(obj, "item_at"):
            found = obj.item_at(argument)
            return self.undefined(obj=obj, name=str(argument)) if found is None else found
        return self._watched(_without_text(super().getitem(obj, argument), str(argument)))

    def _watched(self, value: Any) -> Any:
        if value is NOT_RENDERED:
            raise FollowUp
        scope = WATCHER.get()
        if scope is not None:
            scope.note_secret(value)
        return value

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and (not _small(left, 10**6) or not _small(right, 1000)):
            raise SecurityError("the power is too large")
        if operator == "%" and isinstance(left, (str, bytes)):
            _refuse_wide_format(left)
        for number, sequence in ((left, right), (right, left)):
            if (
                isinstance(number, int)
                and hasattr(sequence, "__len__")
                and number * max(1, len(sequence)) > LONGEST_REPETITION
            ):
                raise SecurityError("the repetition is too long")
        return super().call_binop(context, operator, left, right)


def _without_text(value: Any, name: str) -> Any:
    """Wraps what would show an address in memory as its text: functions, methods and unfinished items."""
    if isinstance(value, GeneratorType):
        return LazyItems(value)
    if not callable(value) or isinstance(value, (jinja2.Undefined, TemplateFunction, RootView)):
        return value
    return TemplateFunction(value, name)


def _refuse_wide_format(text: str | bytes) -> None:
    """Refuses widths of seven digits and more, and widths that are not literal."""
    written = text if isinstance(text, str) else text.decode("latin-1")
    total = sum(int(number) for number in re.findall(r"\d{2,6}", written))
    if WIDE_FORMAT.search(written) or total > LONGEST_REPETITION:
        raise SecurityError("the format has a width that is too large or not a literal number")


def _refuse_long_text(owner: str | bytes | int, method: str, arguments: tuple[Any, ...]) -> None:
    size = 0
    if method in WIDTH_METHODS:
        size = max((argument for argument in arguments if isinstance(argument, int)), default=0)
        # Every tab may grow to that width.
        size *= 1 if isinstance(owner, int) or method != "expandtabs" else len(owner)
    elif method == "replace" and len(arguments) > 1 and hasattr(arguments[1], "__len__"):
        size = (len(owner) + 1) * len(arguments[1]) if not isinstance(owner, int) else 0
    elif method == "join" and arguments and hasattr(arguments[0], "__len__"):
        size = len(owner) * len(arguments[0]) if not isinstance(owner, int) else 0
    if size > LONGEST_REPETITION:
        raise SecurityError("the text would be too long")


def _small(value: Any, limit: int) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= limit


class Undefined(jinja2.StrictUndefined):
    """Names what is not defined, without the internal terms of Jinja2."""

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        name = shorten(str(self._undefined_name))
        holder = self._undefined_obj
        if isinstance(holder, RootView):
            root = holder._scope.root(holder._name)
            return f"{holder._name}.{name} is not defined" + hint(root, holder._name, name)
        if isinstance(holder, dict):
            return f"{name!r} is not defined{did_you_mean(name, holder)}"
        if holder is missing:
            advice = f"; for text write it in quotes, for data lookup('data.{name}')"
            return f"unknown name {name!r}{did_you_mean(name, USUAL_NAMES) or advice}"
        return f"{name!r} is not defined"


@lru_cache(maxsize=1)
def environment() -> Sandbox:
    """One sandbox per process: it keeps no state of a run."""
    sandbox = Sandbox(
        undefined=Undefined,
        keep_trailing_newline=True,
        autoescape=False,  # host files are not HTML
    )
    sandbox.filters["tojson"] = _tojson
    for name in ("pprint", "string"):
        sandbox.filters[name] = _measured(sandbox.filters[name])
    sandbox.filters["map"] = _measured_map(sandbox.filters["map"])
    sandbox.filters["format"] = _format
    sandbox.filters["replace"] = _replace
    sandbox.filters["join"] = _measured_join(sandbox.filters["join"])
    for name, limit in BOUNDED_FILTERS.items():
        sandbox.filters[name] = _bounded(sandbox.filters[name], limit)
    sandbox.filters["quote"] = _quote
    sandbox.filters["line"] = _line
    for name, function in sandbox.filters.items():
        sandbox.filters[name] = _with_plain_result(function, name)
    # Generates random text of any length, which no manifest needs.
    del sandbox.globals["lipsum"]
    sandbox.globals.update(joiner=Joiner, cycler=Cycler)
    for name in ("cycler", "dict", "joiner", "namespace", "range"):
        known: Any = sandbox.globals[name]
        sandbox.globals[name] = TemplateFunction(known, name)
    sandbox.finalize = _measured(to_text)
    return sandbox


def _tojson(value: Any, indent: int | None = None) -> str:
    """Plain JSON. Jinja2's own filter escapes for HTML, which is wrong in a configuration file."""
    if isinstance(value, RootView):
        value = dict(value.items())
    _measure(value)
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_refuse_object)


def _refuse_object(value: Any) -> Any:
    """Called for an object inside a value that JSON cannot express."""
    if value is NOT_RENDERED:
        raise FollowUp
    if isinstance(value, TemplateFunction):
        raise TypeError(value.problem())
    raise TypeError(
        f"an object of type {value.__class__.__name__} has no JSON form; add `| list` to items of a filter"
    )


def _quote(value: Any) -> str:
    """One word of a shell, whatever the value contains; a list gives one word for each item."""
    if isinstance(value, (list, tuple, LazyItems)):
        return join_words(_argument(item) for item in value)
    return quote_word(_argument(value))


def _argument(value: Any) -> str:
    if value is None:
        raise ValueError("null cannot be an argument; for an empty argument write ''")
    text = to_text(value)
    if "\0" in text:
        raise ValueError("an argument cannot contain a NUL character")
    return text


def _line(value: Any) -> str:
    """The text, if it is one line without control characters."""
    text = to_text(value)
    problem = line_problem(text)
    if problem:
        raise ValueError(f"the text {problem}, which `line` refuses")
    return text


def _with_plain_result(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def filtered(*arguments: Any, **named: Any) -> Any:
        return _without_text(function(*arguments, **named), name)

    return filtered


def _bounded(function: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """Wraps a filter with a bound on the numbers among its arguments."""
    first_argument = 2 if hasattr(function, "jinja_pass_arg") else 1

    @wraps(function)
    def bounded(*arguments: Any, **named: Any) -> Any:
        for argument in (*arguments[first_argument:], *named.values()):
            if isinstance(argument, int) and abs(argument) > limit:
                raise SecurityError(f"the filter takes numbers up to {limit}")
        return function(*arguments, **named)

    return bounded


def _format(text: str, *values: Any, **named: Any) -> str:
    _refuse_wide_format(text)
    return text % (named or values)


def _replace(text: Any, old: str, new: str, count: int = -1) -> str:
    written = to_text(text)
    _refuse_long_text(written, "replace", (old, new))
    return written.replace(old, new, count)


def _measured(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def measured(value: Any, *arguments: Any, **named: Any) -> Any:
        _measure(value)
        return function(value, *arguments, **named)

    return measured


def _measured_map(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Bounds the size of all mapped items together."""

    @wraps(apply)
    def measured(*arguments: Any, **named: Any) -> Iterator[Any]:
        budget = Budget()
        for item in apply(*arguments, **named):
            _measure(item, budget)
            yield item

    return measured


def _measured_join(join: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(join)
    def measured(context: Any, items: Any, d: str = "", attribute: Any = None) -> Any:
        budget = Budget()
        listed = []
        for item in items:
            _measure(item, budget)
            listed.append(item)
        _refuse_long_text(d, "join", (listed,))
        return join(context, listed, d, attribute)

    return measured


class Budget:
    """The remaining size of one value, in characters and items; repeated parts count each time."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = LARGEST_VALUE

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise ValueError(f"the value is larger than {LARGEST_VALUE // 1_000_000} MB")


def _measure(value: Any, budget: Budget | None = None) -> None:
    """Raises ValueError for a value that would take too much memory as text."""
    budget = budget or Budget()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        budget.spend(len(item) + 1 if isinstance(item, (str, bytes, dict, list, tuple)) else 1)
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            waiting += item
