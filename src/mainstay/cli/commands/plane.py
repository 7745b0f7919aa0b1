"""Keeps a whole control plane in YAML files: participants, types, options, pools, agents, groups and orders.

`plane export` writes what is there; `plane plan FILE…` shows what would change; `plane apply FILE…` changes it, all or
nothing: every request is dry-run on the server first, in one transaction, and a fault changes nothing. What a file does not
mention stays as it is. --prune deletes what is missing, only in kinds that occur in the files, and services only with
--prune-orders; it asks for the number of deletions. Secrets are never exported: {keep: true} leaves them alone, {file: F}
and {env: NAME} are sent at a creation, and with --set-secrets.
`apply` waits for the jobs of the orders that it creates, changes or deletes; --no-wait does not.
Exit code: 0 success, 1 faults, a job failed or the server is unreachable, 2 wrong usage, 4 a job did not finish within
--timeout; `plan --detailed-exitcodes`: 2 if something would change."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import ArgumentTypeError
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client, ServerRefusal, Unreachable
from mainstay.cli.documents import read_document, read_text, without_last_newline
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_error, print_json
from mainstay.cli.plane.difference import Difference, find_difference
from mainstay.cli.plane.entries import PlaneFault
from mainstay.cli.plane.export import export_document, write_yaml
from mainstay.cli.plane.files import PlaneContent, kind_in_file, place_faults, read_plane
from mainstay.cli.plane.kinds import KINDS
from mainstay.cli.plane.properties import ENVIRONMENT, FILE
from mainstay.cli.plane.requests import PlaneRequests, SecretMissing, build_requests
from mainstay.cli.plane.server_faults import find_server_faults
from mainstay.cli.plane.snapshot import read_snapshot
from mainstay.cli.remote.connection import connected
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.job_progress import add_wait_options, follow_all
from mainstay.cli.views.plane import plan_document, print_outcome, print_plan, print_started
from mainstay.cli.views.run_display import print_faults
from mainstay.foundation import Struct
from mainstay.foundation.faults import DoesNotLoad, Fault
from mainstay.foundation.suggestions import did_you_mean

SUMMARY = "keep a whole control plane in files: export, plan, apply"
GROUP = "operate"
EXIT_CHANGES, EXIT_FAULTS = 2, 1
BATCH_SECONDS = 600.0
MAX_SECRET_BYTES = 1024 * 1024
MAX_SHOWN_FAULTS = 100


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="export|plan|apply")
    export = verbs.add_parser("export", help="write the plane of the server to a file", allow_abbrev=False)
    add_argument(export, "file", "FILE", "file to write (default: standard output)", nargs="?")
    plan = verbs.add_parser("plan", help="show what an apply would change", allow_abbrev=False)
    apply = verbs.add_parser("apply", help="bring the server to what the files say", allow_abbrev=False)
    for verb in (plan, apply):
        add_argument(verb, "files", "FILE", "plane files (YAML; - for standard input)", nargs="+")
        add_switch(verb, "--prune", "delete what the files do not contain")
        add_switch(verb, "--prune-orders", "delete services that the files do not contain")
        add_switch(verb, "--set-secrets", "also send the secrets of existing entries")
    add_switch(plan, "--detailed-exitcodes", "exit with 0 if nothing would change, 2 if something would")
    add_switch(apply, "--yes", "do not ask for the number of deletions")
    add_wait_options(apply, "wait until the jobs of orders finish")
    for verb in (export, plan, apply):
        add_argument(
            verb,
            "--only",
            "KIND",
            f"only these kinds: {', '.join(KINDS)}",
            action="append",
            default=[],
            type=_kinds_option,
        )
        add_remote_options(verb)


def _kinds_option(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in KINDS:
            raise ArgumentTypeError(f"there is no kind {name!r}{did_you_mean(name, KINDS)}")
    return names


def run(arguments: argparse.Namespace) -> int:
    arguments.kinds = [name for names in arguments.only for name in names] or list(KINDS)
    if arguments.verb == "export":
        with connected(arguments) as client:
            return _export(client, arguments)
    try:
        with connected(arguments) as client:
            return _Run(client, arguments).run()
    except CommandRefused as refusal:
        # 2 says that something would change.
        refusal.exit_code = EXIT_FAULTS
        raise
    except SystemExit as ended:
        raise SystemExit(EXIT_FAULTS if ended.code else 0) from None


def _export(client: Client, arguments: argparse.Namespace) -> int:
    snapshot = read_snapshot(client, orders="orders" in arguments.kinds)
    document = export_document(snapshot, arguments.kinds)
    if arguments.file is None or arguments.file == "-":
        if arguments.json:
            print_json(document)
        else:
            sys.stdout.write(write_yaml(document))
        return 0
    try:
        with open(arguments.file, "w", encoding="utf-8") as file:
            file.write(write_yaml(document))
    except OSError as error:
        raise CommandRefused(f"cannot write {arguments.file}: {error.strerror}", exit_code=EXIT_FAULTS) from None
    if arguments.json:
        print_json(document)
    else:
        print(f"Wrote {arguments.file}.")
    return 0


class _PlanePlan(Struct):
    """What differs, and the requests that remove it; with faults nothing is sent."""

    found: Difference
    built: PlaneRequests
    revision: int
    faults: Sequence[PlaneFault]


class _Run(Struct):
    """One plan or apply."""

    _client: Client
    _arguments: argparse.Namespace

    def run(self) -> int:
        content = _read_files(self._arguments)
        if content.unreadable:
            # Names that they may define would be faults of what refers to them.
            return self._report(content.faults, content.unreadable)
        faults = [*content.faults, *_pack_blueprints(content)]
        try:
            plan = self._compare(content, faults)
        except (ServerRefusal, Unreachable) as error:
            if not faults:
                raise
            print_error(f"the server has not checked the files: {error}")
            return self._report(faults)
        if plan.faults:
            return self._report(plan.faults)
        if self._arguments.verb == "plan":
            return self._show(plan.found)
        return self._apply(plan)

    def _compare(self, content: PlaneContent, faults: Sequence[PlaneFault]) -> _PlanePlan:
        """Compares the files with the server, and tries the requests there. `faults`: of the files alone."""
        arguments = self._arguments
        snapshot = read_snapshot(self._client, orders="orders" in content.kinds)
        found = find_difference(
            content,
            snapshot,
            prune=arguments.prune,
            prune_orders=arguments.prune_orders,
            set_secrets=arguments.set_secrets,
        )
        built = build_requests(found, content, snapshot, _read_secret)
        known = [*faults, *found.faults, *built.faults]
        results = self._send({"requests": built.requests}, {"dryRun": "true"})
        known += find_server_faults(built, results, content, snapshot, known)
        if not known:
            _add_versions(built, results)
        return _PlanePlan(found, built, snapshot.revision, known)

    def _report(self, faults: Sequence[PlaneFault], unreadable: Sequence[Fault] = ()) -> int:
        files = {file: number for number, file in enumerate(self._arguments.files)}
        found = sorted(
            [*unreadable, *place_faults(faults)],
            key=lambda each: (files.get(each.file, len(files)), each.line or 0, each.column or 0),
        )
        if self._arguments.json:
            print_json({"faults": [each.as_json() for each in found]})
        else:
            print_faults(found, MAX_SHOWN_FAULTS)
        return EXIT_FAULTS

    def _show(self, found: Difference) -> int:
        if self._arguments.json:
            print_json(plan_document(found))
        else:
            print_plan(found)
        return EXIT_CHANGES if found.steps and self._arguments.detailed_exitcodes else 0

    def _apply(self, plan: _PlanePlan) -> int:
        arguments, found = self._arguments, plan.found
        if not arguments.json:
            print_plan(found)
        if found.deletions and not arguments.yes:
            _ask_for_number(found.deletions)
        jobs = _started_jobs(plan.built, self._carry_out(plan))
        if plan.built.requests and not arguments.json:
            print("Applied.")
        exit_code = self._follow(jobs) if jobs else 0
        if arguments.json:
            print_json({**plan_document(found), "applied": True, "jobs": jobs})
        return exit_code

    def _carry_out(self, plan: _PlanePlan) -> Sequence[Mapping[str, Any]]:
        try:
            return self._send({"requests": plan.built.requests, "ifRevision": plan.revision}, {})
        except ServerRefusal as refusal:
            if refusal.code != "batch_outdated":
                raise
            raise CommandRefused(
                "another apply changed the server after this plan was made; nothing was changed: run the command again"
            ) from None
        except Unreachable as error:
            raise CommandRefused(
                f"{error}\nThe server has applied all or nothing; the same command again finishes what is left."
            ) from None

    def _send(self, body: Mapping[str, Any], query: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """The results of a batch."""
        if not body["requests"]:
            return []
        answer = self._client.post("/batch", body, query=query, timeout_seconds=BATCH_SECONDS)
        results: Sequence[Mapping[str, Any]] = answer["results"]
        return results

    def _follow(self, jobs: Sequence[dict[str, Any]]) -> int:
        """Waits for the jobs of the batch, unless --no-wait."""
        arguments = self._arguments
        if not arguments.json:
            print_started(jobs, will_wait=arguments.wait)
        if not arguments.wait:
            return 0
        followed = follow_all(self._client, jobs, arguments.timeout, quiet=arguments.json)
        for job, result in zip(jobs, followed, strict=True):
            if result.job is not None:
                job.update({name: result.job[name] for name in ("id", "action", "status", "errorMessage")})
        if not arguments.json:
            print_outcome(jobs)
        # A failure is certain; a job that has not finished may still succeed.
        codes = {each.exit_code for each in followed}
        return EXIT_FAULTS if EXIT_FAULTS in codes else max(codes)


def _add_versions(built: PlaneRequests, results: Sequence[Mapping[str, Any]]) -> None:
    """Adds to the plan what only the server knows: an update also brings a service to another version of its blueprint."""
    for step, result in zip(built.steps, results, strict=True):
        version = (result.get("job") or {}).get("blueprintVersion")
        if version is not None and step.actual is not None:
            step.changes.append(("blueprint", (step.actual.row or {}).get("blueprintVersion"), version))


def _started_jobs(built: PlaneRequests, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"path": list(step.entry.path), **result["job"], "status": "Pending", "errorMessage": None}
        for step, result in zip(built.steps, results, strict=True)
        if result.get("job")
    ]


def _ask_for_number(deletions: int) -> None:
    """A typed number is a deliberate one."""
    if not sys.stdin.isatty():
        raise CommandRefused(
            f"this deletes {deletions}; there is no terminal to confirm that on: repeat the command with --yes"
        )
    print(f"Type the number of deletions ({deletions}) to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != str(deletions):
        raise CommandRefused("nothing was changed: the number does not match")


def _read_files(arguments: argparse.Namespace) -> PlaneContent:
    if len(set(arguments.files)) < len(arguments.files):
        raise CommandRefused("a file is named twice")
    content = read_plane([(file, read_text(file)) for file in arguments.files])
    content.kinds &= set(arguments.kinds)
    content.entries = {key: each for key, each in content.entries.items() if kind_in_file(each) in arguments.kinds}
    return content


def _pack_blueprints(content: PlaneContent) -> list[PlaneFault]:
    """Checks and packs the directories that the files name."""
    faults = []
    for (kind, _), entry in content.entries.items():
        directory = entry.attributes.get("directory") if kind == "blueprints" else None
        if directory is None or entry.source is None:
            continue
        place = os.path.join(entry.source.file.directory, directory)
        try:
            packed = _pack(place)
        except CommandRefused as problem:
            entry.faulty |= {"directory"}
            faults.append(PlaneFault(entry.source.below("directory"), str(problem)))
            continue
        if packed["name"] != entry.path[-1]:
            message = f"{place} is blueprint {packed['name']}, not {entry.path[-1]}"
            faults.append(PlaneFault(entry.source.below("directory"), message))
        entry.row = {**packed, "content": b64encode(packed["content"]).decode()}
    return faults


def _pack(directory: str) -> dict[str, Any]:
    from mainstay.agent.blueprint import digest_of
    from mainstay.blueprints.bundle import pack
    from mainstay.blueprints.check import check_blueprint

    if not os.path.isdir(directory):
        raise CommandRefused(f"{directory} is not a directory")
    blueprint, found = check_blueprint(directory)
    if blueprint is None or found.faults:
        raise CommandRefused("; ".join(str(each) for each in found.faults))
    try:
        content = pack(directory)
    except DoesNotLoad as refusal:
        raise CommandRefused(str(refusal)) from None
    definition = read_document(os.path.join(directory, "blueprint.yaml"))
    service_type = read_document(os.path.join(directory, "service-type.yaml"))
    return {
        "name": blueprint.name,
        "version": blueprint.version,
        "digest": digest_of(content),
        "content": content,
        "typeName": definition.get("service_type") or blueprint.name,
        "propertySchema": service_type.get("propertySchema"),
    }


def _read_secret(directive: Mapping[str, Any], directory: str) -> str:
    """Raises `SecretMissing`. The value never appears in a message."""
    if ENVIRONMENT in directive:
        name = str(directive[ENVIRONMENT])
        value = os.environ.get(name)
        if not value:
            raise SecretMissing(f"the environment variable {name} is not set")
        return value
    place = os.path.join(directory, str(directive[FILE]))
    try:
        with open(place, "rb") as file:
            raw = file.read(MAX_SECRET_BYTES + 1)
        if len(raw) > MAX_SECRET_BYTES:
            raise SecretMissing(f"{place} is larger than {MAX_SECRET_BYTES} bytes")
        return without_last_newline(raw.decode())
    except OSError as error:
        raise SecretMissing(f"cannot read {place}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecretMissing(f"{place} is not UTF-8 text") from None
