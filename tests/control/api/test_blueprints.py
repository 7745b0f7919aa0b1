"""Blueprints: atomic pushes, versions that services stay on, and actions that move a service to the current version."""

from __future__ import annotations

import gzip
import json
import tarfile
from typing import Any
from uuid import UUID

import pytest

from blueprint_samples import LIFECYCLE, SCHEMA, blueprint, bundle, push, serve_type
from control_plane import Server
from scenario import Scenario, unique

UPGRADES = {"start": {"manifest": "manifests/all.yaml", "upgrades": True}}


def test_the_type_of_a_blueprint_has_a_plain_name(scenario: Scenario) -> None:
    refused = push(scenario.admin, blueprint(unique("web"), service_type="web\n[Service]"), expect=400)
    message = "must not hold control characters, line breaks, bidirectional controls or invisible characters"
    assert refused["errors"] == [{"path": "blueprint.service_type", "message": message}]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("resources: [", "manifests/all.yaml"),
        ("a: 1\na: 2\n", "manifests/all.yaml"),
        ("text", "must be a map with `resources`, or a list of resources"),
        ("", "must be a map with `resources`, or a list of resources"),
    ],
)
def test_a_manifest_that_is_no_document_is_refused(scenario: Scenario, manifest: str, message: str) -> None:
    files = {**blueprint(unique("web")), "manifests/all.yaml": manifest}
    refused = push(scenario.admin, files, expect=400)
    assert refused["code"] == "invalid_definition"
    assert message in json.dumps(refused["errors"])


def test_a_push_creates_the_type_and_stores_the_bundle(scenario: Scenario) -> None:
    name = unique("web")
    files = blueprint(name)
    pushed = push(scenario.admin, files)
    assert pushed["created"] is True
    assert (pushed["name"], pushed["version"], pushed["serviceType"]["name"]) == (name, "1.0.0", name)
    assert pushed["size"] == len(bundle(files))
    kind = scenario.consumer.get(f"/service-types/{pushed['serviceType']['id']}")
    assert kind["blueprintDigest"] == pushed["digest"]
    assert kind["propertySchema"] == SCHEMA
    serve_type(scenario, pushed)
    fetched = scenario.agent.call("GET", f"/api/v1/blueprints/{pushed['digest']}", expect=200)
    assert fetched.body == bundle(files)
    scenario.consumer.get(f"/blueprints/{pushed['digest']}", expect=403)
    scenario.agent.get("/blueprints/sha256:nothing", expect=404)
    assert push(scenario.admin, files, expect=200) == {**pushed, "created": False}


def test_an_agent_reads_only_bundles_that_it_serves(scenario: Scenario) -> None:
    name = unique("web")
    versions = [push(scenario.admin, blueprint(name, version)) for version in ("1.0.0", "1.1.0")]
    paths = [f"/api/v1/blueprints/{each['digest']}" for each in versions]
    foreign = scenario.token("agent", scenario.new_agent(agentTypeId=scenario.agent_type()["id"])["id"])
    for path in paths:
        hidden = scenario.agent.call("GET", path, expect=404).body
        unknown = scenario.agent.call("GET", "/api/v1/blueprints/sha256:0", expect=404).body
        assert hidden["code"] == unknown["code"] == "not_found"
    kind = serve_type(scenario, versions[1])
    for path in paths:
        scenario.agent.call("GET", path, expect=200)
        foreign.call("GET", path, expect=404)
    # A bundle without a version of its own, on which a service stays.
    service = scenario.order(kind, {"size": 1})
    assert service["blueprintDigest"] == versions[1]["digest"]
    push(scenario.admin, blueprint(name, "1.1.0", description="another"), force="true")
    scenario.agent.call("GET", paths[1], expect=200)
    foreign.call("GET", paths[1], expect=404)


def test_an_agent_reads_the_bundle_of_its_orphan_until_the_clean_up_is_confirmed(scenario: Scenario) -> None:
    pushed = push(scenario.admin, blueprint(unique("web")))
    service = scenario.order(serve_type(scenario, pushed), {"size": 1})
    scenario.complete(service)
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"serviceTypeIds": []})
    path = f"/api/v1/blueprints/{pushed['digest']}"
    scenario.agent.call("GET", path, expect=200)
    (orphan,) = scenario.agent.get("/orphans")["items"]
    scenario.agent.post(f"/orphans/{orphan['id']}/confirm", expect=204)
    scenario.agent.call("GET", path, expect=404)


def test_participants_neither_list_nor_read_bundles(scenario: Scenario) -> None:
    pushed = push(scenario.admin, blueprint(unique("web")))
    serve_type(scenario, pushed)
    scenario.order(pushed["serviceType"])
    for client in (scenario.consumer, scenario.provider, scenario.stranger):
        client.get(f"/blueprints/{pushed['digest']}", expect=403)
        client.get("/blueprints", expect=403)
    scenario.agent.get("/blueprints", expect=403)


def test_a_type_without_a_blueprint_has_no_digest(scenario: Scenario) -> None:
    assert scenario.service_type(SCHEMA, LIFECYCLE)["blueprintDigest"] is None


def test_a_version_has_one_content(scenario: Scenario) -> None:
    name = unique("web")
    first = push(scenario.admin, blueprint(name))
    other = blueprint(name, description="another")
    refused = push(scenario.admin, other, expect=409)
    assert (refused["code"], refused["digest"]) == ("version_exists", first["digest"])
    second = push(scenario.admin, other, force="true")
    assert second["digest"] != first["digest"]
    # The agents of services on the first bundle can still fetch it.
    serve_type(scenario, second)
    scenario.agent.call("GET", f"/api/v1/blueprints/{first['digest']}", expect=200)
    (shown,) = scenario.admin.get(f"/blueprints?name={name}")["items"]
    assert (shown["digest"], shown["version"], shown["isCurrent"]) == (second["digest"], "1.0.0", True)


def test_a_list_of_versions_marks_the_current_one(scenario: Scenario) -> None:
    name = unique("web")
    digests = [push(scenario.admin, blueprint(name, version))["digest"] for version in ("1.0.0", "1.1.0")]
    listed = scenario.admin.get(f"/blueprints?name={name}&sort=version")["items"]
    assert [(each["digest"], each["isCurrent"]) for each in listed] == [(digests[0], False), (digests[1], True)]
    assert {each["serviceTypeId"] for each in listed} == {
        scenario.admin.get(f"/service-types?name={name}")["items"][0]["id"]
    }


def test_a_service_stays_on_its_version_until_an_action_upgrades_it(scenario: Scenario) -> None:
    name = unique("web")
    old = push(scenario.admin, blueprint(name))["digest"]
    kind = serve_type(scenario, push(scenario.admin, blueprint(name), expect=200))
    service = scenario.order(kind, {"size": 1})
    assert service["blueprintDigest"] == old
    assert scenario.next_job_seen(service)["blueprintDigest"] == old
    service = scenario.complete(service)
    new = push(scenario.admin, blueprint(name, "2.0.0", actions=UPGRADES))["digest"]
    assert scenario.service(service["id"])["blueprintDigest"] == old
    assert scenario.order(kind, {"size": 1})["blueprintDigest"] == new
    scenario.do(service, "start")
    assert scenario.next_job_seen(service)["blueprintDigest"] == new
    failed = scenario.fail(service, "no")
    assert failed["blueprintDigest"] == old
    scenario.do(service, "start")
    moved = scenario.complete(service)
    assert moved["blueprintDigest"] == new
    # An action without `upgrades` keeps the version.
    newest = push(scenario.admin, blueprint(name, "3.0.0", actions=UPGRADES))["digest"]
    scenario.do(service, "stop")
    assert scenario.next_job_seen(service)["blueprintDigest"] == new
    assert scenario.complete(service)["blueprintDigest"] == new
    scenario.do(service, "start")
    assert scenario.complete(service)["blueprintDigest"] == newest


def test_the_old_name_of_upgrades_is_accepted_alone(scenario: Scenario) -> None:
    name, old = unique("web"), {"manifest": "manifests/all.yaml", "moves": True}
    kind = serve_type(scenario, push(scenario.admin, blueprint(name)))
    service = scenario.complete(scenario.order(kind, {"size": 1}))
    new = push(scenario.admin, blueprint(name, "2.0.0", actions={"start": old}))["digest"]
    scenario.do(service, "start")
    assert scenario.complete(service)["blueprintDigest"] == new
    both = blueprint(name, "3.0.0", actions={"start": {**old, "upgrades": True}})
    message = "unknown key; known keys: manifest, timeout, upgrades"
    refused = push(scenario.admin, both, expect=400)
    assert refused["errors"] == [{"path": "blueprint.actions.start.moves", "message": message}]


def test_a_service_older_than_the_blueprint_is_upgraded_to_it(scenario: Scenario) -> None:
    name = unique("web")
    kind = scenario.service_type(SCHEMA, LIFECYCLE, name=name)
    service = scenario.order(kind, {"size": 1})
    assert service["blueprintDigest"] is None
    service = scenario.complete(service)
    digest = push(scenario.admin, blueprint(name, actions=UPGRADES))["digest"]
    scenario.do(service, "start")
    assert scenario.complete(service)["blueprintDigest"] == digest


def test_a_move_with_several_steps_takes_effect_after_the_last(scenario: Scenario) -> None:
    name = unique("web")
    lifecycle = {
        "states": [{"name": each} for each in ("New", "Stopped", "Starting", "Started")],
        "actions": [
            {"name": "create", "transitions": [{"from": "New", "to": "Stopped"}]},
            {
                "name": "start",
                "autoAdvance": True,
                "transitions": [
                    {"from": "Stopped", "to": "Starting"},
                    {"from": "Starting", "to": "Started"},
                    {"from": "Starting", "to": "Stopped", "onError": True},
                ],
            },
        ],
        "initialState": "New",
    }
    files = blueprint(name, lifecycle=lifecycle)
    del files["blueprint.yaml"]["actions"]["stop"]
    kind = serve_type(scenario, push(scenario.admin, files))
    old = kind["blueprintDigest"]
    service = scenario.complete(scenario.order(kind, {"size": 1}))
    files["blueprint.yaml"] |= {"version": "2.0.0", "actions": files["blueprint.yaml"]["actions"] | UPGRADES}
    new = push(scenario.admin, files)["digest"]
    scenario.do(service, "start")
    assert scenario.complete(service)["blueprintDigest"] == old
    assert scenario.next_job_seen(service)["blueprintDigest"] == new
    assert scenario.complete(service)["blueprintDigest"] == new


def test_services_that_do_not_fit_refuse_a_push(scenario: Scenario) -> None:
    name = unique("web")
    kind = serve_type(scenario, push(scenario.admin, blueprint(name)))
    service = scenario.order(kind, {"size": 1})
    stricter = blueprint(name, "2.0.0", schema={"size": {"type": "string"}})
    refused = push(scenario.admin, stricter, expect=409)
    assert refused["code"] == "services_do_not_fit"
    assert [each["serviceId"] for each in refused["services"]] == [service["id"]]
    forecast = push(scenario.admin, stricter, expect=200, dryRun="true")
    assert [each["serviceId"] for each in forecast["misfits"]] == [service["id"]]
    # Neither request left any change.
    assert scenario.admin.get(f"/service-types/{kind['id']}") == kind
    scenario.agent.get(f"/blueprints/{forecast['digest']}", expect=404)
    assert [each["version"] for each in scenario.admin.get(f"/blueprints?name={name}")["items"]] == ["1.0.0"]
    forced = push(scenario.admin, stricter, force="true")
    assert [each["serviceId"] for each in forced["misfits"]] == [service["id"]]


def test_force_does_not_remove_a_state_in_use(scenario: Scenario) -> None:
    name = unique("web")
    kind = serve_type(scenario, push(scenario.admin, blueprint(name)))
    scenario.order(kind, {"size": 1})
    lifecycle = json.loads(json.dumps(LIFECYCLE).replace(f'"{LIFECYCLE["initialState"]}"', '"Elsewhere"'))
    push(scenario.admin, blueprint(name, "2.0.0", lifecycle=lifecycle), expect=409, force="true")


def test_a_dry_run_of_a_first_push_changes_nothing(scenario: Scenario) -> None:
    name = unique("web")
    forecast = push(scenario.admin, blueprint(name), expect=200, dryRun="true")
    assert forecast["created"] is True
    assert scenario.admin.get(f"/service-types?name={name}")["items"] == []
    assert scenario.admin.get(f"/blueprints?name={name}")["items"] == []


def test_the_bundle_outlives_its_type(scenario: Scenario) -> None:
    name = unique("web")
    pushed = push(scenario.admin, blueprint(name))
    scenario.admin.delete(f"/service-types/{pushed['serviceType']['id']}")
    scenario.admin.call("GET", f"/api/v1/blueprints/{pushed['digest']}", expect=200)
    (shown,) = scenario.admin.get(f"/blueprints?name={name}")["items"]
    assert (shown["serviceTypeId"], shown["isCurrent"]) == (None, False)
    again = push(scenario.admin, blueprint(name), expect=200)
    assert again["serviceType"]["id"] != pushed["serviceType"]["id"]


def test_all_faults_are_reported_at_once(embedded: Server) -> None:
    files = blueprint(
        unique("web"),
        "one",
        actions={"strat": "manifests/all.yaml", "stop": {"manifest": "manifests/none.yaml", "move": True}},
        keeps={"Flying": "manifests/all.yaml"},
        drift="mend",
        schema={"size": {"type": "inteer"}},
    )
    found = {each["path"]: each["message"] for each in push(embedded.admin, files, expect=400)["errors"]}
    assert {
        "blueprint.version",
        "blueprint.actions.stop.manifest",
        "blueprint.actions.stop.move",
        "blueprint.drift",
        "size.type",
    } <= found.keys()
    del files["service-type.yaml"]["propertySchema"]
    found = {each["path"]: each["message"] for each in push(embedded.admin, files, expect=400)["errors"]}
    assert found["blueprint.actions.strat"].startswith("the lifecycle has no action strat; it has: create")
    assert "blueprint.keeps.Flying" in found


BROKEN: dict[str, dict[str, Any]] = {
    "without a definition": {"service-type.yaml": {}},
    "a list": {"blueprint.yaml": [], "service-type.yaml": []},
    "an alias": {"blueprint.yaml": "name: &a x\nversion: *a\n", "service-type.yaml": {}},
    "a key twice": {"blueprint.yaml": "name: x\nname: y\n", "service-type.yaml": {}},
    "not text": {"blueprint.yaml": "name: \0", "service-type.yaml": {}},
    "too deep": {"blueprint.yaml": "[" * 100_000, "service-type.yaml": {}},
    "an absolute name": {"/blueprint.yaml": {}},
    "a name outside": {"../blueprint.yaml": {}},
    "a name with a backslash": {"a\\b": ""},
    "too many files": {f"f{number}": "" for number in range(2001)},
}


@pytest.mark.parametrize("files", BROKEN.values(), ids=BROKEN.keys())
def test_an_invalid_blueprint_is_refused(embedded: Server, files: dict[str, Any]) -> None:
    push(embedded.admin, files, expect=400)


KINDS = {
    "a link": tarfile.SYMTYPE,
    "a hard link": tarfile.LNKTYPE,
    "a directory": tarfile.DIRTYPE,
    "a device": tarfile.CHRTYPE,
    "a pipe": tarfile.FIFOTYPE,
    "a sparse file": tarfile.GNUTYPE_SPARSE,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_only_regular_files_are_accepted(embedded: Server, kind: bytes) -> None:
    def change(entry: tarfile.TarInfo) -> None:
        entry.type = kind
        entry.linkname = "/etc/passwd"

    raw = bundle({"files/x": ""}, change=change)
    assert embedded.admin.call("POST", "/api/v1/blueprints", raw=raw, expect=400).body["code"] == "not_a_bundle"


def with_size(size: int) -> bytes:
    """The header of a file that claims this size."""
    entry = tarfile.TarInfo("files/x")
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT)


WHOLE = bundle(blueprint("whole"))
RAW: dict[str, bytes] = {
    "nothing": b"",
    "text": b"text",
    "the start of gzip": b"\x1f\x8b",
    "truncated": WHOLE[:-9],
    "followed by more": WHOLE + b"more",
    "followed by another bundle": WHOLE + WHOLE,
    "gzip of no archive": gzip.compress(b"nothing like an archive" * 100),
    "a truncated archive": gzip.compress(gzip.decompress(WHOLE)[:700]),
    "a size below zero": gzip.compress(with_size(-512) + bytes(1024)),
    "a size beyond its end": gzip.compress(with_size(2**40) + bytes(1024)),
    "a bomb": gzip.compress(bytes(33 * 1024 * 1024)),
    "endless headers": gzip.compress(
        b"".join(tarfile.TarInfo.create_pax_global_header({"comment": str(number)}) for number in range(5000))
    ),
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW.keys())
def test_bytes_that_are_not_a_bundle_are_refused(embedded: Server, raw: bytes) -> None:
    reply = embedded.admin.call("POST", "/api/v1/blueprints", raw=raw, expect=400)
    assert reply.body["code"] == "not_a_bundle"


def test_a_bundle_is_deleted_once_nothing_uses_it(scenario: Scenario) -> None:
    name = unique("web")
    first = push(scenario.admin, blueprint(name))
    path = f"/blueprints/{first['digest']}"
    refused = scenario.admin.delete(path, expect=409)
    assert refused["dependants"] == {"serviceTypes": [first["serviceType"]["id"]]}
    service = scenario.order(serve_type(scenario, first), {"size": 1})
    push(scenario.admin, blueprint(name, "1.1.0"))
    refused = scenario.admin.delete(path, expect=409)
    assert refused["code"] == "in_use"
    assert refused["dependants"]["services"] == [service["id"]]
    scenario.complete(service)
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    (orphan,) = scenario.agent.get("/orphans")["items"]
    assert scenario.admin.delete(path, expect=409)["dependants"] == {"orphans": [orphan["id"]]}
    scenario.agent.post(f"/orphans/{orphan['id']}/confirm", expect=204)
    scenario.consumer.delete(path, expect=403)
    scenario.admin.delete(path)
    scenario.admin.delete(path, expect=404)
    (event,) = scenario.admin.get(f"/events?type=blueprint.deleted&entityId={UUID(first['digest'][7:39])}")["items"]
    assert {"op": "remove", "path": "/version"} in event["properties"]["diff"]


def test_a_bundle_that_another_one_replaced_is_deleted_by_its_digest(scenario: Scenario) -> None:
    name = unique("web")
    first = push(scenario.admin, blueprint(name))
    push(scenario.admin, blueprint(name, description="another"), force="true")
    scenario.admin.delete(f"/blueprints/{first['digest']}")
