"""Keeps secrets out of what is shown: events of sensitive resources, and known secret values anywhere. Pure."""

from __future__ import annotations

import re

from mainstay.converge.command_words import split_words
from mainstay.converge.value_kinds import Unfit
from mainstay.foundation.text import REDACTED, Tainted, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from mainstay.converge.contract import Resource
    from mainstay.converge.report import Event

# Shorter values would tear holes into ordinary words.
SHORTEST_SECRET = 4
# Where messages cut off what they quote.
LONGEST_QUOTED = 60
PRIVATE_PROPERTIES = ("content", "command", "onlyif", "unless", "validate")


class Redactor:
    """Knows the values that came from secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = _longest_first(secrets)

    def clean(self, text: str) -> str:
        return _clean(text, self.secrets)

    def redact(self, event: Event) -> None:
        resource = event.resource
        secrets = self.secrets
        if resource.sensitive:
            secrets = _longest_first([*secrets, *_as_shown(_private_words(resource))])
            event.output = REDACTED if event.output else event.output
            event.diff = REDACTED if event.diff else event.diff
        event.errors = tuple(_clean(text, secrets) for text in event.errors)
        event.warnings = tuple(_clean(text, secrets) for text in event.warnings)
        for key in ("reason", "noop_message", "output", "diff"):
            value = getattr(event, key)
            if value:
                setattr(event, key, _clean(value, secrets))


def _clean(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def _longest_first(secrets: Iterable[str]) -> list[str]:
    return sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True)


def clean_of(resource: Resource, text: str) -> str:
    """Text about a sensitive resource, without what it must not show of itself."""
    return _clean(text, _longest_first(_as_shown(_private_words(resource))))


def _as_shown(words: Iterable[str]) -> Iterator[str]:
    """Words as they are, and as messages quote and shorten them."""
    for word in words:
        yield word
        if len(word) > LONGEST_QUOTED:
            short = shorten(word, LONGEST_QUOTED)
            yield from (short, repr(short)[1:-1])
        elif not word.isprintable() or "\\" in word or "'" in word:
            yield repr(word)[1:-1]


def _private_words(resource: Resource) -> Iterator[str]:
    """What a sensitive resource must not show of itself: commands with their words, content, environment."""
    for key in PRIVATE_PROPERTIES:
        value = getattr(resource, key, None)
        if not value:
            continue
        yield value
        if key == "content":
            yield from value.splitlines()
            continue
        try:
            yield from split_words(value)
        except Unfit:
            continue
    for check in resource.health_checks:
        yield check.command
        yield from split_words(check.command)
    for entry in getattr(resource, "environment", ()):
        yield from (entry, entry.partition("=")[2])
    for tree in (resource.deferred or {}).values():
        yield from _template_words(tree)
    for value in resource.__dict__.values():
        yield from secret_values(value)
    for check in resource.health_checks:
        yield from secret_values(check.command)


def _template_words(tree: Any) -> Iterator[str]:
    """What is written out in templates that are not filled in: their expressions, and the texts in them."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        for child in tree:
            yield from _template_words(child)
        return
    for part in getattr(tree, "parts", ()):
        source = getattr(part, "source", None)
        if source is not None:
            yield source.strip()
            # Not those that follow a parenthesis, which are names of things to look up.
            for found in re.finditer(r"""(?<!\()(?:'([^']*)'|"([^"]*)")""", source):
                yield found[1] or found[2] or ""


def secret_values(value: Any) -> Iterator[str]:
    """Every tainted text inside a value."""
    if isinstance(value, Tainted):
        yield str.__str__(value)
        # A secret of several lines is also met line by line: in output, and in a diff.
        yield from str.splitlines(value)
    elif isinstance(value, dict):
        for child in value.values():
            yield from secret_values(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from secret_values(child)
