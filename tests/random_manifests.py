"""Random trees, and random manifests for them, for property-based tests of runs."""

from __future__ import annotations

import os
from typing import Self

from hypothesis import strategies as st

from scratch import Tree

NAMES = ("a", "b", "c")
PATHS = (*NAMES, *(f"{one}/{two}" for one in NAMES for two in NAMES[:2]), "a/b/c", "b/a/c")
MODES = ("0600", "0644", "0755", "0700", "0000")
TEXTS = ("", "x", "one\n", "two\n", "{{ 'y' * 3 }}")
TARGETS = ("a", "../b", "b/c", "ROOT/c", "ROOT/c/a", "none", "..", ".")


def entries(*, apart: bool) -> st.SearchStrategy[dict[str, str]]:
    return st.one_of(
        st.builds(lambda text, mode: {"file": text, "mode": mode}, st.sampled_from(TEXTS), st.sampled_from(MODES)),
        st.builds(lambda mode: {"directory": mode}, st.sampled_from(("0755", "0700", "2755", "1777"))),
        st.just({"directory": "0755"}),
        st.builds(lambda target: {"link": target}, st.sampled_from(("none",) if apart else TARGETS)),
        st.just({"fifo": "0600"}),
    )


@st.composite
def prior_trees(draw: st.DrawFn, *, apart: bool = False) -> Tree:
    """With `apart`, no path leads through a link to another one."""
    tree: Tree = {}
    for path in PATHS:
        parent = os.path.dirname(path)
        if parent and "directory" not in tree.get(parent, {}):
            continue
        if draw(st.integers(0, 2)):
            tree[path] = draw(entries(apart=apart))
    return tree


@st.composite
def file_properties(draw: st.DrawFn, *, apart: bool) -> dict[str, str]:
    kinds = ("present", "directory") if apart else ("present", "present", "directory", "absent", "link", "tree")
    ensure = draw(st.sampled_from(kinds))
    given: dict[str, str] = {"ensure": ensure}
    if ensure in ("present", "directory", "tree"):
        given |= {"owner": "USER", "group": "GROUP", "mode": draw(st.sampled_from(MODES))}
        given["links"] = "refuse" if apart else draw(st.sampled_from(("refuse", "follow", "replace")))
    if ensure == "present":
        kind = draw(st.sampled_from(("content", "neither") if apart else ("content", "source", "neither")))
        if kind == "content":
            given["content"] = draw(st.sampled_from(TEXTS))
        elif kind == "source":
            given["source"] = f"ROOT/{draw(st.sampled_from(PATHS))}"
        if draw(st.integers(0, 4)) == 0:
            given["validate"] = "grep -qv one %"
    elif ensure == "tree":
        given |= {"ensure": "directory", "recurse": "true", "source": f"ROOT/{draw(st.sampled_from(PATHS))}"}
        given["purge"] = draw(st.sampled_from(("true", "false")))
    elif ensure == "link":
        given["target"] = draw(st.sampled_from(TARGETS))
    elif ensure == "absent":
        given["force"] = draw(st.sampled_from(("true", "false")))
    return given


@st.composite
def line_properties(draw: st.DrawFn, path: str, *, apart: bool) -> dict[str, str]:
    given = {"path": f"ROOT/{path}", "ensure": draw(st.sampled_from(("present", "present", "absent")))}
    if not apart:
        given["links"] = draw(st.sampled_from(("refuse", "follow", "replace")))
    kind = draw(st.sampled_from(("line", "line", "block", "match")))
    given["block" if kind == "block" else "line"] = draw(st.sampled_from(("one", "three", "x", "y")))
    if kind == "match":
        given["match"] = draw(st.sampled_from(("^o", "e$", "z")))
    elif given["ensure"] == "present":
        given[draw(st.sampled_from(("after", "before")))] = draw(st.sampled_from(("^o", "e$", "z")))
    if draw(st.integers(0, 6)) == 0:
        given["validate"] = "grep -qv three %"
    return given


@st.composite
def archive_properties(draw: st.DrawFn, *, apart: bool) -> dict[str, str]:
    """Unpacked into a directory that only archives use: what is below it is unknown in a dry run.

    With `apart`, all that are unpacked there succeed: one that fails would find what a later one created."""
    if draw(st.integers(0, 4)) == 0:
        return {"ensure": "absent"}
    given = {"url": draw(st.sampled_from(("ROOT/../app.tgz", "ROOT/../app.tgz", "ROOT/c", "ROOT/../none")))}
    given["checksum"] = draw(st.sampled_from(("DIGEST", "DIGEST", "0" * 64)))
    if draw(st.booleans()):
        given |= {"extract_parent": draw(st.sampled_from(("ROOT/unpacked", "ROOT/unpacked", "ROOT/none")))}
        if draw(st.booleans()):
            given |= {
                "creates": f"{given['extract_parent']}/app/run",
                "cleanup": draw(st.sampled_from(("true", "false"))),
            }
    if apart and given.get("extract_parent") == "ROOT/unpacked":
        given |= {"url": "ROOT/../app.tgz", "checksum": "DIGEST"}
    return given


@st.composite
def exec_properties(draw: st.DrawFn) -> dict[str, str]:
    given = {"command": draw(st.sampled_from(("true", "true", "false", "no-such-program")))}
    condition = draw(st.sampled_from(("none", "creates", "onlyif", "unless", "refresh_only")))
    if condition == "creates":
        given["creates"] = f"ROOT/{draw(st.sampled_from(PATHS))}"
    elif condition in ("onlyif", "unless"):
        given[condition] = draw(st.sampled_from(("true", "false")))
    elif condition == "refresh_only":
        given["refresh_only"] = "true"
    return given


class RandomManifest(str):
    """A resource list as text, and the manifests that it applies: name → text."""

    children: dict[str, str]

    def __new__(cls, text: str, children: dict[str, str] | None = None) -> Self:
        found = super().__new__(cls, text)
        found.children = children or {}
        return found


@st.composite
def manifests(draw: st.DrawFn, *, apart: bool = False) -> RandomManifest:
    """Each path at most once, references only to earlier resources, and some resources in manifests that are applied.

    With `apart`, no two resources affect the same path through links, copies or removed parents, and a directory comes
    before its entries: created later, it would let an entry succeed in the second run that failed in the first.
    """
    paths = draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=7, unique=True))
    resources = [draw(resource(index, path, apart=apart)) for index, path in enumerate(paths)]
    if apart:
        # A directory also creates the directories above it.
        resources.sort(key=lambda each: (each[2].get("ensure") != "directory", each[1]))
    settable = {name for _, name, given in resources if given.keys() & {"content", "source", "url"}}
    resources = [each for each in resources if each[2].get("path") not in settable]
    top: list[str] = []
    earlier: list[str] = []
    children: dict[str, str] = {}
    while resources:
        count = draw(st.integers(1, len(resources)))
        part, resources = resources[:count], resources[count:]
        if draw(st.integers(0, 2)):
            top += draw(resource_lines(part, earlier))
        else:
            top += draw(applied(part, earlier, children))
    return RandomManifest("\n".join(top or ["- exec:\n    - 'true': {}"]) + "\n", children)


@st.composite
def resource_lines(
    draw: st.DrawFn, resources: list[tuple[str, str, dict[str, str]]], earlier: list[str]
) -> list[str]:
    """The lines of these resources; those of `earlier` are in the same manifest before them."""
    lines = []
    waiting = list(resources)
    while waiting:
        type_name, name, given = waiting.pop(0)
        names = [name]
        if type_name == "file" and waiting and draw(st.integers(0, 3)) == 0:
            other_type, other_name, other = waiting[0]
            if other_type == type_name and other["ensure"] == given["ensure"]:
                waiting.pop(0)
                names.append(other_name)
                given["for_each"] = listed(names)
                name = "\"{{ lookup('each.value') }}\""
        if type_name == "exec" and earlier:
            given["subscribe"] = listed(draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)))
        lines += [f"- {type_name}:\n    - {name}:", *draw(gated(given, earlier))]
        earlier += [f"{type_name}#{each}" for each in names]
    return lines


@st.composite
def gated(draw: st.DrawFn, given: dict[str, str], earlier: list[str]) -> list[str]:
    """The lines of properties, with a condition or a requirement in some cases."""
    if earlier and draw(st.integers(0, 3)) == 0:
        given["require"] = listed([draw(st.sampled_from(earlier))])
    if draw(st.integers(0, 5)) == 0:
        given["control"] = draw(st.sampled_from(("{if: 'false'}", "{unless: 'false'}", "{unless: 1 < 2}")))
    return [f"        {key}: {quoted(key, value)}" for key, value in given.items()]


@st.composite
def applied(
    draw: st.DrawFn,
    resources: list[tuple[str, str, dict[str, str]]],
    earlier: list[str],
    children: dict[str, str],
) -> list[str]:
    """The lines that apply these resources as a manifest of their own, or of one below it."""
    name = f"child{len(children)}.yaml"
    children[name] = "\n".join(draw(resource_lines(resources, []))) + "\n"
    if draw(st.integers(0, 3)) == 0:
        children[f"outer-{name}"] = f"- apply:\n    - {name}:\n"
        name = f"outer-{name}"
    lines = [f"- apply:\n    - {name}:", *draw(gated({"tags": "[x]"}, earlier))]
    earlier.append(f"apply#{name}")
    return lines


@st.composite
def resource(draw: st.DrawFn, index: int, path: str, *, apart: bool) -> tuple[str, str, dict[str, str]]:
    """(type, name, properties)"""
    kind = draw(st.sampled_from(("exec", "line", "archive", "file", "file", "file", "file")))
    if kind == "exec":
        return kind, f"run {index}", draw(exec_properties())
    if kind == "archive":
        # It may replace or remove a link through which others reach their paths.
        return kind, f"ROOT/archive{index}" if apart else f"ROOT/{path}", draw(archive_properties(apart=apart))
    if kind == "line":
        # Another path may be that of a file whose content no resource sets.
        place = path if apart else draw(st.sampled_from((path, *PATHS)))
        return kind, f"line {index}", draw(line_properties(place, apart=apart))
    return kind, f"ROOT/{path}", draw(file_properties(apart=apart))


UNQUOTED = (
    *("require", "subscribe", "control", "for_each", "tags"),
    *("recurse", "purge", "force", "refresh_only", "cleanup"),
)


def listed(names: list[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def quoted(key: str, value: str) -> str:
    if key in UNQUOTED:
        return value
    return '"' + value.replace("\n", "\\n") + '"'
