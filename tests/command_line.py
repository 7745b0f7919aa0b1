"""Support for tests of the command line: a stub agent, a pseudo-terminal, a shell, and a faulty proxy to the server."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3

from control_plane import Server
from fork_server import run_program
from scenario import Scenario

TIMEOUT_SECONDS = 60


@contextmanager
def working_agent(scenario: Scenario, do: Callable[[Any], Mapping[str, Any]] = lambda _job: {}) -> Iterator[None]:
    """Runs an agent that completes every job. `do` returns the report of a job; an `errorMessage` in it fails the job."""
    stop = threading.Event()
    # A cached property, which two threads must not compute at once.
    agent = scenario.agent

    def work() -> None:
        while not stop.is_set():
            for job in agent.get("/jobs/pending?wait=1"):
                agent.post(f"/jobs/{job['id']}/claim", expect=204)
                report = do(job)
                verb = "fail" if "errorMessage" in report else "complete"
                agent.post(f"/jobs/{job['id']}/{verb}", report, expect=204)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT_SECONDS)


@dataclass
class Terminal:
    """A program on a pseudo-terminal of 80 columns."""

    process: subprocess.Popen[bytes]
    end: int
    seen: str = ""

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + TIMEOUT_SECONDS
        while text not in self.seen:
            assert time.monotonic() < until, f"{text!r} did not appear: {self.seen!r}"
            if not self.read():
                raise AssertionError(f"the program exited without {text!r}: {self.seen!r}")

    def read(self) -> bool:
        """Reads available output. Returns whether there may be more."""
        ready, _, _ = select.select([self.end], [], [], 0.2)
        if not ready:
            return True
        try:
            piece = os.read(self.end, 65536)
        except OSError:
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece)

    def finish(self) -> int:
        until = time.monotonic() + TIMEOUT_SECONDS
        while self.read():
            assert time.monotonic() < until, f"the program did not exit: {self.seen!r}"
        return self.process.wait(TIMEOUT_SECONDS)


@contextmanager
def on_terminal(
    words: Sequence[str], environment: Mapping[str, str], directory: Path | None = None
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        # Prompts without echo and Ctrl-C need a controlling terminal.
        ["setsid", "--ctty", "--wait", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
        cwd=directory,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT_SECONDS)
        os.close(ours)


@dataclass
class FaultyProxy:
    """A proxy between the program and the server; `requests` lists all requests."""

    url: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def faulty_proxy_to(server: Server, spoil: Callable[[str, str], bytes | bool | None]) -> Iterator[FaultyProxy]:
    """`spoil` gets method and path: True forwards the response, bytes replace it, None drops it after the request. False
    limits the request, as a server does."""
    pool = urllib3.PoolManager()
    proxy = FaultyProxy("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            proxy.requests.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            verdict = spoil(self.command, self.path)
            if isinstance(verdict, bytes):
                self.respond(200, verdict)
                return
            if verdict is False:
                limited = {"error": "too many requests; try again in 1 s", "code": "rate_limited"}
                self.respond(429, json.dumps(limited).encode(), retry_after="1")
                return
            kept = ("Authorization", "Content-Type", "Idempotency-Key")
            headers = {name: value for name in kept if (value := self.headers.get(name))}
            reply = pool.request(self.command, server.url + self.path, body=body, headers=headers, retries=False)
            if verdict is None:
                self.close_connection = True
                return
            self.respond(reply.status, reply.data)

        do_GET = do_POST = do_PATCH = do_DELETE = forward  # noqa: N815 (names of the library)

        def respond(self, status: int, content: bytes, retry_after: str | None = None) -> None:
            self.send_response(status)
            if retry_after is not None:
                self.send_header("Retry-After", retry_after)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words: Any, **_more: Any) -> None:
            """Prints nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join(TIMEOUT_SECONDS)


@dataclass
class Shell:
    """Runs the program with the token of a caller in the environment."""

    server: Server

    def environment(self, token: str | None, url: str | None = None) -> dict[str, str]:
        return {"MAINSTAY_URL": url or self.server.url, "MAINSTAY_TOKEN": token or ""}

    def run(
        self, caller: Any, *words: str, stdin: str = "", code: int | None = 0, url: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = run_program(words, stdin=stdin, environment={**os.environ, **self.environment(caller.token, url)})
        assert "Traceback" not in done.stderr, done.stderr
        assert code is None or done.returncode == code, f"{words} → {done.returncode}\n{done.stdout}{done.stderr}"
        return done
