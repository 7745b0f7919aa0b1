"""Random entries of users and groups, for property-based tests of runs within `own_accounts.own_accounts()`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

USERS = ("alice", "bob", "carol")
GROUPS = ("alice", "staff", "ops", "sudo")
NUMBERS = (1000, 1001, 1500, 27)
HASHES = ("$6$a$x", "$6$a$y", "*")
HOMES = ("/home/alice", "/home/bob", "/home/none/deep")


@st.composite
def user_properties(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.integers(0, 4)) == 0:
        return {"ensure": "absent", "manage_home": draw(st.booleans())}
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "uid": st.sampled_from(NUMBERS),
        "group": st.sampled_from((*GROUPS, "100")),
        "groups": st.lists(st.sampled_from(GROUPS), max_size=2, unique=True),
        "home": st.sampled_from(HOMES),
        "manage_home": st.booleans(),
        "shell": st.sampled_from(("/bin/sh", "/usr/sbin/nologin")),
        "comment": st.sampled_from(("", "x", "A, B")),
        "system": st.booleans(),
        "password_hash": st.sampled_from(HASHES),
        "locked": st.booleans(),
    }
    keys = draw(st.lists(st.sampled_from(sorted(drawn)), max_size=4, unique=True))
    given = {key: draw(drawn[key]) for key in keys}
    if "groups" in given and draw(st.booleans()):
        given["membership"] = "exact"
    return given


@st.composite
def group_properties(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.integers(0, 3)) == 0:
        return {"ensure": "absent"}
    return {"gid": draw(st.sampled_from(NUMBERS))} if draw(st.booleans()) else {"system": draw(st.booleans())}


@st.composite
def account_entries(draw: st.DrawFn) -> list[str]:
    """Entries of a resource list as JSON, which is YAML; each name at most once. Some are refused in a run."""
    names = [("user", name) for name in USERS] + [("group", name) for name in GROUPS]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))
    entries = []
    for type_name, name in chosen:
        properties = draw(user_properties() if type_name == "user" else group_properties())
        entries.append(json.dumps({type_name: [{name: properties}]}))
        if type_name == "user" and draw(st.booleans()):
            file = {"ensure": "present", "owner": name, "group": draw(st.sampled_from(GROUPS)), "mode": "0600"}
            entries.append(json.dumps({"file": [{f"/home/{name}/.profile": file}]}))
    return entries


FOLDER = "/etc/mixed"
OWNERS = (*USERS, "root")


@st.composite
def other_entry(draw: st.DrawFn, index: int, archive: str, digest: str) -> dict[str, Any]:
    """A file, line or archive that may belong to a user, or be in a home."""
    owner = draw(st.sampled_from(OWNERS))
    place = draw(st.sampled_from((FOLDER, "/home/alice", "/home/bob")))
    kind = draw(st.sampled_from(("file", "line", "archive")))
    if kind == "file":
        attributes = {"owner": owner, "group": draw(st.sampled_from(GROUPS)), "mode": "0640"}
        return {"file": [{f"{place}/file{index}": {"ensure": "present", "content": f"{index}\n", **attributes}}]}
    if kind == "line":
        text = draw(st.sampled_from(("one", "two")))
        shape = draw(st.sampled_from(("line", "block")))
        return {"line": [{f"line {index}": {"path": f"{FOLDER}/lines", shape: text}}]}
    given = {"url": archive, "checksum": digest, "owner": owner}
    if draw(st.booleans()):
        given |= {"extract_parent": place, "creates": f"{place}/app/run"}
    return {"archive": [{f"{FOLDER}/app{index}.tgz": given}]}


@st.composite
def programs(draw: st.DrawFn, archive: str, digest: str) -> tuple[list[str], list[str]]:
    """Entries of a manifest, and of one that it applies at its end: groups, users, and what belongs to them.

    No group is removed, because the run that removes it and the user that needs it would alternate."""
    entries: list[dict[str, Any]] = []
    for name in draw(st.lists(st.sampled_from(GROUPS), max_size=2, unique=True)):
        entries.append({"group": [{name: {"gid": draw(st.sampled_from(NUMBERS))} if draw(st.booleans()) else {}}]})
    for name in draw(st.lists(st.sampled_from(USERS), min_size=1, max_size=2, unique=True)):
        entries.append({"user": [{name: draw(user_properties())}]})
    for index in range(draw(st.integers(1, 4))):
        entries.append(draw(other_entry(index, archive, digest)))
    split = draw(st.integers(1, len(entries)))
    written = [json.dumps(each) for each in entries]
    return written[:split], written[split:]
