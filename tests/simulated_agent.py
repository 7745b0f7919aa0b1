"""An agent process without a host: claims jobs under a lease and completes them, on any of several servers.

Runs as a program, so that a test can kill it. Appends a line to its record for every acknowledged completion
(`completed JOB`), and for every answer that an agent must not get (`unexpected STATUS PATH BODY`)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import urllib3

LEASE_SECONDS = 10
WAIT_SECONDS = 10
WORK_SECONDS = 0.05


class SimulatedAgent:
    def __init__(self, urls: list[str], token: str, record: Path) -> None:
        self.urls = urls
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.record = record
        self.pool = urllib3.PoolManager()

    def write(self, line: str) -> None:
        with self.record.open("a") as file:
            file.write(f"{line}\n")

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Repeats the request, on the next server if this one is dead, until there is an answer other than 503."""
        while True:
            content = None if body is None else json.dumps(body).encode()
            try:
                reply = self.pool.request(
                    method,
                    f"{self.urls[0]}/api/v1{path}",
                    body=content,
                    headers=self.headers,
                    timeout=90,
                    retries=False,
                )
            except urllib3.exceptions.HTTPError:
                self.urls.append(self.urls.pop(0))
                time.sleep(0.1)
                continue
            if reply.status != 503:
                return reply.status, json.loads(reply.data) if reply.data else None
            if "Retry-After" not in reply.headers:
                self.write(f"unexpected 503 {path} without Retry-After")
            time.sleep(0.2)

    def work(self) -> None:
        while True:
            status, jobs = self.call("GET", f"/jobs/pending?wait={WAIT_SECONDS}")
            if status != 200:
                self.write(f"unexpected {status} /jobs/pending {jobs}")
                time.sleep(1)
                continue
            for job in jobs:
                self.do(job)

    def do(self, job: Any) -> None:
        # The same claimId in a repeated request returns the same lease.
        status, leased = self.call(
            "POST", f"/jobs/{job['id']}/claim", {"leaseSeconds": LEASE_SECONDS, "claimId": uuid4().hex}
        )
        if status != 200:
            if status != 409:
                self.write(f"unexpected {status} claim {leased}")
            return
        time.sleep(WORK_SECONDS)
        report = {"leaseToken": leased["leaseToken"], "agentInstanceId": job["serviceId"]}
        status, answer = self.call("POST", f"/jobs/{job['id']}/complete", report)
        if status == 204:
            self.write(f"completed {job['id']}")
        elif status != 409:
            self.write(f"unexpected {status} complete {answer}")


if __name__ == "__main__":
    SimulatedAgent(sys.argv[2:], os.environ["AGENT_TOKEN"], Path(sys.argv[1])).work()
