"""The `group` type: a local group and its number. Only decides; providers act."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mainstay.converge.contract import Change, NamedState, Property, Resource, ResourceType
from mainstay.converge.failures import Failure
from mainstay.converge.value_kinds import BOOLEAN, Unfit, or_template, parse_number, parsed_kind
from mainstay.foundation import Any
from mainstay.foundation.numbers import LARGEST_ID
from mainstay.foundation.text import shorten

PRESENT, ABSENT = "present", "absent"
CREATE, UPDATE, REMOVE = "create", "update", "remove"
# Names that every tool accepts: a letter first, so that no name reads as a number or an option. Samba uses a final `$`.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?")
LONGEST_NAME = 32
ID_SCHEMA = or_template({"type": ["integer", "null"], "minimum": 0, "maximum": LARGEST_ID})
MOST_SHOWN = 5


def name_problem(name: str) -> str | None:
    """Returns why a text cannot be the name of a user or group."""
    if not NAME.fullmatch(name):
        return f'contains dangerous characters: "{shorten(ascii(name)[1:-1])}"'
    return f"is longer than {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else None


def _parse_id(text: str) -> int:
    if len(text) > 1 and text.startswith("0"):
        raise Unfit(f"expected a number from 0 to {LARGEST_ID}, got {shorten(text)!r}")
    return parse_number(text, 0, LARGEST_ID)


ID_NUMBER = parsed_kind("number", _parse_id, ID_SCHEMA)


def shown_names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")


class Group(Resource):
    gid: int | None = None
    system: bool = False


class GroupState(NamedState):
    """The entry of the group, and what prevents a change."""

    gid: int | None = None
    members: tuple[str, ...] = ()
    # The group that already has the wanted number.
    gid_taken_by: str | None = None
    # The users whose primary group it is.
    primary_of: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            **super().as_json(),
            "gid": self.gid,
            "members": list(self.members),
        }


class GroupType(ResourceType):
    """Only groups of `/etc/group`. Properties that you leave out stay as they are; a new group gets the next free number."""

    name = "group"
    resource = Group
    ensures = (PRESENT, ABSENT)
    altered_by = ("ensure", "gid")
    example = """- group:
    - shop: {system: true}
    - deployers: {gid: 1800}
    - former: {ensure: absent}
"""
    properties = {
        "gid": Property(ID_NUMBER, "its number, such as `1500`"),
        "system": Property(BOOLEAN, "`true`: take the number of a new group from the range of system groups"),
    }

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        problem = name_problem(name)
        if problem is not None:
            yield f"group name {problem}"

    def check(self, wanted: Group) -> Iterator[tuple[str | None, str]]:
        if wanted.ensure == ABSENT and wanted.name == "root":
            yield "ensure", "ensure: the group of root cannot be removed"
        if wanted.ensure == ABSENT and wanted.gid is not None:
            yield "gid", "gid is only valid with ensure: present"

    # ---- in a run ----
    def manifest_entry(self, actual: GroupState) -> dict[str, Any]:
        return {"ensure": ABSENT} if actual.gid is None else {"ensure": PRESENT, "gid": actual.gid}

    def desired(self, wanted: Group, actual: GroupState) -> tuple[bool, str]:
        if actual.ensure != wanted.ensure:
            return False, f"group is {actual.ensure}, expected {wanted.ensure}"
        if wanted.gid is not None and actual.gid != wanted.gid:
            return False, f"gid is {actual.gid}, expected {wanted.gid}"
        return True, ""

    def decide(self, wanted: Group, actual: GroupState, *, refresh: bool) -> tuple[Change, ...]:
        reached, reason = self.desired(wanted, actual)
        if reached:
            return ()
        if wanted.ensure == ABSENT:
            self._refuse_removal(wanted, actual)
            return (Change(REMOVE, reason),)
        if actual.gid_taken_by is not None:
            raise Failure(f"gid {wanted.gid} belongs to group {actual.gid_taken_by}; choose another number")
        if actual.ensure == ABSENT:
            return (Change(CREATE, reason),)
        if actual.gid == 0:
            raise Failure(f"{reason}, but group {wanted.name} has gid 0 and keeps it")
        return (Change(UPDATE, reason),)

    def _refuse_removal(self, wanted: Group, actual: GroupState) -> None:
        if actual.gid == 0:
            raise Failure(f"group {wanted.name} has gid 0; it is never removed")
        if actual.primary_of:
            raise Failure(
                f"group {wanted.name} is the primary group of {shown_names(actual.primary_of)}; "
                "remove these users before, or give them another `group`"
            )

    def describe(self, wanted: Group, actual: GroupState, changes: tuple[Change, ...]) -> str:
        verb = changes[0].verb
        if verb == REMOVE:
            return "Would have removed the group"
        return "Would have created the group" if verb == CREATE else f"Would have changed the gid to {wanted.gid}"


TYPE = GroupType()
