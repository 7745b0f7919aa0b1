"""Translates between control plane and engine: jobs to the data that manifests see, reports to request bodies. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from mainstay.converge.host.written_files import WrittenFiles
from mainstay.converge.manifest.scope import SecretMembers, holds_secret, taint
from mainstay.converge.report import FAILED, UNMET, Event, Report
from mainstay.converge.resources.file import PRESENT, FileState
from mainstay.foundation import Any
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.text import KeptSecret, Tainted, keep_end, keep_ends, line_problem, shorten
from mainstay.foundation.vault import is_vault_reference
from mainstay.foundation.yaml.scalars import leaves, with_leaves

SchemaPath = tuple[str, ...]
# Like a schema path, with the numbers of items.
Place = tuple[str, ...]


CREATE = "create"
OUTPUT_KEYS = ("properties", "instance_id", "instance_data")
LONGEST_MESSAGE = 8000
LONGEST_FIRST_LINE = 200
LONGEST_DETAIL = 20_000
LARGEST_REPORT_BYTES = 1024 * 1024
TAIL_LINES = 20


class BadOutputs(Exception):
    """The outputs of the manifest cannot be sent; the message names the output and the reason."""


class UnsafeName(Exception):
    """The name of a service would become syntax in the files of a host."""


# ---- jobs to manifest data ----
def desired_properties(job: Mapping[str, Any]) -> dict[str, Any]:
    """The properties after a successful job; the current ones if the job changes none."""
    params = job.get("params")
    found = job["service"]["properties"] if params is None else params
    return dict(found or {})


def with_outputs(properties: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The properties after the outputs of a manifest were reported, as the server merges them."""
    merged = dict(properties)
    for name, value in outputs.items():
        known = merged.get(name)
        merged[name] = with_outputs(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def secret_references(properties: Any, secret_paths: Collection[SchemaPath]) -> Iterator[tuple[Place, str]]:
    """References at the paths of secrets. Elsewhere a text that looks like a reference is only text."""
    for path, value in leaves(properties):
        at = tuple("[]" if isinstance(step, int) else step for step in path)
        if at in secret_paths and is_vault_reference(value):
            yield tuple(map(str, path)), value


def new_secrets(job: Mapping[str, Any], secret_paths: Collection[SchemaPath]) -> frozenset[Place]:
    """Where the request of the job gives, clears or moves a secret."""
    # A new service already has the properties of its first job.
    known = {} if job["action"] == CREATE else job["service"]["properties"]
    before = dict(secret_references(known, secret_paths))
    after = dict(secret_references(desired_properties(job), secret_paths))
    return frozenset(place for place in before.keys() | after.keys() if before.get(place) != after.get(place))


def insert_secrets(
    value: Any,
    secret_paths: Collection[SchemaPath],
    opened: Mapping[str, Any],
    new: Collection[Place] = (),
    at: SchemaPath = (),
    place: Place = (),
) -> Any:
    """The properties with each reference replaced by its secret, as a tainted value; `new`: places of new secrets."""
    if isinstance(value, str):
        if at not in secret_paths or value not in opened:
            return value
        return taint(opened[value], mark=Tainted if place in new else KeptSecret)
    if isinstance(value, dict):
        members = {
            name: insert_secrets(child, secret_paths, opened, new, (*at, name), (*place, name))
            for name, child in value.items()
        }
        secrets = frozenset(path[-1] for path in secret_paths if path[:-1] == at)
        return SecretMembers(members, secrets) if secrets else members
    if isinstance(value, list):
        return [
            insert_secrets(child, secret_paths, opened, new, (*at, "[]"), (*place, str(index)))
            for index, child in enumerate(value)
        ]
    return value


def lookup_roots(
    service: Mapping[str, Any], properties: Any, job: Mapping[str, Any] | None, root: str
) -> dict[str, Any]:
    """The data behind `lookup('service.…')`, `'properties.…'`, `'job.…'` and `'instance.…'`.

    Raises `UnsafeName`. The server refuses such names, but keeps those that an earlier version stored."""
    problem = line_problem(service["name"])
    if problem:
        raise UnsafeName(f"the name of the service {problem}, which manifests write into files; rename the service")
    known = {name: service[name] for name in ("id", "name", "status")}
    seen: dict[str, Any] = {
        "service": {**known, "root": root, "type": service["serviceType"]["name"]},
        "properties": properties,
        "instance": service.get("agentInstanceData") or {},
    }
    if job is None:
        seen["job"] = {"action": None, "attempt": 1, "params": None}
    else:
        params = None if job.get("params") is None else properties
        seen["job"] = {"action": job["action"], "attempt": job["attempt"], "params": params}
    return seen


def service_key(service: Mapping[str, Any]) -> tuple[str, str]:
    """Type and name. Manifests name files and units after them, so services that share both touch the same host."""
    return service["serviceType"]["name"], service["name"]


def run_identity(service_id: str) -> str:
    """The identity of all runs of a service, whatever manifest they use."""
    return f"service/{service_id}"


# ---- reports to request bodies ----
def completion_body(report: Report, secret_paths: Collection[SchemaPath]) -> dict[str, Any]:
    """The outputs as the body of `complete`."""
    outputs = report.outputs or {}
    unknown = sorted(outputs.keys() - set(OUTPUT_KEYS))
    if unknown:
        raise BadOutputs(f"outputs: unknown key {unknown[0]!r}; there are {', '.join(OUTPUT_KEYS)}")
    properties = outputs.get("properties")
    if properties is not None and not isinstance(properties, dict):
        raise BadOutputs("outputs.properties must be a map")
    _refuse_secrets(properties or {}, secret_paths, ("outputs", "properties"), ())
    for key in ("instance_id", "instance_data"):
        if holds_secret(outputs.get(key)):
            raise BadOutputs(f"outputs.{key} carries a secret, and every user who may see the service would see it")
    instance_id = outputs.get("instance_id")
    return {
        "properties": json_safe(properties or {}),
        "agentInstanceId": None if instance_id in (None, "") else json_safe(str(instance_id)),
        "agentInstanceData": json_safe(outputs.get("instance_data")),
    }


def json_safe(value: Any) -> Any:
    """Valid for every JSON parser: finite numbers, text without NUL and lone surrogates. Secrets stay tainted."""

    def safe(leaf: Any) -> Any:
        if not isinstance(leaf, str):
            return str(leaf) if isinstance(leaf, float) and not math.isfinite(leaf) else leaf
        if leaf.isascii() and "\0" not in leaf:
            return leaf
        text = leaf.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
        return Tainted(text) if isinstance(leaf, Tainted) else text

    return with_leaves(value, safe, keys=True)


def _refuse_secrets(value: Any, allowed: Collection[SchemaPath], shown: SchemaPath, at: SchemaPath) -> None:
    if at in allowed:
        return
    if isinstance(value, dict):
        for name, child in value.items():
            if isinstance(name, Tainted):
                raise BadOutputs(f"{'.'.join(shown)} carries a secret in a name; a name is shown to every user")
            _refuse_secrets(child, allowed, (*shown, str(name)), (*at, str(name)))
    elif isinstance(value, list):
        for child in value:
            _refuse_secrets(child, allowed, (*shown, "[]"), (*at, "[]"))
    elif holds_secret(value):
        raise BadOutputs(f"{'.'.join(shown)} carries a secret; declare that property as `secret`")


def failure_message(report: Report, directory: str) -> str:
    """The failed resources and their reasons. The first line is short and stable, for `onErrorRegexp`."""
    bad = [event for event in report.events if event.outcome in (FAILED, UNMET)]
    lines: list[str] = [
        short_reason(bad[0], directory) if bad else shorten(report.output_errors[0], LONGEST_FIRST_LINE)
    ]
    for event in bad:
        lines += _reason_lines(event, directory, first_line=lines[0] if event is bad[0] else "")
        if event.outcome == FAILED and event.output:
            lines += [f"  | {line}" for line in event.output.rstrip("\n").split("\n")[-TAIL_LINES:]]
    lines += report.output_errors
    counts = report.summary()
    lines.append(f"{counts['failed']} failed, {counts['unmet']} unmet of {counts['total']} resources")
    return bounded_message(_relative_to(text, directory) for text in lines)


def _reason_lines(event: Event, directory: str, *, first_line: str) -> list[str]:
    """The reasons, without what the first line of the message says already."""
    lines = [f"{event.resource.id} {event.outcome}: {text}" for text in _reasons(event)]
    head, *rest = next(iter(_reasons(event)), "").split("\n")
    if first_line == _relative_to(f"{event.resource.id}: {head}", directory):
        lines[:1] = rest
    return lines


def _relative_to(text: str, directory: str) -> str:
    """Paths relative to the blueprint: the directory it is unpacked to differs from host to host."""
    return text.replace(f"{directory}/", "")


def bounded_message(lines: Iterable[str]) -> str:
    """The first line and the last ones: programs match the first, and the last name the cause."""
    text: str = json_safe(keep_ends("\n".join(lines), LONGEST_MESSAGE))
    return text


def short_reason(event: Event, directory: str) -> str:
    reason = next(iter(_reasons(event)), event.outcome)
    return shorten(_relative_to(f"{event.resource.id}: {reason}", directory).split("\n")[0], LONGEST_FIRST_LINE)


def _reasons(event: Event) -> list[str]:
    if event.errors:
        return list(event.errors)
    if event.unmet:
        return [f"requires {', '.join(event.unmet)}"]
    return [event.reason or event.outcome]


def fault_message(refusal: DoesNotLoad, directory: str) -> str:
    """The faults of a manifest, with its path inside the blueprint."""
    lines = [_relative_to(str(fault), directory) for fault in refusal.faults]
    return bounded_message([f"the manifest does not load: {shorten(lines[0], LONGEST_FIRST_LINE)}", *lines])


def count_reached(report: Report) -> tuple[int, int]:
    """(resources that were reached, all resources)."""
    reached = [event for event in report.events if not (event.reason or "").startswith("not reached")]
    return len(reached), len(report.events)


def mark_own_files(report: Report, written: WrittenFiles | None) -> dict[str, Any]:
    """The report as JSON; events of files have `own`."""
    document = report.as_json()
    for event, shown in zip(report.events, document["events"], strict=True):
        shown.update(_ownership(event, written))
    return document


def report_document(document: dict[str, Any], directory: str) -> dict[str, Any]:
    """The report as stored with the job: bounded, and with the path of the manifest inside the blueprint."""
    events = [{name: _shortened(name, value) for name, value in event.items()} for event in document["events"]]
    manifest = _relative_to(document["manifest"], directory)
    kept: dict[str, Any] = json_safe({**document, "manifest": manifest, "events": events})
    while len(json.dumps(kept)) > LARGEST_REPORT_BYTES and kept["events"]:
        # Stable events are the least interesting, then the last ones.
        unstable = [event for event in kept["events"] if event["outcome"] != "stable"]
        shorter = unstable if len(unstable) < len(kept["events"]) else unstable[: len(unstable) // 2]
        kept = {**kept, "events": shorter, "shortened": True}
    return kept


def join_completions(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """One body of `complete` for two manifests of one job; what the second reports counts."""
    reports = [first["report"], second["report"]]
    summary = dict(reports[0]["summary"])
    for name, count in reports[1]["summary"].items():
        known = summary.get(name)
        is_count = isinstance(count, (int, float)) and not isinstance(count, bool) and isinstance(known, (int, float))
        summary[name] = known + count if is_count else count
    report = {**reports[0], "events": [*reports[0]["events"], *reports[1]["events"]], "summary": summary}
    return {
        "properties": with_outputs(first["properties"], second["properties"]),
        "agentInstanceId": second["agentInstanceId"] or first["agentInstanceId"],
        "agentInstanceData": second["agentInstanceData"] or first["agentInstanceData"],
        "report": report,
    }


def _ownership(event: Event, written: WrittenFiles | None) -> dict[str, Any]:
    """`own` if all that the event shows of a file was written by this service; else the diff for consumers."""
    state = event.state
    if written is None or not isinstance(state, FileState):
        return {}
    if event.consumer_diff is not None:
        return {"own": False, "consumer_diff": event.consumer_diff}
    if state.kind != PRESENT:
        return {"own": True}
    return {"own": not state.sensitive and written.holds(state.real_path, state.known_checksum())}


def _shortened(name: str, value: Any) -> Any:
    """Of a diff the beginning stays, of everything else, such as output, the end."""
    if isinstance(value, list):
        return [_shortened(name, each) for each in value]
    if not isinstance(value, str) or len(value) <= LONGEST_DETAIL:
        return value
    if name in ("diff", "consumer_diff"):
        return f"{value[:LONGEST_DETAIL]}\n[… {len(value) - LONGEST_DETAIL} more characters]"
    return keep_end(value, LONGEST_DETAIL)
