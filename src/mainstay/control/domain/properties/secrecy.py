"""Stored values when a schema changes: plain values that become secret, and secrets that lose their place. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from mainstay.control.domain.properties.contract import RevealedSecret
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.evaluation import SecretSlot
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import SecretPlace, rewrite_secrets, secrets_in
from mainstay.control.domain.values import Properties, hidden
from mainstay.foundation.vault import VAULT_PREFIX, is_vault_reference

# A shorter text is erased only where it is the whole value: it occurs in other texts by chance.
MIN_ERASED_INSIDE = 3
# (reference without its prefix, schema path)
HeldSecrets = AbstractSet[tuple[str, str]]


def makes_secret(before: PropertySchema, after: PropertySchema) -> bool:
    """Whether a property that admitted plain values becomes secret."""
    if before.members is None:
        return after.has_secrets
    return _any_becomes_secret(before.members, after.members or ())


def _any_becomes_secret(before: tuple[PropertyDeclaration, ...], after: tuple[PropertyDeclaration, ...]) -> bool:
    known = {member.name: member for member in before}
    return any(member.name in known and _becomes_secret(known[member.name], member) for member in after)


def _becomes_secret(before: PropertyDeclaration, after: PropertyDeclaration) -> bool:
    if before.secret is not None:
        return False
    if before.members is not None and after.members is not None:
        return _any_becomes_secret(before.members, after.members)
    if before.items is not None and after.items is not None:
        return _becomes_secret(before.items, after.items)
    # A free-form value, or one of another type.
    return after.holds_secret


def drops_secret(before: PropertySchema, after: PropertySchema) -> bool:
    """Whether a secret property becomes plain, gets another secret type, or is no longer declared."""
    kept = {(declared.schema_path, declared.secret) for declared in after.every()}
    return any(
        declared.secret is not None and (declared.schema_path, declared.secret) not in kept
        for declared in before.every()
    )


def plain_values(schema: PropertySchema, properties: Properties, held: HeldSecrets) -> tuple[SecretSlot, ...]:
    """The values of secret properties that are not references to secrets of their owner."""
    found: list[SecretSlot] = []

    def note(declared: PropertyDeclaration, path: str, value: object) -> object:
        if declared.secret is not None and not _is_held(declared, value, held):
            found.append(SecretSlot(path, declared.schema_path, declared.secret, RevealedSecret(value)))
        return value

    rewrite_secrets(schema, properties, note)
    return tuple(found)


def _is_held(declared: PropertyDeclaration, value: object, held: HeldSecrets) -> bool:
    return is_vault_reference(value) and (str(value).removeprefix(VAULT_PREFIX), declared.schema_path) in held


def lost_secrets(before: PropertySchema, after: PropertySchema, properties: Properties) -> tuple[SecretPlace, ...]:
    kept = set(secrets_in(after, properties))
    return tuple(place for place in dict.fromkeys(secrets_in(before, properties)) if place not in kept)


def without_lost(schema: PropertySchema, properties: Properties, lost: Iterable[SecretPlace]) -> Properties:
    leaving = set(lost)

    def keep(declared: PropertyDeclaration, _path: str, value: object) -> object | None:
        return None if (value, declared.schema_path, declared.secret) in leaving else value

    return rewrite_secrets(schema, properties, keep) if leaving else properties


def without_plain(schema: PropertySchema, properties: Properties) -> tuple[Properties, list[RevealedSecret]]:
    """Ended job chains: the properties without plain values of secret properties, and those values."""
    found: list[RevealedSecret] = []

    def keep(_declared: PropertyDeclaration, _path: str, value: object) -> object | None:
        if is_vault_reference(value):
            return value
        found.append(RevealedSecret(value))
        return None

    return rewrite_secrets(schema, properties, keep), found


# ---- texts that quote a value ----
class Eraser:
    """Replaces texts that contain one of the values, and numbers that are one of them, by `***`."""

    def __init__(self, values: Iterable[RevealedSecret]) -> None:
        texts = {text for value in values for text in _texts(value.reveal())}
        self._inside = tuple(text for text in texts if len(text) >= MIN_ERASED_INSIDE)
        self._whole = frozenset(texts)

    def erase(self, document: object) -> object:
        """The document, or the same object if it contains none of the values."""
        if isinstance(document, dict):
            erased = {
                hidden(name) if self._contains(name) else name: self.erase(item) for name, item in document.items()
            }
            return document if list(erased.items()) == list(document.items()) else erased
        if isinstance(document, list):
            items = [self.erase(item) for item in document]
            return document if items == document else items
        if isinstance(document, bool) or document is None:
            return document
        return hidden(document) if self._contains(str(document)) else document

    def _contains(self, text: str) -> bool:
        return text in self._whole or any(each in text for each in self._inside)


def _texts(value: object) -> Iterator[str]:
    """The texts by which a report may quote a value: each part of it, each of its lines, and as JSON."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(name)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        lines = [line.strip() for line in value.splitlines()]
        yield from (text for text in (value, json.dumps(value)[1:-1], *lines) if text)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
