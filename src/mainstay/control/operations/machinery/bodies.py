"""The bounded types of request bodies: names, ids and free texts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mainstay.control.domain.names import NOT_PLAIN, PLAIN_NAME

# PostgreSQL cannot store a zero byte in a text.
NO_ZERO = "^[^\\u0000]*$"
# Every member `name`, and every other text that names something from now on.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=PLAIN_NAME)]
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=PLAIN_NAME)]
# An id that an agent or a subscriber chooses, or a reference to a stored name.
ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=NO_ZERO)]
Text = Annotated[str, msgspec.Meta(max_length=100_000, pattern=NO_ZERO)]
# The lengths of ids and digests are given as well: `$` also matches before a line feed at the end.
Id = Annotated[
    str,
    msgspec.Meta(
        max_length=36, pattern="^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
    ),
]
# A pattern is not a message: the fault that a mismatch of each one reports.
PATTERN_FAULTS = {NO_ZERO: "must not hold a zero byte", PLAIN_NAME: NOT_PLAIN}


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request body. A null field counts as not given, unless its type allows null and its default is UNSET."""
