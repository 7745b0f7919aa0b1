"""Names hold no control, line or invisible characters and no bidirectional controls; stored ones stay readable."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from control_plane import Server
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.operations.machinery.bodies import Body, Name
from sample_rows import SampleRows
from scenario import Scenario, unique

FAULT = "must not hold control characters, line breaks, bidirectional controls or invisible characters"
REFUSED = [
    *map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]),
    *map(chr, [*range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0x200B, 0x2010), 0x61C]),
    # Soft hyphen, grapheme joiner, Hangul fillers, Mongolian and variation selectors, byte order mark, tags.
    *map(chr, [0xAD, 0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, 0x180B, 0x180E, 0xFE00, 0xFE0F, 0xFEFF, 0xFFF9]),
    *map(chr, [0x1D173, 0xE0001, 0xE0061, 0xE0100, 0xE01EF]),
]
ACCEPTED = ["Müller & Söhne", "日本", "שלום", "a\u00a0b", "naïve 🐘", "e\u0301", "한글", "~!"]
BODIES = sorted({endpoint.body for endpoint in all_endpoints() if endpoint.body}, key=lambda each: each.__name__)
# Nouns whose name is written by PATCH.
NAMED = [
    "participants",
    "tokens",
    "agent-types",
    "service-types",
    "agents",
    "service-groups",
    "services",
    "service-option-types",
    "service-options",
    "service-pool-sets",
    "service-pools",
    "service-pool-values",
    "config-pools",
    "metric-types",
]


@pytest.fixture(scope="module")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


@pytest.mark.parametrize("body", BODIES, ids=lambda each: each.__name__)
def test_every_name_of_a_request_body_is_a_plain_name(body: type[Body]) -> None:
    hints = get_type_hints(body, include_extras=True)
    if "name" in hints:
        assert Name in (hints["name"], *get_args(hints["name"])), f"{body.__name__}.name must have the type Name"


def test_the_rule_covers_exactly_the_listed_characters() -> None:
    for character in REFUSED:
        for text in (character, f"a{character}", f"{character}a", f"a{character}b"):
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(text, Name)
    for text in ACCEPTED:
        assert msgspec.convert(text, Name) == text


@pytest.mark.parametrize("noun", NAMED)
def test_a_name_with_a_line_break_is_refused(rows: SampleRows, noun: str) -> None:
    path = f"/{noun}/{rows.ids[noun]}"
    before = rows.clients["admin"].get(path)["name"]
    for name in ("web\nExecStart=/bin/evil", "web\n", "web\u2028", "web\u202egpj", "\x1b[31mweb", "w\u200beb"):
        refused = rows.clients["admin"].patch(path, {"name": name}, expect=400)
        assert refused["errors"] == [{"path": "name", "message": FAULT}]
    assert rows.clients["admin"].get(path)["name"] == before


def test_tags_and_types_are_names_too(scenario: Scenario) -> None:
    refused = scenario.provider.patch(f"/agents/{scenario.agent_id}", {"tags": ["good", "bad\r"]}, expect=400)
    assert refused["errors"] == [{"path": "tags[1]", "message": FAULT}]
    scenario.admin.post("/service-option-types", {"name": "o", "type": "os\n"}, expect=400)
    pool_set = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    pool = {"name": "p", "propertyType": "string", "generatorType": "list", "servicePoolSetId": pool_set["id"]}
    assert FAULT in str(scenario.provider.post("/service-pools", {**pool, "type": "ip\x85"}, expect=400))


def test_a_zero_byte_is_named_in_words_and_replaced_in_a_failure(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    path = f"/jobs/{scenario.next_job(service)['id']}"
    refused = scenario.agent.post(f"{path}/fail", {"errorMessage": "a", "leaseToken": "a\0b"}, expect=400)
    assert refused["errors"] == [{"path": "leaseToken", "message": "must not hold a zero byte"}]
    scenario.agent.post(f"{path}/fail", {"errorMessage": "a\0b"}, expect=204)
    assert scenario.admin.get(path)["errorMessage"] == "a\ufffdb"


def test_a_stored_name_stays_and_its_row_can_be_changed(embedded: Server) -> None:
    scenario = Scenario(embedded.admin)
    agent = scenario.new_agent()
    name = unique("old\nname\u202e")
    embedded.store_name("agents", agent["id"], name)
    found: Any = scenario.provider.patch(f"/agents/{agent['id']}", {"tags": ["x"]})
    assert (found["name"], found["tags"]) == (name, ["x"])
    assert scenario.provider.get("/agents", query={"name": name})["items"][0]["id"] == agent["id"]
    code = scenario.provider.post(f"/agents/{agent['id']}/enrolment-codes")["code"]
    assert scenario.admin.post("/enrol", {"code": code})["agentId"] == agent["id"]
