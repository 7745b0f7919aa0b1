#!/usr/bin/env -S .venv/bin/python
"""Writes docs/reference from the code: resource types from their properties, commands from their parsers.

A test compares what stands in docs/reference with what this would write.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from mainstay.cli import main as cli
from mainstay.converge import providers, resources
from mainstay.converge.contract import Property, ResourceType
from mainstay.converge.manifest.entries import COMMON, STRUCTURED

ROOT = Path(__file__).resolve().parent.parent
SHAPES = {"control": "map", "health_checks": "list of maps"}
WRITTEN_BY = "<!-- Written by scripts/reference.py; do not edit. -->\n"


def pages() -> dict[str, str]:
    """File name → content."""
    return {"manifest.md": manifest_page(), "cli.md": cli_page()}


def manifest_page() -> str:
    parts = [WRITTEN_BY, (ROOT / "docs" / "reference" / "manifest.head.md").read_text()]
    parts.append("## Properties every resource has\n\n" + property_table(COMMON, {"ensure": "per type"}, STRUCTURED))
    for name in resources.names():
        found = resources.find(name)
        if found is not None:
            parts.append(type_section(found))
    return "\n".join(parts)


def type_section(found: ResourceType) -> str:
    known = ", ".join(f"`{one.name}`" for one in providers.find_all(found.name))
    words = ", ".join(f"`{word}`" for word in found.ensures) + (", or a version" if found.open_ensure else "")
    default = "required" if found.ensure_required else f"`{found.resource.ensure}` when not given"
    head = (
        f"## {found.name}\n\n{(found.__class__.__doc__ or '').strip()}\n\n"
        if found.__class__.__doc__
        else f"## {found.name}\n\n"
    )
    return f"{head}Providers: {known}. `ensure`: {words}; {default}.\n\n{property_table(found.properties, {}, {})}"


def property_table(properties: Mapping[str, Property], instead: dict[str, str], more: dict[str, str]) -> str:
    rows = ["| property | value | meaning |", "|---|---|---|"]
    for name, entry in properties.items():
        value = (
            ", ".join(f"`{choice}`" for choice in entry.choices)
            if entry.choices
            else instead.get(name, entry.kind.name)
        )
        turn = "; rendered at the resource's turn" if entry.deferred and entry.alias_of is None else ""
        rows.append(f"| `{name}` | {value} | {entry.summary}{turn} |")
    rows += [f"| `{name}` | {SHAPES[name]} | {summary} |" for name, summary in more.items()]
    return "\n".join(rows) + "\n"


def cli_page() -> str:
    parts = [WRITTEN_BY, "# Command line\n"]
    for name in cli.names():
        command = cli.load(name)
        if command is not None:
            parts.append(command_section(name, cli.make_parser(name, command), command.__doc__ or ""))
    return "\n".join(parts)


def command_section(name: str, parser: argparse.ArgumentParser, text: str) -> str:
    lines = [f"## mainstay {name}\n", "```text", text.strip(), "```", ""]
    lines += option_table(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child, sub in action.choices.items():
                lines += ["", f"### mainstay {name} {child}", "", *option_table(sub)]
    return "\n".join(lines) + "\n"


def option_table(parser: argparse.ArgumentParser) -> list[str]:
    rows = ["| argument | meaning |", "|---|---|"]
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        words = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            words += f" {action.metavar or action.dest.upper()}"
        meaning = (action.help or "").replace("%%", "%")
        rows.append(f"| `{words.replace('|', chr(92) + '|')}` | {meaning} |")
    return rows


def main() -> int:
    for name, content in pages().items():
        (ROOT / "docs" / "reference" / name).write_text(content)
        print(f"wrote docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
