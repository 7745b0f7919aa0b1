"""Checks and draws a service type, and validates properties against it, without a server.

A type file is YAML or JSON with `propertySchema` and `lifecycleSchema`, both optional, and a `name`.
`validate` validates the properties of an order; with --old, those of an update.
Exit code: 0 valid, 1 faults were found, 2 wrong usage or an unreadable file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

from mainstay.cli.documents import read_document, read_properties_document, read_type_document
from mainstay.cli.main import CommandRefused, add_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.control.domain.properties.contract import EvaluationContext, Questions
    from mainstay.control.domain.service_types import ServiceTypeDefinition

SUMMARY = "check and draw a service type without a server"
GROUP = "write blueprints"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="what", required=True, metavar="check|draw|validate")
    check = actions.add_parser("check", help="report every fault and warning", allow_abbrev=False)
    add_argument(check, "file", "FILE", "service type (YAML or JSON; - for standard input)")
    draw = actions.add_parser("draw", help="draw the lifecycle", allow_abbrev=False)
    add_argument(draw, "file", "FILE", "service type")
    draw.add_argument(
        "--format", choices=("svg", "mermaid", "json-schema"), default="svg", help="output format (default svg)"
    )
    add_argument(draw, "--output", "PATH", "output file (default standard output)")
    validate = actions.add_parser("validate", help="validate properties", allow_abbrev=False)
    add_argument(validate, "file", "FILE", "service type")
    add_argument(validate, "properties", "PROPERTIES", "properties (YAML or JSON; - for standard input)")
    add_argument(validate, "--old", "FILE", "stored properties: validate an update of them")
    add_argument(validate, "--state", "S", "state of the service (required with --old)")
    roles = ("user", "admin", "participant", "agent")
    add_argument(
        validate,
        "--actor",
        "A",
        f"who sets the properties: {', '.join(roles)} (default user)",
        choices=roles,
        default="user",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.what == "check":
        return _check(arguments.file)
    if arguments.what == "draw":
        return _draw(arguments.file, arguments.format, arguments.output)
    return _validate(arguments)


def _check(file: str) -> int:
    from mainstay.control.domain.service_types import report_service_type

    definition = _parse_type(read_type_document(file))
    if definition is None:
        return 1
    findings = report_service_type(definition)
    for finding in findings:
        print(f"warning: {finding} [{finding.code}]")
    print(f"{file}: valid{f', {len(findings)} warnings' if findings else ''}")
    return 0


def _draw(file: str, form: str, output: str | None) -> int:
    document = read_type_document(file)
    definition = _parse_type(document)
    if definition is None:
        return 1
    picture = _render(definition, form, str(document.get("name") or Path(file).stem))
    if output is None:
        sys.stdout.write(picture)
        return 0
    try:
        Path(output).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise CommandRefused(f"cannot write {output}: {error.strerror}") from None
    return 0


def _render(definition: ServiceTypeDefinition, form: str, title: str) -> str:
    from mainstay.control.domain.lifecycle.mermaid import draw_mermaid
    from mainstay.control.domain.lifecycle.svg import draw_svg
    from mainstay.control.domain.properties.json_schema import export_json_schema

    if form == "svg":
        return draw_svg(definition.lifecycle, f"Lifecycle of {title}")
    if form == "mermaid":
        return draw_mermaid(definition.lifecycle)
    return json.dumps(export_json_schema(definition.properties, title), indent=2, ensure_ascii=False) + "\n"


def _validate(arguments: argparse.Namespace) -> int:
    from mainstay.control.domain.properties import contract
    from mainstay.control.domain.properties.engine import Rejected, decide

    definition = _parse_type(read_type_document(arguments.file))
    if definition is None:
        return 1
    context = _evaluation_context(arguments, definition)
    properties = read_document(arguments.properties)
    stored = read_properties_document(arguments.old) if arguments.old is not None else None
    outcome = decide(definition.properties, properties, context, stored=stored)
    unknown: list[str] = []
    if isinstance(outcome, contract.Questions):
        unknown = _describe_questions(outcome)
        outcome = decide(definition.properties, properties, context, stored=stored, answers=contract.ASSUMED)
    if isinstance(outcome, Rejected):
        for fault in outcome.faults:
            print(fault)
        return 1
    for line in unknown:
        print(f"not checked without a server: {line}")
    print("valid")
    return 0


def _evaluation_context(arguments: argparse.Namespace, definition: ServiceTypeDefinition) -> EvaluationContext:
    from mainstay.control.domain.properties.contract import ACTOR_OF_ROLE, Actor, EvaluationContext, Operation

    state, initial = arguments.state, definition.lifecycle.initial_state
    if state is not None and state not in definition.lifecycle.states:
        raise CommandRefused(
            f"there is no state {state!r}; the lifecycle has: {', '.join(definition.lifecycle.states)}"
        )
    actor = ACTOR_OF_ROLE.get(arguments.actor, Actor.USER)
    if actor is Actor.AGENT:
        operation = Operation.REPORT
    elif arguments.old is None:
        operation = Operation.CREATE
    else:
        operation = Operation.UPDATE
    if operation is Operation.UPDATE and state is None:
        raise CommandRefused("the rules of an update depend on the state of the service: use --state")
    if operation is Operation.CREATE and state is not None:
        raise CommandRefused("--state is only for an update: use --old FILE with the stored properties")
    return EvaluationContext(
        operation=operation,
        actor=actor,
        now=datetime.now(timezone.utc),
        entropy=os.urandom(16),
        state=state,
        in_create_chain=operation is Operation.REPORT and state in (None, initial),
        dry=True,
        # Placeholder: the options of providers are unknown here.
        provider_id="any",
    )


def _parse_type(document: dict[str, object]) -> ServiceTypeDefinition | None:
    """Returns the definition, or None after printing its faults."""
    from mainstay.control.domain.refusals import InvalidDefinition, Refusal
    from mainstay.control.domain.service_types import parse_service_type
    from mainstay.control.rulebook import installed_rulebook

    try:
        return parse_service_type(
            document.get("propertySchema"), document.get("lifecycleSchema"), installed_rulebook()
        )
    except InvalidDefinition as refusal:
        for fault in refusal.faults:
            print(fault)
        return None
    except Refusal as refusal:
        # A rule of another installed package is broken, so validation is not possible.
        raise CommandRefused(str(refusal)) from None


def _describe_questions(questions: Questions) -> list[str]:
    lines = [f"whether service {service_id} exists" for service_id in sorted(questions.services)]
    lines += [f"which options of type '{name}' the provider offers" for name in sorted(questions.option_types)]
    return lines + [f"whether pool '{pool.pool_type}' has a value for {pool.path}" for pool in questions.pools]
