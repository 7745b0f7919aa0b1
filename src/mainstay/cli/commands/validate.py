"""Checks a manifest without changing the host; reports all faults at once."""

from __future__ import annotations

from mainstay.cli.local_run import add_value_options, load_or_exit, print_json, value_layers
from mainstay.converge.manifest.shell_warnings import shell_warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "check a manifest"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_value_options(parser)


def run(arguments: argparse.Namespace) -> int:
    manifest = load_or_exit(arguments.manifest, lambda: value_layers(arguments), as_json=arguments.json)
    count = len(manifest.resources)
    warnings = [*manifest.warnings, *shell_warnings(manifest)]
    if arguments.json:
        print_json({"faults": [], "warnings": warnings, "resources": count})
        return 0
    from mainstay.cli.views.run_display import printable

    for warning in warnings:
        print(f"{printable(manifest.file)}: warning: {printable(warning)}")
    print(f"{printable(manifest.file)}: valid, {count} resource{'' if count == 1 else 's'}")
    return 0
