"""Removes hidden values from events, and known secrets from any text that is shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mainstay.converge.command_words import join_words, split_words
from mainstay.converge.contract import Property, Resource, ResourceType, State
from mainstay.converge.report import Event
from mainstay.converge.value_kinds import COMMAND, Unfit, ValueKind
from mainstay.foundation import Any
from mainstay.foundation.text import REDACTED, Tainted, shorten

Properties = Mapping[str, Property]


# Redacting shorter values would damage ordinary words.
SHORTEST_SECRET = 4
# The length to which messages shorten what they quote.
LONGEST_QUOTED = 60


class Redactor:
    """Removes the caller's secrets, and the hidden values of resources of these types.

    A plain value that happens to contain a secret is shown: if it were redacted, a caller could find a secret by giving
    guesses as plain values. `plain` is the caller's values; secrets in it stay secret."""

    def __init__(
        self, secrets: Iterable[str] = (), types: Mapping[str, ResourceType] | None = None, plain: Any = None
    ) -> None:
        self.secrets = _longest_first(secrets)
        self._plain = _containing(self.secrets, _plain_texts(plain)) if self.secrets else []
        self._types = types or {}
        self._secret_types = {name for name, found in self._types.items() if secret_names(found.properties)}

    def clean(self, text: str) -> str:
        return _clean(text, self.secrets, self._plain)

    def has_hidden_values(self, resource: Resource) -> bool:
        return resource.sensitive or resource.type in self._secret_types

    def clean_of(self, resource: Resource, text: str) -> str:
        """Removes the caller's secrets and the hidden values of the resource from a text."""
        if self.has_hidden_values(resource):
            text = clean_of(resource, self._types[resource.type].properties, text)
        return self.clean(text)

    def redact(self, event: Event, before: State | None) -> None:
        """Removes the caller's secrets and the hidden values of the resource, also those of the state `before`."""
        resource = event.resource
        if not self.secrets and not self.has_hidden_values(resource):
            return
        properties = self._types[resource.type].properties
        hidden = _hidden_names(resource, properties)
        words = [
            *_hidden_words(resource, properties),
            *redact_state(before, hidden),
            *redact_state(event.state, hidden),
        ]
        secrets = _longest_first([*self.secrets, *_as_shown(words)]) if words else self.secrets
        if resource.sensitive:
            event.output = REDACTED if event.output else event.output
            event.diff = REDACTED if event.diff else event.diff
            event.consumer_diff = REDACTED if event.consumer_diff else event.consumer_diff
        event.errors = tuple(self._clean_message(resource, text, secrets) for text in event.errors)
        event.warnings = tuple(self._clean_message(resource, text, secrets) for text in event.warnings)
        for key in ("reason", "noop_message", "diff", "consumer_diff"):
            value = getattr(event, key)
            if value:
                setattr(event, key, self._clean_message(resource, value, secrets))
        if event.output:
            event.output = _clean(event.output, secrets)

    def _clean_message(self, resource: Resource, text: str, secrets: Sequence[str]) -> str:
        """Cleans a text that may show plain values of the resource."""
        if not any(secret in text for secret in self.secrets):
            return _clean(text, secrets)
        # Hidden values of the resource are not shown, even if the caller gave them.
        hidden = [each for each in secrets if not any(each in secret for secret in self.secrets)]
        shown = _shown_texts(resource, self._types[resource.type].properties)
        plain = [*self._plain, *_containing(self.secrets, shown)]
        return _clean(_clean(text, hidden), secrets, plain)


def _clean(text: str, secrets: Iterable[str], plain: Iterable[str] = ()) -> str:
    """Replaces the secrets in a text, except inside the plain texts."""
    if plain:
        pattern = "|".join(re.escape(each) for each in sorted(set(plain), key=len, reverse=True))
        parts = re.split(f"({pattern})", text)
        return "".join(part if index % 2 else _clean(part, secrets) for index, part in enumerate(parts))
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def _containing(secrets: Sequence[str], texts: Iterable[str]) -> list[str]:
    return [text for text in texts if any(secret in text for secret in secrets)]


def _plain_texts(value: Any) -> Iterator[str]:
    """Yields the texts in a value that are not secret, as messages and diffs show them."""
    for text in _texts_in(value):
        if not isinstance(text, Tainted):
            yield from _as_shown([text, *text.splitlines()])


def _shown_texts(resource: Resource, properties: Properties) -> Iterator[str]:
    """Yields the texts of a resource that its reports may show."""
    hidden = _hidden_names(resource, properties)
    for name, value in resource.__dict__.items():
        if name not in hidden:
            yield from _plain_texts(value)
            if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
                yield from _plain_texts(join_words(value))


def _longest_first(secrets: Iterable[str]) -> list[str]:
    return sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True)


def clean_of(resource: Resource, properties: Properties, text: str) -> str:
    """Removes the hidden values of a resource from a text."""
    return _clean(text, _longest_first(_as_shown(_hidden_words(resource, properties))))


def secret_names(properties: Properties) -> list[str]:
    return [name for name, entry in properties.items() if entry.secret]


def redact_state(state: State | None, hidden: Iterable[str]) -> list[str]:
    """Replaces the hidden values that a provider found, and returns their texts."""
    words: list[str] = []
    for name in hidden:
        value = getattr(state, name, None)
        if value is not None:
            words += _words_of(value)
            setattr(state, name, REDACTED)
    return words


def _as_shown(words: Iterable[str]) -> Iterator[str]:
    """Yields words as they are, and as messages quote and shorten them."""
    for word in words:
        yield word
        if len(word) > LONGEST_QUOTED:
            short = shorten(word, LONGEST_QUOTED)
            yield from (short, repr(short)[1:-1])
        elif not word.isprintable() or "\\" in word or "'" in word:
            yield repr(word)[1:-1]


def _hidden_names(resource: Resource, properties: Properties) -> list[str]:
    return [name for name, entry in properties.items() if entry.is_hidden(sensitive=resource.sensitive)]


def _hidden_words(resource: Resource, properties: Properties) -> Iterator[str]:
    """Yields the texts by which a message could show a hidden value of the resource."""
    deferred = resource.deferred or {}
    for name in _hidden_names(resource, properties):
        yield from _words_of(resource.__dict__.get(name), properties[name].kind)
        yield from _words_of(deferred.get(name))
    for name, entry in properties.items():
        value = resource.__dict__.get(name)
        if entry.hidden_parts is not None and value is not None:
            yield from entry.hidden_parts(value)
    for value in resource.__dict__.values():
        yield from secret_values(value)
    for check in resource.health_checks:
        for name in _hidden_names(resource, check.kind.properties):
            yield from _words_of(check.values.get(name), COMMAND)
    if resource.sensitive:
        yield from _words_of(deferred)


def _words_of(value: Any, kind: ValueKind | None = None) -> Iterator[str]:
    """Yields the texts in a value or a template, and the parts of them that a message may quote."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        if kind is not None and kind.name == COMMAND.name:
            yield from _command_texts(value)
            return
        for child in value:
            yield from _words_of(child, kind)
            # The value of a KEY=value entry.
            yield str(child).partition("=")[2]
    elif isinstance(value, str):
        text = str.__str__(value)
        yield text
        yield from text.splitlines()
        if kind is COMMAND:
            try:
                yield from split_words(text)
            except Unfit:
                return
    elif hasattr(value, "parts"):
        yield from _template_words(value)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _command_texts(words: Sequence[str]) -> Iterator[str]:
    """Yields the words of a split command, and how messages show it as a whole."""
    yield join_words(words)
    for word in words:
        yield from _words_of(str.__str__(word))
        yield word.partition("=")[2]
        if "%" in word:
            # The path of the new file replaces each `%` in `validate`.
            yield from word.replace("%%", "\0").replace("%", "\n").replace("\0", "%").split("\n")


def _template_words(template: Any) -> Iterator[str]:
    """Yields the expressions of an unrendered template, and the texts in them."""
    for part in template.parts:
        source = getattr(part, "source", None)
        if source is not None:
            yield source.strip()
            # Texts after a parenthesis are names to look up, not values.
            for found in re.finditer(r"""(?<!\()(?:'([^']*)'|"([^"]*)")""", source):
                yield found[1] or found[2] or ""


def secret_values(value: Any) -> Iterator[str]:
    """Yields every tainted text inside a value."""
    for text in _texts_in(value):
        if isinstance(text, Tainted):
            yield str.__str__(text)
            # Output and diffs show a secret of several lines line by line.
            yield from str.splitlines(text)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _texts_in(key)
            yield from _texts_in(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _texts_in(child)
