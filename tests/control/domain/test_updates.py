"""Updates and reports: which values count as given, which are kept, and which cannot change."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.control.domain.properties.compatibility import misfits
from mainstay.control.domain.properties.contract import Actor, Operation, Questions, SecretKind
from mainstay.control.domain.properties.engine import Accepted, decide
from mainstay.control.domain.properties.evaluation import PoolTake, ValueSource
from mainstay.control.domain.properties.provenance import Origin, provenance
from mainstay.control.domain.properties.traversal import SecretPlace, without_secrets
from property_requests import StubLookups, create, evaluation_context, faults, schema_faults, schema_of, update

OPTIONAL = {"type": "string"}
FIXED = {"type": "string", "immutable": True}
AGENT_ONLY = {"type": "string", "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]}
WHEN_STOPPED = {"type": "integer", "authorizers": [{"type": "state", "config": {"allowedStates": ["Stopped"]}}]}
POOLED: dict[str, Any] = {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}}
OPEN_POOL = {**POOLED, "authorizers": [{"type": "actor", "config": {"actors": ["user", "system"]}}]}
SECRET = {"type": "string", "secret": {"type": "persistent"}}
PASSING = {"type": "string", "secret": {"type": "ephemeral"}, "required": True, "immutable": True}
AGENT_REPORTS: dict[str, Any] = {"operation": Operation.REPORT, "actor": Actor.AGENT, "state": "Stopped"}


def an_object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def an_array(**members: Any) -> dict[str, Any]:
    return {"type": "array", "items": an_object(**members)}


def test_a_value_equal_to_the_stored_one_counts_as_not_given() -> None:
    document = {"ip": AGENT_ONLY, "cpu": WHEN_STOPPED, "name": OPTIONAL}
    stored: dict[str, object] = {"ip": "10.0.0.1", "cpu": 4, "name": "a"}
    accepted = update(document, {**stored, "cpu": 4.0, "name": "b"}, stored, state="Started")
    assert accepted.properties == {**stored, "name": "b"}


def test_an_update_without_changes_generates_nothing() -> None:
    document = {
        "name": OPTIONAL,
        "id": {"type": "string", "generator": {"type": "uuid"}},
        "must": {**OPTIONAL, "required": True},
    }
    accepted = update(document, {"name": "a"}, {"name": "a"})
    assert not accepted.changed
    assert accepted.properties == {"name": "a"}


def test_objects_with_properties_merge_and_everything_else_is_replaced() -> None:
    document = {
        "tags": an_object(owner=OPTIONAL, place=an_object(rack=OPTIONAL, row=OPTIONAL)),
        "free": {"type": "object"},
        "ports": {"type": "array"},
        "any": {"type": "json"},
    }
    stored: dict[str, object] = {
        "tags": {"owner": "me", "place": {"rack": "1", "row": "2"}},
        "free": {"a": 1},
        "ports": [1, 2],
        "any": {"x": None},
    }
    given = {"tags": {"place": {"rack": "9"}}, "free": {"b": 2}, "ports": [3], "any": {"y": None}}
    assert update(document, given, stored).properties == {
        "tags": {"owner": "me", "place": {"rack": "9", "row": "2"}},
        "free": {"b": 2},
        "ports": [3],
        "any": {"y": None},
    }


def test_null_clears_an_optional_property_and_nothing_else() -> None:
    document = {"a": OPTIONAL, "must": {**OPTIONAL, "required": True}, "fixed": FIXED}
    stored: dict[str, object] = {"a": "1", "must": "2", "fixed": "3"}
    assert update(document, {"a": None}, stored).properties == {"must": "2", "fixed": "3"}
    assert faults(document, {"must": None, "fixed": None}, stored) == {
        "must": "required field is missing",
        "fixed": "fixed: property is immutable and cannot be changed",
    }
    assert not update(document, {"a": None, "fixed": None}, {"must": "2"}).changed


def test_null_at_creation_means_not_given() -> None:
    document = {"a": {**OPTIONAL, "default": "x"}, "o": an_object(b=OPTIONAL), "j": {"type": "json"}}
    assert create(document, {"a": None, "o": {"b": None}, "j": {"k": None}}) == {"a": "x", "o": {}, "j": {"k": None}}
    assert create(document, {"a": None, "o": None, "j": None}) == {"a": "x"}


def test_clearing_an_object_needs_permission_for_all_its_members() -> None:
    document = {"o": an_object(fixed=FIXED, ip=AGENT_ONLY, plain=OPTIONAL)}
    stored: dict[str, object] = {"o": {"fixed": "1", "ip": "2", "plain": "3"}}
    assert faults(document, {"o": None}, stored) == {
        "o.fixed": "o.fixed: property is immutable and cannot be changed",
        "o.ip": "o.ip: property can only be set by: [agent]",
    }
    assert update(document, {"o": None}, {"o": {"plain": "3"}}).properties == {}


def test_an_immutable_property_may_be_set_later_once() -> None:
    document = {"fixed": FIXED, "a": OPTIONAL}
    stored = update(document, {"fixed": "1"}, {"a": "x"}).properties
    assert stored == {"a": "x", "fixed": "1"}
    assert "fixed" in faults(document, {"fixed": "2"}, stored)
    assert not update(document, {"fixed": "1"}, stored).changed


def test_no_member_of_an_immutable_object_can_change() -> None:
    document = {"o": {**an_object(a=OPTIONAL, b=OPTIONAL), "immutable": True}}
    stored: dict[str, object] = {"o": {"a": "1"}}
    assert faults(document, {"o": {"b": "2"}}, stored) == {"o": "o: property is immutable and cannot be changed"}
    assert not update(document, {"o": {"a": "1"}}, stored).changed


def test_defaults_apply_at_creation_and_in_a_new_object() -> None:
    document = {
        "a": {**OPTIONAL, "default": "x"},
        "o": an_object(port={"type": "integer", "default": 5432}, h=OPTIONAL),
    }
    assert create(document, {}) == {"a": "x"}
    assert update(document, {"o": {}}, {"a": "y"}).properties == {"a": "y", "o": {"port": 5432}}
    assert update(document, {"o": {"h": "x"}}, {"o": {"h": "y"}}).properties == {"o": {"h": "x"}}


def test_a_default_object_gets_the_defaults_of_its_members_without_authorization() -> None:
    inner = an_object(port={"type": "integer", "default": 1}, ip=AGENT_ONLY)
    assert create({"o": {**inner, "default": {"ip": "x"}}}, {}) == {"o": {"ip": "x", "port": 1}}


def test_generators_run_for_missing_values() -> None:
    document = {
        "id": {"type": "uuid", "generator": {"type": "uuid"}},
        "at": {"type": "string", "generator": {"type": "timestamp"}},
        "a": OPTIONAL,
    }
    stored = create(document, {})
    assert stored["at"] == "2026-03-01T12:00:00Z"
    assert isinstance(stored["id"], str)
    assert stored["id"][14] == "4"
    assert create(document, {"id": stored["id"]})["id"] == stored["id"]
    added = update(document, {"a": "x"}, {"a": "y"}).properties
    assert set(added) == {"a", "id", "at"}


def test_a_report_generates_nothing() -> None:
    assert update({"ip": AGENT_ONLY, "p": POOLED}, {"ip": "x"}, {}, **AGENT_REPORTS).properties == {"ip": "x"}


def test_null_on_a_pool_property_allocates_another_value_and_releases_the_old_one() -> None:
    lookups = StubLookups(pools={"ip": ("string", ["10.0.0.2"])})
    accepted = update({"p": OPEN_POOL}, {"p": None}, {"p": "10.0.0.1"}, lookups)
    assert accepted.properties == {"p": "10.0.0.2"}
    assert accepted.pool_takes == (PoolTake("p", "ip", "10.0.0.2"),)
    assert accepted.pool_releases == (PoolTake("p", "ip", "10.0.0.1"),)


def test_a_value_given_for_a_pool_property_must_be_free_in_the_pool() -> None:
    lookups = StubLookups(pools={"ip": ("string", ["10.0.0.1", "10.0.0.2"])})
    assert create({"p": OPEN_POOL}, {"p": "10.0.0.2"}, lookups) == {"p": "10.0.0.2"}
    assert faults({"p": OPEN_POOL}, {"p": "10.0.0.2"}, lookups=lookups) == {"p": "failed to allocate from pool ip"}
    assert lookups.pools["ip"][1] == ["10.0.0.1"]


def test_an_immutable_pool_value_stays() -> None:
    document = {"p": {**OPEN_POOL, "immutable": True}}
    message = {"p": "p: property is immutable and cannot be changed"}
    assert faults(document, {"p": None}, {"p": "10.0.0.1"}) == message
    assert faults(document, {"p": "10.0.0.2"}, {"p": "10.0.0.1"}) == message


def test_a_pool_value_must_pass_the_validators_of_its_property() -> None:
    document = {"p": {**POOLED, "validators": [{"type": "pattern", "pattern": "^192"}]}}
    assert faults(document, {}, lookups=StubLookups(pools={"ip": ("string", ["10.0.0.1"])})) == {
        "p": "string does not match pattern ^192"
    }


def test_properties_of_the_agent_are_required_at_the_last_step_of_the_create_run() -> None:
    document = {
        "ip": {**AGENT_ONLY, "required": True},
        "o": an_object(id={**AGENT_ONLY, "required": True}, a=OPTIONAL),
    }
    stored = create(document, {"o": {"a": "x"}})
    first = {**AGENT_REPORTS, "state": "New", "in_create_chain": True}
    assert faults(document, {}, stored, **first) == {}
    assert faults(document, {}, stored, **first, last_step=True) == {
        "ip": "required field is missing",
        "o.id": "required field is missing",
    }
    assert faults(document, {"ip": "1", "o": {"id": "2"}}, stored, **first, last_step=True) == {}
    assert faults(document, {"o": {"a": "y"}}, stored) == {}


def test_an_ephemeral_secret_is_required_only_at_creation_and_may_be_given_again() -> None:
    document = {"p": PASSING, "a": OPTIONAL}
    assert faults(document, {}) == {"p": "required field is missing"}
    lookups = StubLookups()
    stored = create(document, {"p": "first", "a": "x"}, lookups)
    gone = without_secrets(schema_of(document), stored, SecretKind.EPHEMERAL)
    assert gone == {"a": "x"}
    assert faults(document, {"a": "y"}, gone) == {}
    assert [slot.path for slot in update(document, {"p": "second"}, gone, lookups).secrets] == ["p"]


def test_a_plain_value_for_a_secret_counts_as_changed_and_its_own_reference_does_not() -> None:
    lookups = StubLookups(vault={"vault://1": "pa55"})
    stored: dict[str, object] = {"s": "vault://1"}
    assert not update({"s": SECRET}, {"s": "vault://1"}, stored, lookups).changed
    for given in ("pa55", "other"):
        replaced = update({"s": SECRET}, {"s": given}, stored, lookups)
        assert replaced.changed
        assert replaced.retired_secrets == (SecretPlace("vault://1", "s", SecretKind.PERSISTENT),)


def test_a_secret_that_is_set_again_needs_the_permission_of_a_change() -> None:
    """Otherwise the refusal would reveal whether the value is the stored one."""
    only_stopped = {"type": "string", "secret": {"type": "persistent"}, "authorizers": WHEN_STOPPED["authorizers"]}
    lookups = StubLookups(vault={"vault://1": "pa55"})
    for given in ("pa55", "other"):
        refused = faults({"s": only_stopped}, {"s": given}, {"s": "vault://1"}, lookups, state="Started")
        assert list(refused) == ["s"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_immutable_secret_refuses_every_plain_value_with_the_same_message(wrapped: bool) -> None:
    lookups = StubLookups(vault={"vault://1": "pa55"})
    secret = {**SECRET, "immutable": True}
    document = {"o": {**an_object(s=SECRET), "immutable": True}} if wrapped else {"s": secret}
    path = "o" if wrapped else "s"

    def body(value: str) -> dict[str, object]:
        return {"o": {"s": value}} if wrapped else {"s": value}

    stored = body("vault://1")
    for given in ("pa55", "other", "vault://2"):
        assert faults(document, body(given), stored, lookups) == {
            path: f"{path}: property is immutable and cannot be changed"
        }
    assert not update(document, stored, stored, lookups).changed


def test_a_text_that_reads_as_a_reference_is_refused_outside_of_secrets() -> None:
    refused = "a text that begins with vault:// is accepted only in a secret property"
    document = {
        "text": OPTIONAL,
        "any": {"type": "json"},
        "free": {"type": "object"},
        "list": {"type": "array"},
        "names": {"type": "array", "items": OPTIONAL},
        "o": an_object(inner=OPTIONAL),
        "s": {"type": "json", "secret": {"type": "persistent"}},
    }
    given = {
        "text": "vault://1",
        "any": {"a": [1, {"b": "vault://2"}]},
        "free": {"vault://3": 1},
        "list": [["vault://4"]],
        "names": ["x", "vault://5"],
        "o": {"inner": "vault://"},
        "s": {"nested": "vault://6"},
    }
    paths = ["text", "any.a[1].b", "free.vault://3", "list[0][0]", "names[1]", "o.inner", "s.nested"]
    assert faults(document, given) == dict.fromkeys(paths, refused)
    assert faults(document, given, {"text": "a"}) == dict.fromkeys(paths, refused)
    assert faults(None, {"a": {"b": ["vault://1"]}}) == {"a.b[0]": refused}
    assert faults(None, {"vault://k": 1}, {}) == {"vault://k": refused}
    assert faults(document, {"text": " vault://1", "any": "see vault://1"}) == {}


def test_a_stored_text_that_reads_as_a_reference_may_be_sent_back() -> None:
    """Releases before this rule accepted it."""
    stored: dict[str, object] = {"text": "vault://old", "any": {"k": "vault://old"}}
    document = {"text": OPTIONAL, "any": {"type": "json"}, "n": {"type": "integer"}}
    assert update(document, {**stored, "n": 1}, stored).properties == {**stored, "n": 1}
    assert update(None, {**stored, "n": 1}, stored).properties == {**stored, "n": 1}


def test_a_default_cannot_read_as_a_reference() -> None:
    assert list(schema_faults({"a": {**OPTIONAL, "default": "vault://1"}})) == ["a.default"]


def test_a_vault_reference_is_accepted_only_where_it_is_stored() -> None:
    refused = "a vault reference is accepted only at the path where it is stored"
    document = {"s": SECRET, "t": SECRET, "users": an_array(name=OPTIONAL, password=SECRET)}
    stored: dict[str, object] = {"s": "vault://1", "users": [{"name": "a", "password": "vault://2"}]}
    assert faults(document, {"s": "vault://1"}) == {"s": refused}
    assert faults(document, {"t": "vault://1"}, stored) == {"t": refused}
    moved = {"users": [{"name": "new", "password": "x"}, {"name": "b", "password": "vault://2"}]}
    assert faults(document, moved, stored) == {}
    assert faults(document, {"users": [{"password": "vault://1"}]}, stored) == {"users[0].password": refused}


def test_secrets_of_a_replaced_array_are_retired() -> None:
    document = {"users": an_array(name=OPTIONAL, password=SECRET)}
    stored: dict[str, object] = {
        "users": [{"name": "a", "password": "vault://1"}, {"name": "b", "password": "vault://2"}]
    }
    accepted = update(document, {"users": [{"name": "b", "password": "vault://2"}]}, stored)
    assert [place.reference for place in accepted.retired_secrets] == ["vault://1"]


@pytest.mark.parametrize("rule", ["min", "serviceOption"])
def test_a_message_about_a_secret_does_not_show_it(rule: str) -> None:
    value = 1000000 if rule == "min" else "os"
    document = {
        "s": {"type": "integer", "secret": {"type": "persistent"}, "validators": [{"type": rule, "value": value}]}
    }
    message = faults(document, {"s": 424242}, lookups=StubLookups(options={"os": (1,)}))["s"]
    assert "424242" not in message
    assert "***" in message


def test_an_unchanged_item_does_not_count_as_given() -> None:
    document = {"nics": an_array(name=OPTIONAL, mac=AGENT_ONLY)}
    stored: dict[str, object] = {"nics": [{"name": "a", "mac": "1"}, {"name": "b", "mac": "2"}]}
    assert faults(document, {"nics": [{"name": "b", "mac": "2"}]}, stored) == {}
    assert faults(document, {"nics": [{"name": "renamed", "mac": "1"}]}, stored) == {}
    assert faults(document, {"nics": [{"name": "a", "mac": "forged"}]}, stored) == {
        "nics[0].mac": "nics[0].mac: property can only be set by: [agent]"
    }


def test_every_fault_of_every_item_is_reported() -> None:
    ports = {"ports": {"type": "array", "items": {"type": "integer", "validators": [{"type": "min", "value": 1}]}}}
    assert faults(ports, {"ports": [0, 80, "x", None]}) == {
        "ports[0]": "value 0 is less than minimum 1",
        "ports[2]": "expected integer, got string",
        "ports[3]": "expected integer, got null",
    }


def test_members_inherit_the_actors_of_their_object() -> None:
    agents = {"authorizers": AGENT_ONLY["authorizers"]}
    document = {"net": {**an_object(ip=OPTIONAL), **agents}, "mixed": an_object(ip=AGENT_ONLY, label=OPTIONAL)}
    assert faults(document, {"net": {"ip": "x"}}, {}, **AGENT_REPORTS) == {}
    assert faults(document, {"net": {"ip": "x"}}) == {"net": "net: property can only be set by: [agent]"}
    assert faults(document, {"mixed": {"ip": "x"}}, {"mixed": {"label": "y"}}, **AGENT_REPORTS) == {}
    assert faults(document, {"mixed": {"label": "z"}}, {"mixed": {"label": "y"}}, **AGENT_REPORTS) == {
        "mixed.label": "mixed.label: property can only be set by: [user]"
    }


def test_a_report_on_a_create_run_is_not_bound_to_a_state() -> None:
    document = {"p": {"type": "string", "authorizers": [*AGENT_ONLY["authorizers"], *WHEN_STOPPED["authorizers"]]}}
    assert faults(document, {"p": "x"}, {}, **{**AGENT_REPORTS, "state": "New"}, in_create_chain=True) == {}
    assert faults(document, {"p": "x"}, {}, **{**AGENT_REPORTS, "state": "New"}) == {
        "p": "p: property cannot be updated in state 'New'"
    }


def test_stored_values_are_not_validated_again() -> None:
    document = {"a": {**OPTIONAL, "validators": [{"type": "minLength", "value": 5}]}, "b": OPTIONAL}
    stored: dict[str, object] = {"a": "old", "b": "x", "removed": 1}
    assert update(document, {"b": "y"}, stored).properties == {"removed": 1, "a": "old", "b": "y"}


def test_without_a_schema_every_name_is_an_optional_property() -> None:
    assert create(None, {"a": 1, "b": None, "c": {"d": None}}) == {"a": 1, "c": {"d": None}}
    assert update(None, {"a": None, "e": [1]}, {"a": 1, "b": 2}).properties == {"b": 2, "e": [1]}
    assert faults(None, {"a": float("nan")}) == {"": "expected object, got NaN"}


@pytest.mark.parametrize("empty", [{}, {"properties": None}, {"properties": {}}, {"gone": None}])
def test_an_empty_schema_allows_no_property(empty: object) -> None:
    assert create(empty, {}) == {}
    assert faults(empty, {"a": None, "b": 1}) == {"a": "unknown property", "b": "unknown property"}


def test_all_questions_are_asked_at_once() -> None:
    document = {
        "os": {"type": "string", "validators": [{"type": "serviceOption", "value": "os"}]},
        "size": {"type": "string", "validators": [{"type": "serviceOption", "value": "size"}]},
        "db": {"type": "array", "items": {"type": "reference"}},
        "ip": POOLED,
        "private": {**POOLED, "authorizers": AGENT_ONLY["authorizers"]},
    }
    ids = ["33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"]
    questions = decide(schema_of(document), {"os": "x", "db": ids, "private": "9"}, evaluation_context())
    assert isinstance(questions, Questions)
    assert questions.services == frozenset(ids)
    assert questions.option_types == {"os"}
    assert [question.path for question in questions.pools] == ["ip"]


def test_in_a_dry_run_pool_values_count_as_given() -> None:
    document = {
        "properties": {"ip": POOLED, "b": OPTIONAL},
        "validators": [{"type": "atMostOne", "config": {"properties": ["ip", "b"]}}],
    }
    outcome = decide(schema_of(document), {}, evaluation_context(dry=True, agent_id=None))
    assert isinstance(outcome, Accepted)
    assert outcome.properties == {}
    assert faults(document, {"b": "x"}, dry=True, agent_id=None) == {"b": "at most one of [ip, b] may be set"}


def test_provenance_contains_actor_and_source_of_each_value() -> None:
    document = {
        "a": OPTIONAL,
        "d": {**OPTIONAL, "default": "x"},
        "id": {"type": "string", "generator": {"type": "uuid"}},
        "o": an_object(s=SECRET, port={"type": "integer", "default": 1}),
        "kept": OPTIONAL,
    }
    schema = schema_of(document)
    outcome = decide(schema, {"a": "1", "o": {"s": "x"}, "kept": "k"}, evaluation_context())
    assert isinstance(outcome, Accepted)
    assert provenance(schema, {}, outcome, Actor.USER) == {
        "a": Origin(Actor.USER, ValueSource.GIVEN),
        "d": Origin(Actor.SYSTEM, ValueSource.DEFAULT),
        "id": Origin(Actor.SYSTEM, ValueSource.GENERATED),
        "o.s": Origin(Actor.USER, ValueSource.GIVEN),
        "o.port": Origin(Actor.SYSTEM, ValueSource.DEFAULT),
        "kept": Origin(Actor.USER, ValueSource.GIVEN),
    }
    changed = decide(
        schema, {"a": "2"}, evaluation_context(Operation.UPDATE), stored={"a": "1", "id": "i", "kept": "k"}
    )
    assert isinstance(changed, Accepted)
    assert provenance(schema, {"a": "1", "id": "i", "kept": "k"}, changed, Actor.USER) == {
        "a": Origin(Actor.USER, ValueSource.GIVEN)
    }


def test_stored_properties_that_do_not_fit_a_new_schema_are_reported() -> None:
    document = {
        "size": {"type": "integer", "validators": [{"type": "max", "value": 10}]},
        "name": {**OPTIONAL, "required": True},
        "zone": {**OPTIONAL, "required": True, "default": "a"},
        "ip": {**AGENT_ONLY, "required": True},
        "once": PASSING,
        "key": SECRET,
        "os": {**OPTIONAL, "validators": [{"type": "serviceOption", "value": "os"}]},
        "pooled": POOLED,
        "o": an_object(port={"type": "integer", "required": True, "default": 1}),
    }
    stored: dict[str, object] = {"size": 11, "key": "vault://1", "os": "beos", "removed": 1, "o": {}}
    found = {fault.path: fault.message for fault in misfits(schema_of(document), stored, evaluation_context())}
    assert found == {
        "size": "value 11 exceeds maximum 10",
        "name": "required field is missing",
        "zone": "required field is missing",
        "o.port": "required field is missing",
    }
    assert misfits(schema_of(None), stored, evaluation_context()) == ()


def test_an_array_is_replaced_with_the_objects_in_its_items() -> None:
    document = {"disks": an_array(name=OPTIONAL, place=an_object(rack=OPTIONAL, row=OPTIONAL))}
    stored: dict[str, object] = {"disks": [{"name": "a", "place": {"rack": "1", "row": "2"}}]}
    for name in ("a", "b"):
        given = {"disks": [{"name": name, "place": {"rack": "1"}}]}
        accepted = update(document, given, stored)
        assert accepted.changed
        assert accepted.properties == given


def test_an_item_that_replaces_another_gets_its_defaults() -> None:
    port = {"type": "integer", "default": 80, "required": True}
    document = {"rules": an_array(name=OPTIONAL, port=port, place=an_object(row={"type": "integer", "default": 1}))}
    stored: dict[str, object] = {"rules": [{"name": "a", "port": 443, "place": {"row": 9}}]}
    given = {"rules": [{"name": "b", "place": {}}]}
    assert update(document, given, stored).properties == {"rules": [{"name": "b", "port": 80, "place": {"row": 1}}]}
    assert update(document, given, {"rules": []}).properties == update(document, given, stored).properties


def test_an_edited_item_keeps_its_generated_values() -> None:
    generated = {"type": "string", "source": "system", "immutable": True, "generator": {"type": "uuid"}}
    document = {"disks": an_array(id=generated, name=OPTIONAL)}
    stored: dict[str, object] = {"disks": [{"id": "x", "name": "a"}]}
    assert update(document, {"disks": [{"name": "b"}]}, stored).properties == {"disks": [{"id": "x", "name": "b"}]}


def test_properties_of_the_agent_inside_an_unchanged_value_are_required() -> None:
    both = [{"type": "actor", "config": {"actors": ["user", "agent"]}}]
    document = {
        "disk": an_object(name=OPTIONAL, serial={**AGENT_ONLY, "required": True}),
        "users": {**an_array(name=OPTIONAL, uid={**AGENT_ONLY, "required": True}), "authorizers": both},
    }
    stored: dict[str, object] = {"disk": {"name": "a"}, "users": [{"name": "b"}]}
    last: dict[str, Any] = {
        "operation": Operation.REPORT,
        "actor": Actor.AGENT,
        "in_create_chain": True,
        "last_step": True,
    }
    owed = {"disk.serial": "required field is missing", "users[0].uid": "required field is missing"}
    assert faults(document, {}, stored, **last) == owed
    assert faults(document, stored, stored, **last) == owed
    grown = {"users": [{"name": "b"}, {"name": "c", "uid": "1"}]}
    assert faults(document, grown, stored, **last) == owed


def test_a_refused_value_counts_as_set_for_schema_validators() -> None:
    document = {
        "properties": {"image": FIXED, "snapshot": AGENT_ONLY, "size": {**OPTIONAL, "required": True}},
        "validators": [
            {"type": "exactlyOne", "config": {"properties": ["image", "snapshot"]}},
            {"type": "requiredIf", "config": {"property": "image", "required": ["size"]}},
        ],
    }
    stored: dict[str, object] = {"image": "a", "size": "1"}
    given = {"image": "b", "size": None}
    outcome = StubLookups().ask(
        schema_of(document), given, evaluation_context(Operation.UPDATE, state="Stopped"), stored
    )
    assert [str(fault) for fault in outcome.faults] == [  # type: ignore[union-attr]
        "image: property is immutable and cannot be changed",
        "size: required field is missing",
    ]


def test_a_value_of_an_older_schema_may_be_sent_back_unchanged() -> None:
    document = {"name": OPTIONAL, "tags": an_object(owner=OPTIONAL)}
    stored: dict[str, object] = {"name": "a", "old": [1], "tags": {"owner": "me", "old": 1}}
    assert not update(document, stored, stored).changed
    assert update(document, {**stored, "name": "b"}, stored).properties == {**stored, "name": "b"}
    assert faults(document, {"old": [2], "tags": {"old": 2}}, stored) == {
        "old": "unknown property",
        "tags.old": "unknown property",
    }


def test_a_message_about_an_object_does_not_show_its_secrets() -> None:
    option = [{"type": "serviceOption", "config": {"value": "disk"}}]
    document = {"disk": {**an_object(key=SECRET, kind=OPTIONAL, address=POOLED), "validators": option}}
    lookups = StubLookups(options={"disk": ("ssd",)}, pools={"ip": ("string", [])})
    given = {"disk": {"key": "hunter2", "kind": "hdd"}}
    found = faults(document, given, lookups=lookups, dry=True, agent_id=None)["disk"]
    assert found.startswith("service option with value")
    assert "hdd" in found
    assert "hunter2" not in found


@pytest.mark.parametrize("stored", [{}, {"name": "a", "key": "vault://1", "any": 1, "list": [{"size": 1}]}])
def test_values_that_are_not_json_are_reported_with_all_other_faults(stored: dict[str, object]) -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    document = {
        "name": OPTIONAL,
        "key": SECRET,
        "any": {"type": "json"},
        "list": an_array(size={"type": "integer"}),
        "free": {"type": "object"},
        "cpu": {"type": "integer"},
    }
    given = {
        "name": "\ud800",
        "key": "\ud800",
        "any": deep,
        "list": [{"size": float("nan")}],
        "free": {"when": {object()}},
        "cpu": "four",
        "\ud800": 1,
    }
    assert faults(document, given, stored) == {
        '["\\ud800"]': "unknown property",
        "name": "expected string, got invalid Unicode",
        "key": "expected string, got invalid Unicode",
        "any": "expected json, got a value nested deeper than 64 levels",
        "list[0].size": "expected integer, got NaN",
        "free": "expected object, got a value that is not JSON",
        "cpu": "expected integer, got string",
    }
