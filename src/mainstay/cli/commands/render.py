"""Prints a manifest as resolved on this host: data merged, templates rendered, defaults applied.

Each manifest that it applies follows as a document of its own; with --json they are in the list `applied`.
Templates that are rendered during the run are shown as written; sensitive values as [redacted]."""

from __future__ import annotations

import argparse

from mainstay.cli.local_run import (
    add_bundle_options,
    add_value_options,
    bundle_trust,
    exit_on_faults,
    value_layers,
)
from mainstay.cli.main import add_switch, print_error, print_json
from mainstay.cli.views.run_display import printable
from mainstay.converge.manifest.rendering import render_applied, render_manifest
from mainstay.converge.run import RunRequest, load

SUMMARY = "print a manifest as resolved on this host"
GROUP = "this host"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST")
    add_switch(parser, "--json", "print JSON instead of YAML")
    add_switch(parser, "-v", "--verbose", "also print which overrides are used, to stderr")
    add_bundle_options(parser)
    add_value_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with exit_on_faults(as_json=arguments.json):
        request = RunRequest(arguments.manifest, trust=bundle_trust(arguments), **value_layers(arguments))
        _, manifest = load(request)
    if arguments.verbose:
        for note in (*manifest.hierarchy.notes(), *manifest.warnings, *manifest.hierarchy.warnings()):
            print_error(note)
    document = render_manifest(manifest)
    applied = list(render_applied(manifest))
    if arguments.json:
        for resource, rendered in applied:
            place = {"within": [*resource.within, resource.id], "manifest": resource.child.file}
            document.setdefault("applied", []).append({**place, **rendered})
        print_json(document)
        return 0
    from mainstay.cli.views.yaml_output import to_yaml

    print(to_yaml(document), end="")
    for resource, rendered in applied:
        path = " / ".join((*resource.within, resource.id))
        print(f"---\n# {printable(path)}: {printable(resource.child.file)}")
        print(to_yaml(rendered), end="")
    return 0
