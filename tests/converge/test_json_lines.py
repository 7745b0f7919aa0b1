"""Reports as JSON text: one event per line, the same document as `as_json`, the same events in every report."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from mainstay.converge.json_lines import event_lines, report_pieces
from mainstay.converge.providers.file.posix import LARGEST_HASHED_AT_ONCE_BYTES
from mainstay.converge.report import Report

MANY_KINDS = """
- file:
    - defaults: {ensure: present, content: x, owner: USER, group: GROUP, mode: '0640'}
    - ROOT/plain: {}
    - 'ROOT/a "quoted" \\ ü': {}
    - ROOT/empty: {content: ""}
    - ROOT/other_mode: {mode: '0600'}
    - ROOT/named: {alias: other}
    - ROOT/warned: {content: "{% if x %}"}
    - ROOT/secret: {sensitive: true}
    - ROOT/attributes: {content: null}
    - ROOT/directory: {ensure: directory, content: null, mode: '0750'}
    - ROOT/link: {ensure: link, target: plain, content: null, owner: null, group: null, mode: null}
    - ROOT/followed: {links: follow, content: null}
    - ROOT/nowhere/file: {}
- exec:
    - 'true': {}
"""


@pytest.mark.parametrize("noop", [False, True])
@pytest.mark.parametrize("differences", [False, True])
def test_a_line_equals_the_document_of_its_event(
    noop: bool, differences: bool, apply: Callable[..., Applied], root: Path
) -> None:
    (root / "attributes").write_text("found")
    (root / "followed").symlink_to("attributes")
    for _ in range(2):
        done = apply(MANY_KINDS, noop=noop, differences=differences)
        expected = done.as_json()["events"]
        assert [json.loads(line) for line in event_lines(done.report.events)] == expected
        assert [list(json.loads(line)) for line in event_lines(done.report.events)] == [
            list(each) for each in expected
        ]


def test_a_line_follows_every_attribute_of_its_event(apply: Callable[..., Applied]) -> None:
    first, second = apply(
        "- file:\n    - defaults: {ensure: present, content: x, owner: USER, group: GROUP, mode: '0640'}\n"
        "    - ROOT/a: {}\n    - ROOT/b: {}\n"
    ).report.events
    usual = second.as_json()
    followed = {"failed", "skipped"}  # derived from the outcome
    for name in {*vars(second), *(key for key in usual if hasattr(second, key))} - {"resource", "state"}:
        kept = getattr(second, name)
        other = ("y",) if isinstance(kept, tuple) else not kept if isinstance(kept, bool) else "y"
        setattr(second, name, 7.0 if name == "duration_seconds" else other)
        changed = second.as_json()
        _, line = event_lines([first, second])
        assert json.loads(line) == changed, name
        followed |= {key for key in usual if usual[key] != changed[key]}
        setattr(second, name, kept)
    assert set(usual) - followed == {"type", "name", "alias", "ensure", "within", "state"}  # those of the resource


def text_of(report: Report) -> str:
    return b"".join(report_pieces(report)).decode()


def test_a_report_has_one_event_per_line(apply: Callable[..., Applied]) -> None:
    done = apply(MANY_KINDS)
    expected = done.as_json()
    text = text_of(done.report)
    assert json.loads(text) == expected
    first, *lines, last = text.splitlines()
    assert [json.loads(line.removesuffix(",")) for line in lines] == expected["events"]
    assert first.endswith('"events": [')
    assert last.startswith('], "outputs": ')


def test_a_report_without_events_is_a_valid_document() -> None:
    report = Report("run", "m.yaml", noop=False)
    assert json.loads(text_of(report)) == report.as_json()


def test_numbers_that_json_does_not_have_are_written_as_in_yaml() -> None:
    report = Report("run", "m.yaml", noop=False)
    report.outputs = {"a": [float("inf"), -float("inf"), float("nan")]}
    assert json.loads(text_of(report))["outputs"] == {"a": [".inf", "-.inf", ".nan"]}


# ---- checksums ----
def checksums(done: Applied) -> list[Any]:
    return [event["state"]["checksum"] for event in done.as_json()["events"]]


@pytest.mark.parametrize("noop", [False, True])
def test_the_checksum_of_a_large_file_is_computed_only_for_a_report(
    noop: bool, apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"s" * (LARGEST_HASHED_AT_ONCE_BYTES + 1))
    old = b"o" * (LARGEST_HASHED_AT_ONCE_BYTES + 1)
    (root / "a").write_bytes(old)
    done = apply(
        f"- file:\n    - ROOT/a: {{ensure: present, source: {source}, owner: USER, group: GROUP, mode: '0644'}}\n",
        noop=noop,
    )
    assert done.outcomes == ["changed"]
    assert [event["state"]["checksum"] for event in done.report.as_json()["events"]] == [None]
    assert checksums(done) == [sha256(old if noop else source.read_bytes()).hexdigest()]


def test_a_large_file_that_has_changed_since_has_no_checksum(apply: Callable[..., Applied], root: Path) -> None:
    (root / "a").write_bytes(b"a" * (LARGEST_HASHED_AT_ONCE_BYTES + 1))
    (root / "a").chmod(0o644)
    done = apply(
        "- file:\n    - ROOT/a: {ensure: present, owner: USER, group: GROUP, mode: '0644'}\n"
        "- exec:\n    - sh -c 'echo more >> ROOT/a': {}\n"
    )
    assert done.outcomes == ["stable", "changed"]
    assert done.as_json()["events"][0]["state"]["checksum"] is None
