"""An order that refers to a service waits until that service is there, and ends if it will not be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from scenario import Scenario, unique

REFERRING = {"peer": {"type": "reference"}, "other": {"type": "reference"}}


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    return scenario.service_type(REFERRING)


def job_of(scenario: Scenario, service: Any) -> Any:
    return scenario.jobs(service)[-1]


def claimable(scenario: Scenario) -> list[str]:
    return [each["serviceId"] for each in scenario.agent.get("/jobs/pending?limit=100")]


def test_a_create_waits_until_the_services_that_it_refers_to_are_there(scenario: Scenario, kind: Any) -> None:
    first = scenario.order(kind, name=unique("a"))
    second = scenario.order(kind, name=unique("b"))
    waiting = scenario.order(kind, {"peer": first["id"], "other": second["id"]}, name=unique("c"))
    job = job_of(scenario, waiting)
    assert (job["status"], job["waitingFor"]) == ("Pending", min(first["id"], second["id"]))
    # It holds up no other job of its group, and cannot be claimed.
    free = scenario.order(kind, name=unique("d"))
    refused = scenario.agent.post(f"/jobs/{job['id']}/claim", {"leaseSeconds": 60}, expect=409)
    assert f"waiting for service {job['waitingFor']}" in refused["error"]
    for each in (free, first, second):
        assert waiting["id"] not in claimable(scenario)
        scenario.complete(each)
    assert claimable(scenario) == [waiting["id"]]
    assert job_of(scenario, waiting)["waitingFor"] is None
    events = scenario.admin.get(f"/events?entityId={job['id']}&sort=sequenceNumber")["items"]
    assert [each["type"] for each in events] == ["job.created", "job.ready"]
    scenario.complete(waiting)
    # What is there already is not waited for.
    assert job_of(scenario, scenario.order(kind, {"peer": waiting["id"]}, name=unique("e")))["waitingFor"] is None


@pytest.mark.parametrize("end", ["fail", "cancel", "delete"])
def test_waiting_creates_are_cancelled_if_the_service_will_not_be_there(
    scenario: Scenario, kind: Any, end: str
) -> None:
    first = scenario.order(kind, name=unique("a"))
    second = scenario.order(kind, {"peer": first["id"]}, name=unique("b"))
    third = scenario.order(kind, {"peer": second["id"]}, name=unique("c"))
    if end == "fail":
        scenario.fail(first, "disk is full")
    elif end == "cancel":
        scenario.admin.post(f"/jobs/{job_of(scenario, first)['id']}/cancel", expect=204)
    else:
        # A reference of a living service keeps it.
        scenario.admin.delete(f"/services/{first['id']}?force=true", expect=409)
        scenario.admin.post(f"/jobs/{job_of(scenario, first)['id']}/cancel", expect=204)
    for service, awaited in ((second, first), (third, second)):
        job = job_of(scenario, service)
        assert job["status"] == "Cancelled"
        assert f"service {awaited['name']} is not there" in job["errorMessage"]
        assert ("disk is full" in job["errorMessage"]) == (end == "fail")
        assert scenario.service(service["id"])["status"] == "New"
    # The order is repeated once the first one is there.
    scenario.do(first, "create")
    scenario.do(second, "create")
    assert job_of(scenario, second)["waitingFor"] == first["id"]
    scenario.complete(first)
    scenario.complete(second)


def test_an_order_that_races_with_the_end_of_what_it_refers_to_is_never_lost(scenario: Scenario, kind: Any) -> None:
    def order(target: Any) -> Any:
        return scenario.order(kind, {"peer": target["id"]}, name=unique("r"))

    for _ in range(5):
        first = scenario.order(kind, name=unique("a"))
        job = scenario.next_job(first)
        with ThreadPoolExecutor(4) as threads:
            orders = [threads.submit(order, first) for _ in range(3)]
            threads.submit(scenario.agent.post, f"/jobs/{job['id']}/complete", {}, expect=204).result()
            made = [each.result() for each in orders]
        assert all(job_of(scenario, each)["waitingFor"] is None for each in made)
        for each in made:
            scenario.complete(each)
