"""Prints the JSON Schema (2020-12) that editors use to complete and check manifests.

mainstay schema manifest > manifest.schema.json"""

from __future__ import annotations

from mainstay.cli.local_run import print_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "print the JSON Schema of manifests"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="manifest", choices=["manifest"])


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001  # there is only one schema
    from mainstay.converge import health_checks, resources
    from mainstay.converge.manifest.schema import manifest_schema

    types = [found for name in resources.names() if (found := resources.find(name)) is not None]
    print_json(manifest_schema(types, list(health_checks.kinds().values())))
    return 0
