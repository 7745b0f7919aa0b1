"""The agent gets invalid responses, from a proxy or from a compromised server."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import urllib3

from bridge import Bridge
from fault_lab import NAME, ROOT, FaultLab, enrolment_over, file, run_script

# (path, response of the server) → the bytes to send instead; None: no change.
Answer = Callable[[str, bytes], bytes | None]
HEAD = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"


def response(status: str, kind: str, body: bytes, length: int | None = None) -> bytes:
    return HEAD % (status.encode(), kind.encode(), len(body) if length is None else length) + body


INVALID = [
    response("500 Internal Server Error", "application/json", b'{"error": "bug 17"}'),
    response("502 Bad Gateway", "text/html", b"<html>bad gateway</html>"),
    response("404 Not Found", "text/html", b"<html>not found</html>"),
    response("403 Forbidden", "text/plain", b"blocked by the firewall"),
    response("200 OK", "text/html", b"<html>please log in</html>"),
    response("200 OK", "application/json", b'[{"id": "../../../etc/x", "serviceId": "y"}]'),
    response("200 OK", "application/json", b"{}"),
    response("200 OK", "application/json", b"[1, null]"),
    response("200 OK", "application/json", b'{"leaseToken": 5, "job": [], "value"', 500),
    response("302 Found\r\nLocation: http://127.0.0.1:1/", "text/html", b""),
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"",
]


@contextmanager
def proxy(url: str, before: Answer, after: Answer) -> Iterator[str]:
    """Forwards requests. `before` may replace a request and its response, `after` only the response."""
    pool = urllib3.PoolManager(maxsize=32)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward()

        def do_POST(self) -> None:
            self.forward()

        def forward(self) -> None:
            self.close_connection = True
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sent = before(self.path, b"")
            if sent is None:
                headers = {name: self.headers[name] for name in ("Authorization", "Content-Type", "Accept")}
                try:
                    reply = pool.request(
                        self.command, f"{url}{self.path}", body=body, headers=headers, retries=False, timeout=60
                    )
                except urllib3.exceptions.HTTPError:
                    return
                sent = after(self.path, reply.data)
                if sent is None:
                    kind = reply.headers.get("Content-Type", "application/json")
                    sent = response(f"{reply.status} Forwarded", kind, reply.data)
            self.wfile.write(sent)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the library's name
            """Requests are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def lab(bridge: Bridge, root: Path) -> FaultLab:
    return FaultLab(bridge, root)


@pytest.mark.parametrize("seed", range(2))
def test_with_invalid_responses_each_job_still_runs_once_and_its_result_arrives(lab: FaultLab, seed: int) -> None:
    chance, lock = random.Random(seed), threading.Lock()

    def sometimes(path: str, _: bytes) -> bytes | None:
        if "/jobs/" not in path and "/vault/" not in path:
            return None
        with lock:
            return chance.choice(INVALID) if chance.random() < 0.2 else None

    schema = {"password": {"type": "string", "secret": {"type": "persistent"}}}
    config = file(f"{ROOT}/{NAME}", "{{ lookup('properties.password') }}")
    lab.make({"create": [config, run_script("once", lab.echo(NAME))]}, property_schema=schema)
    with proxy(lab.bridge.server.url, sometimes, sometimes) as url:
        agent = lab.start("--config", str(enrolment_over(lab.bridge, url, "invalid.json")))
        services = [
            lab.order({"password": f"secret {number}"}, name=f"s{number}", groupId=lab.new_group())
            for number in range(6)
        ]
        for number, service in enumerate(services):
            lab.bridge.wait_for(service, "Stopped", 60)
            assert lab.job(service)["attempt"] == 1
            assert (lab.root / f"s{number}").read_text() == f"secret {number}"
        assert sorted(lab.lines()) == [f"s{number}" for number in range(6)]
        assert "Traceback" not in agent.text()
        assert " bug " not in agent.text().replace("returned HTTP 500: bug 17", "")
        assert agent.process.poll() is None
        agent.kill()
    agent = lab.start()
    assert agent.stop() == 0
    lab.check_nothing_is_left()


# ---- bundles ----
def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for member, body in members:
            member.size = len(body) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(body))
    return gzip.compress(content.getvalue())


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = kind
    found.linkname = target
    return found


def bomb() -> bytes:
    zeros = bytes(20 * 1024 * 1024)
    return packed(*((member(f"files/{number}"), zeros) for number in range(10)))


BUNDLES: dict[str, tuple[Callable[[], bytes], str]] = {
    "leaves the target": (lambda: packed((member("../../escaped"), b"x")), "cannot be unpacked"),
    "absolute": (lambda: packed((member("/tmp/escaped"), b"x")), "cannot be unpacked"),
    "a link": (lambda: packed((member("files", tarfile.SYMTYPE, "/etc"), b"")), "is neither a file nor a directory"),
    "a hard link": (
        lambda: packed((member("passwd", tarfile.LNKTYPE, "/etc/passwd"), b"")),
        "is neither a file nor a directory",
    ),
    "a device": (lambda: packed((member("zero", tarfile.CHRTYPE), b"")), "is neither a file nor a directory"),
    "a bomb": (bomb, "it contains more than 100 MB"),
    "no archive": (lambda: b"not an archive", "it is damaged or not a .tar.gz"),
    "cut off": (
        lambda: packed((member("blueprint.yaml"), bytes(range(256)) * 64))[:-50],
        "it is damaged or not a .tar.gz",
    ),
    "not a blueprint": (lambda: packed((member("readme"), b"x")), "does not load"),
}


def test_an_invalid_bundle_fails_the_job_and_writes_nothing(lab: FaultLab) -> None:
    bundles = {name: make() for name, (make, _) in BUNDLES.items()}
    digests = {name: f"sha256:{hashlib.sha256(bundle).hexdigest()}" for name, bundle in bundles.items()}
    digests["another"] = "sha256:" + "0" * 64
    digests["no digest"] = "../../../escaped"
    expected = {name: message for name, (_, message) in BUNDLES.items()}
    expected |= {
        "another": "the server sent other content than the blueprint",
        "no digest": "is not the digest of a blueprint",
    }

    def serve(path: str, _: bytes) -> bytes | None:
        for name, digest in digests.items():
            if path.endswith(f"/blueprints/{digest}"):
                return response("200 OK", "application/gzip", bundles.get(name, b"something else"))
        return None

    def swap(path: str, answer: bytes) -> bytes | None:
        """Each service gets the bundle of its name."""
        if not path.endswith("/claim"):
            return None
        document = json.loads(answer)
        document["job"]["blueprintDigest"] = digests[document["job"]["service"]["name"]]
        return response("200 OK", "application/json", json.dumps(document).encode())

    lab.make({"create": []})
    with proxy(lab.bridge.server.url, serve, swap) as url:
        config = enrolment_over(lab.bridge, url, "bad.json")
        agent = lab.bridge.start_agent("--config", str(config), "--drift-interval", "0s")
        services = {name: lab.order(name=name, groupId=lab.new_group()) for name in digests}
        for name, service in services.items():
            lab.bridge.wait_for(service, "Broken", 40)
            assert expected[name] in lab.job(service)["errorMessage"], name
        assert agent.stop() == 0
    kept = [path.name for path in (lab.bridge.state / "agent" / "blueprints").iterdir()]
    # Only one archive could be unpacked; the bundles themselves are kept.
    assert sorted(name for name in kept if not name.endswith(".tar.gz")) == [
        digests["not a blueprint"].replace(":", "-")
    ]
    assert not list(lab.bridge.folder.rglob("escaped"))
    assert not Path("/tmp/escaped").exists()
    lab.check_nothing_is_left()
