"""A plan predicts its job exactly, and a planned job runs as planned or not at all. Real server, real agent."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from applying import GROUP, USER
from archive_samples import make_app
from bridge import Bridge, wait_until, write_blueprint
from control_plane import Reply
from random_manifests import manifests, prior_trees
from scenario import unique
from scratch import Tree, fingerprint, make_tree, names_below

CANARY = "canary-Vd53-secret"
SCHEMA = {
    "text": {"type": "string", "default": "one"},
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "serial": {"type": "string", "generator": {"type": "uuid"}},
}
CONFIG = """
- file:
    - defaults: {owner: USER, group: GROUP, mode: "0600"}
    - "{{ lookup('service.root') }}/config":
        ensure: present
        content: "text={{ lookup('properties.text') }} of {{ lookup('service.id') }}\\n"
    - "{{ lookup('service.root') }}/serial":
        ensure: present
        content: "{{ lookup('properties.serial') }}"
    - "{{ lookup('service.root') }}/secret":
        ensure: present
        content: "{{ lookup('properties.key', 'none') }}"
"""
WAITS = """
- exec:
    - "touch ROOT/started; until test -e ROOT/go; do sleep 0.02; done": {provider: shell}
"""


class Planner:
    """One service type, its blueprint, and an agent that serves it."""

    def __init__(self, bridge: Bridge, root: Path, *, start: bool = True, **found: str) -> None:
        self.bridge = bridge
        self.root = root
        self.kind = bridge.service_type(SCHEMA)
        self.folder = bridge.folder / "blueprint"
        self.write(**{"create": CONFIG, "update": CONFIG, **found})
        if start:
            self.agent = self.start_agent()

    def start_agent(self, *options: str) -> Any:
        return self.bridge.start_agent("--blueprint", str(self.folder), "--root", str(self.root), *options)

    def write(self, **found: str) -> None:
        texts = {
            name: text.replace("ROOT", str(self.root)).replace("USER", USER).replace("GROUP", GROUP)
            for name, text in found.items()
        }
        # A manifest that another one applies belongs to no action.
        actions = {name: {"manifest": f"manifests/{name}.yaml"} for name in texts if "child" not in name}
        write_blueprint(
            self.folder, type_name=self.kind["name"], property_schema=SCHEMA, manifests=texts, actions=actions
        )

    def body(self, **properties: Any) -> dict[str, Any]:
        scenario = self.bridge.scenario
        return {
            "serviceTypeId": self.kind["id"],
            "name": unique("service"),
            "properties": properties,
            "groupId": scenario.group_id,
            "agentId": scenario.agent_id,
        }

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        return self.bridge.scenario.consumer.call(method, f"/api/v1/services{path}", body, **more)

    def plan(self, body: Any, method: str = "POST", path: str = "") -> Any:
        return self.call(method, f"{path}?plan=true", body, expect=200).body

    def order(self, body: Any, plan: Any, method: str = "POST", path: str = "") -> Reply:
        return self.call(method, path, {**body, "planDigest": plan["planDigest"]})

    def finish(self, service_id: str) -> Any:
        """Waits for the last job of the service and returns it."""
        found: list[Any] = []

        def finished() -> bool:
            found[:] = self.bridge.scenario.jobs({"id": service_id})
            return all(job["status"] not in ("Pending", "Processing") for job in found)

        wait_until(finished, "the job is finished", self.bridge.logs, 60)
        return found[-1]

    def report(self, job: Any) -> Any:
        return self.bridge.scenario.consumer.get(f"/jobs/{job['id']}/report")


def plan_requests(bridge: Bridge) -> int:
    with sqlite3.connect(bridge.server.data_dir / "mainstay.db") as database:
        (found,) = database.execute("SELECT count(*) FROM plan_requests").fetchone()
    return int(found)


def test_a_planned_order_does_what_its_plan_shows(bridge: Bridge, root: Path) -> None:
    planner = Planner(bridge, root)
    body = planner.body(key=CANARY)
    state = names_below(bridge.state)
    plan = planner.plan(body)
    assert names_below(root) == []
    assert sorted(names_below(bridge.state)) == sorted(state)
    assert [each["outcome"] for each in plan["host"]["events"]] == ["changed"] * 3
    assert "+text=one of " in plan["host"]["events"][0]["diff"]
    assert plan["host"]["manifest"] == "manifests/create.yaml"
    assert plan["host"]["summary"]["changed"] == 3
    made = planner.order(body, plan)
    assert made.status == 201, made.body
    job = planner.finish(made.body["id"])
    assert job["status"] == "Completed"
    assert job["planDigest"] == plan["planDigest"].rpartition(".")[2]
    assert f"+text=one of {made.body['id']}" in plan["host"]["events"][0]["diff"]
    assert (root / "serial").read_text() == plan["properties"]["serial"]
    done = [(each["name"], each["outcome"], each["diff"]) for each in planner.report(job)["events"]]
    assert done == [(each["name"], each["outcome"], each["diff"]) for each in plan["host"]["events"]]
    assert CANARY not in str(plan)
    repeated = planner.order(body, plan)
    assert (repeated.status, repeated.body["code"]) == (409, "plan_outdated")
    assert plan_requests(bridge) == 0
    assert planner.agent.stop() == 0
    assert CANARY not in planner.agent.text()
    for path in [*bridge.state.rglob("*"), *bridge.server.data_dir.rglob("*")]:
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("name", ["config", "secret"])
def test_a_change_of_the_host_before_the_order_outdates_the_plan(bridge: Bridge, root: Path, name: str) -> None:
    planner = Planner(bridge, root)
    (root / name).write_text("before")
    body = planner.body(key=CANARY)
    plan = planner.plan(body)
    # Same length: reports omit the content of a secret file, but the digest includes it.
    (root / name).write_text("BEFORE")
    refused = planner.order(body, plan)
    assert (refused.status, refused.body["code"], refused.body["changed"]) == (409, "plan_outdated", "host")
    assert (root / name).read_text() == "BEFORE"
    (root / name).write_text("before")
    (root / "other").write_text("unrelated")
    assert planner.order(body, plan).status == 201


def test_a_change_of_the_host_after_the_order_fails_the_job(bridge: Bridge, root: Path) -> None:
    planner = Planner(bridge, root, start=False)
    agent = planner.start_agent("--jobs", "1")
    body = planner.body(key=CANARY)
    plan = planner.plan(body)
    planner.write(create=WAITS)
    busy = bridge.scenario.order(planner.kind)
    wait_until((root / "started").exists, "the other job runs", bridge.logs)
    planner.write(create=CONFIG)
    made = planner.order(body, plan)
    assert made.status == 201, made.body
    (root / "config").write_text("edited by hand")
    (root / "go").touch()
    planner.finish(busy["id"])
    job = planner.finish(made.body["id"])
    assert job["status"] == "Failed"
    assert job["errorMessage"].split("\n")[0] == "the host has changed since the plan"
    assert (root / "config").read_text() == "edited by hand"
    assert not (root / "secret").exists()
    assert agent.stop() == 0


def test_a_planned_job_is_resumed_after_a_kill(bridge: Bridge, root: Path) -> None:
    planner = Planner(bridge, root, create=CONFIG + WAITS)
    body = planner.body(key=CANARY)
    made = planner.order(body, planner.plan(body))
    wait_until((root / "started").exists, "half of the job is done", bridge.logs)
    planner.agent.kill()
    assert (root / "config").exists()
    (root / "go").touch()
    planner.start_agent()
    assert planner.finish(made.body["id"])["status"] == "Completed"


def test_a_planned_job_is_resumed_after_a_release(bridge: Bridge, root: Path) -> None:
    planner = Planner(
        bridge, root, create=CONFIG + WAITS + CONFIG.replace("/config", "/late").replace("/se", "/later-se")
    )
    body = planner.body(key=CANARY)
    made = planner.order(body, planner.plan(body))
    wait_until((root / "started").exists, "half of the job is done", bridge.logs)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(planner.agent.stop)
        wait_until(lambda: planner.agent.process.poll() is None, "the agent is stopping")
        (root / "go").touch()
        assert ended.result() == 0
    planner.start_agent()
    assert planner.finish(made.body["id"])["status"] == "Completed"
    assert (root / "late").exists()


@pytest.mark.parametrize(
    "manifest",
    [
        "- file:\n    - ROOT/x: {ensure: present, mod: 1}\n",
        "- file:\n    - \"ROOT/{{ lookup('properties.tex') }}\": {ensure: absent}\n",
    ],
)
def test_a_plan_of_an_invalid_manifest_fails_with_its_faults(bridge: Bridge, root: Path, manifest: str) -> None:
    planner = Planner(bridge, root, create=manifest)
    reply = planner.call("POST", "?plan=true", planner.body())
    assert (reply.status, reply.body["code"]) == (409, "plan_failed")
    assert "the manifest does not load" in reply.body["error"]
    assert str(planner.folder) not in reply.body["error"]


def test_a_missing_blueprint_or_manifest_is_named(bridge: Bridge, root: Path) -> None:
    planner = Planner(bridge, root)
    service = bridge.scenario.order(planner.kind)
    bridge.wait_for(service, "Stopped")
    reply = planner.call("POST", f"/{service['id']}/start?plan=true")
    assert (reply.status, reply.body["code"]) == (409, "plan_failed")
    assert "has no manifest for start" in reply.body["error"]
    other = bridge.service_type(SCHEMA)
    reply = planner.call("POST", "?plan=true", {**planner.body(), "serviceTypeId": other["id"]})
    assert (reply.status, reply.body["code"]) == (409, "plan_failed")
    assert "there is no blueprint for service type" in reply.body["error"]


def test_an_agent_killed_during_a_plan_leaves_nothing(bridge: Bridge, root: Path) -> None:
    guard = f"touch {root}/planning; sleep 30"
    planner = Planner(bridge, root, create=f'- exec:\n    - "true": {{provider: shell, onlyif: "{guard}"}}\n')
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(planner.call, "POST", "?plan=true&planWait=4", planner.body())
        wait_until((root / "planning").exists, "the dry run has started", bridge.logs)
        planner.agent.kill()
        assert (reply.result().status, reply.result().body["code"]) == (504, "agent_silent")
    assert plan_requests(bridge) == 0
    assert bridge.scenario.consumer.get("/services")["totalItems"] == 0


def test_a_stopping_agent_does_not_wait_for_a_plan(bridge: Bridge, root: Path) -> None:
    guard = f"touch {root}/planning; sleep 5"
    planner = Planner(bridge, root, create=f'- exec:\n    - "true": {{provider: shell, onlyif: "{guard}"}}\n')
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(planner.call, "POST", "?plan=true", planner.body())
        wait_until((root / "planning").exists, "the dry run has started", bridge.logs)
        assert planner.agent.stop() == 0
        assert (reply.result().status, reply.result().body["code"]) == (409, "plan_failed")


# ---- random manifests ----
DIRECTORIES = count()
KINDS = (
    'file: [{"ROOT/NAME": {ensure: present, content: "{{ \'y\' * 3 }}\\n", owner: USER, group: GROUP, mode: "0644"}}]',
    'file: [{"ROOT/NAME": {ensure: present, content: "x", owner: USER, group: GROUP, mode: "0600"}}]',
    'file: [{"ROOT/NAME": {ensure: present, content: "two\\n", owner: USER, group: GROUP, mode: "0640"}}]',
    'file: [{"ROOT/NAME-d": {ensure: directory, owner: USER, group: GROUP, mode: "0755"}}]',
    'file: [{"ROOT/NAME-l": {ensure: link, target: "ROOT/one"}}]',
    'file: [{"ROOT/NAME-l": {ensure: link, target: two}}]',
    'file: [{"ROOT/NAME": {ensure: absent}}]',
    'exec: [{"touch ROOT/NAME-made": {creates: "ROOT/NAME-made"}}]',
    'exec: [{"true NAME": {unless: "true"}}]',
    'exec: [{"true NAME": {onlyif: "test -e ROOT/kept"}}]',
    'exec: [{"true NAME": {}}]',
    'exec: [{"true NAME": {refresh_only: true, subscribe: ["file#ROOT/config"]}}]',
)
FIRST = '- file: [{"ROOT/config": {ensure: present, content: "{{ \'y\' * 3 }}", owner: USER, group: GROUP, mode: "0644"}}]\n'


@st.composite
def tame_manifests(draw: st.DrawFn) -> str:
    """Manifests that fail only if a path has another type."""
    chosen = draw(
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4)), max_size=7, unique_by=lambda each: each[1])
    )
    return FIRST + "".join(f"- {kind.replace('NAME', f'n{number}')}\n" for kind, number in chosen)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tree=prior_trees(),
    create=tame_manifests() | tame_manifests() | manifests(),
    update=tame_manifests() | manifests(),
    tampered=st.lists(st.sampled_from(("a", "b", "n0", "n1", "n2", "config", "kept")), max_size=3),
    text=st.sampled_from(("one", "two", "three\n")),
    key=st.sampled_from(("first-secret-value", "other-secret-value")),
)
def test_a_plan_predicts_its_job(
    planned_host: Planner, tree: Tree, create: str, update: str, tampered: list[str], text: str, key: str
) -> None:
    planner = planned_host
    directory = planner.root / f"host-{next(DIRECTORIES)}"
    directory.mkdir()
    make_tree(directory, tree)
    (directory / "unpacked").mkdir(exist_ok=True)
    planner.write(**texts_of("create", create, directory), **texts_of("update", update, directory))
    body = planner.body(text=text, key=key)
    service_id = check_plan(planner, body, "POST", "", directory)
    if planner.bridge.scenario.service(service_id)["status"] != "Stopped":
        return
    for name in tampered:
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_file() or name == "kept":
            path.write_text("tampered\n")
    check_plan(planner, {"properties": {"text": f"{text}, changed"}}, "PATCH", f"/{service_id}", directory)


def texts_of(action: str, manifest: str, directory: Path) -> dict[str, str]:
    """The manifest of an action and those that it applies, whose names must differ between actions."""
    children = getattr(manifest, "children", {})
    texts = {action: manifest, **{name.removesuffix(".yaml"): text for name, text in children.items()}}
    return {
        name.replace("child", f"{action}-child"): fill_in(text.replace("child", f"{action}-child"), directory)
        for name, text in texts.items()
    }


def fill_in(text: str, directory: Path) -> str:
    """The manifest for this directory, with a property and a secret in some contents."""
    text = text.replace("DIGEST", make_app(directory.parent / "app.tgz")).replace("ROOT", str(directory))
    text = text.replace("{{ 'y' * 3 }}", "{{ lookup('properties.text') }}")
    return text.replace('content: "x"', "content: \"{{ lookup('properties.key') }}\"")


def check_plan(planner: Planner, body: Any, method: str, path: str, directory: Path) -> str:
    before = fingerprint(directory)
    plan = planner.plan(body, method, path)
    assert fingerprint(directory) == before
    made = planner.order(body, plan, method, path)
    assert made.status in (200, 201), made.body
    service_id = str(made.body["id"])
    job = planner.finish(service_id)
    done = planner.report(job)["events"]
    unknown: set[str] = set()
    for expected, found in zip(plan["host"]["events"], done, strict=True):
        name = f"{found['type']}#{found['name']}"
        # The exit code of a command is unknown before its run, and so is everything that depends on it.
        exits = found["type"] == "exec" and expected["changed"] and found["outcome"] == "failed"
        if exits or (expected["noop_message"] or "").startswith("Unknown until applied") or unknown:
            unknown.add(name)
            event("unknown until applied")
            continue
        for key in ("type", "name", "outcome", "changed", "refreshed", "reason", "diff", "unmet"):
            assert expected[key] == found[key], (key, expected, found)
        event(f"{found['type']} {found['outcome']}")
    return service_id


@pytest.fixture
def planned_host(bridge: Bridge, root: Path) -> Planner:
    return Planner(bridge, root)


def test_a_plan_right_after_a_job_succeeds(bridge: Bridge, root: Path) -> None:
    """The server knows the end of a job before its thread in the agent has ended."""
    planner = Planner(bridge, root)
    service = bridge.scenario.order(planner.kind, {"key": CANARY})
    for number in range(25):
        body = {"properties": {"text": f"again {number}"}}
        reply = planner.call("PATCH", f"/{service['id']}?plan=true", body)
        while reply.status == 409 and reply.body["code"] in ("active_job", "wrong_state"):
            reply = planner.call("PATCH", f"/{service['id']}?plan=true", body)
        assert reply.status == 200, reply.body
        planner.call("PATCH", f"/{service['id']}", body, expect=200)
