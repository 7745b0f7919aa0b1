"""Moves: a job `create` on the target, one switch at its end, and an orphan on the host that has the remains."""

from __future__ import annotations

from typing import Any

import pytest

from blueprint_samples import blueprint, push
from moving import MovingScenario, PlayedAgent
from scenario import Scenario, unique


@pytest.fixture
def moving(scenario: Scenario) -> MovingScenario:
    return MovingScenario(scenario)


@pytest.fixture
def old(moving: MovingScenario) -> PlayedAgent:
    return moving.agent("10.0.0.1", "10.0.0.2")


@pytest.fixture
def new(moving: MovingScenario) -> PlayedAgent:
    return moving.agent("10.1.0.1", "10.1.0.2")


@pytest.fixture
def service(moving: MovingScenario, old: PlayedAgent) -> Any:
    return moving.order(old)


# ---- the way of a move ----
def test_nothing_changes_until_the_target_completes(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    after = moving.move(service, new)
    assert after["activeJob"]["action"] == "create"
    for name in ("agentId", "status", "properties", "agentInstanceId", "providerId"):
        assert after[name] == service[name], name
    assert new.allocated() == ["10.1.0.1"]
    assert old.allocated() == ["10.0.0.1"]


def test_the_job_is_a_create_with_the_properties_of_the_target(
    moving: MovingScenario, service: Any, new: PlayedAgent
) -> None:
    moving.move(service, new)
    (job,) = new.client.get("/jobs/pending")
    assert (job["action"], job["isMove"], job["agentId"]) == ("create", True, new.id)
    assert job["params"] == {**service["properties"], "address": "10.1.0.1"}
    assert job["blueprintDigest"] == service["blueprintDigest"]
    # As the target gets it: its own, in the present state, without what the old agent stored.
    shown = job["service"]
    assert (shown["agentId"], shown["status"], shown["agentInstanceData"]) == (new.id, service["status"], None)


def test_everything_switches_when_the_target_completes(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    moving.move(service, new)
    new.complete(service, properties={"unit": "unit-new"}, agentInstanceId="two", agentInstanceData={"on": "new"})
    after = moving.scenario.service(service["id"])
    assert (after["agentId"], after["status"], after.get("activeJob")) == (new.id, service["status"], None)
    assert after["properties"] == {**service["properties"], "address": "10.1.0.1", "unit": "unit-new"}
    assert (after["agentInstanceId"], after["agentInstanceData"], after["orphan"]) == ("two", {"on": "new"}, True)
    (orphan,) = old.orphans()
    assert (orphan["reason"], orphan["agentId"], new.orphans()) == ("moved", old.id, [])
    left = orphan["service"]
    assert left["properties"] == service["properties"]
    assert (left["agentInstanceId"], left["agentInstanceData"]) == ("one", {"on": "old"})
    assert (old.allocated(), new.allocated()) == (["10.0.0.1"], ["10.1.0.1"])
    old.confirm()
    assert (old.allocated(), new.allocated()) == ([], ["10.1.0.1"])
    assert moving.scenario.service(service["id"])["orphan"] is False


def test_an_instance_that_the_target_does_not_report_is_unset(
    moving: MovingScenario, service: Any, new: PlayedAgent
) -> None:
    moving.move(service, new)
    new.complete(service)
    after = moving.scenario.service(service["id"])
    assert (after["agentInstanceId"], after["agentInstanceData"]) == (None, None)


def test_a_moved_service_lives_on(moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent) -> None:
    moving.move(service, new)
    new.complete(service)
    moving.scenario.do(service, "start")
    new.complete(service)
    moving.scenario.do(service, "stop")
    new.complete(service)
    moving.scenario.consumer.delete(f"/services/{service['id']}")
    new.complete(service)
    assert moving.scenario.service(service["id"])["status"] == "Deleted"
    # The orphan on the old host outlives the service.
    assert (old.allocated(), new.allocated(), len(old.orphans())) == (["10.0.0.1"], [], 1)
    old.confirm()
    assert old.allocated() == []


@pytest.mark.parametrize("end", ["fail", "cancel", "release and cancel"])
def test_a_move_that_does_not_complete_leaves_the_orphan_on_the_target(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent, end: str
) -> None:
    moving.move(service, new)
    if end == "fail":
        new.fail(service)
    else:
        job = new.claim(service)
        if end == "cancel":
            moving.scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
            new.client.post(f"/jobs/{job['id']}/fail", {"errorMessage": "stopped"}, expect=204)
        else:
            new.client.post(f"/jobs/{job['id']}/release", expect=204)
            moving.scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    after = moving.scenario.service(service["id"])
    for name in ("agentId", "status", "properties", "agentInstanceId"):
        assert after[name] == service[name], name
    (orphan,) = new.orphans()
    assert (orphan["reason"], old.orphans(), after["orphan"]) == ("move_failed", [], True)
    assert orphan["service"]["properties"] == {**service["properties"], "address": "10.1.0.1"}
    assert orphan["service"]["agentInstanceId"] is None
    assert (old.allocated(), new.allocated()) == (["10.0.0.1"], ["10.1.0.1"])
    # Until it is closed the same target is refused, another one is not.
    assert moving.move(service, new, expect=409)["code"] == "clean_up_owed"
    new.confirm()
    assert (old.allocated(), new.allocated()) == (["10.0.0.1"], [])
    moving.move(service, new)


def test_a_move_that_was_never_claimed_leaves_nothing(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    job = moving.move(service, new)["activeJob"]
    moving.scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    assert (new.orphans(), new.allocated(), old.allocated()) == ([], [], ["10.0.0.1"])
    assert moving.scenario.service(service["id"])["orphan"] is False


def test_values_stay_where_the_pool_set_is_the_same(moving: MovingScenario, old: PlayedAgent, service: Any) -> None:
    pool_set = moving.scenario.admin.get(f"/agents/{old.id}")["servicePoolSetId"]
    sibling = moving.agent(servicePoolSetId=pool_set)
    moving.move(service, sibling)
    sibling.complete(service)
    after = moving.scenario.service(service["id"])
    assert (after["agentId"], after["properties"]["address"]) == (sibling.id, "10.0.0.1")
    old.confirm()
    assert old.allocated() == ["10.0.0.1"]


def test_a_service_moves_off_an_agent_that_is_gone(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    moving.scenario.admin.patch(f"/agents/{old.id}", {"status": "Disabled"})
    moving.move(service, new)
    new.complete(service)
    assert moving.scenario.admin.delete(f"/agents/{old.id}", expect=409)["code"] == "in_use"
    (orphan,) = moving.scenario.admin.get(f"/orphans?agentId={old.id}")["items"]
    moving.scenario.admin.post(f"/orphans/{orphan['id']}/forget", expect=204)
    moving.scenario.admin.delete(f"/agents/{old.id}")
    assert moving.scenario.service(service["id"])["agentId"] == new.id


def test_a_forced_delete_during_a_move_leaves_an_orphan_on_both_hosts(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    moving.move(service, new)
    new.claim(service)
    moving.scenario.admin.delete(f"/services/{service['id']}?force=true")
    assert [each["reason"] for each in (*old.orphans(), *new.orphans())] == ["forced_delete", "move_failed"]
    new.confirm()
    assert (old.allocated(), new.allocated()) == (["10.0.0.1"], [])
    assert moving.scenario.service(service["id"])["orphan"] is True
    assert moving.read_secret(old, service["properties"]["password"]) == "s3cret"
    old.confirm()
    assert (old.allocated(), moving.scenario.service(service["id"])["orphan"]) == ([], False)
    moving.read_secret(old, service["properties"]["password"], expect=404)


def test_a_dry_run_shows_the_new_values_and_keeps_nothing(
    moving: MovingScenario, service: Any, new: PlayedAgent
) -> None:
    forecast = moving.move(service, new, query={"dryRun": "true"})
    assert forecast["path"] == [service["status"]]
    assert forecast["poolValues"] == [{"path": "address", "value": "10.1.0.1"}]
    assert forecast["properties"]["address"] == "10.1.0.1"
    assert new.allocated() == []
    assert moving.scenario.service(service["id"])["version"] == service["version"]


STOPPED, REMOVED = "manifests/all.yaml", {"delete": "manifests/all.yaml"}
RESERVED = "what the service left there keeps running, and its pool values stay reserved until"
# (actions and keeps of the blueprint, status of the target, of the old agent, the two summaries)
STEPS: list[tuple[Any, str, str, tuple[list[str], str], tuple[list[str], str]]] = [
    (
        {"actions": REMOVED, "keeps": {"Stopped": STOPPED}},
        "Connected",
        "Connected",
        (
            [STOPPED, STOPPED],
            (
                "TARGET applies manifests/all.yaml, then manifests/all.yaml for the state Stopped; the service changes its agent"
                " when this has succeeded"
            ),
        ),
        ([STOPPED], "OLD cleans up its host: it applies manifests/all.yaml and confirms"),
    ),
    (
        {"actions": REMOVED, "keeps": {"Started": STOPPED}},
        "Disconnected",
        "Disconnected",
        (
            [STOPPED],
            (
                "TARGET applies manifests/all.yaml once it connects: it is offline; the service changes its agent when this has"
                " succeeded"
            ),
        ),
        (
            [STOPPED],
            (
                f"nothing is done on the host of OLD, which is offline: {RESERVED} the agent connects and applies"
                " manifests/all.yaml, or an admin forgets the clean-up"
            ),
        ),
    ),
    (
        {},
        "Connected",
        "Disabled",
        ([STOPPED], "TARGET applies manifests/all.yaml; the service changes its agent when this has succeeded"),
        (
            [],
            (
                "the host of OLD is not cleaned up: the blueprint has no manifest for `delete`;"
                f" {RESERVED} an admin removes it by hand and forgets the clean-up"
            ),
        ),
    ),
]


@pytest.mark.parametrize(("more", "target", "source", "first", "second"), STEPS)
def test_a_dry_run_names_every_run_of_the_move_in_order_and_what_is_not_done(
    scenario: Scenario,
    more: Any,
    target: str,
    source: str,
    first: tuple[list[str], str],
    second: tuple[list[str], str],
) -> None:
    moving = MovingScenario(scenario, more=more)
    old, new = moving.agent("10.0.0.1"), moving.agent("10.1.0.1")
    service = moving.order(old)
    for agent, status in ((old, source), (new, target)):
        scenario.admin.patch(f"/agents/{agent.id}", {"status": status})
    steps = moving.move(service, new, force=True, query={"dryRun": "true"})["steps"]
    names = {each.id: scenario.admin.get(f"/agents/{each.id}")["name"] for each in (old, new)}
    for step, agent, status, action, (manifests, summary) in zip(
        steps, (new, old), (target, source), ("create", "delete"), (first, second), strict=True
    ):
        assert step["agent"] == {"id": agent.id, "name": names[agent.id], "status": status}
        assert (step["action"], step["manifests"]) == (action, manifests)
        assert step["summary"] == summary.replace("TARGET", names[new.id]).replace("OLD", names[old.id])


# ---- secrets ----
def test_the_target_reads_secrets_from_its_claim_on_and_the_old_agent_until_its_clean_up(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    reference = service["properties"]["password"]
    moving.move(service, new)
    moving.read_secret(new, reference, expect=404)
    job = new.claim(service)
    assert moving.read_secret(new, reference) == "s3cret"
    assert moving.read_secret(old, reference) == "s3cret"
    new.client.post(f"/jobs/{job['id']}/complete", {}, expect=204)
    assert moving.read_secret(new, reference) == "s3cret"
    assert moving.read_secret(old, reference) == "s3cret"
    old.confirm()
    moving.read_secret(old, reference, expect=404)
    assert moving.read_secret(new, reference) == "s3cret"


def test_a_replaced_secret_stays_for_the_orphan_alone(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    reference = service["properties"]["password"]
    moving.move(service, new)
    new.complete(service)
    moving.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"password": "other"}})
    new.complete(service)
    assert moving.read_secret(old, reference) == "s3cret"
    moving.read_secret(new, reference, expect=404)
    replaced = moving.scenario.service(service["id"])["properties"]["password"]
    assert moving.read_secret(new, replaced) == "other"
    moving.read_secret(old, replaced, expect=404)
    old.confirm()
    moving.read_secret(old, reference, expect=404)
    assert moving.read_secret(new, replaced) == "other"


def test_the_target_of_a_failed_move_reads_secrets_until_its_clean_up(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    reference = service["properties"]["password"]
    moving.move(service, new)
    new.fail(service)
    assert moving.read_secret(new, reference) == "s3cret"
    new.confirm()
    moving.read_secret(new, reference, expect=404)
    assert moving.read_secret(old, reference) == "s3cret"


# ---- refusals ----
def test_a_blueprint_must_say_that_it_is_movable(scenario: Scenario) -> None:
    fixed = MovingScenario(scenario, movable=False)
    old, new = fixed.agent("10.0.0.1"), fixed.agent("10.1.0.1")
    assert fixed.move(fixed.order(old), new, expect=400)["code"] == "not_movable"


def test_the_version_of_the_service_counts(moving: MovingScenario, service: Any, new: PlayedAgent) -> None:
    files = blueprint(moving.kind["name"], "2.0.0", schema=moving.schema)
    push(moving.scenario.admin, files)
    moving.move(service, new)


def test_a_target_must_run_blueprints(moving: MovingScenario, service: Any) -> None:
    assert moving.move(service, moving.agent("10.2.0.1", asks=False), expect=400)["code"] == "no_blueprints"


@pytest.mark.parametrize("status", ["Disconnected", "Error"])
def test_a_target_that_is_not_connected_needs_force(
    moving: MovingScenario, service: Any, new: PlayedAgent, status: str
) -> None:
    moving.scenario.admin.patch(f"/agents/{new.id}", {"status": status})
    path, body = f"/services/{service['id']}/agent", {"agentId": new.id}
    for query in ("", "?dryRun=true"):
        refused = moving.scenario.consumer.put(path + query, body, expect=409)
        assert refused["code"] == "agent_offline"
    moving.scenario.consumer.put(path, {**body, "force": True})
    new.complete(service)
    assert moving.scenario.service(service["id"])["agentId"] == new.id


def test_a_capacity_of_the_target_counts_moves_on_their_way(
    moving: MovingScenario, old: PlayedAgent, service: Any, new: PlayedAgent
) -> None:
    """It binds the customer, not the admin."""
    admin, another = moving.scenario.admin, moving.order(old, instance="two")
    admin.patch(f"/agents/{new.id}", {"capacity": 1})
    moving.move(service, new)
    refused = moving.move(another, new, expect=400)
    assert (refused["code"], refused["reasons"][0]["reason"]) == ("no_capacity", "capacity")
    new.complete(service)
    moving.move(another, new, expect=400)
    moving.move(another, new, client=admin)


def test_a_target_must_be_another_agent_of_a_fitting_type(
    moving: MovingScenario, service: Any, old: PlayedAgent
) -> None:
    assert moving.move(service, old, expect=400)["code"] == "same_agent"
    other = moving.agent("10.2.0.1", agentTypeId=moving.scenario.agent_type()["id"])
    assert "does not support service type" in moving.move(service, other, expect=400)["error"]


def test_a_disabled_unknown_or_foreign_target_is_one_refusal(
    moving: MovingScenario, service: Any, new: PlayedAgent
) -> None:
    foreign = moving.agent("10.2.0.1", providerId=moving.scenario.participant("foreign"), grant=False)
    moving.scenario.admin.patch(f"/agents/{new.id}", {"status": "Disabled"})
    unknown = PlayedAgent("00000000-0000-4000-8000-000000000000", new.client, None)
    for target in (foreign, new, unknown):
        refused = moving.move(service, target, expect=400)
        assert refused["code"] == "agent_not_available"
        assert refused["error"].replace(target.id, "ID").startswith("agent ID does not exist or may not serve")


def test_a_move_is_refused_with_an_active_job_and_in_the_wrong_states(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    ordered = moving.scenario.order(moving.kind, {"size": 1}, agentId=old.id)
    assert moving.move(ordered, new, expect=409)["code"] == "wrong_state"
    moving.scenario.do(service, "start")
    refused = moving.move(service, new, expect=409)
    assert (refused["code"], refused["jobId"]) == (
        "active_job",
        moving.scenario.service(service["id"])["activeJob"]["id"],
    )
    moving.scenario.admin.delete(f"/services/{service['id']}?force=true")
    assert moving.move(service, new, expect=409)["code"] == "terminal_state"


def test_a_move_is_a_job_like_others(moving: MovingScenario, service: Any, new: PlayedAgent) -> None:
    moving.move(service, new)
    assert moving.move(service, new, expect=409)["code"] == "active_job"
    assert moving.scenario.do(service, "start", expect=409)["code"] == "active_job"
    assert moving.scenario.do(service, "create", expect=409)["code"] in ("wrong_state", "active_job")


def test_a_stale_version_is_refused(moving: MovingScenario, service: Any, new: PlayedAgent) -> None:
    refused = moving.move(service, new, expect=412, headers={"If-Match": '"999"'})
    assert refused["code"] == "precondition_failed"


def test_an_exhausted_pool_of_the_target_refuses_the_move(moving: MovingScenario, service: Any) -> None:
    refused = moving.move(service, moving.agent(), expect=400)
    assert refused["errors"] == [{"path": "address", "message": "failed to allocate from pool address"}]


def test_options_are_those_of_the_new_provider(scenario: Scenario) -> None:
    option = unique("size").replace("-", "_")
    admin = scenario.admin
    admin.post("/service-option-types", {"name": option, "type": option, "description": "sizes"})
    other = scenario.participant("other")
    schema = {"plan": {"type": "string", "validators": [{"type": "serviceOption", "value": option}]}}
    moving = MovingScenario(scenario, schema=schema)
    old, new = moving.agent(), moving.agent(providerId=other)
    for provider_id, value in ((scenario.provider_id, "small"), (other, "large")):
        admin.post(
            "/service-options",
            {"providerId": provider_id, "serviceOptionType": option, "name": value, "value": value},
        )
    ordered = scenario.order(moving.kind, {"plan": "small"}, agentId=old.id)
    old.complete(ordered)
    refused = moving.move(ordered, new, expect=400)
    assert refused["errors"] == [
        {"path": "plan", "message": "service option with value 'small' not found or not enabled for provider"}
    ]
    admin.post(
        "/service-options",
        {"providerId": other, "serviceOptionType": option, "name": "small", "value": "small"},
    )
    moving.move(ordered, new)
    new.complete(ordered)
    assert scenario.service(ordered["id"])["providerId"] == other


def test_the_instance_id_of_an_orphan_stays_taken_on_its_agent(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    moving.move(service, new)
    new.complete(service)
    other = moving.scenario.order(moving.kind, {"size": 1}, agentId=old.id)
    job = old.claim(other)
    refused = old.client.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "one"}, expect=409)
    assert refused["code"] == "duplicate"
    old.confirm()
    old.client.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "one"}, expect=204)


def test_a_target_is_not_deleted_during_a_move(moving: MovingScenario, service: Any, new: PlayedAgent) -> None:
    job = moving.move(service, new)["activeJob"]
    refused = moving.scenario.admin.delete(f"/agents/{new.id}", expect=409)
    assert refused["dependants"] == {"jobs": [job["id"]]}
    moving.scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    moving.scenario.admin.delete(f"/agents/{new.id}")


def test_values_become_secret_only_after_the_clean_up(
    moving: MovingScenario, service: Any, old: PlayedAgent, new: PlayedAgent
) -> None:
    moving.move(service, new)
    new.complete(service)
    changed = {**moving.schema, "size": {"type": "integer", "secret": {"type": "persistent"}}}
    path = f"/service-types/{moving.kind['id']}?force=true"
    refused = moving.scenario.admin.patch(path, {"propertySchema": changed}, expect=409)
    assert refused["code"] == "clean_up_owed"
    old.confirm()
    moving.scenario.admin.patch(path, {"propertySchema": changed})


# ---- other tenants ----
def test_only_the_consumer_and_admins_move(moving: MovingScenario, service: Any, new: PlayedAgent) -> None:
    for client, expect in (
        (moving.scenario.stranger, 404),
        (moving.scenario.provider, 403),
        (new.client, 403),
    ):
        moving.move(service, new, client=client, expect=expect)
    moving.move(service, new, client=moving.scenario.admin)


def test_no_other_agent_reads_secrets_through_a_move(moving: MovingScenario, service: Any, new: PlayedAgent) -> None:
    bystander = moving.agent("10.3.0.1")
    reference = service["properties"]["password"]
    moving.move(service, new)
    job = new.claim(service)
    moving.read_secret(bystander, reference, expect=404)
    bystander.client.post(f"/jobs/{job['id']}/complete", {}, expect=404)
    new.client.post(f"/jobs/{job['id']}/complete", {}, expect=204)
    (orphan,) = moving.scenario.admin.get(f"/orphans?serviceId={service['id']}")["items"]
    for client in (bystander.client, new.client):
        client.post(f"/orphans/{orphan['id']}/confirm", expect=404)


def test_the_event_of_a_move_does_not_show_the_old_host_to_the_new_provider(
    moving: MovingScenario, service: Any, old: PlayedAgent
) -> None:
    other_id = moving.scenario.participant("other")
    other = moving.scenario.token("participant", other_id)
    new = moving.agent("10.1.0.1", providerId=other_id)
    moving.move(service, new)
    new.complete(service)
    events = other.get(f"/events?entityId={service['id']}&type=service.moved&pageSize=100")["items"]
    assert len(events) == 1
    assert "old" not in str(events)
    jobs = other.get("/jobs?pageSize=100")["items"]
    assert [job["isMove"] for job in jobs] == [True]
    assert moving.scenario.provider.get(f"/services/{service['id']}", expect=404)["code"] == "not_found"
