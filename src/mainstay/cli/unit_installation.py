"""Installs systemd units with the convergence engine: shared by commands that write units of this program."""

from __future__ import annotations

from mainstay.cli.local_run import run_and_report
from mainstay.converge.apply import Options
from mainstay.converge.run import RunRequest, as_text
from mainstay.foundation.yaml.scalars import PlainScalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.foundation.yaml.scalars import Node

UNIT_DIRECTORY = "/etc/systemd/system"


def unit_file(path: str, content: str) -> Node:
    """An entry of `file` resources. The content is taken as it is: braces in it are no template."""
    return {
        path: {"ensure": "present", "content": as_text(content), "owner": "root", "group": "root", "mode": "0644"}
    }


def running_unit(name: str, paths: list[str]) -> Node:
    """An entry of `service` resources: runs now and at boot, and is restarted if one of the files changes."""
    return {
        name: {
            "ensure": "running",
            "enable": PlainScalar("true"),
            "subscribe": [f"file#{path}" for path in paths],
        }
    }


def stopped_unit(name: str) -> Node:
    return {name: {"ensure": "stopped", "enable": PlainScalar("false")}}


def reload_after(paths: list[str]) -> Node:
    """An entry of `exec` resources: systemd forgets the units whose files were removed."""
    return {
        "systemctl daemon-reload": {
            "refresh_only": PlainScalar("true"),
            "subscribe": [f"file#{path}" for path in paths],
        }
    }


def apply_units(name: str, document: Node, *, noop: bool) -> int:
    """Applies a document of unit resources and prints the run; returns the exit code."""
    request = RunRequest(name, document=document, identity=name, options=Options(noop=noop, differences=True))
    return run_and_report(lambda: request, as_json=False, verbose=True)
