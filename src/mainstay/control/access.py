"""The access table: noun × action × role → relation. Pure; no other module decides access.

A relation selects the rows of the noun that a caller may access: it lists columns, and the id of the caller that each
must equal. `ALL` is every row. A role that is not listed is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    ADMIN = "admin"
    PARTICIPANT = "participant"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated sender of a request. An agent's participant is its provider; an admin has neither id."""

    role: Role
    token_id: str
    participant_id: str | None = None
    agent_id: str | None = None
    # May only read.
    read_only: bool = False
    # When the token expires; None: never.
    expires_at: datetime | None = None
    # Identifies the value of the token, which a regeneration changes.
    token_hash: str = ""
    # Of the agent, the participant or the admin token.
    name: str = ""

    def id_of(self, whose: str) -> str | None:
        return self.participant_id if whose == "participant" else self.agent_id


_OWNER_NAMES = {"provider_id": "provider", "consumer_id": "consumer", "agent_id": "agent"}


@dataclass(frozen=True, slots=True)
class Relation:
    """`owners` are (column, whose id); any match grants access. `offered` is a column that grants access to rows of
    providers that may serve the caller's participant, which the tables decide: `store/serving.py`."""

    owners: tuple[tuple[str, str], ...] = ()
    offered: str | None = None
    everything: bool = False
    # The name of a relation that only the tables decide. None: the columns decide.
    by_tables: str | None = None
    # Whether a row of others is refused (403) instead of hidden (404).
    shows_existence: bool = False

    def __str__(self) -> str:
        if self.everything or self.by_tables is not None:
            return self.by_tables or "all"
        offered = [] if self.offered is None else [f"{self.offered} and provider may serve own participant"]
        rows = " or ".join([*(f"{column} = own {whose}" for column, whose in self.owners), *offered])
        return f"{rows}, others 403" if self.shows_existence else rows

    @property
    def owner_names(self) -> str:
        """The parties that the relation grants access, for messages."""
        return " or ".join(_OWNER_NAMES.get(column, "owner") for column, _ in self.owners)

    def holds(self, caller: Caller, row: object) -> bool:
        """Without `offered`."""
        return self.everything or any(
            (wanted := caller.id_of(whose)) is not None and getattr(row, column) == wanted
            for column, whose in self.owners
        )


def _own(*columns: str, offered: str | None = None) -> Relation:
    """Columns that must equal the id of the caller's participant."""
    return Relation(tuple((column, "participant") for column in columns), offered)


ALL = Relation(everything=True)
AS_PROVIDER = _own("provider_id")
AS_CONSUMER = _own("consumer_id")
AS_EITHER = _own("provider_id", "consumer_id")
ITSELF = _own("id")
AS_AGENT = Relation((("agent_id", "agent"),))
# `store/blueprints.py` and `store/serving.py`.
SERVED_BLUEPRINTS = Relation(by_tables="of service types, services and jobs of own agent")
OFFERS = Relation(by_tables="agents that may serve own participant")
AGENT_ITSELF = Relation((("id", "agent"),))

A, P, G = Role.ADMIN, Role.PARTICIPANT, Role.AGENT

EVERYONE: Mapping[Role, Relation] = {A: ALL, P: ALL, G: ALL}
ADMIN_ONLY: Mapping[Role, Relation] = {A: ALL}
PROVIDERS: Mapping[Role, Relation] = {A: ALL, P: AS_PROVIDER}
CONSUMERS: Mapping[Role, Relation] = {A: ALL, P: AS_CONSUMER}
OWN_TOKENS: Mapping[Role, Relation] = {A: ALL, P: _own("participant_id")}
# The API family refuses config pools of others and global ones instead of hiding them.
OWN_CONFIG_POOLS: Mapping[Role, Relation] = {
    A: ALL,
    P: Relation((("participant_id", "participant"),), shows_existence=True),
}

ACCESS: Mapping[tuple[str, str], Mapping[Role, Relation]] = {
    ("participant", "read"): {A: ALL, P: ITSELF},
    ("participant", "write"): ADMIN_ONLY,
    ("participant", "change"): {A: ALL, P: ITSELF},
    ("token", "read"): OWN_TOKENS,
    ("token", "write"): OWN_TOKENS,
    ("token", "be"): EVERYONE,
    ("agent_type", "read"): EVERYONE,
    ("agent_type", "write"): ADMIN_ONLY,
    ("service_type", "read"): EVERYONE,
    ("service_type", "write"): ADMIN_ONLY,
    ("service_option_type", "read"): EVERYONE,
    ("service_option_type", "write"): ADMIN_ONLY,
    ("agent", "read"): {A: ALL, P: AS_PROVIDER},
    ("agent", "write"): PROVIDERS,
    ("agent", "be"): {G: AGENT_ITSELF},
    # With the token of an install command of the agent; the operation checks both.
    ("agent", "install"): {A: ALL, P: AS_PROVIDER, G: AGENT_ITSELF},
    # Codes for many hosts: each use creates an agent of the provider.
    ("enrolment_code", "read"): PROVIDERS,
    ("enrolment_code", "write"): PROVIDERS,
    ("service_group", "read"): CONSUMERS,
    ("service_group", "write"): CONSUMERS,
    # Consumers choose among the enabled options of providers that may serve them.
    ("service_option", "read"): {A: ALL, P: _own("provider_id", offered="enabled"), G: AS_PROVIDER},
    ("service_option", "write"): PROVIDERS,
    ("service", "read"): {A: ALL, P: AS_EITHER, G: AS_AGENT},
    ("service", "order"): CONSUMERS,
    # The operation checks whether the target may serve the consumer.
    ("service", "move"): CONSUMERS,
    ("service", "condition"): {G: AS_AGENT},
    ("service", "repair"): PROVIDERS,
    ("job", "read"): {A: ALL, P: AS_EITHER, G: AS_AGENT},
    ("job", "cancel"): {A: ALL, P: AS_EITHER, G: AS_AGENT},
    ("job", "work"): {G: AS_AGENT},
    ("plan", "work"): {G: AS_AGENT},
    ("orphan", "read"): {A: ALL, P: AS_PROVIDER, G: AS_AGENT},
    ("orphan", "work"): {G: AS_AGENT},
    ("orphan", "forget"): ADMIN_ONLY,
    # A roll-out concerns services of all participants.
    ("rollout", "read"): ADMIN_ONLY,
    ("rollout", "write"): ADMIN_ONLY,
    ("service_pool_set", "read"): {A: ALL, P: AS_PROVIDER, G: AS_PROVIDER},
    ("service_pool_set", "write"): PROVIDERS,
    ("service_pool", "read"): {A: ALL, P: AS_PROVIDER, G: AS_PROVIDER},
    ("service_pool", "write"): PROVIDERS,
    ("service_pool_value", "read"): {A: ALL, P: AS_PROVIDER, G: AS_PROVIDER},
    ("service_pool_value", "write"): PROVIDERS,
    ("config_pool", "read"): OWN_CONFIG_POOLS,
    ("config_pool", "write"): OWN_CONFIG_POOLS,
    ("config_pool_value", "read"): OWN_CONFIG_POOLS,
    ("config_pool_value", "write"): OWN_CONFIG_POOLS,
    # Depends on the owner of the secret: see operations/vault.py.
    ("secret", "read"): {G: ALL},
    ("metric_type", "read"): EVERYONE,
    ("metric_type", "write"): ADMIN_ONLY,
    ("metric_entry", "read"): {A: ALL, P: AS_EITHER},
    # The operation checks the service in the body.
    ("metric_entry", "write"): {G: AS_AGENT},
    ("catalogue", "read"): {A: ALL, P: OFFERS, G: OFFERS},
    # Manifests are the provider's: a consumer sees their effects in plans and reports.
    ("blueprint", "list"): ADMIN_ONLY,
    ("blueprint", "read"): {A: ALL, G: SERVED_BLUEPRINTS},
    ("blueprint", "write"): ADMIN_ONLY,
    # Every request in a batch has a row of its own.
    ("batch", "send"): {A: ALL, P: ALL},
    ("batch", "read"): {A: ALL, P: ALL},
    ("event", "read"): {A: ALL, P: _own("provider_id", "consumer_id", "participant_id")},
    ("event", "lease"): ADMIN_ONLY,
    ("event", "verify"): ADMIN_ONLY,
    ("doctor", "read"): ADMIN_ONLY,
}


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun.replace('_', ' ')}"


class RoleRefused(Exception):
    """The access table does not allow the action for the caller's role on any row."""

    def __init__(self, role: Role, action: str, noun: str) -> None:
        super().__init__(f"a token of role {role} may not {action} {with_article(noun)}")


def reading_relation(caller: Caller, noun: str) -> Relation | None:
    """None: the role may read no row of the noun."""
    return ACCESS.get((noun, "read"), {}).get(caller.role)


def relation_of(caller: Caller, noun: str, action: str) -> Relation:
    relation = ACCESS[noun, action].get(caller.role)
    if relation is None:
        raise RoleRefused(caller.role, action, noun)
    return relation
