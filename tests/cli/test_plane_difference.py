"""The difference between plane files and a server, as pure values: both sides are written as plane documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest
from jsonschema import Draft202012Validator

from mainstay.cli.plane.difference import Difference, find_difference
from mainstay.cli.plane.entries import Entry, PlaneFault
from mainstay.cli.plane.files import fault_of, read_plane
from mainstay.cli.plane.kinds import KINDS
from mainstay.cli.plane.pool_ranges import read_values
from mainstay.cli.plane.requests import SecretMissing, build_requests
from mainstay.cli.plane.schema import plane_schema
from mainstay.cli.plane.server_faults import find_server_faults
from mainstay.cli.plane.snapshot import Snapshot
from mainstay.cli.remote.service_types import members_of
from mainstay.foundation.documents import read_yaml


def row_id(kind: str, *path: str) -> str:
    return str(uuid5(NAMESPACE_URL, "/".join((kind, *path))))


def snapshot_of(text: str) -> Snapshot:
    """A server with the entries of a plane document. `twin` gives a row the name of another one."""
    snapshot = Snapshot(None, 0)
    content = read_plane([("server.yaml", text)])
    for (kind, path), entry in content.entries.items():
        found = row_id(kind, *path)
        name = entry.name
        row: dict[str, Any] = {"id": found, entry.kind.key: name, **entry.attributes}
        if "values" in entry.attributes:
            values = read_values(entry.attributes["values"], entry.attributes["propertyType"])
            row["values"] = [
                {"id": row_id("value", str(value)), "value": value, "name": label} for value, label in values
            ]
        if kind == "blueprints":
            row["digest"] = "sha256:old"
        if kind == "orders":
            row["agent"] = {"name": "edge-1"}
        snapshot.rows[kind, found] = row
        snapshot.paths[kind, found] = path
        snapshot.ids[kind, path] = found
        snapshot.entries[kind, path] = Entry(entry.kind, path, entry.attributes, id=found, row=row)
        if name != path[-1]:
            snapshot.ambiguous.setdefault((kind, (*path[:-1], name)), []).append(found)
    for (kind, path), entry in snapshot.entries.items():
        if kind == "orders":
            entry.members = members_of(
                snapshot.rows["serviceTypes", row_id("serviceTypes", entry.attributes["type"])]
            )
        elif kind == "agents":
            entry.members = members_of(
                {"propertySchema": {"token": {"type": "string", "secret": {"type": "persistent"}}}}
            )
        assert path
    return snapshot


class Comparison:
    """A plane file compared with a server."""

    def __init__(self, server: str, files: str, **options: bool) -> None:
        self.content = read_plane([("plane.yaml", files)])
        self.snapshot = snapshot_of(server)
        given = {"prune": False, "prune_orders": False, "set_secrets": False, **options}
        self.found = find_difference(self.content, self.snapshot, **given)
        self.built = build_requests(self.found, self.content, self.snapshot, self._read_secret)
        self.faults = [*self.content.faults, *self.found.faults, *self.built.faults]

    def _read_secret(self, directive: Any, _directory: str) -> str:
        if directive.get("env") == "MISSING":
            raise SecretMissing("the environment variable MISSING is not set")
        return f"value of {directive}"

    def refused(self, path: str, refusal: dict[str, Any]) -> list[PlaneFault]:
        """The faults if the server refuses all requests to this path in its dry run."""
        results = [{"error": refusal} if each["path"] == path else {} for each in self.built.requests]
        return find_server_faults(self.built, results, self.content, self.snapshot, self.faults)


def compare(server: str, files: str, **options: bool) -> tuple[Difference, list[dict[str, Any]]]:
    comparison = Comparison(server, files, **options)
    comparison.found.faults = comparison.faults
    return comparison.found, comparison.built.requests


def lines(found: Difference) -> list[str]:
    return [
        f"{step.action} {step.entry.kind.name} {'/'.join(step.entry.path)}"
        + "".join(f" {name}: {old!r} → {new!r}" for name, old, new in step.changes)
        for step in found.steps
    ]


TYPE = "serviceTypes: {vm: {propertySchema: {cpu: {type: integer}, key: {type: string, secret: {type: persistent}}, db: {type: reference}, net: {type: object, properties: {port: {type: integer}}}, disks: {type: array, items: {type: object, properties: {size: {type: integer}, key: {type: string, secret: {type: persistent}}}}}}}}\n"
ORDERS = (
    TYPE
    + "participants: {acme: }\norders: {acme: {default: {shop: {type: vm, properties: {cpu: 2, key: {keep: true}}}}}}\n"
)

STEPS = [
    ("participants: {a: }", "participants: {a: }", {}, []),
    ("", "participants: {a: }", {}, ["create participants a"]),
    (
        "participants: {a: }",
        "participants: {a: {status: Disabled}}",
        {},
        ["change participants a status: 'Enabled' → 'Disabled'"],
    ),
    # What a file does not mention stays.
    ("participants: {a: {status: Disabled}, b: }", "participants: {a: }", {}, []),
    # Participants are never deleted.
    ("participants: {a: , b: }", "participants: {a: }", {"prune": True}, []),
    (
        "optionTypes: {i: {name: x}, j: {name: y}}",
        "optionTypes: {i: {name: x}}",
        {"prune": True},
        ["delete optionTypes j"],
    ),
    # Only kinds that occur.
    ("optionTypes: {i: {name: x}}", "participants:", {"prune": True}, []),
    ("optionTypes: {i: {name: x}}", "optionTypes:", {"prune": True}, ["delete optionTypes i"]),
    # Deletions in the reverse order of creations.
    (
        "participants: {a: }\ngroups: {a: {g: }}\nagentTypes: {t: }\n",
        "groups:\nagentTypes:\n",
        {"prune": True},
        ["delete groups a/g", "delete agentTypes t"],
    ),
    # A pool set is implied by its pools.
    (
        "participants: {a: }",
        "pools: {a: {s: {p: {type: t, propertyType: integer, values: [1-3]}}}}",
        {},
        [
            "create poolSets a/s",
            "create pools a/s/p type: None → 't' propertyType: None → 'integer' values: None → ['1-3']",
        ],
    ),
    (
        "participants: {a: }\npools: {a: {s: {p: {type: t, propertyType: integer, values: [1, 2]}}}}",
        "pools: {a: {s: {p: {values: [2-4]}}}}",
        {},
        ["change pools a/s/p values added: None → [3, 4]"],
    ),
    (
        "participants: {a: }\npools: {a: {s: {p: {type: t, propertyType: integer, values: [1, 2]}}}}",
        "pools: {a: {s: {p: {values: [2]}}}}",
        {"prune": True},
        ["change pools a/s/p values removed: [1] → None"],
    ),
    ("participants: {a: }\nagents: {a: {e: {tags: [x, y]}}}", "agents: {a: {e: {tags: [y, x]}}}", {}, []),
    (
        "participants: {a: }\npoolSets: {a: {s: }}\nagents: {a: {e: {poolSet: s}}}",
        "agents: {a: {e: {poolSet: null, disabled: true}}}",
        {},
        ["change agents a/e poolSet: 's' → None disabled: False → True"],
    ),
    # The same row under another key is a rename.
    (
        "participants: {a: }\ngroups: {a: {g: }}",
        f"groups: {{a: {{h: {{id: {row_id('groups', 'a', 'g')}}}}}}}",
        {},
        ["change groups a/h name: 'g' → 'h'"],
    ),
    # Names that occur twice, with their ids.
    (
        "participants: {a: }\ngroups: {a: {g~1: {name: g}, g~2: {name: g}}}",
        f"groups: {{a: {{g~1: {{id: {row_id('groups', 'a', 'g~1')}, name: g}}, g~2: {{id: {row_id('groups', 'a', 'g~2')}, name: g}}}}}}",
        {},
        [],
    ),
    (ORDERS, "orders: {acme: {default: {shop: {type: vm, properties: {cpu: 2.0}}}}}", {}, []),
    (
        ORDERS,
        "orders: {acme: {default: {shop: {properties: {cpu: 4, key: {keep: true}}}}}}",
        {},
        ["change orders acme/default/shop properties.cpu: 2 → 4"],
    ),
    # Secrets are left alone without --set-secrets, and never shown.
    (ORDERS, "orders: {acme: {default: {shop: {properties: {key: {env: K}}}}}}", {}, []),
    (
        ORDERS,
        "orders: {acme: {default: {shop: {properties: {key: {env: K}}}}}}",
        {"set_secrets": True},
        ["change orders acme/default/shop properties.key: '(secret)' → '(secret)'"],
    ),
    # Objects are merged, so only what differs is a change.
    (
        TYPE
        + "participants: {acme: }\norders: {acme: {default: {shop: {type: vm, properties: {net: {port: 1}}}}}}\n",
        "orders: {acme: {default: {shop: {properties: {net: {port: 2}}}}}}",
        {},
        ["change orders acme/default/shop properties.net.port: 1 → 2"],
    ),
    # Services are deleted only when asked for, and their group not before they are gone.
    (ORDERS, "orders: {acme: {default: }}\ngroups: {acme: }", {"prune": True}, []),
    (ORDERS, "orders:\ngroups:\n", {"prune": True, "prune_orders": True}, ["delete orders acme/default/shop"]),
    # Orders are created after those that they refer to.
    (
        TYPE + "participants: {acme: }\n",
        "orders: {acme: {default: {app: {type: vm, properties: {db: data}}, data: {type: vm}}}}",
        {},
        [
            "create groups acme/default",
            "create orders acme/default/data type: None → 'vm'",
            "create orders acme/default/app type: None → 'vm' properties: None → {'db': 'default/data'}",
        ],
    ),
    # Other forms of the same reference are no change.
    (
        TYPE
        + "participants: {acme: }\norders: {acme: {default: {data: {type: vm}, app: {type: vm, properties: {db: default/data}}}}}",
        "orders: {acme: {default: {app: {properties: {db: data}}}}}",
        {},
        [],
    ),
]


@pytest.mark.parametrize(("server", "files", "options", "expected"), STEPS)
def test_the_steps_of_a_difference(server: str, files: str, options: dict[str, bool], expected: list[str]) -> None:
    found, _ = compare(server, files, **options)
    assert [each.message for each in found.faults] == []
    shown = lines(found)
    assert [line.removesuffix(" properties: None → {}") for line in shown] == expected


FAULTS = [
    ("", "particpants: {a: }", "1:1: there is no kind 'particpants' (did you mean 'participants'?)"),
    ("", "participants: {a: {stats: Enabled}}", "1:20: participant has no 'stats' (did you mean 'status'?)"),
    ("", "participants: {a: {status: On}}", "1:20: must be Enabled or Disabled"),
    ("", "participants: [a]", "1:1: must be a map by participant"),
    ("", "groups: {acme: {g: }}", "1:10: there is no participant 'acme'; add it under `participants`"),
    (
        "participants: {acme: }",
        "groups: {acne: {g: }}",
        "1:10: there is no participant 'acne' (did you mean 'acme'?)",
    ),
    # Names in the files count, too.
    (
        "",
        "participants: {acme: }\ngroups: {acne: {g: }}",
        "2:10: there is no participant 'acne' (did you mean 'acme'?)",
    ),
    (
        "participants: {a: }\nagents: {a: {edge-1: }}",
        "agents: {a: {egde-1: {tags: [x]}}}",
        "1:14: there is no agent 'egde-1' of a (did you mean 'edge-1'?); agents enroll,",
    ),
    (
        "participants: {a: }\npoolSets: {a: {edge: }}\nagents: {a: {e: }}",
        "agents: {a: {e: {poolSet: egde}}}",
        "1:18: there is no pool set 'egde' (did you mean 'edge'?)",
    ),
    (
        "",
        "serviceTypes: {web-app: }\nagentTypes: {t: {serviceTypes: [web-app, web-ap]}}",
        "2:42: there is no service type 'web-ap' (did you mean 'web-app'?)",
    ),
    (
        "serviceTypes: {web-app: }\nparticipants: {acme: }",
        "orders: {acme: {default: {shop: {type: web-ap}}}}",
        "1:34: there is no service type 'web-ap' (did you mean 'web-app'?)",
    ),
    (
        ORDERS,
        "orders: {acme: {default: {new: {type: vm, properties: {db: shpo}}}}}",
        "1:56: there is no service 'shpo' of acme (did you mean 'shop'?); write GROUP/NAME",
    ),
    (
        "blueprints: {web: {version: 1.0.0}}",
        "blueprints: {wbe: }",
        "1:14: the server does not have it (did you mean 'web'?); push it",
    ),
    (
        "participants: {a: }",
        "agents: {a: {e: {tags: [x]}}}",
        "1:14: there is no agent 'e' of a; agents enroll, they are not created by a file: `mainstay agents add e`",
    ),
    ("", "optionTypes: {i: }", "1:15: a new option type needs `name`"),
    (
        "metricTypes: {m: {entityType: Agent}}",
        "metricTypes: {m: {entityType: Service}}",
        "1:19: entityType cannot be changed from 'Agent' to 'Service'; remove it first, or give the new one another name",
    ),
    ("", "agentTypes: {t: {serviceTypes: [vm]}}", "1:33: there is no service type 'vm'"),
    (
        "participants: {a: }\ngroups: {a: {g~1: {name: g}, g~2: {name: g}}}",
        "groups: {a: {g: }}",
        f"1:14: several service groups have this name; add `id:` with one of {row_id('groups', 'a', 'g~1')}, {row_id('groups', 'a', 'g~2')}",
    ),
    (
        "participants: {a: }",
        "groups: {a: {g: {name: h}}}",
        "1:18: a name other than the key needs `id:`, which says which row it is",
    ),
    ("participants: {a: }", "groups: {a: {g: {id: 5}}}", "1:18: must be the id of a row: a uuid"),
    (
        "participants: {a: }",
        "groups: {a: {g: {id: 00000000-0000-0000-0000-000000000000}}}",
        "1:18: there is no service group with the id 00000000-0000-0000-0000-000000000000",
    ),
    (
        "participants: {a: }",
        "pools: {a: {s: {p: {type: t, propertyType: integer, values: [1, 1]}}}}",
        "1:65: contains 1 twice",
    ),
    (
        "participants: {a: }",
        "pools: {a: {s: {p: {type: t, propertyType: integer, values: [x]}}}}",
        "1:62: 'x' is neither an integer nor a range such as 8100-8199",
    ),
    (
        ORDERS,
        "orders: {acme: {default: {shop: {properties: {key: hunter2}}}}}",
        "1:47: is a secret: write {keep: true}, {file: FILE} or {env: NAME}, never the value itself",
    ),
    (
        ORDERS,
        "orders: {acme: {default: {new: {type: vm, properties: {key: {keep: true}}}}}}",
        "1:56: there is no value to keep: write {file: FILE} or {env: NAME}",
    ),
    (
        ORDERS,
        "orders: {acme: {default: {new: {type: vm, properties: {key: {env: MISSING}}}}}}",
        "1:56: the environment variable MISSING is not set",
    ),
    (ORDERS, "orders: {acme: {default: {shop: {agent: edge-2}}}}", "1:34: there is no agent 'edge-2'"),
    (
        ORDERS,
        "orders: {acme: {default: {new: {type: vm, properties: {db: nothing}}}}}",
        "1:56: there is no service 'nothing' of acme; write GROUP/NAME, or the id of a service",
    ),
    (
        TYPE + "participants: {acme: }",
        "orders: {acme: {default: {a: {type: vm, properties: {db: b}}, b: {type: vm, properties: {db: a}}}}}",
        "1:41: this order and others refer to each other in a circle",
    ),
    (
        "",
        "blueprints: {web: }",
        "1:14: the server does not have it; push it with `mainstay blueprint push`, or name its `directory:`",
    ),
    (
        "blueprints: {web: {version: 1.0.0}}",
        "blueprints: {web: {version: 1.1.0}}",
        "1:14: its current version is 1.0.0; push it with `mainstay blueprint push`, or name its `directory:`",
    ),
]


@pytest.mark.parametrize(("server", "files", "message"), FAULTS)
def test_a_fault_names_its_place(server: str, files: str, message: str) -> None:
    found, _ = compare(server, files)
    shown = [str(fault_of(each)) for each in found.faults]
    assert any(each.startswith(f"plane.yaml:{message}") for each in shown), shown
    assert "hunter2" not in "".join(shown)


# What depends on a fault is no further fault.
ONLY_CAUSES = [
    (
        "",
        "particpants: {a: {status: On}}\ngroups: {a: {g: }}",
        [
            "1:1: there is no kind 'particpants' (did you mean 'participants'?)",
            "1:19: must be Enabled or Disabled",
        ],
    ),
    ("", "optionTypes: {i: {nam: x}}", ["1:19: option type has no 'nam' (did you mean 'name'?)"]),
    ("", "optionTypes: {i: {name: 5}}", ["1:19: must be a text"]),
    ("", "optionTypes: {i: 5}", ["1:15: must be a map with name, description, id"]),
    (
        "participants: {acme: }",
        "pools: {acne: {s: {p: {type: t, propertyType: string}, q: {type: u, propertyType: string}}}}",
        ["1:9: there is no participant 'acne' (did you mean 'acme'?)"],
    ),
    (
        ORDERS,
        "orders: {acme: {default: {a: {type: vmm, properties: {db: b}}, b: {type: vm, properties: {key: hunter2}}}}}",
        [
            "1:31: there is no service type 'vmm' (did you mean 'vm'?)",
            "1:91: is a secret: write {keep: true}, {file: FILE} or {env: NAME}, never the value itself",
        ],
    ),
]


@pytest.mark.parametrize(("server", "files", "messages"), ONLY_CAUSES)
def test_a_fault_is_reported_once_and_its_consequences_are_not(server: str, files: str, messages: list[str]) -> None:
    found, _ = compare(server, files)
    assert [str(fault_of(each)) for each in found.faults] == [f"plane.yaml:{each}" for each in messages]


POOL_TYPE = "serviceTypes: {vm: {propertySchema: {cpu: {type: integer}, ip: {type: string, generator: {type: pool, config: {poolType: ipv4}}}}}}\n"
# (server, files, path of the refused request, its refusal, the faults)
REFUSALS: list[tuple[str, str, str, dict[str, Any], list[str]]] = [
    (
        TYPE + "participants: {acme: }",
        "orders:\n  acme:\n    default:\n      shop:\n        type: vm\n        properties:\n          cup: 1\n          net:\n            prt: 2\n",
        "/services",
        {
            "code": "validation_failed",
            "errors": [
                {"path": "cup", "message": "unknown property"},
                {"path": "net.prt", "message": "unknown property"},
                {"path": "key", "message": "required property is missing"},
            ],
        },
        [
            "7:11: cup: unknown property (did you mean 'cpu'?)",
            "9:13: net.prt: unknown property (did you mean 'port'?)",
            "6:9: key: required property is missing",
        ],
    ),
    # With faults of the file itself, in one report; the refusal of the same place is their consequence.
    (
        TYPE + "participants: {acme: }",
        "orders: {acme: {default: {shop: {type: vm, properties: {cpu: 99, key: hunter2}}}}}",
        "/services",
        {
            "code": "validation_failed",
            "errors": [{"path": "cpu", "message": "too many"}, {"path": "key", "message": "is empty"}],
        },
        ["1:66: is a secret: write {keep: true}", "1:57: cpu: too many"],
    ),
    (
        "participants: {acme: }",
        "pools: {acme: {s: {p: {type: t, propertyType: integer, values: [1-9, 10]}}}}",
        "/service-pool-values",
        {"error": "the server does not like it"},
        # Once for the range.
        ["1:65: pool acme / s / p: the server does not like it", "1:70: pool acme / s / p: the server"],
    ),
    (
        "participants: {acme: }",
        "pools: {acme: {s: {p: {type: t, propertyType: string, subnet: {cdr: 1}}}}}",
        "/service-pools",
        {"code": "invalid_body", "errors": [{"path": "generatorConfig.cdr", "message": "unknown field"}]},
        ["1:64: generatorConfig.cdr: unknown field"],
    ),
    (
        "",
        "serviceTypes: {t: {propertySchema: {properties: {a: {type: text}}}, lifecycleSchema: {states: [{}]}}}",
        "/service-types",
        {
            "code": "invalid_definition",
            "errors": [
                {"path": "a.type", "message": "unknown type 'text'"},
                {"path": "lifecycleSchema.states[0].name", "message": "name is required"},
            ],
        },
        ["1:54: a.type: unknown type 'text'", "1:96: lifecycleSchema.states[0].name: name is required"],
    ),
    # The pool has a fault, so a missing value may be its consequence; a wrong value is not.
    (
        POOL_TYPE + "participants: {acme: , op: }",
        "pools: {op: {s: {p: {type: ipv4, propertyType: nonsense}}}}\norders: {acme: {default: {shop: {type: vm, properties: {cpu: 9}}}}}",
        "/services",
        {
            "code": "validation_failed",
            "errors": [
                {"path": "ip", "message": "no pool found with type ipv4 in pool set"},
                {"path": "cpu", "message": "too many"},
            ],
        },
        ["1:34: must be string or integer", "2:57: cpu: too many"],
    ),
    (
        POOL_TYPE
        + "participants: {acme: , op: }\npools: {op: {s: {p: {type: ipv-4, propertyType: string, values: [a]}}}}",
        "orders: {acme: {default: {shop: {type: vm}}}}",
        "/services",
        {
            "code": "validation_failed",
            "errors": [{"path": "ip", "message": "no pool found with type ipv4 in pool set"}],
        },
        ["1:27: ip: no pool found with type ipv4 in pool set (did you mean 'ipv-4'?)"],
    ),
    # The order of a type with faults cannot be judged.
    (
        TYPE + "participants: {acme: }",
        "serviceTypes: {vm: {propertySchema: 5}}\norders: {acme: {default: {shop: {type: vm, properties: {new: 1}}}}}",
        "/services",
        {"code": "validation_failed", "errors": [{"path": "new", "message": "unknown property"}]},
        ["1:21: must be a map"],
    ),
]


@pytest.mark.parametrize(("server", "files", "path", "refusal", "expected"), REFUSALS)
def test_a_refusal_of_the_server_has_the_place_of_what_it_refuses(
    server: str, files: str, path: str, refusal: dict[str, Any], expected: list[str]
) -> None:
    comparison = Comparison(server, files)
    assert any(each["path"] == path for each in comparison.built.requests)
    faults = [*comparison.faults, *comparison.refused(path, refusal)]
    shown = [str(fault_of(each)) for each in faults]
    assert len(shown) == len(expected), shown
    for fault, start in zip(shown, expected, strict=True):
        assert fault.startswith(f"plane.yaml:{start}"), shown


def test_what_needs_a_refused_request_is_reported_only_without_another_cause() -> None:
    comparison = Comparison("", "participants: {a: }\ngroups: {a: {g: }}")
    missing = {"code": "missing_reference", "error": "this needs participant a, which was not created"}
    assert len(comparison.refused("/service-groups", missing)) == 1
    results = [{"error": {"error": "no"}}, {"error": missing}]
    found = find_server_faults(comparison.built, results, comparison.content, comparison.snapshot, [])
    assert [each.message for each in found] == ["participant a: no"]
    # A pool that the server refuses explains an order without its value.
    files = "pools: {op: {s: {p: {type: ipv4, propertyType: string}}}}\norders: {acme: {default: {shop: {type: vm}}}}"
    comparison = Comparison(POOL_TYPE + "participants: {acme: , op: }", files)
    errors = [{"path": "ip", "message": "no pool found with type ipv4 in pool set"}]
    refusals: dict[str, Any] = {
        "/service-pools": {"error": "no"},
        "/services": {"code": "validation_failed", "errors": errors},
    }
    results = [
        {"error": refusals[each["path"]]} if each["path"] in refusals else {} for each in comparison.built.requests
    ]
    found = find_server_faults(comparison.built, results, comparison.content, comparison.snapshot, [])
    assert [each.message for each in found] == ["pool op / s / p: no"]


def test_new_rows_are_referred_to_by_key() -> None:
    _, requests = compare(
        "", "participants: {a: }\npools: {a: {s: {p: {type: t, propertyType: integer, values: [7]}}}}\n"
    )
    assert [(each["path"], each.get("key"), each.get("references")) for each in requests] == [
        ("/participants", "participant a", None),
        ("/service-pool-sets", "pool set a / s", {"/providerId": "participant a"}),
        ("/service-pools", "pool a / s / p", {"/servicePoolSetId": "pool set a / s"}),
        ("/service-pool-values", None, {"/servicePoolId": "pool a / s / p"}),
    ]


def test_a_number_for_a_secret_is_a_fault_also_if_secrets_are_set() -> None:
    files = ORDERS.replace("{keep: true}", "5")
    found, _ = compare(ORDERS, files, set_secrets=True)
    assert [each.message for each in found.faults] == [
        "is a secret: write {keep: true}, {file: FILE} or {env: NAME}, never the value itself"
    ]
    assert not found.steps


def test_a_changed_list_sends_back_the_secrets_that_it_keeps() -> None:
    stored = "{size: 1, key: {keep: true}}"
    server = (
        TYPE
        + f"participants: {{acme: }}\norders: {{acme: {{default: {{shop: {{type: vm, properties: {{disks: [{stored}]}}}}}}}}}}"
    )
    _, requests = compare(
        server, "orders: {acme: {default: {shop: {properties: {disks: [{size: 2, key: {keep: true}}]}}}}}"
    )
    # The stand-in for the stored reference.
    assert requests[0]["body"] == {"properties": {"disks": [{"size": 2, "key": str({"keep": True})}]}}


def test_an_entry_in_two_documents_is_a_fault_with_both_places() -> None:
    content = read_plane(
        [("a.yaml", "participants: {a: }\n---\nparticipants:\n  b:\n"), ("b.yaml", "participants:\n  a:\n")]
    )
    (fault,) = content.faults
    assert str(fault_of(fault)) == "b.yaml:2:3: participant a is defined twice; first at a.yaml:1:16"
    assert {path for _, path in content.entries} == {("a",), ("b",)}


def test_a_fault_in_a_later_document_has_the_line_of_the_file() -> None:
    content = read_plane([("a.yaml", "# one\nparticipants: {a: }\n---\n# two\ngrups: {}\n")])
    assert [str(fault_of(each)).partition(" (")[0] for each in content.faults] == [
        "a.yaml:5:1: there is no kind 'grups'"
    ]


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "offering" / "plane.md"


def test_the_json_schema_accepts_the_files_of_the_guide_and_refuses_unknown_members() -> None:
    schema = plane_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    files = re.findall(r"```yaml\n(# file: .*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(files) == 3
    accepted = [not list(validator.iter_errors(read_yaml(each, "guide"))) for each in files]
    # The second one shows a fault.
    assert accepted == [True, False, True]
    for text in (
        "grups: {}",
        "groups: {a: {g: {colour: red}}}",
        "groups: {a: {g: {id: 5}}}",
        "participants: {a: {status: On}}",
    ):
        assert list(validator.iter_errors(read_yaml(text, "f"))), text


def test_every_kind_occurs_in_the_json_schema() -> None:
    assert list(plane_schema()["properties"]) == list(KINDS)
