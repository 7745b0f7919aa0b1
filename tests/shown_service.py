"""A type of service with each form of property, and a report with a diff, for tests of pages."""

from __future__ import annotations

from typing import Any

LIFECYCLE: Any = {
    "states": [{"name": name} for name in ("New", "Stopped", "Started", "Failed", "Deleted")],
    "initialState": "New",
    "terminalStates": ["Deleted"],
    "runningStates": ["Started"],
    "actions": [
        {
            "name": "create",
            "requestSchemaType": "properties",
            "transitions": [
                {"from": "New", "to": "Stopped"},
                {"from": "New", "to": "Failed", "onError": True},
            ],
        },
        {"name": "start", "transitions": [{"from": "Stopped", "to": "Started"}]},
        {"name": "stop", "transitions": [{"from": "Started", "to": "Stopped"}]},
        {
            "name": "update",
            "requestSchemaType": "properties",
            "transitions": [{"from": "Stopped", "to": "Stopped"}, {"from": "Started", "to": "Started"}],
        },
        {
            "name": "delete",
            "transitions": [
                {"from": "Stopped", "to": "Deleted"},
                {"from": "Started", "to": "Deleted"},
                {"from": "Failed", "to": "Deleted"},
            ],
        },
    ],
}
SCHEMA: Any = {
    "size": {"type": "integer", "default": 50},
    "password": {"type": "string", "secret": {"type": "persistent"}},
    "backup": {"type": "object", "properties": {"schedule": {"type": "string"}, "keepDays": {"type": "integer"}}},
    "allow": {"type": "array", "items": {"type": "string"}},
    "url": {"type": "string", "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]},
}
DIFF = "--- a\n+++ b\n@@ -1,3 +1,3 @@\n port = 5441\n-max_connections = 50\n+max_connections = 200\n"
REPORT: Any = {
    "run_id": "r",
    "manifest": "update.yaml",
    "events": [
        {"type": "package", "name": "postgresql", "outcome": "stable", "duration_seconds": 0.1},
        {"type": "file", "name": "/srv/db/settings.conf", "outcome": "changed", "diff": DIFF, "own": True},
        {"type": "exec", "name": "make", "outcome": "failed", "errors": ["exit code 1"], "output": "cluster output"},
    ],
    "summary": {"total": 3, "stable": 1, "changed": 1, "failed": 1},
}
