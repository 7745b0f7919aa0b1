"""Reports the version of the agent and facts about its host, at the start and once an hour."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from mainstay import __version__
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.context import AgentContext, Backoff
from mainstay.agent.log import origin_of
from mainstay.converge.host.facts import built_in

EVERY_SECONDS = 3600.0
MOST_ADDRESSES = 20


class FactReporter:
    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._started_at = datetime.now(UTC)

    def run(self) -> None:
        """Never returns before the agent stops."""
        backoff = Backoff()
        while not self._agent.stopping.is_set():
            try:
                self._report()
            except Unreachable:
                # The poll for jobs logs that the server is unreachable.
                backoff.wait(self._agent.stopping)
                continue
            except ServerRefusal as refusal:
                self._agent.log.info("facts not reported", reason=str(refusal))
            except Exception as error:  # noqa: BLE001  # facts must not keep the agent from its jobs
                self._agent.log.error("bug", task="facts", at=origin_of(error))
            backoff.reset()
            self._agent.stopping.wait(EVERY_SECONDS)

    def _report(self) -> None:
        me, headers = self._agent.client.get_with_headers("/agents/me", query={}, timeout_seconds=30.0)
        facts = {**_host_facts(), "startedAt": self._started_at.isoformat().replace("+00:00", "Z")}
        offset = _clock_offset_seconds(headers.get("Date", ""), datetime.now(UTC))
        if offset is not None:
            facts["clockOffsetSeconds"] = offset
        # Status `Error` ends only by an explicit change.
        status = "Error" if me["status"] == "Error" else "Connected"
        body = {"status": status, "version": __version__, "facts": facts}
        self._agent.client.call("PUT", "/agents/me/status", body)


def _host_facts() -> dict[str, Any]:
    known = built_in()
    system = known["os"]
    return {
        "hostname": known["fqdn"] or known["hostname"],
        "os": f"{system['name']} {system['version']}".strip(),
        "kernel": known["kernel"]["release"],
        "architecture": known["kernel"]["arch"],
        "cpus": known["cpu"]["count"],
        "memoryBytes": known["memory"]["total_bytes"],
        "virtualization": known["virtualization"],
        "addresses": _addresses(known["network"]["interfaces"]),
        "user": known["user"]["name"],
        "pid": os.getpid(),
    }


def _addresses(interfaces: Mapping[str, Any]) -> list[str]:
    found = [[each["ipv4"], *each["ipv6"]] for name, each in interfaces.items() if name != "lo"]
    return [address for each in found for address in each if address][:MOST_ADDRESSES]


def _clock_offset_seconds(date: str, now: datetime) -> int | None:
    """How far the clock of this host is ahead of the server's. None: the server sent no date."""
    try:
        return round((now - parsedate_to_datetime(date)).total_seconds())
    except (TypeError, ValueError):
        return None
