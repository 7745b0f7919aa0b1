"""The page of a service, the list of jobs and the page of a job, over HTTP."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from browser_session import WebSession, signed_in
from control_plane import Client, Server
from scenario import Scenario, unique
from shown_service import DIFF, LIFECYCLE, REPORT, SCHEMA


def browser_of(server: Server, client: Client) -> WebSession:
    return signed_in(server.url, str(client.token))


def text_of(page: str) -> str:
    """The words of a page, without its elements and the icons."""
    body = page[page.index("<main") : page.index("</main>")]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    return scenario.service_type(SCHEMA, LIFECYCLE)


@pytest.fixture
def service(scenario: Scenario, kind: Any) -> Any:
    """Started, with each form of property."""
    ordered = scenario.order(
        kind,
        {
            "password": "canary-secret",
            "backup": {"schedule": "0 3 * * *", "keepDays": 14},
            "allow": ["10.0.0.0/8", "::1"],
        },
    )
    scenario.complete(ordered)
    scenario.do(ordered, "start")
    return scenario.complete(ordered)


def leased(scenario: Scenario, service: Any, **progress: Any) -> tuple[Any, str]:
    """The next job, claimed with a lease."""
    job = scenario.next_job_seen(service)
    lease = scenario.agent.post(f"/jobs/{job['id']}/claim", {"leaseSeconds": 60}, expect=200)
    if progress:
        body = {"leaseToken": lease["leaseToken"], "progress": progress}
        scenario.agent.post(f"/jobs/{job['id']}/renew", body, expect=200)
    return job, lease["leaseToken"]


def test_a_service_shows_its_state_owner_agent_and_properties(
    server: Server, scenario: Scenario, service: Any
) -> None:
    page = browser_of(server, server.admin).get(f"/services/{service['id']}").text
    text = text_of(page)
    assert service["name"] in text
    assert "Started" in text
    assert scenario.consumer.get("/participants")["items"][0]["name"] in text
    for value in ("50", "0 3 * * *", "14", "10.0.0.0/8", "::1"):
        assert value in text
    assert "set, never shown" in text
    assert "canary-secret" not in page
    assert "vault://" not in page


def test_a_property_names_its_origin_and_its_job(server: Server, scenario: Scenario, service: Any) -> None:
    text = text_of(browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text)
    assert "default of the type" in text
    name = scenario.consumer.get("/participants")["items"][0]["name"]
    assert re.search(rf"keepDays 14 {name}[^A-Z]* {name} create", text), text


def test_coming_values_are_shown_while_a_job_runs(server: Server, scenario: Scenario, service: Any) -> None:
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 200}})
    text = text_of(browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text)
    assert "50 → 200 when update completes" in text


def test_the_running_job_shows_its_progress_and_can_be_cancelled(
    server: Server, scenario: Scenario, service: Any
) -> None:
    scenario.do(service, "stop")
    job, _ = leased(scenario, service, percent=62.5, text="resource 9 of 14: service#db")
    browser = browser_of(server, scenario.consumer)
    page = browser.get(f"/services/{service['id']}").text
    assert "resource 9 of 14: service#db" in text_of(page)
    assert 'value="62"' in page
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in page
    assert 'data-poll="5"' in page
    reply = browser.post(f"/jobs/{job['id']}/cancel", {"service": service["id"]}, csrf=browser.csrf)
    assert reply.location == f"/services/{service['id']}"
    assert scenario.consumer.get(f"/jobs/{job['id']}")["cancelRequested"] is True
    assert "Cancel requested" in text_of(browser.get(f"/services/{service['id']}").text)


def test_a_page_at_rest_does_not_refresh_itself(server: Server, scenario: Scenario, service: Any) -> None:
    page = browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text
    assert "http-equiv" not in page
    assert "data-poll" not in page


def test_possible_actions_lead_to_their_plans(server: Server, scenario: Scenario, service: Any) -> None:
    page = browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text
    for action in ("stop", "delete"):
        assert f'href="/services/{service["id"]}/do/{action}"' in page
    assert f'href="/services/{service["id"]}/update"' in page
    assert "/do/start" not in page


def test_actions_wait_while_a_job_runs(server: Server, scenario: Scenario, service: Any) -> None:
    scenario.do(service, "stop")
    page = browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text
    assert f'href="/services/{service["id"]}/do/stop"' not in page
    assert 'aria-disabled="true"' in page


def read_only(scenario: Scenario, participant_id: str) -> Client:
    body = {"name": unique("reader"), "role": "participant", "scopeId": participant_id, "readOnly": True}
    return scenario.admin.as_token(scenario.admin.post("/tokens", body)["value"])


def test_only_those_who_may_act_see_actions(server: Server, scenario: Scenario, service: Any) -> None:
    scenario.do(service, "stop")
    address = f"/services/{service['id']}"
    reader = browser_of(server, read_only(scenario, scenario.consumer_id)).get(address).text
    assert "/do/" not in reader
    assert "/update" not in reader
    assert "/cancel" not in reader
    # A provider may cancel jobs, but only the consumer orders.
    provider = browser_of(server, scenario.provider).get(address).text
    assert "/do/" not in provider
    assert "/cancel" in provider


def test_a_foreign_participant_sees_no_service_and_no_job(server: Server, scenario: Scenario, service: Any) -> None:
    browser = browser_of(server, scenario.stranger)
    browser.get(f"/services/{service['id']}", expect=404)
    job = scenario.jobs(service)[0]
    browser.get(f"/jobs/{job['id']}", expect=404)
    assert service["name"] not in browser.get("/jobs").text
    browser.post(f"/jobs/{job['id']}/cancel", {}, csrf=browser.csrf, expect=404)


def test_drift_is_shown_with_its_diff(server: Server, scenario: Scenario, service: Any) -> None:
    message = f"file#/srv/db/settings.conf: would change content\n{DIFF}\nfile#/etc/unit: would remove"
    condition = {"type": "InSync", "status": "False", "reason": "Drifted", "message": message}
    scenario.agent.call("PUT", f"/api/v1/services/{service['id']}/conditions", [condition], expect=200)
    page = browser_of(server, scenario.provider).get(f"/services/{service['id']}").text
    text = text_of(page)
    assert "Drifted" in text
    assert "in 2 resources" in text
    assert "<del>max_connections = <b>50</b>" in page
    assert "<ins>max_connections = <b>200</b>" in page


def test_the_state_of_the_host_is_shown_in_words(server: Server, scenario: Scenario, service: Any) -> None:
    path = f"/api/v1/services/{service['id']}/conditions"
    for status, reason, words in (
        ("True", "InSync", "In sync since"),
        ("True", "Repaired", "In sync drift repaired at the last check"),
        ("Unknown", "NoManifest", "Not known whether in sync"),
    ):
        condition = {"type": "InSync", "status": status, "reason": reason, "message": ""}
        scenario.agent.call("PUT", path, [condition], expect=200)
        page = browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text
        assert words in text_of(page).partition("Conditions")[2]


def test_an_ended_service_shows_no_condition_of_its_host(server: Server, scenario: Scenario, service: Any) -> None:
    condition = {"type": "InSync", "status": "False", "reason": "Drifted", "message": "file#/etc/unit: would remove"}
    scenario.agent.call("PUT", f"/api/v1/services/{service['id']}/conditions", [condition], expect=200)
    browser = browser_of(server, scenario.consumer)
    shown = browser.get(f"/services/{service['id']}").text
    assert 'id="drift"' in shown
    assert "Conditions" in text_of(shown)
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    assert scenario.service(service["id"])["conditions"], "the API still has what was reported"
    shown = browser.get(f"/services/{service['id']}").text
    assert 'id="drift"' not in shown
    assert "Conditions" not in text_of(shown)


def test_a_job_shows_its_report_and_its_error(server: Server, scenario: Scenario, service: Any) -> None:
    scenario.do(service, "stop")
    job = scenario.next_job(service)
    error = "exec#make: exit code 1\n  | host output"
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": error, "report": REPORT}, expect=204)
    page = browser_of(server, scenario.provider).get(f"/jobs/{job['id']}").text
    text = text_of(page)
    assert "host output" in text
    assert "cluster output" in text
    assert "1 failed, 1 changed, 1 stable" in text
    assert "<ins>max_connections = <b>200</b>" in page
    assert text.index("exec# make") < text.index("/srv/db/settings.conf")
    # Of commands, a consumer sees the exit code and the first line of the failure.
    seen = text_of(browser_of(server, scenario.consumer).get(f"/jobs/{job['id']}").text)
    assert "exec# make exit code 1" in seen
    assert seen.count("exit code 1") == 1
    assert "host output" not in seen
    assert "cluster output" not in seen


def test_a_failure_is_shown_once_with_its_end_and_a_link_to_the_whole(
    server: Server, scenario: Scenario, service: Any
) -> None:
    output = "begin\n" + "noise\n" * 2000 + "the cause"
    event = {"type": "exec", "name": "make", "outcome": "failed", "errors": ["exit code is 2"], "output": output}
    error = "exec#make: exit code is 2\n  | the cause\n1 failed, 0 unmet of 1 resources"
    scenario.do(service, "stop")
    job = scenario.next_job(service)
    report = {"events": [event], "summary": {"failed": 1, "total": 1}}
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": error, "report": report}, expect=204)
    page = signed_in(server.url, str(scenario.provider.token)).get(f"/jobs/{job['id']}").text
    assert page.count("the cause") == page.count("exit code is 2") == 1
    assert "begin" not in text_of(page)
    assert f'href="/jobs/{job["id"]}/output"' in page
    whole = signed_in(server.url, str(scenario.provider.token)).get(f"/jobs/{job['id']}/output").text
    assert "begin\nnoise" in whole
    # A customer sees no output of commands.
    assert (
        "the cause" not in signed_in(server.url, str(scenario.consumer.token)).get(f"/jobs/{job['id']}/output").text
    )


def test_the_page_of_a_service_shows_the_report_of_its_last_job(
    server: Server, scenario: Scenario, service: Any
) -> None:
    scenario.do(service, "stop")
    scenario.complete(service, report=REPORT)
    text = text_of(browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text)
    assert "Last job: stop" in text
    assert "/srv/db/settings.conf" in text


def test_jobs_are_listed_newest_first_with_filters_in_the_url(
    server: Server, scenario: Scenario, service: Any
) -> None:
    other = scenario.order(scenario.service_type(), {})
    browser = browser_of(server, scenario.consumer)
    text = text_of(browser.get("/jobs").text)
    assert text.index(other["name"]) < text.index(service["name"])
    only = text_of(browser.get(f"/jobs?serviceId={service['id']}").text)
    assert service["name"] in only
    assert other["name"] not in only
    named = text_of(browser.get(f"/jobs?service={other['name'][-8:]}").text)
    assert other["name"] in named
    assert service["name"] not in named
    waiting = text_of(browser.get("/jobs?status=Pending&status=Processing").text)
    assert other["name"] in waiting
    assert service["name"] not in waiting
    assert "No job matches" in browser.get("/jobs?service=no-such-name").text
    browser.get("/jobs?status=Sleeping", expect=400)


def test_older_jobs_follow_by_cursor(server: Server, scenario: Scenario, service: Any) -> None:
    for _ in range(26):
        scenario.do(service, "stop")
        scenario.complete(service)
        scenario.do(service, "start")
        scenario.complete(service)
    browser = browser_of(server, scenario.consumer)
    first = browser.get(f"/jobs?serviceId={service['id']}").text
    older = re.search(r'href="(/jobs\?[^"]*after=[^"]*)"', first)
    assert older is not None
    second = browser.get(html.unescape(older[1])).text
    found = [set(re.findall(r"/jobs/([0-9a-f-]{36})", each)) for each in (first, second)]
    assert [len(each) for each in found] == [50, 4]
    assert not found[0] & found[1]


def test_references_are_shown_in_both_directions(server: Server, scenario: Scenario, service: Any) -> None:
    schema = {"database": {"type": "reference"}}
    user = scenario.order(scenario.service_type(schema), {"database": service["id"]})
    browser = browser_of(server, scenario.consumer)
    page = browser.get(f"/services/{user['id']}").text
    assert f"Uses {service['name']}" in text_of(page)
    assert f'<a href="/services/{service["id"]}"><bdi>{service["name"]}</bdi></a>' in page
    assert f"Used by {user['name']}" in text_of(browser.get(f"/services/{service['id']}").text)


def test_a_deletion_by_force_says_that_the_host_may_not_be_clean(
    server: Server, scenario: Scenario, service: Any
) -> None:
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    text = text_of(browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text)
    assert "The host may not be clean" in text


def test_each_region_of_the_pages_can_be_fetched_alone(server: Server, scenario: Scenario, service: Any) -> None:
    browser = browser_of(server, scenario.consumer)
    job = scenario.jobs(service)[0]
    for address in (f"/services/{service['id']}", "/jobs", f"/jobs/{job['id']}"):
        regions = re.findall(r'data-region="(\w+)"', browser.get(address).text)
        assert regions
        for region in regions:
            text = browser.get(f"{address}?fragment={region}").text
            assert text.strip()
            assert "<main" not in text
        together = browser.get(f"{address}?fragment={','.join(regions)}").text
        assert "<main" not in together


def test_the_log_of_a_running_job_has_each_message_once(server: Server, scenario: Scenario, service: Any) -> None:
    scenario.do(service, "stop")
    job, lease = leased(scenario, service, percent=10, text="resource 1 of 2: file#/a")
    for text in ("resource 1 of 2: file#/a", "resource 2 of 2: file#/b <b>"):
        body = {"leaseToken": lease, "progress": {"percent": 50, "text": text}}
        scenario.agent.post(f"/jobs/{job['id']}/renew", body, expect=200)
    browser = browser_of(server, scenario.consumer)
    for address in (f"/services/{service['id']}", f"/jobs/{job['id']}"):
        log = re.search(r'<ol class="log".*?</ol>', browser.get(address).text, re.DOTALL)
        assert log is not None
        assert log[0].count("file#/a") == 1
        assert log[0].count("file#/b &lt;b&gt;") == 1
        assert log[0].index("file#/a") < log[0].index("file#/b")
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"leaseToken": lease}, expect=204)
    assert 'class="log"' not in browser.get(f"/jobs/{job['id']}").text


def test_the_log_of_a_running_job_is_bounded(server: Server, scenario: Scenario, service: Any) -> None:
    scenario.do(service, "stop")
    job, lease = leased(scenario, service)
    for number in range(105):
        body = {"leaseToken": lease, "progress": {"text": f"message {number} " + "x" * 1900}}
        scenario.agent.post(f"/jobs/{job['id']}/renew", body, expect=200)
    page = browser_of(server, scenario.consumer).get(f"/jobs/{job['id']}").text
    log = re.search(r'<ol class="log".*?</ol>', page, re.DOTALL)
    assert log is not None
    assert "message 104 " in log[0]
    assert "message 4 " not in log[0]
    assert len(log[0]) < 100_000


HOSTILE = "<script>alert(1)</script>\"'&\u202e\u0000"


def test_a_report_of_any_form_is_shown_as_text(server: Server, scenario: Scenario, service: Any) -> None:
    reports: list[Any] = [
        HOSTILE,
        [1, 2],
        7,
        {"events": "x", "summary": HOSTILE},
        {"events": [1, {}, {"outcome": 7, "errors": "x", "diff": 5}], "summary": {"changed": "x"}},
        {"events": [{"type": HOSTILE, "name": HOSTILE, "outcome": HOSTILE, "errors": [HOSTILE], "diff": HOSTILE}]},
    ]
    browser = browser_of(server, scenario.provider)
    for number, report in enumerate(reports):
        scenario.do(service, "stop" if number % 2 == 0 else "start")
        job = scenario.next_job(service)
        scenario.agent.post(f"/jobs/{job['id']}/complete", {"report": report}, expect=204)
        for address in (f"/jobs/{job['id']}", f"/services/{service['id']}", f"/jobs?serviceId={service['id']}"):
            assert "<script>alert" not in browser.get(address).text


def large_report(characters: int) -> Any:
    line = "+" + "word " * 30
    diff = "@@ -0,0 +1,200 @@\n" + "\n".join([line] * 120)
    count = characters // len(diff)
    events = [
        {"type": "file", "name": f"/srv/{number}", "outcome": "changed", "diff": diff} for number in range(count)
    ]
    return {"events": events, "summary": {"total": count, "changed": count}}


def test_a_report_of_a_megabyte_is_cut_with_a_sentence(server: Server, scenario: Scenario, service: Any) -> None:
    scenario.do(service, "stop")
    report = large_report(1_000_000)
    scenario.complete(service, report=report)
    job = scenario.jobs(service)[-1]
    page = browser_of(server, scenario.provider).get(f"/jobs/{job['id']}").text
    assert "more lines not shown here" in page
    assert len(page) < 500_000
    # Of all resources, also those whose lines are left out.
    assert f"{len(report['events'])} changed" in text_of(page)


def test_services_that_the_caller_may_not_read_are_left_out_of_references(
    server: Server, scenario: Scenario, service: Any
) -> None:
    """A provider may refer to the services of its consumers."""
    provider_group = scenario.admin.post("/service-groups", {"name": "g", "consumerId": scenario.provider_id})["id"]
    kind = scenario.service_type({"database": {"type": "reference"}})
    body = {
        "serviceTypeId": kind["id"],
        "name": unique("monitor"),
        "properties": {"database": service["id"]},
        "groupId": provider_group,
        "agentId": scenario.agent_id,
    }
    scenario.provider.post("/services", body)
    address = f"/services/{service['id']}"
    assert body["name"] in browser_of(server, scenario.provider).get(address).text
    assert body["name"] in browser_of(server, server.admin).get(address).text
    assert body["name"] not in browser_of(server, scenario.consumer).get(address).text


def test_the_requester_is_the_one_of_the_first_step(server: Server, scenario: Scenario) -> None:
    lifecycle = {
        **LIFECYCLE,
        "actions": [
            {
                "name": "create",
                "transitions": [{"from": "New", "to": "Stopped"}, {"from": "Stopped", "to": "Started"}],
            },
            *LIFECYCLE["actions"][1:],
        ],
    }
    service = scenario.order(scenario.service_type(None, lifecycle))
    scenario.complete(service)
    second = scenario.next_job_seen(service)
    assert second["step"] == 2
    name = scenario.consumer.get("/participants")["items"][0]["name"]
    assert f"requested by {name}" in text_of(browser_of(server, scenario.consumer).get(f"/jobs/{second['id']}").text)


def test_admins_are_not_named_to_participants(server: Server, scenario: Scenario, service: Any) -> None:
    body = {"name": "Lena Okafor", "role": "admin"}
    lena = scenario.admin.as_token(scenario.admin.post("/tokens", body)["value"])
    lena.patch(f"/services/{service['id']}", {"properties": {"size": 77}})
    scenario.complete(service)
    address = f"/services/{service['id']}"
    assert "admin Lena Okafor" in text_of(browser_of(server, server.admin).get(address).text)
    for client in (scenario.consumer, scenario.provider):
        text = text_of(browser_of(server, client).get(address).text)
        assert "Lena" not in text
        assert "an admin" in text


def test_a_metric_of_a_service_is_drawn(server: Server, scenario: Scenario, service: Any) -> None:
    for name in ("connections", "memory"):
        kind = scenario.admin.post("/metric-types", {"name": unique(name), "entityType": "Service"})
        for resource in ("db<1>", "db/2"):
            entry = {"resourceId": resource, "typeName": kind["name"], "value": 12.5, "serviceId": service["id"]}
            scenario.agent.post("/metric-entries", entry)
    text = text_of(browser_of(server, scenario.consumer).get(f"/services/{service['id']}").text)
    for name in ("connections", "memory"):
        assert len(re.findall(rf"{name}-\w+ db<1> 12.5", text)) == 1
        assert len(re.findall(rf"{name}-\w+ db/2 12.5", text)) == 1


def test_a_provider_repairs_a_drifted_service_from_its_page(server: Server, scenario: Scenario, service: Any) -> None:
    found = {"type": "InSync", "status": "False", "reason": "Drifted", "message": "file#/etc/x: would change"}
    scenario.agent.put(f"/services/{service['id']}/conditions", [found])
    scenario.agent.get("/plans/pending")
    page = f"/services/{service['id']}"
    assert "Repair now" not in browser_of(server, scenario.consumer).get(page).text
    browser = browser_of(server, scenario.provider)
    assert "Repair now" in browser.get(page).text
    assert browser.post(f"{page}/repair", {}, csrf=browser.csrf).location == page
    assert "repair requested" in text_of(browser.get(page).text)
