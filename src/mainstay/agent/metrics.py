"""The metrics of the agent, and the HTTP server on loopback for /metrics and /healthz."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Without a response of the server for this long the agent is unhealthy.
SILENCE_SECONDS = 150.0


class AgentMetrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, int] = dict.fromkeys(("complete", "fail", "release", "lost"), 0)
        self._seconds = 0.0
        self._drift: dict[str, int] = dict.fromkeys(
            ("InSync", "Drifted", "Repaired", "RepairDoesNotHold", "Unknown"), 0
        )
        self._answered_at: float | None = None
        self.jobs_at_work = 0

    def count_job(self, outcome: str, seconds: float) -> None:
        with self._lock:
            self._jobs[outcome] += 1
            self._seconds += seconds

    def count_drift(self, reason: str) -> None:
        with self._lock:
            self._drift[reason] += 1

    def server_answered(self) -> None:
        self._answered_at = time.monotonic()

    @property
    def is_healthy(self) -> bool:
        return self._answered_at is not None and time.monotonic() - self._answered_at < SILENCE_SECONDS

    def text(self) -> str:
        with self._lock:
            jobs, drift, seconds = dict(self._jobs), dict(self._drift), self._seconds
        lines = ["# TYPE mainstay_agent_jobs_total counter"]
        lines += [f'mainstay_agent_jobs_total{{outcome="{name}"}} {count}' for name, count in jobs.items()]
        lines += [
            "# TYPE mainstay_agent_job_seconds_total counter",
            f"mainstay_agent_job_seconds_total {seconds:.6f}",
        ]
        lines += ["# TYPE mainstay_agent_jobs_at_work gauge", f"mainstay_agent_jobs_at_work {self.jobs_at_work}"]
        lines += ["# TYPE mainstay_agent_drift_total counter"]
        lines += [f'mainstay_agent_drift_total{{found="{name}"}} {count}' for name, count in drift.items()]
        lines += ["# TYPE mainstay_agent_server_reachable gauge"]
        lines += [f"mainstay_agent_server_reachable {int(self.is_healthy)}"]
        return "\n".join(lines) + "\n"


def serve_metrics(metrics: AgentMetrics, port: int) -> ThreadingHTTPServer:
    """Serves on loopback only. With port 0 the system chooses one: see `server_port` of the result."""

    class _MetricsPage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self.answer(200, metrics.text())
            elif self.path == "/healthz":
                status, word = (200, "UP") if metrics.is_healthy else (503, "DOWN")
                self.answer(status, f'{{"status":"{word}"}}')
            else:
                self.answer(404, "not found; try /metrics or /healthz\n")

        def answer(self, status: int, text: str) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header(
                "Content-Type", "application/json" if text.startswith("{") else "text/plain; version=0.0.4"
            )
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the library's name
            """Requests are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", port), _MetricsPage)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
