"""Hostile bodies, queries and paths over all endpoints: never a 500, and every refusal is a document with a code."""

from __future__ import annotations

import json
import os
import random
from urllib.parse import quote

import pytest

from control_plane import Client, Reply, Server
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.store.engine.records import Table, wire_names
from sample_rows import SampleRows

# One twentieth without MAINSTAY_TORTURE.
ROUNDS = 60 if os.environ.get("MAINSTAY_TORTURE") else 3
SEED = 68
GUARDED = [endpoint for endpoint in all_endpoints() if endpoint.path != "/api/v1/events/stream"]
WRITES = [endpoint for endpoint in GUARDED if endpoint.method in ("POST", "PATCH", "PUT")]
LISTS = [endpoint for endpoint in GUARDED if isinstance(endpoint.lists, Table)]

# JSON texts that are valid or nearly so.
VALUES = [
    b"null",
    b"true",
    b"-0",
    b"1e400",
    b"-1e-400",
    b"1" + b"0" * 400,
    b"1" + b"0" * 5000,
    b"9007199254740993",
    b"1.0000000000000001",
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\ud83d\\udd11"',
    b'"\\u0000"',
    b'"\xff"',
    b'"\xc0\x80"',
    b'"\xed\xa0\x80"',
    b'"\n"',
    b'"vault://0"',
    b'"00000000-0000-4000-8000-000000000000"',
    b'"9999-12-31T23:59:59-14:00"',
    b'"' + b"x" * 300_000 + b'"',
    b"NaN",
    b"Infinity",
    b"[" * 63 + b"]" * 63,
    b"[" * 70 + b"]" * 70,
    b'{"a":' * 80 + b"1" + b"}" * 80,
    b"[" * 100_000,
    b"{}",
    b"[]",
    b'{"a":1,"a":2}',
    b'{"":"","\\u0000":1}',
    b"[1,2",
    b"01",
    b"",
]


@pytest.fixture(scope="module")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


def callers(rows: SampleRows, endpoint: Endpoint) -> Client:
    """The admin, which is not limited, or the agent for what only agents do."""
    only_agent = endpoint.access is not None and endpoint.access[1] in ("work", "be", "condition")
    return rows.clients["agent" if only_agent or endpoint.path == "/api/v1/metric-entries" else "admin"]


def check(reply: Reply, sent: object) -> None:
    assert reply.status < 500, (reply.status, reply.body, sent)
    if reply.status >= 400:
        assert reply.body["code"], (reply.body, sent)
        text = json.dumps(reply.body)
        assert len(text) < 200_000, sent
        assert "regex" not in text, (text, sent)
        assert "Traceback" not in text


def body(chance: random.Random, endpoint: Endpoint) -> bytes:
    """A member of the body, or the whole, or a member in the free part of one, is hostile."""
    value = chance.choice(VALUES)
    if endpoint.body is None or chance.random() < 0.2:
        return value
    names = [*endpoint.body.__struct_encode_fields__, "colour"]
    name = chance.choice(names)
    if chance.random() < 0.3:
        value = b'{"a":[' + value + b"]}"
    return b'{"%s":%s}' % (name.encode(), value)


def different(raw: bytes) -> str:
    return f"{raw[:60]!r} of {len(raw)} bytes"


@pytest.mark.parametrize("endpoint", WRITES, ids=lambda each: f"{each.method} {each.path}")
def test_hostile_bodies_are_refused_with_a_reason(rows: SampleRows, endpoint: Endpoint) -> None:
    if endpoint.path.endswith("/regenerate"):
        # It would end the token that the next requests use.
        return
    chance = random.Random(f"{SEED}{endpoint.method}{endpoint.path}")
    client = callers(rows, endpoint)
    for _ in range(ROUNDS * 2):
        raw = body(chance, endpoint)
        check(client.call(endpoint.method, rows.path(endpoint), raw=raw), different(raw))


TEXTS: list[str | bytes] = [
    "\0",
    "\ud800".encode("utf-8", "surrogatepass"),
    b"\xff\xfe",
    "'",
    "%",
    "_",
    "(",
    "1e400",
    "9" * 400,
    "é" * 500,
]
TEXTS += [
    "-1",
    "0",
    "true",
    "2020-01-01T00:00:00Z",
    "0001-01-01",
    "NaN",
    "+",
    "\n",
    "../..",
    "{}",
    "\u202e",
    "x" * 5000,
]


def escaped(text: str | bytes) -> str:
    return quote(text, safe="")


@pytest.mark.parametrize("endpoint", LISTS, ids=lambda each: each.path)
def test_hostile_queries_are_refused_with_a_reason(rows: SampleRows, endpoint: Endpoint) -> None:
    assert isinstance(endpoint.lists, Table)
    chance = random.Random(f"{SEED}{endpoint.path}")
    names = [*wire_names(endpoint.lists.record), "page", "pageSize", "sort", "after", "living", "colour"]
    for _ in range(ROUNDS * 5):
        pairs = [(chance.choice(names), chance.choice(TEXTS)) for _ in range(chance.randint(1, 3))]
        query = "&".join(f"{name}={escaped(text)}" for name, text in pairs)
        check(rows.clients["admin"].call("GET", f"{endpoint.path}?{query}"), pairs)


WITH_PARAMETERS = [endpoint for endpoint in GUARDED if "{" in endpoint.path]


@pytest.mark.parametrize("endpoint", WITH_PARAMETERS, ids=lambda each: f"{each.method} {each.path}")
def test_hostile_paths_are_refused_with_a_reason(rows: SampleRows, endpoint: Endpoint) -> None:
    chance = random.Random(f"{SEED}{endpoint.method}{endpoint.path}")
    client = callers(rows, endpoint)
    for _ in range(ROUNDS):
        values = {**rows.values(endpoint), "action": "fly"}
        name = chance.choice([name for name in values if f"{{{name}}}" in endpoint.path])
        path = endpoint.path
        for each, value in values.items():
            path = path.replace(f"{{{each}}}", escaped(chance.choice(TEXTS)) if each == name else value)
        if endpoint.method == "DELETE" and name != "id":
            continue
        check(client.call(endpoint.method, path, raw=b""), path)


HEADERS = [
    "if-match",
    "idempotency-key",
    "last-event-id",
    "x-request-id",
    "content-type",
    "x-forwarded-for",
    "accept",
]


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused_with_a_reason(rows: SampleRows, name: str) -> None:
    admin = rows.clients["admin"]
    for value in ("", "\xff", "x" * 5000, "-1", "1e400", "9" * 400, ",", '"', "%00", "é"):
        check(admin.call("PATCH", f"/api/v1/services/{rows.ids['services']}", {}, headers={name: value}), value)
        check(admin.call("POST", "/api/v1/services", {}, headers={name: value}), value)
