"""A control plane for tests: the real program on a free loopback port, an API client, and a private PostgreSQL."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import urllib3

from fork_server import Process, start_program
from mainstay.control.store.engine.records import fold
from ports import free_ports

# Long: other tests and other programs may occupy the machine.
START_SECONDS = 120
# PostgreSQL needs a key that all replicas share.
SHARED_KEY = "cd" * 32


@dataclass
class Reply:
    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass
class Client:
    """Calls the API as one caller. `expect` is the required status."""

    url: str
    token: str | None = None
    pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(maxsize=64))

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        expect: int | None = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: object = None,
    ) -> Reply:
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        content = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        address = f"{self.url}{path}"
        if query:
            from urllib.parse import urlencode

            address += "?" + urlencode(query, doseq=True)  # type: ignore[arg-type]
        reply = self.pool.request(
            method,
            address,
            body=content,
            headers={**sent, "Content-Type": "application/json", **(headers or {})},
            timeout=90,
            retries=False,
        )
        if reply.status == 429 and expect not in (None, 429):
            # A fast server lets a test send more than the limit admits; a client waits then.
            time.sleep(int(reply.headers["Retry-After"]))
            return self.call(method, path, body, expect=expect, raw=raw, headers=headers, query=query)
        kind = reply.headers.get("content-type", "")
        parsed = json.loads(reply.data) if reply.data and kind.startswith("application/json") else reply.data
        if expect is not None:
            assert reply.status == expect, f"{method} {path} → {reply.status}: {parsed!r}"
        return Reply(reply.status, parsed, reply.headers)

    def get(self, path: str, *, expect: int = 200, **more: Any) -> Any:
        return self.call("GET", f"/api/v1{path}", expect=expect, **more).body

    def post(self, path: str, body: object = None, *, expect: int = 201, **more: Any) -> Any:
        return self.call("POST", f"/api/v1{path}", body, expect=expect, **more).body

    def put(self, path: str, body: object = None, *, expect: int = 200, **more: Any) -> Any:
        return self.call("PUT", f"/api/v1{path}", body, expect=expect, **more).body

    def patch(self, path: str, body: object = None, *, expect: int = 200, **more: Any) -> Any:
        return self.call("PATCH", f"/api/v1{path}", body, expect=expect, **more).body

    def delete(self, path: str, *, expect: int = 204, **more: Any) -> Any:
        return self.call("DELETE", f"/api/v1{path}", expect=expect, **more).body

    def open_stream(self, path: str, headers: Mapping[str, str] | None = None) -> urllib3.BaseHTTPResponse:
        """A response whose body is not read yet, on its own connection."""
        return urllib3.PoolManager(maxsize=1).request(
            "GET",
            f"{self.url}{path}",
            headers={"Authorization": f"Bearer {self.token}", **(headers or {})},
            preload_content=False,
            retries=False,
            timeout=30,
        )

    def as_token(self, token: str) -> Client:
        return Client(self.url, token, self.pool)

    def wait_for(self, path: str, wanted: Mapping[str, object], seconds: float = 10) -> Any:
        """Polls until the document has these members."""
        until = time.monotonic() + seconds
        while True:
            found = self.get(path)
            if all(found.get(name) == value for name, value in wanted.items()):
                return found
            assert time.monotonic() < until, f"{path} is {found}, wanted {wanted}"
            time.sleep(0.05)


@dataclass
class Server:
    process: Process
    url: str
    data_dir: Path
    log: Path
    # None: the embedded database.
    database_url: str | None = None

    @property
    def admin(self) -> Client:
        return Client(self.url, (self.data_dir / "admin.token").read_text().strip())

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=30)

    def store_name(self, table: str, row_id: str, name: str) -> None:
        """Writes a name that the API refuses, as an earlier version stored it. Embedded database only."""
        with closing(sqlite3.connect(self.data_dir / "mainstay.db", timeout=30)) as connection, connection:
            statement = f"UPDATE {table} SET name = ?, name_folded = ? WHERE id = ?"
            connection.execute(statement, (name, fold(name), row_id))


def wait_until_hashed(server: Server) -> None:
    """Waits for the background task that chains events."""
    until = time.monotonic() + 20
    while server.admin.get("/events?sort=-sequenceNumber&pageSize=1")["items"][0]["hash"] is None:
        assert time.monotonic() < until
        time.sleep(0.05)


@contextmanager
def running(
    data_dir: Path,
    *,
    database_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    installed: bool = False,
) -> Iterator[Server]:
    """`installed` as in `start_program`."""
    server = start(data_dir, database_url=database_url, environment=environment, ca_file=ca_file, installed=installed)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(timeout=30)


def start(
    data_dir: Path,
    *,
    database_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    port: int | None = None,
    ca_file: Path | None = None,
    installed: bool = False,
) -> Server:
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    log = data_dir.with_name(f"{data_dir.name}.{uuid4().hex[:6]}.log")
    words = ["server", "--port", str(port or free_ports(1)[0]), "--data-dir", str(data_dir)]
    environment = dict(environment or {})
    if database_url:
        words += ["--database-url", database_url]
        if "MAINSTAY_VAULT" not in environment:
            environment.setdefault("VAULT_ENCRYPTION_KEY", SHARED_KEY)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSTAY_", "VAULT_"))}
    with log.open("wb") as out:
        process = start_program(
            words, stdout=out, stderr=out, environment={**inherited, **environment}, installed=installed
        )
    try:
        url = _wait_until_ready(process, log, ca_file)
    except BaseException:
        process.kill()
        process.wait(timeout=30)
        raise
    return Server(process, url, data_dir, log, database_url)


def _wait_until_ready(process: Process, log: Path, ca_file: Path | None) -> str:
    """Returns the address of the server."""
    until = time.monotonic() + START_SECONDS
    while True:
        text = log.read_text(errors="replace")
        if "listens on " in text:
            url = text.split("listens on ", 1)[1].split()[0]
            break
        assert process.poll() is None, f"the server exited at the start: {text}"
        assert time.monotonic() < until, f"the server did not start: {text}"
        time.sleep(0.02)
    pool = urllib3.PoolManager(ca_certs=None if ca_file is None else str(ca_file), assert_hostname=False)
    while True:
        try:
            if pool.request("GET", f"{url}/ready", retries=False, timeout=5).status == 200:
                break
        except urllib3.exceptions.HTTPError:
            assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < until, "the server is not ready in time"
        time.sleep(0.02)
    return url


def missing(part: str, why: str) -> None:
    """Skips the test; with CI=true a missing part is a failure."""
    message = f"{part} is missing: {why}; scripts/install-test-parts installs it"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@dataclass
class Cluster:
    """A private PostgreSQL. Without `fsync` a crash may lose commits."""

    folder: Path
    programs: Path
    fsync: bool = False

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, program: str, *arguments: object) -> None:
        """Runs as the user that owns the files: PostgreSQL refuses to run as root."""
        owner = {"user": "postgres"} if os.geteuid() == 0 else {}
        command = [str(self.programs / program), "-D", str(self.data), *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **owner)  # type: ignore[call-overload]

    def start(self) -> None:
        settings = (
            f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' -c max_connections=200 -p 5432"
            f" -c fsync={'on' if self.fsync else 'off'}"
        )
        self.run("pg_ctl", "-w", "-l", self.folder / "log", "-o", settings, "start")

    def kill(self) -> None:
        """Kills all processes at once, as in a crash of the machine."""
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        family = [first, *children(first)]
        for process in family:
            os.kill(process, signal.SIGSTOP)
        for process in family:
            os.kill(process, signal.SIGKILL)
        until = time.monotonic() + 10
        while any(is_alive(process) for process in family):
            assert time.monotonic() < until, "PostgreSQL still runs after SIGKILL"
            time.sleep(0.01)
        # Without a process that reaps zombies, PostgreSQL would take these files for those of a running server.
        for lock in (self.data / "postmaster.pid", self.folder / ".s.PGSQL.5432.lock"):
            lock.unlink(missing_ok=True)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&port=5432"

    def new_database(self) -> str:
        name = f"t{uuid4().hex[:12]}"
        subprocess.run(
            ["psql", "-q", "-d", self.url("postgres"), "-c", f"CREATE DATABASE {name}"],
            check=True,
            capture_output=True,
        )
        return self.url(name)


def find_postgresql() -> Path | None:
    """The directory of the server programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    if found:
        return found[0].parent
    program = shutil.which("initdb")
    return Path(program).parent if program else None


def children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(each) for each in listed.split()]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        # The second: it ended between opening and reading.
        return False


@contextmanager
def postgresql_cluster(folder: Path, *, durable: bool = False) -> Iterator[Cluster]:
    """`durable`: every commit is synced to disk."""
    programs = find_postgresql()
    if programs is None:
        missing("PostgreSQL", "initdb is not installed")
        raise AssertionError
    folder.mkdir(parents=True, exist_ok=True)
    owner = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam(owner).pw_uid, -1)
        for parent in folder.parents:
            if parent == Path("/tmp"):
                break
            parent.chmod(parent.stat().st_mode | 0o011)
    cluster = Cluster(folder, programs, durable)
    cluster.run("initdb", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.run("pg_ctl", "-w", "-m", "immediate", "stop")
