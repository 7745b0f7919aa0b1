"""The list and the forms that nouns declare: the same behaviour for each of them."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from browser_session import WebSession, signed_in
from control_plane import Client, Server
from scenario import Scenario, unique


@pytest.fixture
def browser(server: Server) -> WebSession:
    return signed_in(server.url, str(server.admin.token))


@dataclass(frozen=True)
class NounCase:
    """`new` and `changed` are forms; `sent` are members of the row after the change."""

    path: str
    api: str
    new: Mapping[str, object]
    changed: Mapping[str, object]
    sent: Mapping[str, object]
    # A field with a value that the API refuses.
    faulty: tuple[str, str] = ("name", "x" * 256)


OPTION = {"value": "{cpu: 2}", "displayOrder": "3", "enabled": "true"}
CASES = {
    "participants": NounCase("/participants", "/participants", {}, {}, {}),
    "groups": NounCase("/groups", "/service-groups", {"consumerId": "CONSUMER"}, {}, {}),
    "metric types": NounCase("/metric-types", "/metric-types", {"entityType": "Agent"}, {}, {"entityType": "Agent"}),
    "agent types": NounCase(
        "/agent-types",
        "/agent-types",
        {"providerIds": ["CONSUMER"], "configurationSchema": "port: {type: integer}"},
        {"providerIds": [], "configurationSchema": "port: {type: string}"},
        {"providerIds": [], "configurationSchema": {"port": {"type": "string"}}},
        ("configurationSchema", "port: {type: nothing}"),
    ),
    "option types": NounCase(
        "/option-types",
        "/service-option-types",
        {"type": "UNIQUE", "description": "a"},
        {"type": "UNIQUE", "description": ""},
        {"description": ""},
        ("type", "not a word"),
    ),
    "pool sets": NounCase("/pool-sets", "/service-pool-sets", {"providerId": "PROVIDER"}, {}, {}),
    "config pools": NounCase(
        "/config-pools",
        "/config-pools",
        {"type": "UNIQUE", "propertyType": "integer", "participantId": "PROVIDER"},
        {},
        {"propertyType": "integer", "generatorType": "list"},
        ("type", "x" * 101),
    ),
    "options": NounCase(
        "/options",
        "/service-options",
        {**OPTION, "providerId": "PROVIDER", "serviceOptionTypeId": "OPTION_TYPE"},
        {"value": "20", "displayOrder": "4"},
        {"value": 20, "displayOrder": 4, "enabled": False},
        ("displayOrder", "99999999999999"),
    ),
}


@dataclass
class Forms:
    """Fills the names in a case with rows of this scenario."""

    scenario: Scenario
    kind: str

    def fill(self, form: Mapping[str, object], name: str) -> dict[str, object]:
        known: dict[str, Any] = {
            "CONSUMER": lambda: self.scenario.consumer_id,
            "PROVIDER": lambda: self.scenario.provider_id,
            "OPTION_TYPE": lambda: self.scenario.admin.post(
                "/service-option-types", {"name": "t", "type": self.kind}
            )["id"],
            "UNIQUE": lambda: self.kind,
        }

        def value(given: object) -> object:
            if isinstance(given, list):
                return [value(each) for each in given]
            return known[given]() if isinstance(given, str) and given in known else given

        return {"name": name, **{key: value(each) for key, each in form.items()}}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> NounCase:
    return CASES[request.param]


@pytest.fixture
def forms(scenario: Scenario) -> Forms:
    return Forms(scenario, unique("k").replace("-", "_"))


def find(client: Client, case: NounCase, name: str) -> Any:
    found = client.get(f"{case.api}?name={name}")["items"]
    return found[0] if found else None


def test_a_row_is_created_changed_and_deleted_by_forms(
    case: NounCase, forms: Forms, browser: WebSession, admin: Client
) -> None:
    name, renamed = unique("row"), unique("renamed")
    csrf = browser.csrf
    browser.get(f"{case.path}/new")
    created = browser.post(f"{case.path}/new", forms.fill(case.new, name), csrf=csrf)
    assert f"{name} is created" in browser.get(created.location).text
    row = find(admin, case, name)
    assert name in browser.get(f"{case.path}?name={name}").text
    assert name in browser.get(f"{case.path}?name={name}&fragment=list").text
    page = f"{case.path}/{row['id']}"
    assert name in browser.get(f"{page}/edit").text
    browser.post(f"{page}/edit", forms.fill(case.changed, renamed), csrf=csrf)
    after = admin.get(f"{case.api}/{row['id']}")
    assert {key: after[key] for key in ("name", *case.sent)} == {"name": renamed, **case.sent}
    assert renamed in browser.get(f"{page}/delete").text
    browser.post(f"{page}/delete", {}, csrf=csrf)
    admin.get(f"{case.api}/{row['id']}", expect=404)


def test_an_unchanged_form_changes_nothing(case: NounCase, forms: Forms, browser: WebSession, admin: Client) -> None:
    name = unique("row")
    browser.post(f"{case.path}/new", forms.fill(case.new, name), csrf=browser.csrf)
    before = find(admin, case, name)
    page = f"{case.path}/{before['id']}/edit"
    browser.post(page, shown_fields(browser.get(page).text), csrf=browser.csrf)
    assert admin.get(f"{case.api}/{before['id']}") == before


def shown_fields(page: str) -> list[tuple[str, object]]:
    """The fields of the form that changes a row, as a browser would send them."""
    main = page[page.index('<form class="stack') :]
    found: list[tuple[str, object]] = []
    for tag in re.findall(r"<input[^>]*>", main):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        ticked = attributes["type"] != "checkbox" or "checked" in tag
        if attributes["type"] != "hidden" and ticked:
            found.append((attributes["name"], html.unescape(attributes["value"])))
    for name, text in re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n(.*?)</textarea>', main, re.DOTALL):
        found.append((name, html.unescape(text).replace("\n", "\r\n")))
    for name, choices in re.findall(r'<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', main, re.DOTALL):
        chosen = re.search(r'value="([^"]*)" selected', choices)
        found.append((name, chosen[1] if chosen else ""))
    return found


def test_a_fault_is_shown_at_its_field_and_keeps_the_form(
    case: NounCase, forms: Forms, browser: WebSession, admin: Client
) -> None:
    name = unique("<i>\"row'")
    field, wrong = case.faulty
    typed = {**forms.fill(case.new, name), field: wrong}
    page = browser.post(f"{case.path}/new", typed, csrf=browser.csrf, expect=400).text
    assert re.search(rf'id="f-{field}"[^>]* aria-invalid="true"', page), page
    assert "<i>" not in page
    text = html.unescape(page)
    for key, value in typed.items():
        for each in value if isinstance(value, list) else [value]:
            assert str(each) in text, key
    browser.post(f"{case.path}/new", {}, csrf=browser.csrf, expect=400)
    assert find(admin, case, "<i>") is None


def test_a_token_that_may_only_read_gets_the_list_without_forms(
    case: NounCase, forms: Forms, browser: WebSession, server: Server, admin: Client
) -> None:
    name = unique("row")
    browser.post(f"{case.path}/new", forms.fill(case.new, name), csrf=browser.csrf)
    row = find(admin, case, name)
    token = admin.post("/tokens", {"name": "r", "role": "admin", "readOnly": True})["value"]
    reader = signed_in(server.url, token)
    page = reader.get(f"{case.path}?name={name}").text
    assert name in page
    assert f"{case.path}/new" not in page
    assert "/edit" not in page
    for path in (f"{case.path}/new", f"{case.path}/{row['id']}/edit", f"{case.path}/{row['id']}/delete"):
        reader.get(path, expect=403)
        reader.post(path, {"name": "x"}, csrf=reader.csrf, expect=403)


def test_a_stranger_changes_no_row_of_others(
    case: NounCase, forms: Forms, browser: WebSession, server: Server, scenario: Scenario
) -> None:
    name = unique("row")
    browser.post(f"{case.path}/new", forms.fill(case.new, name), csrf=browser.csrf)
    row = find(scenario.admin, case, name)
    stranger = signed_in(server.url, str(scenario.stranger.token))
    for path in ("edit", "delete"):
        page = f"{case.path}/{row['id']}/{path}"
        assert stranger.get(page, expect=None).status in (403, 404)
        assert stranger.post(page, {"name": "x"}, csrf=stranger.csrf, expect=None).status in (403, 404)
    assert scenario.admin.get(f"{case.api}/{row['id']}") == row
    assert f"{row['id']}/edit" not in stranger.get(case.path).text


@pytest.mark.parametrize("number", ["1" * 400, "-" + "1" * 400, "1e999", "nan", "1" * 5000])
def test_a_number_beyond_all_numbers_is_a_fault_of_its_field(browser: WebSession, number: str) -> None:
    page = browser.post("/options/new", {"name": "a", "displayOrder": number}, csrf=browser.csrf, expect=400).text
    assert re.search(r'id="f-displayOrder"[^>]* aria-invalid="true"', page)


def test_a_document_that_takes_long_to_read_is_refused_before(browser: WebSession) -> None:
    text = f"[{'a, ' * 100_000}]"
    page = browser.post("/options/new", {"name": "a", "value": text}, csrf=browser.csrf, expect=400).text
    assert "has more than 200,000 characters" in page
