"""Checks manifests without changing the host; reports all faults and warnings at once.

A fault keeps a manifest from loading: exit code 2. A warning is most likely not intended: a source that does not exist,
syntax of a shell in a command without one, an override that no level names. With --strict, warnings are faults."""

from __future__ import annotations

import argparse

from mainstay.cli.local_run import (
    EXIT_DOES_NOT_LOAD,
    add_bundle_options,
    add_value_options,
    bundle_trust,
    value_layers,
)
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.views.run_display import counted, print_faults, printable
from mainstay.converge.host.state import Unusable
from mainstay.converge.run import Inspection, RunRequest, inspect
from mainstay.foundation import Any, Struct
from mainstay.foundation.faults import DoesNotLoad, Fault

SUMMARY = "check manifests"
GROUP = "this host"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "manifests", "MANIFEST", "one or more manifests", nargs="+")
    add_switch(parser, "--json", "print one JSON document; a list for several manifests")
    add_switch(parser, "--strict", "warnings are faults")
    add_bundle_options(parser)
    add_value_options(parser)


class Checked(Struct):
    """The result for one manifest: what was found in it, or the faults that keep it from loading."""

    inspection: Inspection | None = None
    faults: list[Fault] = []
    warnings: list[Fault] = []

    def as_json(self) -> dict[str, Any]:
        if self.inspection is None:
            return {"faults": [fault.as_json() for fault in self.faults]}
        return {
            "faults": [fault.as_json() for fault in self.faults],
            "warnings": [warning.as_json() for warning in self.warnings],
            "notes": self.inspection.manifest.hierarchy.notes(),
            "resources": len(self.inspection.manifest.resources),
        }


def run(arguments: argparse.Namespace) -> int:
    if arguments.sha256 is not None and len(arguments.manifests) > 1:
        raise CommandRefused("--sha256 is the digest of one bundle; check the others in another call")
    results = [_check(path, arguments) for path in arguments.manifests]
    _add_unused_settings(results)
    if arguments.strict:
        for result in results:
            result.faults, result.warnings = result.faults + result.warnings, []
    if arguments.json:
        documents = [result.as_json() for result in results]
        print_json(documents if len(documents) > 1 else documents[0])
    else:
        for result in results:
            _show(result)
    return EXIT_DOES_NOT_LOAD if any(result.faults for result in results) else 0


def _check(path: str, arguments: argparse.Namespace) -> Checked:
    result = Checked()
    try:
        result.inspection = inspect(RunRequest(path, trust=bundle_trust(arguments), **value_layers(arguments)))
        result.warnings = list(result.inspection.warnings)
    except DoesNotLoad as refusal:
        result.faults = refusal.faults
    except Unusable as refusal:
        raise CommandRefused(str(refusal)) from None
    return result


def _add_unused_settings(results: list[Checked]) -> None:
    """A value for several manifests is fine if one of them looks it up; a manifest with faults may do so."""
    inspections = [result.inspection for result in results if result.inspection is not None]
    if len(inspections) < len(results):
        return
    for key, message in inspections[0].unused.items():
        if all(key in inspection.unused for inspection in inspections):
            results[0].warnings.append(Fault(inspections[0].manifest.file, None, None, message))


def _show(result: Checked) -> None:
    for warning in result.warnings:
        print(f"{printable(warning.place)}: warning: {printable(warning.message)}")
    if result.faults:
        print_faults(result.faults)
        return
    if result.inspection is None:
        return
    file = printable(result.inspection.manifest.file)
    for note in result.inspection.manifest.hierarchy.notes():
        print(f"{file}: {printable(note)}")
    print(f"{file}: valid, {counted(len(result.inspection.manifest.resources), 'resource')}")
