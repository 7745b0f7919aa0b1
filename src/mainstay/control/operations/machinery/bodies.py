"""The types of request bodies: strict and lenient ones, and bounded names, ids and free texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from mainstay import nouns
from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.media_types import MEDIA_TYPE, NOT_A_MEDIA_TYPE
from mainstay.control.domain.names import NOT_PLAIN, PLAIN_NAME
from mainstay.control.domain.values import equal
from mainstay.control.operations.machinery.refusals import InvalidProperties
from mainstay.control.store.engine.declared_structs import declared_struct
from mainstay.control.store.engine.records import wire_names
from mainstay.foundation.text import keep_ends

S = TypeVar("S", bound=msgspec.Struct)
B = TypeVar("B", bound="Body")
# PostgreSQL cannot store a zero byte in a text.
NO_ZERO = "^[^\\u0000]*$"
# Every member `name`, and every other text that names something from now on.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=PLAIN_NAME)]
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=PLAIN_NAME)]
# An id that an agent or a subscriber chooses, or a reference to a stored name.
ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=NO_ZERO)]
# May be empty.
Line = Annotated[str, msgspec.Meta(max_length=255, pattern=NO_ZERO)]
Text = Annotated[str, msgspec.Meta(max_length=100_000, pattern=NO_ZERO)]
LONGEST_FAILURE = 100_000
UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
# The lengths of ids and digests are given as well: `$` also matches before a line feed at the end.
Id = Annotated[str, msgspec.Meta(max_length=36, pattern=UUID)]
# Empty: none.
MediaType = Annotated[str, msgspec.Meta(max_length=255, pattern=MEDIA_TYPE)]
WORD = r"^[A-Za-z0-9_]+$(?![\s\S])"
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=WORD)]
HEX_DIGEST = "^[0-9a-f]{64}$"
# A pattern is not a message: the fault that a mismatch of each one reports.
PATTERN_FAULTS = {
    NO_ZERO: "must not hold a zero byte",
    PLAIN_NAME: NOT_PLAIN,
    MEDIA_TYPE: NOT_A_MEDIA_TYPE,
    UUID: "must be a uuid",
    WORD: "must consist of letters, digits and underscores",
    HEX_DIGEST: "must be 64 hexadecimal digits in lower case",
}


def failure_to_store(message: str) -> str:
    """What an agent says about a failure. It is never refused: the agent would not know what to do with the result."""
    return keep_ends(message.replace("\0", "\N{REPLACEMENT CHARACTER}"), LONGEST_FAILURE)


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request body. A null field counts as not given, unless its type allows null and its default is UNSET.
    An unknown field is refused."""


class AgentProtocolBody(Body, frozen=True, kw_only=True):
    """A body of the agent protocol. Unknown fields beside known ones are ignored: agents of this API family may send
    more fields than the contract has."""


# The types of members that nouns declare.
_TYPES: dict[str, Any] = {
    nouns.NAME: Name,
    nouns.TAG: Tag,
    nouns.TAGS: Annotated[list[Tag], msgspec.Meta(max_length=100)],
    nouns.WORD: Word,
    nouns.LINE: Line,
    nouns.TEXT: Text,
    nouns.MEDIA_TYPE: MediaType,
    nouns.INTEGER: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)],
    nouns.BOOLEAN: bool,
    nouns.ID: Id,
    nouns.IDS: Annotated[list[Id], msgspec.Meta(max_length=1000)],
    nouns.OBJECT: dict[str, object],
    nouns.ANY: object,
}


def new_of(noun: nouns.Noun) -> Callable[[type[B]], type[B]]:
    """Gives the body of a creation the members of its noun. The class itself has those that rules read, which mypy
    checks, and those that no other front end knows."""
    return lambda cls: declared_struct(cls, noun.all_members, _TYPES)


def change_of(noun: nouns.Noun) -> Callable[[type[B]], type[B]]:
    """Gives the body of a change the members of its noun that can be changed."""
    changeable = tuple(each.optional() for each in noun.members if not each.fixed)
    return lambda cls: declared_struct(cls, changeable, _TYPES)


class NoFields(Body, frozen=True, kw_only=True):
    """The body of an endpoint without fields."""


def with_given(stored: S, wanted: Body) -> S:
    """The stored values with those that a body gives. Both have the same names."""
    given = {name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not None}
    return msgspec.structs.replace(stored, **given)


def refuse_other_values(echoed: Mapping[str, object], stored: msgspec.Struct) -> None:
    """Refuses members of a noun that a PATCH repeats but cannot change, unless they equal the stored ones."""
    names = wire_names(type(stored))
    faults = [
        PathFault(name, "cannot be changed; leave it out")
        for name, value in echoed.items()
        if not _is_same(value, getattr(stored, names[name]))
    ]
    if faults:
        raise InvalidProperties(faults, code="invalid_body")


def _is_same(given: object, stored: object) -> bool:
    if given is None:
        # In a body null means not given.
        return True
    if isinstance(stored, datetime):
        # Clients print the same time in different forms.
        try:
            return msgspec.convert(given, datetime) == stored
        except msgspec.ValidationError:
            return False
    return equal(given, msgspec.to_builtins(stored))
