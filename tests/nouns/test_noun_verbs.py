"""Verbs that derive from a declaration, for every kind of member: what is typed, and the body that is sent."""

from __future__ import annotations

import argparse
from typing import Any, cast

import pytest

from mainstay import nouns
from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.noun_verbs import NounVerbs
from mainstay.nouns import Member, Noun, owning_participant

NOUN = Noun(
    "webhook",
    "web hook",
    "/webhooks",
    (
        Member("name", nouns.NAME, "name of the hook", required=True, argument="NAME"),
        Member(
            "eventKind", nouns.CHOICE, "what it reports", required=True, fixed=True, choices={"Job": "", "Order": ""}
        ),
        Member("retries", nouns.INTEGER, "how often it repeats", default=3),
        Member("signed", nouns.BOOLEAN, "whether it is signed", default=False, switch=("sign it", "do not sign it")),
        Member("headers", nouns.OBJECT, "headers of its requests"),
        Member("labels", nouns.TAGS, "labels of the hook", default=[], short="label"),
        Member("agentTypeId", nouns.ID, "agents that it is for", refers_to="/agent-types", short="agentType"),
        Member("serviceTypeIds", nouns.IDS, "types that it is for", refers_to="/service-types", short="serviceType"),
        Member("contact", nouns.LINE, "how to reach its owner", default=""),
        Member("digest", nouns.LINE, "computed elsewhere", left_out={nouns.CLI: "the server computes it"}),
    ),
    owner=owning_participant("consumerId", "owner of the hook", "for"),
)
ROWS = {
    "/participants": [{"id": "p1", "name": "acme"}],
    "/agent-types": [{"id": "a1", "name": "linux"}],
    "/service-types": [{"id": "s1", "name": "vm"}, {"id": "s2", "name": "note"}],
    "/webhooks": [{"id": "w1", "name": "hook"}],
}


class KnownRows:
    """Answers as a server with ROWS, and keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []

    def pages(self, path: str, query: Any = None) -> Any:
        wanted = (query or {}).get("name")
        return [each for each in ROWS[path] if wanted in (None, each["name"])]

    def post(self, path: str, body: Any) -> Any:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: Any) -> Any:
        self.sent.append((method, path, body))
        return {"id": "w1", "name": "hook", **body}


def send(verb: str, *words: str) -> list[tuple[str, str, Any]]:
    verbs = NounVerbs(NOUN, "HOOK", "There is no hook yet.")
    chosen = verbs.addition("add a hook") if verb == "add" else verbs.change("change a hook")
    parser = argparse.ArgumentParser(exit_on_error=False)
    assert chosen.configure is not None
    chosen.configure(parser)
    arguments = parser.parse_args(words)
    arguments.json = True
    client = KnownRows()
    chosen.act(cast("Client", client), arguments)
    return client.sent


def test_an_addition_sends_what_is_typed_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert send("add", "hook", "--for", "acme", "--event-kind", "Job") == [
        ("POST", "/webhooks", {"consumerId": "p1", "name": "hook", "eventKind": "Job"})
    ]
    words = ["--retries", "5", "--signed", "--headers", '{"X-Key": "a"}', "--label", "a", "--label", "b"]
    words += ["--agent-type", "linux", "--service-type", "vm", "--service-type", "note", "--contact", "me"]
    ((_, _, body),) = send("add", "hook", "--for", "acme", "--event-kind", "Order", *words)
    assert body == {
        "consumerId": "p1",
        "name": "hook",
        "eventKind": "Order",
        "retries": 5,
        "signed": True,
        "headers": {"X-Key": "a"},
        "labels": ["a", "b"],
        "agentTypeId": "a1",
        "serviceTypeIds": ["s1", "s2"],
        "contact": "me",
    }


def test_a_change_sends_what_is_typed_and_offers_nothing_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--name", "other", "--no-signed", "--retries", "0", "--contact", "", "--service-type", "note"]
    assert send("change", "hook", *words) == [
        (
            "PATCH",
            "/webhooks/w1",
            {"name": "other", "retries": 0, "signed": False, "serviceTypeIds": ["s2"], "contact": ""},
        )
    ]
    with pytest.raises(CommandRefused, match=r"use --name, --retries, --signed, --no-signed, .* or --contact$"):
        send("change", "hook")


def test_what_must_be_typed_and_what_the_declaration_leaves_out_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for verb, words in (
        ("add", ["hook", "--for", "acme"]),
        ("add", ["hook", "--for", "acme", "--event-kind", "Other"]),
        ("add", ["hook", "--event-kind", "Job", "--digest", "x"]),
        ("change", ["hook", "--event-kind", "Job"]),
    ):
        with pytest.raises((SystemExit, argparse.ArgumentError)):
            send(verb, *words)
