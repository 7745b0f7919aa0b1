"""The apply type: manifests that apply other manifests, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from applying import apply_text
from loading import cases
from mainstay.converge.report import Observer
from mainstay.converge.run import RunRequest, load
from mainstay.foundation.faults import DoesNotLoad


class Messages(Observer):
    def __init__(self) -> None:
        self.found: list[str] = []

    def message(self, text: str) -> None:
        self.found.append(text)


def write_files(case: dict[str, Any], folder: Path) -> None:
    for name, text in case["files"].items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("case", cases("apply/runs"), ids=lambda case: case["case"])
def test_a_manifest_applies_others(case: dict[str, Any], root: Path) -> None:
    write_files(case, root.parent)
    messages = Messages()
    done = apply_text(case["manifest"], root, tags=tuple(case.get("tags", ())), observer=messages)
    events = {event.resource.id: event for event in done.report.events}
    assert [f"{event.outcome} {name}" for name, event in events.items()] == case["events"], done.errors
    for name, expected in case.get("reasons", {}).items():
        assert events[name].reason == expected
    for name, expected in case.get("within", {}).items():
        assert events[name].as_json()["within"] == expected
    for name, expected in case.get("unmet", {}).items():
        assert list(events[name].unmet) == expected
    for name, expected in case.get("error_kinds", {}).items():
        assert events[name].error_kind == expected
    assert set(case.get("errors", ())) <= set(done.errors)
    if "messages" in case:
        assert messages.found == case["messages"]
    if "outputs" in case:
        assert done.report.outputs == case["outputs"]
    summary = done.report.summary()
    assert summary["total"] == len(case["events"])


@pytest.mark.parametrize("case", cases("apply/faults"), ids=lambda case: case["case"])
def test_all_faults_of_all_manifests_are_reported(case: dict[str, Any], root: Path) -> None:
    write_files(case, root.parent)
    (root.parent / "manifest.yaml").write_text(case["manifest"])
    with pytest.raises(DoesNotLoad) as refusal:
        load(RunRequest(str(root.parent / "manifest.yaml")))
    prefix = f"{root.parent}/"
    found = [f"{fault.place} {fault.message}".replace(prefix, "") for fault in refusal.value.faults]
    assert found == case["faults"]
