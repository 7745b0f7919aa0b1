"""Example texts for a regular expression, to show that two of them match the same message.

It knows the common part of the syntax and gives up on the rest; whoever uses an example searches it with the real engine."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

MAX_WITNESSES = 16
SPECIAL = frozenset("\\^$.|?*+()[]{}")
# One character for each class that can be written with a backslash.
CLASSES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": " ", "S": "a"}
EDGES = frozenset("bBAz")


class NotUnderstood(Exception):
    """The expression uses syntax that is not known here."""


def literal(pattern: str) -> str | None:
    """The text of an expression that is nothing but text; None for any other."""
    return pattern if SPECIAL.isdisjoint(pattern) else None


def witnesses(pattern: str) -> tuple[str, ...]:
    """Short texts, at least one for each alternative where that is cheap; none if the syntax is not understood."""
    reader = _Reader(pattern)
    try:
        found = reader.alternatives()
    except NotUnderstood:
        return ()
    return tuple(found) if reader.at == len(pattern) else ()


@dataclass(slots=True)
class _Reader:
    pattern: str
    at: int = 0

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            raise NotUnderstood
        self.at += 1
        return character

    def alternatives(self) -> list[str]:
        found = self.sequence()
        while self.peek() == "|":
            self.take()
            found += self.sequence()
        return found[:MAX_WITNESSES]

    def sequence(self) -> list[str]:
        found = [""]
        while self.peek() not in ("", "|", ")"):
            pieces = self.repeated(self.piece())
            found = ["".join(pair) for pair in product(found, pieces)][:MAX_WITNESSES]
        return found

    def repeated(self, pieces: list[str]) -> list[str]:
        mark = self.peek()
        if mark not in ("*", "+", "?", "{"):
            return pieces
        self.take()
        if mark == "{":
            pieces = self.counted(pieces)
        elif mark in "*?":
            pieces = ["", *pieces]
        if self.peek() == "?":
            self.take()
        return pieces

    def counted(self, pieces: list[str]) -> list[str]:
        inside = ""
        while (character := self.take()) != "}":
            inside += character
        least = inside.partition(",")[0]
        if not least.isdigit() or int(least) > MAX_WITNESSES:
            raise NotUnderstood
        return [piece * int(least) for piece in pieces]

    def piece(self) -> list[str]:
        character = self.take()
        match character:
            case "^" | "$":
                return [""]
            case ".":
                return [" "]
            case "(":
                return self.group()
            case "[":
                return self.character_class()
            case "\\":
                return [self.escaped()]
            case _ if character in SPECIAL:
                raise NotUnderstood
            case _:
                return [character]

    def group(self) -> list[str]:
        if self.pattern.startswith("?:", self.at):
            self.at += 2
        elif self.peek() == "?":
            raise NotUnderstood
        found = self.alternatives()
        if self.take() != ")":
            raise NotUnderstood
        return found

    def character_class(self) -> list[str]:
        first = self.take()
        if first in "^[]":
            raise NotUnderstood
        found = self.escaped() if first == "\\" else first
        while self.take() != "]":
            pass
        return [found]

    def escaped(self) -> str:
        character = self.take()
        if character in EDGES:
            return ""
        if character in CLASSES:
            return CLASSES[character]
        if character.isalnum():
            raise NotUnderstood
        return character
