"""Random planes on a real server, made with the API: every kind, odd names, values of every form."""

from __future__ import annotations

import random
from typing import Any

from control_plane import Client
from scenario import unique

NAMES = ("a b", "x: y", "# no", "yes", "1e3", "ünïcödé", "- dash", "a/b", "~", "'quoted'", "{}", "null")
SCHEMA = {
    "cpu": {"type": "integer", "default": 1},
    "label": {"type": "string"},
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "net": {
        "type": "object",
        "properties": {"port": {"type": "integer"}, "pass": {"type": "string", "secret": {"type": "persistent"}}},
    },
    "tags": {"type": "array", "items": {"type": "string"}},
    "extra": {"type": "json"},
    "url": {"type": "string", "source": "agent"},
    "peer": {"type": "reference"},
}


class RandomPlane:
    """One plane from one seed. The first part can be applied to an empty server: it needs no agents."""

    def __init__(self, admin: Client, seed: int) -> None:
        self.admin = admin
        self.source = random.Random(seed)
        self.people = [
            self.post("/participants", name=self.name(), status=self.source.choice(["Enabled", "Disabled"]))
            for _ in range(3)
        ]
        self.seller = self.post("/participants", name=unique("seller"))
        self.buyer = self.post("/participants", name=unique("buyer"))
        self.kind = self.post("/service-types", name=unique("vm"), propertySchema=SCHEMA)
        self.post("/service-types", name=self.name())
        self.post("/metric-types", name=self.name(), entityType=self.source.choice(["Agent", "Service", "Resource"]))
        self.agent_type = self.post(
            "/agent-types",
            name=self.name(),
            serviceTypeIds=[self.kind["id"]],
            providerIds=[self.seller["id"], *(each["id"] for each in self.people[:2])],
            configurationSchema={
                "rack": {"type": "string"},
                "token": {"type": "string", "secret": {"type": "persistent"}},
            },
            configTemplate="rack: {{.rack}}\n# two lines\n",
            cmdTemplate="run {{.configUrl}} {{.authToken}}",
        )
        self.options()
        self.pools()
        for owner in (None, *self.people):
            self.config_pool(owner)
        for owner in self.people:
            for _ in range(self.source.randrange(3)):
                self.post("/service-groups", name=self.name(), consumerId=owner["id"])

    def post(self, path: str, **body: Any) -> Any:
        return self.admin.post(path, {name: value for name, value in body.items() if value is not None})

    def name(self) -> str:
        return f"{self.source.choice(NAMES)} {unique('n')}"

    def value(self) -> Any:
        return self.source.choice(
            [0, -7, 1.5, True, "text", "yes", "a\nb\n", [1, "x"], {"id": 12, "deep": {"list": []}}]
        )

    def options(self) -> None:
        for _ in range(2):
            kind = self.post(
                "/service-option-types",
                name=self.name(),
                type=unique("t").replace("-", "_"),
                description=self.source.choice(["", "two\nlines"]),
            )
            for owner in self.people[:2]:
                for _ in range(self.source.randrange(3)):
                    self.post(
                        "/service-options",
                        providerId=owner["id"],
                        serviceOptionTypeId=kind["id"],
                        name=self.name(),
                        value=self.value(),
                        enabled=self.source.random() < 0.5,
                        displayOrder=self.source.randrange(-2, 3),
                    )

    def pools(self) -> None:
        self.sets = []
        for owner in (self.seller, *self.people[:2]):
            found = self.post("/service-pool-sets", name=self.name(), providerId=owner["id"])
            self.sets.append(found)
            self.pool(found["id"], "subnet", "string", {"cidr": "10.0.0.0/24", "excludeFirst": 1})
            for kind, values in (
                ("integer", [5, 6, 7, 9, -1]),
                ("string", ["a", "yes", "10.0.0.1"]),
                ("json", [{"value": 1}, [2]]),
                ("boolean", [True]),
            ):
                pool = self.pool(found["id"], "list", kind, None)
                for value in values[: self.source.randrange(len(values) + 1)]:
                    name = str(value) if self.source.random() < 0.7 else self.name()
                    self.post("/service-pool-values", servicePoolId=pool["id"], name=name, value=value)

    def pool(self, set_id: str, generator: str, kind: str, config: Any) -> Any:
        return self.post(
            "/service-pools",
            name=self.name(),
            type=unique("p"),
            propertyType=kind,
            generatorType=generator,
            generatorConfig=config,
            servicePoolSetId=set_id,
        )

    def config_pool(self, owner: Any) -> None:
        pool = self.post(
            "/config-pools",
            name=self.name(),
            type=unique("c"),
            propertyType="string",
            generatorType="list",
            participantId=owner and owner["id"],
        )
        for value in ("k1", "k2"):
            self.post("/config-pool-values", configPoolId=pool["id"], name=value, value=value)

    def add_agents_and_orders(self) -> None:
        """Also rows whose names occur twice."""
        twin = self.name()
        for number in range(2):
            self.post(
                "/agents",
                name=twin,
                providerId=self.seller["id"],
                agentTypeId=self.agent_type["id"],
                tags=["eu"] * number,
                configuration={"rack": "r1", "token": "canary-token"},
                servicePoolSetId=self.sets[0]["id"] if number else None,
            )
        group = self.post("/service-groups", name=self.name(), consumerId=self.buyer["id"])
        for _ in range(2):
            self.post("/service-groups", name=twin, consumerId=self.buyer["id"])
        first = None
        for name in (self.name(), self.name(), twin, twin):
            properties = {
                "cpu": self.source.randrange(9),
                "label": self.source.choice(NAMES),
                "key": "canary-key",
                "net": {"port": 1, "pass": "canary-pass"},
                "tags": ["b", "a"],
                "extra": {"keep": True},
                "peer": first,
            }
            chosen = {
                key: value for key, value in properties.items() if value is not None and self.source.random() < 0.7
            }
            first = self.post(
                "/services", serviceTypeId=self.kind["id"], name=name, groupId=group["id"], properties=chosen
            )["id"]
