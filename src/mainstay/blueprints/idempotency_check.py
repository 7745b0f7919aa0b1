"""An agent for blueprint tests: after each job it runs the manifest again as a dry run, which must find nothing to do.

Prints one line of JSON per job to standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from mainstay.agent import drift, job_documents
from mainstay.agent.context import AgentContext, AgentSettings, WorkArea
from mainstay.agent.enrolment import read_enrolment
from mainstay.agent.job_runner import HostRun, Outcome, open_secrets
from mainstay.agent.lease import Lease
from mainstay.agent.log import Log
from mainstay.agent.loop import AgentLoop
from mainstay.agent.stop_flag import LeaseStopFlag
from mainstay.converge.apply import Options
from mainstay.converge.host.state import StateDirectory, state_path
from mainstay.converge.report import FAILED, UNMET

# One job at a time, so that the output is in order.
JOBS, LEASE_SECONDS = 1, 60


class IdempotencyCheckingAgent(AgentLoop):
    def _run_job(self, job: Mapping[str, Any], lease: Lease, stop: LeaseStopFlag) -> Outcome:
        outcome = super()._run_job(job, lease, stop)
        if outcome.verb == "complete":
            # Names only: values may be secrets.
            sent = {
                "properties": sorted(outcome.body["properties"]),
                "instanceId": outcome.body["agentInstanceId"] is not None,
                "instanceData": outcome.body["agentInstanceData"] is not None,
            }
            result = {"jobId": job["id"], "unstable": self._find_unstable(job, stop), "outputs": sent}
            print(json.dumps(result), flush=True)
        return outcome

    def _find_unstable(self, job: Mapping[str, Any], stop: LeaseStopFlag) -> list[str]:
        """The changes that a second run would make, with reason and difference."""
        service = job["service"]
        blueprint = self._agent.blueprint_cache.find(service["serviceType"]["name"], job.get("blueprintDigest"))
        properties = open_secrets(self._agent.client, job_documents.desired_properties(job), blueprint)
        roots = job_documents.lookup_roots(service, properties, job, self._agent.work_area.root)
        manifest = blueprint.actions[job["action"]].manifest
        host_run = HostRun(blueprint, service["id"], self._agent.work_area, stop)
        _, report = host_run.run(manifest, roots, Options(noop=True, differences=True))
        return [
            drift.describe_change(event, event.diff)
            if event.changed
            else job_documents.short_reason(event, blueprint.directory)
            for event in report.events
            if drift.counts_as_drift(event) and (event.changed or event.outcome in (FAILED, UNMET))
        ]


def main() -> None:
    """`python -m mainstay.blueprints.idempotency_check ENROLLMENT ROOT`; runs until a signal arrives."""
    config, root = sys.argv[1:]
    state = StateDirectory(state_path(os.environ))
    settings = AgentSettings(jobs=JOBS, lease_seconds=LEASE_SECONDS, drift_seconds=0)
    work_area = WorkArea(state.path, root, os.environ)
    IdempotencyCheckingAgent(AgentContext(read_enrolment(config).client(), state, work_area, settings, Log())).run()


if __name__ == "__main__":
    main()
