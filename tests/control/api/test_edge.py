"""The HTTP layer: bodies, limits, refusals, settings and the endpoints at the root."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import urllib3
from jsonschema import Draft202012Validator

from certificates import make_certificate
from control_plane import Client, Reply, Server, running
from fork_server import PROGRAM, run_program
from mainstay.control.access import ACCESS, Role
from mainstay.control.api.endpoints import all_endpoints
from ports import free_ports
from scenario import Scenario

GOLDEN = Path(__file__).parents[2] / "golden" / "access.txt"


def test_the_access_table_matches_the_reviewed_one() -> None:
    lines = []
    for endpoint in sorted(all_endpoints(), key=lambda each: (each.path, each.method)):
        rules = {} if endpoint.access is None else ACCESS[endpoint.access]
        shown = "open" if endpoint.access is None else " | ".join(f"{role}: {rules.get(role, '-')}" for role in Role)
        lines.append(f"{endpoint.method} {endpoint.path} | {shown}")
    assert "\n".join(lines) + "\n" == GOLDEN.read_text(), (
        "review the change, then write it to tests/golden/access.txt"
    )


def test_every_row_of_the_access_table_is_used() -> None:
    assert {endpoint.access for endpoint in all_endpoints()} - {None} == set(ACCESS)


def test_health_needs_no_token(server: Server) -> None:
    anonymous = Client(server.url)
    assert anonymous.call("GET", "/healthz", expect=200).body == {"status": "UP"}
    assert anonymous.call("GET", "/ready", expect=200).body == {"status": "UP"}
    metrics = anonymous.call("GET", "/metrics", expect=200).body.decode()
    assert 'mainstay_requests_total{method="GET",route="/healthz",status="200"}' in metrics


def test_the_description_is_openapi_and_the_page_is_self_contained(server: Server) -> None:
    anonymous = Client(server.url)
    description = anonymous.call("GET", "/openapi.json", expect=200).body
    assert description["openapi"] == "3.1.0"
    for schema in description["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert "/api/v1/participants/{id}" in description["paths"]
    page = anonymous.call("GET", "/docs", expect=200).body.decode()
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert "/api/v1/participants/{id}" in page


@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b"  "])
def test_an_empty_body_null_and_an_empty_object_are_equal(scenario: Scenario, raw: bytes) -> None:
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        reply = scenario.admin.call("POST", "/api/v1/participants", raw=raw, headers={"Content-Type": kind})
        assert reply.status == 400
        assert reply.body["errors"] == [{"path": "name", "message": "required field is missing"}]


def test_all_faults_of_a_body_are_reported_at_once(scenario: Scenario) -> None:
    refused = scenario.admin.post("/agents", {"name": "", "tags": ["a", 5], "providerId": "x"}, expect=400)
    assert refused["status"] == "Validation failed"
    assert refused["valid"] is False
    assert [fault["path"] for fault in refused["errors"]] == ["name", "providerId", "agentTypeId", "tags[1]"]
    assert refused["errors"][3]["message"] == "expected string, got integer"


def test_null_means_absent(scenario: Scenario) -> None:
    made = scenario.admin.post("/participants", {"name": "x", "status": None})
    assert made["status"] == "Enabled"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"name": NaN}', "invalid_json"),
        (b'{"name": "\xff\xfe"}', "invalid_json"),
        (b'{"name": "\\ud800"}', "invalid_json"),
        (b"[1]", "invalid_body"),
        (b'"text"', "invalid_body"),
        (b'{"name": ' + b"[" * 100 + b"]" * 100 + b"}", "too_deep"),
        (b"[" * 200_000, "too_deep"),
        (b'{"name": "a\\u0000b"}', "invalid_body"),
        (b'{"name": ' + b'"' + b"x" * 300 + b'"}', "invalid_body"),
    ],
)
def test_an_invalid_body_is_refused_with_a_code(scenario: Scenario, raw: bytes, code: str) -> None:
    reply = scenario.admin.call("POST", "/api/v1/participants", raw=raw, expect=400)
    assert reply.body["code"] == code


def test_brackets_in_strings_do_not_count_as_depth(scenario: Scenario) -> None:
    name = "[{" * 100
    assert scenario.admin.post("/participants", {"name": name})["name"] == name


def test_a_body_that_is_too_large_is_refused(scenario: Scenario) -> None:
    reply = scenario.admin.call(
        "POST", "/api/v1/participants", raw=b'{"name":"' + b"x" * 5_000_000 + b'"}', expect=413
    )
    assert reply.body["code"] == "body_too_large"


def test_an_unknown_path_or_method_is_refused(scenario: Scenario) -> None:
    assert scenario.admin.call("GET", "/nothing", expect=404).body["code"] == "not_found"
    refused = scenario.admin.call("PUT", "/api/v1/participants", expect=405)
    assert refused.body["code"] == "method_not_allowed"
    assert "GET" in refused.headers["allow"]


def test_every_response_has_a_request_id(scenario: Scenario) -> None:
    reply = scenario.admin.call("GET", "/api/v1/participants", headers={"X-Request-Id": "mine-1"})
    assert reply.headers["x-request-id"] == "mine-1"
    reply = scenario.admin.call("GET", "/api/v1/participants", headers={"X-Request-Id": "bad id\t"})
    assert reply.headers["x-request-id"] != "bad id\t"
    assert reply.headers["x-request-id"]


def test_the_role_is_checked_before_the_id_and_the_id_before_the_body(scenario: Scenario) -> None:
    nowhere = "00000000-0000-4000-8000-000000000000"
    scenario.agent.patch(f"/participants/{nowhere}", {"name": 5}, expect=403)
    scenario.admin.patch(f"/participants/{nowhere}", {"name": 5}, expect=404)
    scenario.admin.patch(f"/participants/{scenario.consumer_id}", {"name": 5}, expect=400)


def test_a_truncated_request_does_not_affect_others(server: Server) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port)) as half:
        half.sendall(b"POST /api/v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        Client(server.url).call("GET", "/healthz", expect=200)
    with socket.create_connection((address.hostname, address.port)) as noise:
        noise.sendall(b"\x00\x01\x02 rubbish \r\n\r\n")
        assert b"400" in noise.recv(100)
    Client(server.url).call("GET", "/healthz", expect=200)


def test_the_first_start_creates_private_files_and_keeps_the_token_out_of_the_log(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    with running(data) as server:
        token = (data / "admin.token").read_text().strip()
        assert token not in server.log.read_text()
        assert data.stat().st_mode & 0o777 == 0o700
        for name in ("admin.token", "vault.key", "mainstay.db"):
            assert (data / name).stat().st_mode & 0o777 == 0o600, name
        made = server.admin.post("/participants", {"name": "kept"})
        assert server.stop() == 0
    with running(data) as server:
        assert token not in server.log.read_text()
        assert server.admin.get(f"/participants/{made['id']}")["name"] == "kept"


def test_a_second_server_on_one_sqlite_database_is_refused(tmp_path: Path) -> None:
    """SQLite does not notify another server of commits."""
    data = tmp_path / "data"
    with running(data):
        command = [str(PROGRAM), "server", "--port", "0", "--data-dir", str(data)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 2
    assert "another server uses it; replicas need PostgreSQL" in second.stderr


def test_settings_come_from_flags_the_environment_and_a_file(tmp_path: Path) -> None:
    def refused(*arguments: str, **environment: str) -> str:
        done = run_program(["server", *arguments], environment={"HOME": str(tmp_path), **environment})
        assert done.returncode == 2, done
        return done.stderr

    assert "MAINSTAY_PORT: must be an integer from 0 to 65535" in refused(
        "--data-dir", str(tmp_path), MAINSTAY_PORT="99999"
    )
    config = tmp_path / "server.toml"
    config.write_text('colour = "blue"')
    assert "colour" in refused("--config", str(config))
    config.write_text("port = ")
    assert "TOML" in refused("--config", str(config))
    assert "VAULT_ENCRYPTION_KEY" in refused("--data-dir", str(tmp_path / "d"), VAULT_ENCRYPTION_KEY="short")
    config.write_text(f'data-dir = "{tmp_path}/e"')
    done = run_program(["server", "migrate", "--config", config])
    assert "0001_tables" in done.stdout
    assert (tmp_path / "e" / "mainstay.db").exists()


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that admits two requests per second and a burst of eight."""
    with running(tmp_path_factory.mktemp("limited") / "data", environment={"MAINSTAY_RATE_LIMIT": "2"}) as server:
        yield server


def refused(client: Client, requests: int = 15) -> list[Reply]:
    replies = [client.call("GET", "/api/v1/service-types") for _ in range(requests)]
    return [reply for reply in replies if reply.status == 429]


def test_the_requests_of_a_participant_are_limited_over_all_its_tokens(limited: Server) -> None:
    scenario = Scenario(limited.admin)
    tokens = [scenario.token("participant", scenario.provider_id) for _ in range(15)]
    replies = [token.call("GET", "/api/v1/service-types") for token in tokens]
    late = [reply for reply in replies if reply.status == 429]
    assert late
    assert late[0].headers["retry-after"] == "1"
    assert late[0].body["code"] == "rate_limited"
    assert refused(scenario.stranger, 5) == []


def test_agents_are_limited_apart_from_their_provider_and_admins_not_at_all(limited: Server) -> None:
    scenario = Scenario(limited.admin)
    assert refused(scenario.agent)
    assert refused(scenario.token("agent", scenario.new_agent()["id"]), 5) == []
    assert refused(scenario.provider, 5) == []
    assert refused(limited.admin, 100) == []


def test_a_burst_of_200_requests_is_admitted_by_default(embedded: Server) -> None:
    scenario = Scenario(embedded.admin)
    assert refused(scenario.provider, 200) == []


def test_a_long_poll_counts_once(limited: Server) -> None:
    scenario = Scenario(limited.admin)
    scenario.agent.get("/jobs/pending?wait=3")
    assert refused(scenario.agent, 7) == []


def test_every_response_forbids_caches_and_type_guessing(server: Server, scenario: Scenario) -> None:
    anonymous = Client(server.url)
    code = scenario.provider.post(f"/agents/{scenario.agent_id}/enrolment-codes")["code"]
    body = {"name": "t", "role": "participant", "scopeId": scenario.consumer_id}
    token = scenario.admin.post("/tokens", body)
    stream = scenario.consumer.open_stream("/api/v1/events/stream")
    stream.close()
    for reply in (
        anonymous.call("POST", "/api/v1/enrol", {"code": code}, expect=201),
        scenario.admin.call("POST", "/api/v1/tokens", body, expect=201),
        scenario.admin.call("POST", f"/api/v1/tokens/{token['id']}/regenerate", expect=200),
        scenario.admin.call("GET", "/api/v1/services", expect=200),
        scenario.admin.call("DELETE", f"/api/v1/tokens/{token['id']}", expect=204),
        scenario.admin.call("GET", "/nothing", expect=404),
        scenario.admin.call("PUT", "/api/v1/services", expect=405),
        scenario.admin.call("POST", "/api/v1/services", raw=b"{", expect=400),
        anonymous.call("GET", "/api/v1/services", expect=401),
        anonymous.call("GET", "/healthz", expect=200),
        anonymous.call("GET", "/docs", expect=200),
        stream,
    ):
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_the_health_port_has_an_address_of_its_own_and_no_tls(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    (port,) = free_ports(1)
    settings = {
        "MAINSTAY_HEALTH_PORT": str(port),
        "MAINSTAY_HEALTH_HOST": "127.0.0.2",
        "MAINSTAY_TLS_CERTIFICATE": str(tmp_path / "tls.pem"),
        "MAINSTAY_TLS_KEY": str(tmp_path / "tls.key"),
    }
    with running(tmp_path / "data", environment=settings, ca_file=tmp_path / "tls.pem") as server:
        assert server.url.startswith("https://127.0.0.1:")
        Client(f"http://127.0.0.2:{port}").call("GET", "/ready", expect=200)
        with pytest.raises(urllib3.exceptions.HTTPError):
            Client(f"http://127.0.0.1:{port}").call("GET", "/ready")


def test_health_and_metrics_answer_head(embedded: Server) -> None:
    client = Client(embedded.url)
    for path in ("/healthz", "/ready", "/metrics"):
        reply = client.call("HEAD", path, expect=200)
        assert int(reply.headers["content-length"]) > 0
    assert client.call("HEAD", "/api/v1/participants").status == 405


def test_the_health_port_serves_only_health_and_metrics(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with running(tmp_path / "data", environment={"MAINSTAY_HEALTH_PORT": str(port)}):
        health = Client(f"http://127.0.0.1:{port}")
        health.call("GET", "/healthz", expect=200)
        health.call("GET", "/metrics", expect=200)
        health.call("GET", "/api/v1/participants", expect=404)


def test_cross_origin_requests_are_allowed_by_a_setting_only(server: Server, tmp_path: Path) -> None:
    preflight = {"Origin": "https://ui.example", "Access-Control-Request-Method": "GET"}
    assert (
        "access-control-allow-origin" not in Client(server.url).call("OPTIONS", "/healthz", headers=preflight).headers
    )
    with running(tmp_path / "data", environment={"MAINSTAY_CORS_ORIGINS": "https://ui.example"}) as other:
        reply = Client(other.url).call("GET", "/healthz", headers={"Origin": "https://ui.example"})
        assert reply.headers["access-control-allow-origin"] == "https://ui.example"


def test_the_log_contains_requests_and_no_tokens(server: Server, scenario: Scenario) -> None:
    scenario.admin.get("/participants")
    text = server.log.read_text()
    assert "route=/api/v1/participants" in text or json.dumps("/api/v1/participants") in text
    assert str(scenario.admin.token) not in text


def test_a_refused_duplicate_names_the_member(scenario: Scenario) -> None:
    pools = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    pool = {"name": "p", "type": "t", "propertyType": "string", "generatorType": "list"}
    made = scenario.provider.post("/service-pools", {**pool, "servicePoolSetId": pools["id"]})
    value = {"servicePoolId": made["id"], "name": "v", "value": "v"}
    scenario.provider.post("/service-pool-values", value)
    refused = scenario.provider.post("/service-pool-values", value, expect=409)
    assert refused["error"] == "another record already has this value"
    refused = scenario.provider.post("/service-pools", {**pool, "servicePoolSetId": pools["id"]}, expect=409)
    assert refused["error"] == "another record already has this type"
    name = scenario.admin.get(f"/agent-types/{scenario.agent_type_id}")["name"]
    assert scenario.admin.post("/agent-types", {"name": name}, expect=409)["error"].endswith("has this name")


@pytest.mark.parametrize(
    ("bucket", "limit"), [("minute", "24 hours"), ("hour", "7 days"), ("day", "90 days"), ("month", "a year")]
)
def test_a_range_that_is_too_long_is_refused_with_its_limit(embedded: Server, bucket: str, limit: str) -> None:
    scenario = Scenario(embedded.admin)
    service = scenario.order(scenario.service_type())
    series = f"/metric-entries/aggregate/{service['id']}/r/{service['id']}?bucket={bucket}&start=2020-01-01T00:00:00Z"
    refused = scenario.consumer.get(series, expect=400)
    assert refused["error"] == f"with bucket={bucket} the time from start to end must not exceed {limit}"


def test_a_zero_byte_is_refused_in_plain_words(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    job = scenario.next_job(service)
    refused = scenario.agent.post(f"/jobs/{job['id']}/release", {"leaseToken": "a\0b"}, expect=400)
    assert refused["errors"] == [{"path": "leaseToken", "message": "must not hold a zero byte"}]
    condition = {"type": "t", "status": "True", "reason": "a\0b"}
    refused = scenario.agent.put(f"/services/{service['id']}/conditions", [condition], expect=400)
    assert "regex" not in refused["error"]
    refused = scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": "x"}, expect=400)
    assert refused["errors"] == [{"path": "servicePoolSetId", "message": "must be a uuid"}]
    refused = scenario.admin.post("/service-option-types", {"name": "o", "type": "a b"}, expect=400)
    assert "regex" not in refused["error"]
