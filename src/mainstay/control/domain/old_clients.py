"""What clients of older versions of this API family send: it is accepted and changes nothing.

`docs/reference/compatibility.md` lists the same; a test compares the two."""

from __future__ import annotations

# Body → members that it had once. They are not kept.
OLD_MEMBERS = {"NewParticipant": frozenset({"attributes"})}
# Table and column → values that rows had once. As filters they match no row.
OLD_VALUES = {("events", "initiator_type"): frozenset({"agent"})}
