"""A manifest of files and commands from start to end: dry run, run, and a stable second run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from applying import Applied

MANIFEST = """
data:
  greeting: hello
resources:
  - file:
      - defaults: {owner: USER, group: GROUP, mode: 0644}
      - ROOT/conf: {ensure: directory, mode: "0755"}
      - ROOT/conf/motd:
          ensure: present
          content: "{{ lookup('data.greeting') }} {{ lookup('facts.hostname') }}\\n"
  - exec:
      - note:
          command: touch ROOT/noted
          refresh_only: true
          subscribe: [file#ROOT/conf/motd]
"""


def test_a_dry_run_forecasts_the_run_and_the_next_run_is_stable(apply: Callable[..., Applied], root: Path) -> None:
    forecast = apply(MANIFEST, noop=True)
    assert forecast.outcomes == ["changed", "changed", "refreshed"]
    assert forecast.messages == [
        "Would have created directory",
        "Would have created the file",
        "Would have executed via subscribe",
    ]
    assert list(root.iterdir()) == []

    done = apply(MANIFEST)
    assert done.outcomes == forecast.outcomes
    assert (root / "conf" / "motd").read_text().startswith("hello ")
    assert (root / "noted").exists()
    assert apply(MANIFEST).outcomes == ["stable", "stable", "stable"]
