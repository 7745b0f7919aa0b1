"""Fixtures of the fault tests: services whose commands record what they do, and network links that can be cut."""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from applying import GROUP, USER
from bridge import AgentProcess, Bridge, wait_until, write_blueprint

NAME = "{{ lookup('service.name') }}"
ATTEMPT = "{{ lookup('job.attempt') }}"
ROOT = "{{ lookup('service.root') }}"
# The shortest possible lease: tests that wait for its end take long enough.
SHORT_LEASE = ("--lease", "10s")
# The process of the agent, in a script of a job: the job runs in a process that a child of the agent has forked.
PARENT = "$(cut -d ' ' -f 4 /proc/{}/stat)"
AGENT_PID = PARENT.format(PARENT.format("$PPID"))
NO_DRIFT = ("--drift-interval", "0s")


def file(path: str, content: str, mode: str = "0600", **more: Any) -> dict[str, Any]:
    wanted = {"ensure": "present", "content": content, "owner": USER, "group": GROUP, "mode": mode}
    return {"file": [{path: {**wanted, **more}}]}


def run_script(name: str, script: str, **more: Any) -> dict[str, Any]:
    quoted = script.replace("\\", "\\\\").replace('"', '\\"')
    return {"exec": [{name: {"command": f'sh -c "{quoted}"', **more}}]}


def processes_of(pid: int) -> list[int]:
    """A process and all its descendants in the same process group: an agent, and the processes of its jobs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    group = os.getpgid(pid)
    return [
        pid,
        *(each for child in children if os.getpgid(int(child)) == group for each in processes_of(int(child))),
    ]


class FaultLab:
    """One service type on a bridge: its blueprint, its scratch root, and the record file of its commands."""

    def __init__(self, bridge: Bridge, root: Path) -> None:
        self.bridge = bridge
        self.root = root
        self.record = root.parent / "record"
        self.record.touch()
        self.kind: Any = None
        self.blueprint = bridge.folder / "blueprint"

    def echo(self, *words: str) -> str:
        """A shell command that appends a line to the record; short appends are atomic."""
        return f"echo {' '.join(words)} >>{self.record}"

    def lines(self) -> list[str]:
        return self.record.read_text().splitlines()

    def make(
        self,
        manifests: Mapping[str, list[dict[str, Any]]],
        *,
        property_schema: object = None,
        lifecycle_schema: object = None,
        outputs: object = None,
        **more: Any,
    ) -> Any:
        schema = {"size": {"type": "integer"}} if property_schema is None else property_schema
        self.kind = self.bridge.service_type(schema, lifecycle_schema)
        texts = {}
        for action, resources in manifests.items():
            texts[action] = json.dumps({"resources": resources, **({"outputs": outputs} if outputs else {})})
        write_blueprint(
            self.blueprint,
            type_name=self.kind["name"],
            property_schema=schema,
            lifecycle_schema=lifecycle_schema,
            manifests=texts,
            **more,
        )
        return self.kind

    def start(self, *options: str, root: Path | None = None, **more: Any) -> AgentProcess:
        given = ("--blueprint", str(self.blueprint), "--root", str(root or self.root))
        drift = () if "--drift-interval" in options else NO_DRIFT
        return self.bridge.start_agent(*given, *drift, *options, **more)

    def order(self, properties: object = None, **more: Any) -> Any:
        return self.bridge.scenario.order(self.kind, properties or {}, **more)

    def job(self, service: Any, action: str = "create") -> Any:
        """The latest job of an action."""
        found = [job for job in self.bridge.scenario.jobs(service) if job["action"] == action]
        return max(found, key=lambda job: str(job["createdAt"]))

    def wait_for_line(self, line: str, seconds: float = 20) -> None:
        wait_until(lambda: line in self.lines(), line, lambda: f"{self.lines()}\n{self.bridge.logs()}", seconds)

    def wait_for_job(self, service: Any, seconds: float = 20, **wanted: Any) -> Any:
        found: Any = None

        def reached() -> bool:
            nonlocal found
            found = self.job(service)
            return all(found[name] == value for name, value in wanted.items())

        wait_until(reached, str(wanted), lambda: f"{found}\n{self.bridge.logs()}", seconds)
        return found

    def new_group(self) -> str:
        body = {"name": "group", "consumerId": self.bridge.scenario.consumer_id}
        return str(self.bridge.admin.post("/service-groups", body)["id"])

    def check_nothing_is_left(self, state: Path | None = None) -> None:
        """The journal is empty, and there are no temporary files and owed refreshes."""
        folder = state or self.bridge.state
        assert not list((folder / "agent" / "jobs").iterdir()), self.bridge.logs()
        left = [path for path in [*folder.rglob("*"), *self.root.rglob("*")] if is_temporary(path)]
        assert not left
        assert not [path for path in folder.rglob("owed") if path.read_text()]


def is_temporary(path: Path) -> bool:
    return path.name.startswith(".mainstay-") or path.name.endswith(".new") or "scratch/" in str(path)


def is_running(words: str) -> bool:
    """Whether a process has this text in its command line."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if words in Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " "):
                return True
        except OSError:
            continue
    return False


def wait_until_gone(words: str, seconds: float = 20) -> None:
    wait_until(lambda: not is_running(words), f"{words} is gone", seconds=seconds)


# ---- a link that can be cut ----
class Link:
    """Forwards connections to a server. When cut, it drops all bytes, like a firewall."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (str(target.hostname), target.port or 80)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.is_cut = False
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while self._open:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._target) as far, selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while self._open:
                for key, _ in selector.select(0.2):
                    try:
                        chunk = key.fileobj.recv(65536)  # type: ignore[union-attr]
                        if not chunk:
                            return
                        if not self.is_cut:
                            key.data.sendall(chunk)
                    except OSError:
                        return

    def close(self) -> None:
        self._open = False
        self._listening.close()


@contextmanager
def link_to(url: str) -> Iterator[Link]:
    link = Link(url)
    try:
        yield link
    finally:
        link.close()


def enrolment_over(bridge: Bridge, url: str, name: str) -> Path:
    """Writes the enrolment of the bridge with another address of the server."""
    if not bridge.config.exists():
        bridge.enrol()
    path = bridge.folder / name
    path.write_text(json.dumps({**json.loads(bridge.config.read_text()), "url": url}))
    path.chmod(0o600)
    return path
