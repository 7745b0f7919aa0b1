"""Metrics of the server for Prometheus. Labels contain route patterns, never ids or values."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class ServerMetrics:
    media_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        # Not the global registry: tests run several servers in one process.
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "mainstay_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "mainstay_request_seconds", "Time to answer", ("method", "route"), buckets=BUCKETS, registry=self.registry
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)
