"""The way out of a fault in a service type: how a key is written, and what the keys of other schema languages are here."""

from __future__ import annotations

from collections.abc import Iterable

from mainstay.foundation.suggestions import did_you_mean

# Key → how it is written.
_FORMS = {
    "actions": "`actions: [{name: create, transitions: [{from: New, to: Started}]}]`",
    "authorizers": "`authorizers: [{type: actor, config: {actors: [user]}}]`",
    "autoAdvance": "`autoAdvance: false`, or leave it out",
    "config": "`config: {value: 8}`",
    "generator": "`generator: {type: pool, config: {poolType: NAME}}`",
    "immutable": "`immutable: true`, or leave it out",
    "items": "`items: {type: string}`",
    "onError": "`onError: true`, or leave it out",
    "properties": "`properties: {NAME: {type: string}}`",
    "required": "`required: true`, or leave it out",
    "secret": "`secret: {type: persistent}` or `secret: {type: ephemeral}`",
    "states": "`states: [{name: New}, {name: Started}]`",
    "transitions": "`transitions: [{from: New, to: Started}]`",
    "validators": "`validators: [{type: minLength, value: 8}]`",
}
_ENUM = "`validators: [{type: enum, values: [small, large]}]`"
# Keys of JSON Schema and others → what is written here.
_ELSEWHERE = {
    "additionalProperties": "nothing: an object without `properties` holds any members",
    "allowed": _ENUM,
    "choices": _ENUM,
    "enum": _ENUM,
    "maximum": "`validators: [{type: max, value: 10}]`",
    "minimum": "`validators: [{type: min, value: 1}]`",
    "nullable": "nothing: a property may be left out unless it has `required: true`",
    "optional": "nothing: a property may be left out unless it has `required: true`",
    "options": _ENUM,
    "pattern": "`validators: [{type: pattern, pattern: '^[a-z]+$'}]`",
    "readOnly": "`authorizers: [{type: actor, config: {actors: [agent]}}]`",
    "regex": "`validators: [{type: pattern, pattern: '^[a-z]+$'}]`",
    "sensitive": _FORMS["secret"],
    "values": _ENUM,
    "writeOnly": _FORMS["secret"],
}


def written_as(key: str) -> str:
    """The end of a message about a value that is not what the key takes."""
    return f"; write {_FORMS[key]}" if key in _FORMS else ""


def instead_of(key: str, known: Iterable[str], validators: Iterable[str] = ()) -> str:
    """The end of a message about an unknown key."""
    if key in _ELSEWHERE:
        return f"; write {_ELSEWHERE[key]}"
    if key in validators:
        return f"; write `validators: [{{type: {key}, value: …}}]`"
    known = sorted(known)
    return did_you_mean(key, known) or f"; known keys: {', '.join(known)}"
