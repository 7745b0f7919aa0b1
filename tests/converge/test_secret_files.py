"""What is sensitive stays out of everything that is shown or kept, however it is reached."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied

SECRET = "hunter2-correct-horse"


def everything_shown(applied: Applied, state: Path) -> str:
    """The report, and all that is kept of the run."""
    kept = [path.read_text() for path in state.rglob("*") if path.is_file()]
    return json.dumps(applied.as_json()) + "".join(kept)


@pytest.mark.parametrize(
    "copy",
    [
        "content: \"copy {{ file('ROOT/secret') }}\"",
        "content: \"copy {{ file('ROOT/../root/secret') }}\"",
        "content: \"copy {{ file('ROOT/link') }}\"",
        "source: ROOT/secret",
        "source: ROOT/link",
    ],
)
def test_a_copy_of_a_secret_file_is_a_secret_also_when_the_file_is_stable(
    apply: Callable[..., Applied], root: Path, tmp_path: Path, copy: str
) -> None:
    text = f"""
    - file:
        - defaults: {{ensure: present, owner: USER, group: GROUP, mode: "0600"}}
        - ROOT/secret: {{content: "{SECRET}", sensitive: true}}
        - ROOT/copy: {{{copy}}}
    """
    (root / "link").symlink_to("secret")
    for outcome in ("changed", "stable"):
        (root / "copy").write_text("before\n")
        applied = apply(text, differences=True)
        assert applied.outcomes == [outcome, "changed"]
        assert SECRET in (root / "copy").read_text()
        assert SECRET not in everything_shown(applied, tmp_path / "state")


def test_a_secret_file_that_tags_leave_out_is_a_secret(
    apply: Callable[..., Applied], root: Path, tmp_path: Path
) -> None:
    (root / "secret").write_text(SECRET)
    text = f"""
    - file:
        - defaults: {{ensure: present, owner: USER, group: GROUP, mode: "0600"}}
        - ROOT/secret: {{content: "{SECRET}", sensitive: true}}
        - ROOT/copy: {{source: ROOT/secret, tags: [copy]}}
    """
    applied = apply(text, differences=True, tags=("copy",))
    assert applied.outcomes == ["skipped", "changed"]
    assert SECRET not in everything_shown(applied, tmp_path / "state")
