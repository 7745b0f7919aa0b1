"""An order becomes files on the host, and the outputs of the manifest become properties of the service."""

from __future__ import annotations

import os
import time
from pathlib import Path

from applying import GROUP, USER
from bridge import LIFECYCLE, Bridge, new_type_name, write_blueprint

SCHEMA = {
    "port": {"type": "integer", "required": True},
    "password": {"type": "string", "secret": {"type": "persistent"}},
    "motd": {"type": "string"},
    "address": {"type": "string", "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]},
}
CONFIG = """
- file:
    - defaults: {owner: USER, group: GROUP, mode: "0600"}
    - "{{ lookup('service.root') }}/{{ lookup('service.name') }}":
        ensure: directory
        mode: "0700"
    - "{{ lookup('service.root') }}/{{ lookup('service.name') }}/config":
        ensure: present
        content: "port={{ lookup('properties.port') }} by {{ lookup('job.action') }}\\n"
    - "{{ lookup('service.root') }}/{{ lookup('service.name') }}/secret":
        ensure: present
        content: "{{ lookup('properties.password', 'none') }}"
"""
DEPLOY = f"""
resources: {CONFIG.replace(chr(10), chr(10) + "  ")}
outputs:
  properties: {{address: "127.0.0.1:{{{{ lookup('properties.port') }}}}"}}
  instance_id: "instance-{{{{ lookup('service.id') }}}}"
  instance_data: {{unit: "web-{{{{ lookup('service.name') }}}}"}}
"""
REMOVED = """
- file:
    - "{{ lookup('service.root') }}/{{ lookup('service.name') }}": {ensure: absent, force: true}
"""

UPGRADE = {"name": "upgrade", "transitions": [{"from": state, "to": state} for state in ("Stopped", "Started")]}


def own(text: str) -> str:
    return text.replace("USER", USER).replace("GROUP", GROUP)


def test_an_order_becomes_files_and_outputs_become_properties(bridge: Bridge, root: Path) -> None:
    blueprint = write_blueprint(
        bridge.folder / "blueprint",
        type_name=new_type_name(),
        property_schema=SCHEMA,
        manifests={
            "create": own(DEPLOY),
            "update": own(CONFIG),
            "delete": REMOVED,
        },
    )
    pushed = bridge.push(blueprint)
    agent = bridge.start_agent("--root", str(root))
    order = bridge.scenario.order(
        pushed["serviceType"], {"port": 8080, "password": "canary-Zx81-secret"}, name="shop"
    )
    assert order["blueprintDigest"] == pushed["digest"]
    service = bridge.wait_for(order, "Stopped")
    assert service["properties"]["address"] == "127.0.0.1:8080"
    assert service["agentInstanceId"] == f"instance-{service['id']}"
    assert service["agentInstanceData"] == {"unit": "web-shop"}
    assert (root / "shop/config").read_text() == "port=8080 by create\n"
    assert (root / "shop/secret").read_text() == "canary-Zx81-secret"
    assert os.stat(root / "shop/secret").st_mode & 0o777 == 0o600

    bridge.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"port": 9090}})
    bridge.wait_for(order, "Stopped")
    assert (root / "shop/config").read_text() == "port=9090 by update\n"
    (update,) = [job for job in bridge.scenario.jobs(order) if job["action"] == "update"]
    report = bridge.scenario.consumer.get(f"/jobs/{update['id']}/report")
    changed = [event for event in report["events"] if event["changed"]]
    assert [event["name"] for event in changed] == [str(root / "shop/config")]
    assert "+port=9090" in changed[0]["diff"]
    assert report["manifest"] == "manifests/update.yaml"

    bridge.scenario.consumer.delete(f"/services/{service['id']}")
    bridge.wait_for(order, "Deleted")
    assert not list(root.iterdir())
    assert agent.stop() == 0
    assert "canary-Zx81" not in agent.text()
    for path in [*bridge.state.rglob("*"), *bridge.server.data_dir.rglob("*")]:
        assert not path.is_file() or b"canary-Zx81" not in path.read_bytes(), path


def test_a_stored_name_with_a_line_break_reaches_no_file_and_the_service_can_be_renamed(
    bridge: Bridge, root: Path
) -> None:
    unit = """
- file:
    - "{{ lookup('service.root') }}/unit": {ensure: present, content: "Description={{ lookup('service.name') }}\\n", owner: USER, group: GROUP, mode: "0600"}
"""
    blueprint = write_blueprint(
        bridge.folder / "blueprint",
        type_name=new_type_name(),
        manifests={"create": own(unit), "update": own(unit), "delete": REMOVED},
        property_schema={"motd": {"type": "string"}},
    )
    pushed = bridge.push(blueprint)
    order = bridge.scenario.order(pushed["serviceType"], {}, name="shop")
    bridge.server.store_name("services", order["id"], "shop\n[Service]\nExecStart=/bin/evil")
    bridge.start_agent("--root", str(root))
    service = bridge.wait_for(order, "Broken")
    (job,) = bridge.scenario.jobs(order)
    assert "the name of the service contains a line break U+000A at position 5" in job["errorMessage"]
    assert "rename the service" in job["errorMessage"]
    assert not list(root.iterdir())
    bridge.scenario.consumer.patch(f"/services/{service['id']}", {"name": "shop"})
    assert bridge.scenario.consumer.get(f"/services/{service['id']}")["name"] == "shop"


def test_a_service_stays_on_its_version_until_an_action_moves_it(bridge: Bridge, root: Path) -> None:
    name = new_type_name()
    lifecycle = {**LIFECYCLE, "actions": [*LIFECYCLE["actions"], UPGRADE]}
    manifest = """
- file:
    - "{{ lookup('service.root') }}/version": {ensure: present, content: VERSION, owner: USER, group: GROUP, mode: "0600"}
"""
    actions = {verb: {"manifest": "manifests/all.yaml"} for verb in ("create", "start", "stop", "delete")}

    def blueprint(version: str) -> Path:
        return write_blueprint(
            bridge.folder / version,
            type_name=name,
            version=version,
            lifecycle_schema=lifecycle,
            manifests={"all": own(manifest).replace("VERSION", f'"{version}"')},
            actions={**actions, "upgrade": {"manifest": "manifests/all.yaml", "upgrades": True}},
        )

    first = bridge.push(blueprint("1.0.0"))
    bridge.start_agent("--root", str(root))
    order = bridge.scenario.order(first["serviceType"])
    bridge.wait_for(order, "Stopped")
    second = bridge.push(blueprint("2.0.0"))
    bridge.scenario.do(order, "start")
    assert bridge.wait_for(order, "Started")["blueprintDigest"] == first["digest"]
    assert (root / "version").read_text() == "1.0.0"
    bridge.scenario.do(order, "upgrade")
    assert bridge.wait_for(order, "Started")["blueprintDigest"] == second["digest"]
    assert (root / "version").read_text() == "2.0.0"
    bridge.scenario.do(order, "stop")
    bridge.wait_for(order, "Stopped")
    assert (root / "version").read_text() == "2.0.0"


def test_a_stopped_agent_is_disconnected_at_once(bridge: Bridge) -> None:
    agent = bridge.start_agent()
    path = f"/agents/{bridge.scenario.agent_id}"
    bridge.admin.wait_for(path, {"status": "Connected"}, 20)
    assert agent.stop() == 0
    assert bridge.admin.get(path)["status"] == "Disconnected"
    # No poll that was still open makes it Connected again.
    time.sleep(1)
    assert bridge.admin.get(path)["status"] == "Disconnected"
