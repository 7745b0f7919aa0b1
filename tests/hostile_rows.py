"""Rows whose every text is hostile: markup, quotes, template syntax, long, right-to-left and multi-line values, a report
of 1 MB and a schema of 300 properties."""

from __future__ import annotations

from typing import Any

import seed_text
from control_plane import Server
from database_rows import run_sql
from sample_rows import SampleRows
from scenario import Scenario, unique
from web_markup import HOSTILE

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
RIGHT_TO_LEFT = "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd \u2066\u2067"
LINES = f"first\r\nsecond\n\n\tthird\u2028fourth\x1b[31mred\x07\n{HOSTILE}"
LONG = "x" * 10_000
TEMPLATE = "{{ 7001 * 7001 }}{% include 'frame.html' %}"
# What a page would show that renders a value as a template.
RENDERED = "49014001"
TEXTS = {
    "markup": HOSTILE,
    "attribute": "' onfocus=alert(1) autofocus x='\" onfocus=alert(1) autofocus x=\"",
    "entity": "&lt;x-hostile&gt;&#60;x-hostile&#62;&amp;",
    "address": "javascript:alert('x-hostile')",
    "template": TEMPLATE,
    "right_to_left": RIGHT_TO_LEFT,
    "lines": LINES,
    "long": LONG,
    "long_words": "wörd " * 2_000,
}
# A page that shows a part of a hostile text contains one of these. Pages cut long texts.
MARKS = ("x-hostile", "&lt;/ti", "onfocus", "javascript:", "7001", "\u202e", "xxxxx", "wörd", "[31m")
MANY = 300
REPORT_SIZE = 1_000_000
# Stored before names had rules.
OLD_NAME = f"old\nname\u202e{HOSTILE}"


class HostileRows(SampleRows):
    """The sample rows, with hostile texts in all of them."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.admin)
        self._server = server
        self._scenario = Scenario(server.admin)
        self.clients |= {"consumer": self._scenario.consumer, "provider": self._scenario.provider}
        self._add_service()
        self._rename_rows()

    def _schema(self) -> dict[str, Any]:
        texts: dict[str, Any] = {name: {"type": "string", "label": HOSTILE} for name in TEXTS}
        kinds = ("string", "integer", "number", "boolean", "json", "uuid")
        many = {
            f"p{number:03}": {"type": kinds[number % len(kinds)], "label": f"{HOSTILE} {number}"}
            for number in range(MANY)
        }
        return {
            **texts,
            "choice": {
                "type": "string",
                "default": HOSTILE,
                "validators": [{"type": "enum", "values": [HOSTILE, *TEXTS.values()]}],
            },
            "shape": {"type": "string", "validators": [{"type": "pattern", "pattern": "<x-hostile>|.*"}]},
            "nested": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "string"}}}},
            "document": {"type": "json", "default": {HOSTILE: [HOSTILE]}},
            "key": {"type": "string", "label": HOSTILE, "secret": {"type": "persistent"}},
            **many,
        }

    def _add_service(self) -> None:
        """A service whose create failed, after reports, conditions and progress."""
        scenario = self._scenario
        kind = scenario.service_type(self._schema(), SIMPLE, name=f"{HOSTILE} {unique('type')}")
        properties = {
            **TEXTS,
            "nested": {"list": list(TEXTS.values())},
            "document": {HOSTILE: TEXTS},
            "key": f"secret {HOSTILE}",
        }
        service = scenario.order(kind, properties, name=f"{HOSTILE} {unique('service')}")
        agent = scenario.agent
        job = scenario.next_job_seen(service)
        lease = agent.post(f"/jobs/{job['id']}/claim", {"leaseSeconds": 600}, expect=200)["leaseToken"]
        progress = {"percent": 50, "text": f"{HOSTILE}{LINES}"[:2000]}
        agent.post(f"/jobs/{job['id']}/renew", {"leaseToken": lease, "progress": progress}, expect=200)
        conditions = [
            {"type": name, "status": "False", "reason": HOSTILE, "message": f"{HOSTILE}\n{LINES}\n{LONG}"}
            for name in ("InSync", HOSTILE[:100])
        ]
        agent.put(f"/services/{service['id']}/conditions", conditions)
        report = {"leaseToken": lease, "report": self._report(), "agentInstanceId": HOSTILE}
        agent.post(f"/jobs/{job['id']}/complete", {**report, "agentInstanceData": TEXTS}, expect=204)
        scenario.do(service, "start")
        failed = scenario.next_job(service)
        message = f"{HOSTILE}\n{LINES}\n{LONG}"
        agent.post(f"/jobs/{failed['id']}/fail", {"errorMessage": message, "report": self._report()}, expect=204)
        self._add_metrics(service["id"])
        self.ids |= {
            "services": service["id"],
            "jobs": failed["id"],
            "service-types": kind["id"],
            "service-groups": scenario.group_id,
            "agents": scenario.agent_id,
            "agent-types": scenario.agent_type_id,
            "participants": scenario.consumer_id,
        }

    def _report(self) -> dict[str, Any]:
        """As large as a report may be, in the form of a run on a host."""
        event = {
            "type": "file",
            "name": f"/srv/{HOSTILE}",
            "outcome": "changed",
            "message": f"{HOSTILE}{LINES}",
            "diff": f"--- a\n+++ b\n-{HOSTILE}\n+{LINES}\n",
            "changes": [{"property": HOSTILE, "message": HOSTILE, "before": HOSTILE, "after": LINES}],
        }
        failed = {"type": HOSTILE, "name": HOSTILE, "outcome": "failed", "message": LONG, "output": LINES}
        count = REPORT_SIZE // len(str(event))
        return {
            "run_id": HOSTILE,
            "noop": False,
            "events": [failed, *[event] * count],
            "summary": {"total": count, HOSTILE: HOSTILE},
            HOSTILE: TEXTS,
        }

    def _add_metrics(self, service_id: str) -> None:
        name = f"{HOSTILE} {unique('metric')}"
        metric = self._server.admin.post("/metric-types", {"name": name, "entityType": "Service"})
        entry = {"serviceId": service_id, "resourceId": HOSTILE, "typeName": name, "value": 1.5}
        self._scenario.agent.post("/metric-entries", entry)
        self.ids["metric-types"] = metric["id"]

    def _rename_rows(self) -> None:
        """Each name is hostile; those of services, agents and participants are of an earlier version."""
        for noun, id_ in self.ids.items():
            table = noun.replace("-", "_")
            if noun in ("blueprints", "jobs", "orphans", "rollouts"):
                continue
            if noun == "enrolment-codes":
                statement = f"UPDATE host_enrolment_codes SET name_prefix = '{HOSTILE.replace(chr(39), chr(39) * 2)}'"
                run_sql(self._server.data_dir, self._server.database_url, statement)
                continue
            old = noun in ("services", "agents", "participants", "service-pool-values")
            text = (OLD_NAME if old else HOSTILE).replace("'", "''")
            statement = f"UPDATE {table} SET name = '{text} {id_[:8]}' WHERE id = '{id_}'"
            run_sql(self._server.data_dir, self._server.database_url, statement)
