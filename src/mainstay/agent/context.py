"""What the tasks of an agent share: settings, client, log, blueprints, and the services that are in use."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mainstay.agent.blueprint_cache import BlueprintCache
from mainstay.agent.client import Client
from mainstay.agent.job_processes import JobProcesses
from mainstay.agent.log import Log
from mainstay.agent.metrics import AgentMetrics
from mainstay.agent.services_in_use import ServicesInUse
from mainstay.converge.host.state import StateDirectory

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 60.0
# Variables of the agent that its child processes must not inherit.
OWN_VARIABLES = ("MAINSTAY_TOKEN",)


@dataclass(kw_only=True)
class AgentSettings:
    jobs: int = 4
    lease_seconds: int = 60
    # 0: no drift checks.
    drift_seconds: float = 300.0
    orphan_seconds: float = 60.0
    blueprints: Sequence[str] = ()
    # File with the keys that sign blueprints; None: blueprints need no signature.
    trust: str | None = None


class WorkArea:
    """Where jobs run: this host, or a scratch directory on it."""

    def __init__(self, state_directory: str, root: str, environ: Mapping[str, str]) -> None:
        self.state_directory = state_directory
        self.root = root
        self.environ = {name: value for name, value in environ.items() if name not in OWN_VARIABLES}


@dataclass(repr=False, eq=False)
class AgentContext:
    client: Client
    state: StateDirectory
    work_area: WorkArea
    settings: AgentSettings
    log: Log
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    stopping: threading.Event = field(default_factory=threading.Event)
    services: ServicesInUse = field(init=False)
    # Set before the agent has threads.
    processes: JobProcesses = field(init=False)
    # Set when the agent has the lock of its state directory.
    blueprint_cache: BlueprintCache = field(init=False)

    def __post_init__(self) -> None:
        self.services = ServicesInUse(self.stopping, self.metrics)


class Backoff:
    """Waits longer each time, with jitter, so that agents do not all return at once after an outage."""

    def __init__(self) -> None:
        self._seconds = FIRST_BACKOFF_SECONDS
        self._least = 0.0

    def reset(self) -> None:
        self._seconds = FIRST_BACKOFF_SECONDS

    def at_least(self, seconds: float | None) -> None:
        self._least = min(seconds or 0.0, LONGEST_BACKOFF_SECONDS)

    def wait(self, stopping: threading.Event) -> None:
        seconds = max(self._least, random.uniform(self._seconds / 2, self._seconds))  # noqa: S311  # no secret
        self._least = 0.0
        self._seconds = min(self._seconds * 2, LONGEST_BACKOFF_SECONDS)
        if stopping.is_set():
            # A thread that finishes its work while the agent stops must not retry in a tight loop.
            threading.Event().wait(min(seconds, 1.0))
        else:
            stopping.wait(seconds)
