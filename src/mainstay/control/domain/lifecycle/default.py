"""The lifecycle of a service type that declares none: new, stopped, started, deleted.

Only the document, without imports: the command line, which may lack the server's packages, shows it for a type whose
`lifecycleSchema` is null."""

from __future__ import annotations

DEFAULT_LIFECYCLE_SCHEMA: dict[str, object] = {
    "states": [{"name": name} for name in ("New", "Stopped", "Started", "Deleted")],
    "initialState": "New",
    "terminalStates": ["Deleted"],
    "runningStates": ["Started"],
    "actions": [
        {"name": "create", "requestSchemaType": "properties", "transitions": [{"from": "New", "to": "Stopped"}]},
        {"name": "start", "transitions": [{"from": "Stopped", "to": "Started"}]},
        {"name": "stop", "transitions": [{"from": "Started", "to": "Stopped"}]},
        {
            "name": "update",
            "requestSchemaType": "properties",
            "transitions": [{"from": state, "to": state} for state in ("Stopped", "Started")],
        },
        {
            "name": "delete",
            # From New too: a service whose creation failed can be deleted.
            "transitions": [{"from": state, "to": "Deleted"} for state in ("New", "Stopped", "Started")],
        },
    ],
}
