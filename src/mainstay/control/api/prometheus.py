"""Metrics of the server for Prometheus. `METRICS` is the table of all of them, and the source of docs/reference/metrics.md.

Labels contain route patterns and names that admins and providers choose, never ids or values of customers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Literal

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.server_metrics import PlaneFigures, read_figures
from mainstay.control.store.engine.contract import Store, Unavailable

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
# The tables are read at most this often, however many clients ask.
GATHER_SECONDS = 15.0
# Names the directory that the workers of one server share.
SHARED_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"

log = structlog.get_logger("mainstay.metrics")


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """`scope` plane: read from the database, the same on every replica. `scope` server: of this server; its workers are
    counted together."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    scope: Literal["plane", "server"]
    labels: tuple[str, ...]
    help: str


METRICS = (
    MetricDescription(
        "mainstay_requests_total", "counter", "server", ("method", "route", "status"), "Requests answered"
    ),
    MetricDescription(
        "mainstay_request_seconds", "histogram", "server", ("method", "route"), "Time to answer a request"
    ),
    MetricDescription(
        "mainstay_background_last_success_timestamp_seconds",
        "gauge",
        "server",
        ("task",),
        "When a background task last ended without an error, in seconds since 1970",
    ),
    MetricDescription(
        "mainstay_background_failures_total", "counter", "server", ("task",), "Failed passes of background tasks"
    ),
    MetricDescription(
        "mainstay_database_connections", "gauge", "server", ("state",), "Connections to the database: in_use, idle"
    ),
    MetricDescription(
        "mainstay_database_connections_max", "gauge", "server", (), "Largest number of connections to the database"
    ),
    MetricDescription(
        "mainstay_vault_failures_total", "counter", "server", (), "Secrets that no key of this server opens"
    ),
    MetricDescription(
        "mainstay_plane_up", "gauge", "plane", (), "1 if the figures below could be read from the database, else 0"
    ),
    MetricDescription(
        "mainstay_jobs",
        "gauge",
        "plane",
        ("status", "service_type"),
        "Queued (Pending) and running (Processing) jobs",
    ),
    MetricDescription(
        "mainstay_recent_jobs",
        "gauge",
        "plane",
        ("status", "service_type"),
        "Jobs of the last hour that have ended: Completed, Failed, Cancelled",
    ),
    MetricDescription(
        "mainstay_oldest_queued_job_seconds", "gauge", "plane", (), "Age of the oldest queued job; 0 without one"
    ),
    MetricDescription("mainstay_agents", "gauge", "plane", ("status",), "Agents by status"),
    MetricDescription(
        "mainstay_services", "gauge", "plane", ("service_type", "state"), "Living services by type and state"
    ),
    MetricDescription("mainstay_services_drifted", "gauge", "plane", (), "Services that differ from their order"),
    MetricDescription(
        "mainstay_services_repair_does_not_hold",
        "gauge",
        "plane",
        (),
        "Services that drift again after every repair; also counted as drifted",
    ),
    MetricDescription(
        "mainstay_services_unknown",
        "gauge",
        "plane",
        (),
        "Living services whose condition InSync is Unknown, above all those of agents that are offline",
    ),
    MetricDescription("mainstay_services_failed", "gauge", "plane", (), "Services whose last job failed"),
    MetricDescription(
        "mainstay_orphans", "gauge", "plane", (), "Hosts that are not cleaned up after a forced delete"
    ),
    MetricDescription(
        "mainstay_pool_free_ratio",
        "gauge",
        "plane",
        ("pool_set", "pool"),
        "Share of the values of a pool that are free, from 0 to 1; only the 50 emptiest pools",
    ),
    MetricDescription(
        "mainstay_event_lag",
        "gauge",
        "plane",
        ("subscriber",),
        "Events that a subscriber seen within 7 days has not acknowledged",
    ),
    MetricDescription("mainstay_events_unchained", "gauge", "plane", (), "Events that are not in the hash chain yet"),
)
_HELP = {each.name: each.help for each in METRICS}
_LABELS = {each.name: each.labels for each in METRICS}


class ServerMetrics:
    # The framework adds the charset.
    media_type = "text/plain; version=0.0.4"

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        # Not the global registry: tests run several servers in one process.
        self.registry = CollectorRegistry()
        self._requests = self._counter("mainstay_requests_total")
        name = "mainstay_request_seconds"
        self._seconds = Histogram(name, _HELP[name], _LABELS[name], buckets=BUCKETS, registry=self.registry)
        self._last_success = self._gauge("mainstay_background_last_success_timestamp_seconds", "mostrecent")
        self._failures = self._counter("mainstay_background_failures_total")
        self._connections = self._gauge("mainstay_database_connections", "livesum")
        self._most_connections = self._gauge("mainstay_database_connections_max", "livesum")
        self._vault_failures = self._counter("mainstay_vault_failures_total")
        self._counted_vault_failures = 0

    def _counter(self, name: str) -> Counter:
        return Counter(name, _HELP[name], _LABELS[name], registry=self.registry)

    def _gauge(self, name: str, together: Literal["livesum", "mostrecent"]) -> Gauge:
        """`together`: how the values of several workers become one."""
        return Gauge(name, _HELP[name], _LABELS[name], registry=self.registry, multiprocess_mode=together)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def count_pass(self, task: str, at: datetime | None) -> None:
        """A pass of a background task that succeeded at a time. None: it failed."""
        # Creates the counter too: an alert compares it with its earlier value.
        failures = self._failures.labels(task)
        if at is None:
            failures.inc()
        else:
            self._last_success.labels(task).set(at.timestamp())

    def measure(self, store: Store, tools: OperationTools) -> None:
        """Reads the figures of this process."""
        used, idle, most = store.connection_counts()
        self._connections.labels("in_use").set(used)
        self._connections.labels("idle").set(idle)
        self._most_connections.set(most)
        failures = 0 if tools.vault is None else tools.vault.failures
        self._vault_failures.inc(failures - self._counted_vault_failures)
        self._counted_vault_failures = failures

    def render_server(self) -> bytes:
        return generate_latest(_with_workers() if SHARED_DIRECTORY in os.environ else self.registry)

    def render_plane(self, figures: PlaneFigures | None) -> bytes:
        """`figures` None: the database is not reachable."""
        registry = CollectorRegistry()
        registry.register(_PlaneCollector(figures))
        return generate_latest(registry)


def share_between_workers(directory: str) -> None:
    """From now on, metrics of this process are kept in a directory that it shares with the other workers."""
    from prometheus_client import values

    os.environ[SHARED_DIRECTORY] = directory
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]


def forget_worker(directory: str, process: int) -> None:
    """What a dead worker counted stays; what it measured goes."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(process, directory)  # type: ignore[no-untyped-call]


def _with_workers() -> CollectorRegistry:
    """The metrics of all workers of this server, which share a directory."""
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


class _PlaneCollector(Collector):
    def __init__(self, figures: PlaneFigures | None) -> None:
        self._figures = figures

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = self._figures
        yield _family("mainstay_plane_up", {(): 0 if found is None else 1})
        if found is None:
            return
        yield _family("mainstay_jobs", found.active_jobs)
        yield _family("mainstay_recent_jobs", found.recent_jobs)
        yield _family("mainstay_oldest_queued_job_seconds", {(): found.oldest_queued_seconds})
        yield _family("mainstay_agents", {(name,): number for name, number in found.agents.items()})
        yield _family("mainstay_services", found.services)
        yield _family("mainstay_services_drifted", {(): found.drifted})
        yield _family("mainstay_services_repair_does_not_hold", {(): found.unheld_repairs})
        yield _family("mainstay_services_unknown", {(): found.unknown})
        yield _family("mainstay_services_failed", {(): found.failed})
        yield _family("mainstay_orphans", {(): found.orphans})
        yield _family("mainstay_pool_free_ratio", found.free_shares)
        yield _family("mainstay_event_lag", {(name,): number for name, number in found.lags.items()})
        yield _family("mainstay_events_unchained", {(): found.unchained_events})


def _family(name: str, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, _HELP[name], labels=_LABELS[name])
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


class FigureReader:
    """Reads the figures of the plane at most every few seconds. Requests in between get the last ones."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._figures: PlaneFigures | None = None
        self._next_at = 0.0

    async def read(self, store: Store, tools: OperationTools, clock: Callable[[], datetime]) -> PlaneFigures | None:
        """None: the database is not reachable."""
        async with self._lock:
            if monotonic() >= self._next_at:
                try:
                    async with store.reading() as tx:
                        self._figures = await read_figures(UnitOfWork(tx, clock(), tools))
                except Unavailable as error:
                    log.warning("database unavailable", task="metrics", reason=str(error))
                    self._figures = None
                self._next_at = monotonic() + GATHER_SECONDS
            return self._figures
