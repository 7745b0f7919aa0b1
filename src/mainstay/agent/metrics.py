"""What can be counted of the agent, and the small page on loopback that shows it."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# An agent that has not heard of its server for so long is not well.
SILENCE_SECONDS = 150.0


class AgentMetrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, int] = dict.fromkeys(("complete", "fail", "release", "lost"), 0)
        self._seconds = 0.0
        self._drift: dict[str, int] = dict.fromkeys(("InSync", "Drifted", "Repaired", "Unknown"), 0)
        self._heard_at: float | None = None
        self.at_work = 0

    def job_done(self, outcome: str, seconds: float) -> None:
        with self._lock:
            self._jobs[outcome] += 1
            self._seconds += seconds

    def drift_found(self, reason: str) -> None:
        with self._lock:
            self._drift[reason] += 1

    def heard(self) -> None:
        """The server has answered."""
        self._heard_at = time.monotonic()

    @property
    def is_well(self) -> bool:
        return self._heard_at is not None and time.monotonic() - self._heard_at < SILENCE_SECONDS

    def text(self) -> str:
        with self._lock:
            jobs, drift, seconds = dict(self._jobs), dict(self._drift), self._seconds
        lines = ["# TYPE mainstay_agent_jobs_total counter"]
        lines += [f'mainstay_agent_jobs_total{{outcome="{name}"}} {count}' for name, count in jobs.items()]
        lines += [
            "# TYPE mainstay_agent_job_seconds_total counter",
            f"mainstay_agent_job_seconds_total {seconds:.6f}",
        ]
        lines += ["# TYPE mainstay_agent_jobs_at_work gauge", f"mainstay_agent_jobs_at_work {self.at_work}"]
        lines += ["# TYPE mainstay_agent_drift_total counter"]
        lines += [f'mainstay_agent_drift_total{{found="{name}"}} {count}' for name, count in drift.items()]
        lines += ["# TYPE mainstay_agent_server_reachable gauge"]
        lines += [f"mainstay_agent_server_reachable {int(self.is_well)}"]
        return "\n".join(lines) + "\n"


def serve_metrics(measures: AgentMetrics, port: int) -> ThreadingHTTPServer:
    """/metrics and /healthz, on loopback only; the answer's port is the real one if 0 was asked for."""

    class _MetricsPage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self.answer(200, measures.text())
            elif self.path == "/healthz":
                self.answer(
                    200 if measures.is_well else 503, '{"status":"UP"}' if measures.is_well else '{"status":"DOWN"}'
                )
            else:
                self.answer(404, "there are /metrics and /healthz\n")

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
            """Nobody needs a line for every look."""

    server = ThreadingHTTPServer(("127.0.0.1", port), _MetricsPage)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="measures", daemon=True).start()
    return server
