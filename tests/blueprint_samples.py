"""Small blueprints for tests, pushed without the command line."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import Any

import seed_text
from control_plane import Client
from scenario import Scenario

LIFECYCLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
SCHEMA = {"size": {"type": "integer"}}


def bundle(files: dict[str, Any], *, change: Any = None) -> bytes:
    """A .tar.gz; content that is not text is written as JSON, which is valid YAML."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            raw = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            if change is not None:
                change(entry)
            archive.addfile(entry, io.BytesIO(raw if entry.isreg() else b""))
    return gzip.compress(packed.getvalue(), mtime=0)


def blueprint(name: str, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    """The files of a small valid blueprint; `more` goes into blueprint.yaml, `schema` and `lifecycle` into the type."""
    schema, lifecycle = more.pop("schema", SCHEMA), more.pop("lifecycle", LIFECYCLE)
    actions = dict.fromkeys(("create", "start", "stop"), "manifests/all.yaml") | more.pop("actions", {})
    return {
        "blueprint.yaml": {"name": name, "version": version, "actions": actions, **more},
        "service-type.yaml": {"propertySchema": schema, "lifecycleSchema": lifecycle},
        "manifests/all.yaml": "resources: []\n",
    }


def push(client: Client, files: dict[str, Any], *, expect: int = 201, **query: str) -> Any:
    return client.call("POST", "/api/v1/blueprints", raw=bundle(files), query=query, expect=expect).body


def serve_type(scenario: Scenario, pushed: Any) -> Any:
    """Lets the scenario's agent serve the pushed service type and returns the type."""
    type_id = pushed["serviceType"]["id"]
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"serviceTypeIds": [type_id]})
    return scenario.admin.get(f"/service-types/{type_id}")
