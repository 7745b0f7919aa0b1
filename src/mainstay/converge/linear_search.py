"""Searches texts for a regular expression in time linear in the text, whatever the pattern: an automaton whose states are
built when a text reaches them. Pure.

`re` parses the pattern and decides about single characters and positions, so that both mean what they mean in Python.
It does not search: it tries one alternative after the other, which can take exponential time. No groups are kept.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# Nodes of an automaton; counted repetitions are written out.
MOST_NODES = 2500
# Remembered transitions of an automaton; beyond it they are built anew.
MOST_TRANSITIONS = 2000
# A repetition with a larger maximum counts as unbounded inside of a repeated group.
LARGEST_REPETITION = 1000
# Symbols of a text beside its characters: `$` also matches before a newline at the end.
END, FINAL_NEWLINE = "", "\n$"
ACCEPT = 0
SPLIT, CHARACTER, POSITION = range(3)

LOOK_AROUND = "look-ahead and look-behind are not supported; describe the text itself, such as ^[^#]*Port"
BACK_REFERENCE = "a back-reference is not supported; write the text out"
UNSUPPORTED = {
    "GROUPREF": BACK_REFERENCE,
    "GROUPREF_EXISTS": BACK_REFERENCE,
    "ASSERT": LOOK_AROUND,
    "ASSERT_NOT": LOOK_AROUND,
    # (?!)
    "FAILURE": LOOK_AROUND,
    "POSSESSIVE_REPEAT": "a possessive repetition is not supported; leave out the + behind it",
    "ATOMIC_GROUP": "an atomic group is not supported; write (?:…)",
}


class Unsupported(Exception):
    """A valid pattern that cannot be searched in linear time; the message is the reason and the way out."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> LinearSearch:
    """Raises `Unsupported`; `re.error`, `OverflowError` or `RecursionError` if it is no regular expression."""
    return LinearSearch(pattern)


class _State(dict[str, "_State"]):
    """The nodes that the text so far leads to, and the next state of each symbol seen here."""

    __slots__ = ("before", "nodes", "result", "search")

    def __init__(
        self, search: LinearSearch, nodes: frozenset[int], before: str, *, result: bool | None = None
    ) -> None:
        self.search = search
        self.nodes = nodes
        # A character like the one before; "" at the start, and where no position of the pattern needs it.
        self.before = before
        # Whether the text matches; None: not known yet.
        self.result = result

    def __missing__(self, symbol: str) -> _State:
        return self.search.step(self, symbol)


class LinearSearch:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._re = _Re()
        parsed = self._re.parse(pattern)
        # (kind, test, the nodes that follow)
        self._nodes: list[tuple[int, Any, list[int]]] = [(SPLIT, None, [])]
        self._positions: list[Any] = []
        self._held: dict[tuple[str, str], frozenset[int]] = {}
        self._start = self._add_all(parsed, ACCEPT, parsed.state.flags, is_repeated=False)
        # The text can match only at its start.
        self._is_anchored = bool(len(parsed)) and (
            str(parsed[0][1]) == "AT_BEGINNING_STRING"
            or (str(parsed[0][1]) == "AT_BEGINNING" and not parsed.state.flags & self._re.MULTILINE)
        )
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._transitions = 0
        self._ends = {result: _State(self, frozenset(), "", result=result) for result in (False, True)}

    def matches(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        state = self._state(frozenset(), "")
        has_newline = text.endswith("\n")
        for character in text[:-1] if has_newline else text:
            state = state[character]
            if state.result is not None:
                return state.result
        if has_newline:
            state = state[FINAL_NEWLINE]
        return bool(state[END].result if state.result is None else state.result)

    # ---- states ----
    def step(self, state: _State, symbol: str) -> _State:
        character = symbol[:1]
        after = _like(character) + ("x" if symbol == "\n" else "")
        held = self._held_positions(state.before, after)
        waiting = [*state.nodes]
        if not (self._is_anchored and state.before):
            waiting.append(self._start)
        seen = set(waiting)
        reached = set()
        for node in waiting:
            if node == ACCEPT:
                return self._remember(state, symbol, self._ends[True])
            kind, test, following = self._nodes[node]
            if kind == CHARACTER:
                if character and test(character):
                    reached.update(following)
            elif kind == SPLIT or test in held:
                new = [each for each in following if each not in seen]
                seen.update(new)
                # The loop goes over what is appended here, too.
                waiting.extend(new)
        if not character or (self._is_anchored and not reached):
            return self._remember(state, symbol, self._ends[False])
        before = after[:1] if self._positions else ""
        return self._remember(state, symbol, self._state(frozenset(reached), before))

    def _state(self, nodes: frozenset[int], before: str) -> _State:
        key = nodes, before
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = _State(self, nodes, before)
        return found

    def _remember(self, state: _State, symbol: str, found: _State) -> _State:
        self._transitions += 1
        if self._transitions > MOST_TRANSITIONS:
            for each in list(self._states.values()):
                each.clear()
            self._states.clear()
            self._transitions = 0
        state[symbol] = found
        return found

    def _held_positions(self, before: str, after: str) -> frozenset[int]:
        """The positions of the pattern, such as `^` and `\\b`, that hold between two characters."""
        if (before, after) not in self._held:
            self._held[before, after] = frozenset(
                number
                for number, position in enumerate(self._positions)
                if position.match(before + after, len(before)) is not None
            )
        return self._held[before, after]

    # ---- nodes, added from the end of the pattern to its start ----
    def _add(self, kind: int, test: Any, following: list[int]) -> int:
        if len(self._nodes) == MOST_NODES:
            raise Unsupported(
                f"it has more than {MOST_NODES} parts when its counted repetitions are written out; use * or + instead"
            )
        self._nodes.append((kind, test, following))
        return len(self._nodes) - 1

    def _add_all(self, items: Sequence[Any], after: int, flags: int, *, is_repeated: bool) -> int:
        """Returns the node where these items of a parsed pattern begin; `after` is the node where they end."""
        for item in reversed(items):
            operation, arguments = str(item[0]), item[1]
            if operation in UNSUPPORTED:
                raise Unsupported(UNSUPPORTED[operation])
            if operation == "BRANCH":
                branches = [self._add_all(each, after, flags, is_repeated=is_repeated) for each in arguments[1]]
                after = self._add(SPLIT, None, branches)
            elif operation == "SUBPATTERN":
                _, added, removed, inner = arguments
                inside = self._re.combine_flags(flags, added, removed)
                after = self._add_all(inner, after, inside, is_repeated=is_repeated)
            elif operation in ("MAX_REPEAT", "MIN_REPEAT"):
                after = self._add_repetition(arguments, after, flags, is_repeated=is_repeated)
            elif operation == "AT":
                self._positions.append(self._re.compile(item, flags))
                after = self._add(POSITION, len(self._positions) - 1, [after])
            else:
                after = self._add(CHARACTER, self._character_test(item, flags), [after])
        return after

    def _add_repetition(self, arguments: Any, after: int, flags: int, *, is_repeated: bool) -> int:
        least, most, inner = arguments
        if is_repeated and most > LARGEST_REPETITION:
            raise Unsupported(
                "a repeated group must not contain an unbounded repetition (such as (a+)+); repeat only one of them"
            )
        is_repeated = is_repeated or most > 1
        end = after
        if most == self._re.MAXREPEAT:
            after = self._add(SPLIT, None, [end])
            self._nodes[after][2].append(self._add_all(inner, after, flags, is_repeated=is_repeated))
            most = least
        for number in range(most):
            start = self._add_all(inner, after, flags, is_repeated=is_repeated)
            if start == after:
                # Nothing is repeated, such as (?:){9}.
                break
            after = self._add(SPLIT, None, [start, end]) if number < most - least else start
        return after

    def _character_test(self, item: Any, flags: int) -> Callable[[str], object]:
        if str(item[0]) == "LITERAL" and not flags & self._re.IGNORECASE:
            return chr(item[1]).__eq__
        matches: Callable[[str], object] = self._re.compile(item, flags).match
        return matches


class _Re:
    """The parts of Python's `re` that have no public name."""

    def __init__(self) -> None:
        is_package = sys.version_info >= (3, 11)
        self._parser = import_module("re._parser" if is_package else "sre_parse")
        self._compiler = import_module("re._compiler" if is_package else "sre_compile")
        self.MAXREPEAT = self._parser.MAXREPEAT
        self.IGNORECASE = self._parser.SRE_FLAG_IGNORECASE
        self.MULTILINE = self._parser.SRE_FLAG_MULTILINE
        self.parse = self._parser.parse
        self.combine_flags = self._compiler._combine_flags

    def compile(self, item: Any, flags: int) -> Any:
        """Compiles one item of a parsed pattern."""
        state = self._parser.State()
        state.flags = flags
        return self._compiler.compile(self._parser.SubPattern(state, [item]))


def _like(character: str) -> str:
    """A character that is the same for every position: a newline, a letter of ASCII, another letter, or a blank."""
    if character in ("", "\n"):
        return character
    if not character.isalnum() and character != "_":
        return " "
    return "a" if character.isascii() else "é"
