"""A service type with every control of an order form, and the answer of an agent to a plan of it."""

from __future__ import annotations

from typing import Any

from planning_agent import ANSWER as PLAN_ANSWER


def rule(name: str, **config: Any) -> dict[str, Any]:
    return {"type": name, "config": config}


def schema_of(tier: str) -> dict[str, Any]:
    """Every control of the prototype."""
    secret = {"type": "persistent"}
    role = {"type": "string", "required": True, "validators": [rule("enum", values=["reader", "writer"])]}
    users = {
        "name": {"type": "string", "required": True},
        "role": role,
        "password": {"type": "string", "secret": secret},
    }
    target = {
        "bucket": {"type": "string"},
        "accessKey": {"type": "string", "secret": secret},
    }
    backup = {
        "schedule": {
            "type": "string",
            "default": "0 3 * * *",
            "validators": [rule("pattern", pattern="^[0-9*/, -]+$")],
        },
        "keepDays": {"type": "integer", "label": "Keep for, in days", "validators": [rule("min", value=1)]},
        "target": {"type": "object", "properties": target},
    }
    properties = {
        "database": {
            "type": "string",
            "label": "Database name",
            "required": True,
            "immutable": True,
            "validators": [rule("pattern", pattern="^[a-z][a-z0-9_]{0,30}$")],
        },
        "user": {"type": "string", "label": "User name", "required": True, "immutable": True},
        "password": {
            "type": "string",
            "required": True,
            "secret": secret,
            "validators": [rule("minLength", value=12)],
        },
        "tier": {"type": "string", "required": True, "validators": [rule("serviceOption", value=tier)]},
        "version": {"type": "integer", "default": 16, "validators": [rule("enum", values=[14, 15, 16])]},
        "maxConnections": {
            "type": "integer",
            "label": "Connections",
            "default": 50,
            "validators": [rule("min", value=10), rule("max", value=1000)],
        },
        "cacheRatio": {
            "type": "number",
            "label": "Cache",
            "validators": [rule("min", value=0.1), rule("max", value=0.9)],
        },
        "synchronous": {"type": "boolean", "label": "Wait for the disk on every commit", "default": True},
        "backup": {"type": "object", "properties": backup},
        "allow": {
            "type": "array",
            "label": "Networks that may connect",
            "items": {"type": "string", "validators": [rule("pattern", pattern="^[0-9a-f.:]+/[0-9]+$")]},
            "validators": [rule("minItems", value=1), rule("maxItems", value=16)],
        },
        "users": {"type": "array", "label": "More users", "items": {"type": "object", "properties": users}},
        "replicaOf": {"type": "reference"},
        "parameters": {"type": "json", "label": "Server parameters"},
        "port": {"type": "integer", "default": 5432, "authorizers": [rule("actor", actors=["system"])]},
        "hostname": {
            "type": "string",
            "generator": rule("hostname", prefix="pg"),
            "authorizers": [rule("actor", actors=["system"])],
        },
        "url": {"type": "string", "authorizers": [rule("actor", actors=["agent"])]},
    }
    return {
        "properties": properties,
        "validators": [rule("atMostOne", properties=["replicaOf", "parameters"])],
    }


EVENTS = [
    {
        "type": "file",
        "name": "/srv/postgresql-7f3c/settings.conf",
        "outcome": "changed",
        "own": True,
        "diff": "@@ -1,4 +1,4 @@\n # Written by mainstay.\n listen_addresses = '*'\n-max_connections = 500\n+max_connections = 200\n",
    },
    {
        "type": "file",
        "name": "/srv/postgresql-7f3c/pg_hba.conf",
        "outcome": "changed",
        "own": True,
        "diff": "@@ -3,2 +3,4 @@\n hostssl orders orders_app 10.20.0.0/16 scram-sha-256\n+\n+hostssl orders orders_app 10.44.8.0/22 scram-sha-256\n",
    },
    {"type": "service", "name": "postgresql-7f3c", "outcome": "refreshed"},
    *({"type": "file", "name": f"/srv/postgresql-7f3c/{number}", "outcome": "stable"} for number in range(10)),
]
ANSWER = {**PLAN_ANSWER, "events": EVENTS, "summary": {"total": 13, "changed": 2}}
