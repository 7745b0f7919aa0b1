"""Random schemas with random sequences of orders, updates and reports. Invariants are checked after every step."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from documents import CANARY, POOL, STATES, members, properties_for
from mainstay.control.domain.properties.contract import Actor, Operation, SecretKind
from mainstay.control.domain.properties.engine import Accepted, Rejected
from mainstay.control.domain.properties.traversal import secrets_in, without_secrets
from mainstay.control.domain.values import equal
from property_requests import StubLookups, evaluation_context, schema_of
from torture import count_of

ADDRESSES = tuple(f"10.0.0.{number}" for number in range(1, 40))


class Histories(RuleBasedStateMachine):
    """A request is accepted or rejected; any exception fails the test."""

    @initialize(document=members())
    def write_schema(self, document: dict[str, Any]) -> None:
        self.document = document
        self.schema = schema_of(document)
        self.lookups = StubLookups(pools={POOL: ("string", list(ADDRESSES))})
        self.stored: dict[str, Any] | None = None

    @precondition(lambda self: self.stored is None)
    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        given = data.draw(properties_for(self.document))
        outcome = self.ask(given, Operation.CREATE, Actor.USER, None, {})
        if isinstance(outcome, Accepted):
            check_permissions(self.document, {}, outcome.properties, given, Actor.USER, None)
            self.stored = self.lookups.keep(outcome)

    @precondition(lambda self: self.stored is not None)
    @rule(data=st.data(), actor=st.sampled_from([Actor.USER, Actor.AGENT]), state=st.sampled_from(STATES))
    def change(self, data: st.DataObject, actor: Actor, state: str) -> None:
        assert self.stored is not None
        given = data.draw(properties_for(self.document))
        operation = Operation.UPDATE if actor is Actor.USER else Operation.REPORT
        before = self.stored
        outcome = self.ask(given, operation, actor, state, before)
        if isinstance(outcome, Accepted):
            check_permissions(self.document, before, outcome.properties, given, actor, state)
            after = self.lookups.keep(outcome)
            assert outcome.changed == (not equal(before, after))
            self.stored = after

    @precondition(lambda self: self.stored is not None)
    @rule(state=st.sampled_from(STATES))
    def send_it_all_back(self, state: str) -> None:
        assert self.stored is not None
        outcome = self.ask(self.stored, Operation.UPDATE, Actor.USER, state, self.stored)
        assert isinstance(outcome, Accepted)
        assert not outcome.changed
        assert outcome.properties == self.stored
        assert not outcome.secrets
        assert not outcome.retired_secrets
        assert outcome.pool_takes == outcome.pool_releases == ()

    @precondition(lambda self: self.stored is not None)
    @rule()
    def end_the_run(self) -> None:
        """Ephemeral secrets are deleted when a run ends."""
        assert self.stored is not None
        for place in secrets_in(self.schema, self.stored):
            if place.kind is SecretKind.EPHEMERAL:
                del self.lookups.vault[place.reference]
        self.stored = without_secrets(self.schema, self.stored, SecretKind.EPHEMERAL)

    @invariant()
    def every_secret_has_one_owner_and_no_pool_value_is_lost(self) -> None:
        if getattr(self, "stored", None) is None:
            return
        assert self.stored is not None
        references = [place.reference for place in secrets_in(self.schema, self.stored)]
        assert set(references) == set(self.lookups.vault)
        assert CANARY not in json.dumps(self.stored)
        taken = len(ADDRESSES) - len(self.lookups.pools[POOL][1])
        assert taken <= json.dumps(self.stored).count("10.0.0.")

    def ask(
        self, given: dict[str, Any], operation: Operation, actor: Actor, state: str | None, stored: dict[str, Any]
    ) -> Accepted | Rejected:
        note(f"{operation} by {actor} in {state}: {given}")
        untouched = json.dumps([given, stored])
        outcome = self.lookups.ask(self.schema, given, evaluation_context(operation, actor, state=state), stored)
        assert json.dumps([given, stored]) == untouched
        assert CANARY not in repr(outcome)
        if isinstance(outcome, Rejected):
            assert outcome.faults
        return outcome


def check_permissions(
    document: dict[str, Any],
    before: dict[str, Any],
    after: dict[str, Any],
    given: dict[str, Any],
    actor: Actor,
    state: str | None,
) -> None:
    """Independent check of the schema: the actor may set every changed value, and no immutable value changed."""
    for name, definition in document.items():
        old, new, sent = before.get(name), after.get(name), given.get(name)
        if "properties" in definition and isinstance(old, dict) and isinstance(new, dict) and isinstance(sent, dict):
            check_permissions(definition["properties"], old, new, sent, actor, state)
            continue
        if "properties" in definition or "items" in definition or old is None or equal(old, new):
            continue
        assert name in given, f"{name} changed without being given"
        assert not definition.get("immutable"), f"{name} is immutable"
        for authorizer in definition.get("authorizers", []):
            if authorizer["type"] == "actor":
                assert actor in authorizer["config"]["actors"], f"{actor} set {name}"
            else:
                assert state in authorizer["config"]["allowedStates"], f"{name} changed in {state}"


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=count_of(2_000),
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
