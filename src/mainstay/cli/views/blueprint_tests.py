"""Prints the progress of a blueprint test: one table row per step, with its problems below."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.agent.blueprint import Blueprint
from mainstay.blueprints.example_orders import ExampleOrder
from mainstay.blueprints.test_runner import StepResult
from mainstay.cli.views.run_display import counted, printable
from mainstay.foundation import Any

MAX_DIFF_LINES = 60


class BlueprintTestDisplay:
    def __init__(self, blueprint: Blueprint, orders: Sequence[ExampleOrder], *, quiet: bool) -> None:
        self._blueprint = blueprint
        self._quiet = quiet
        self._place = ""
        self._shown: set[int] = set()
        self._orders = max(len("order"), *(len(order.name) for order in orders))
        self._actions = max(len("action"), *(len(name) for name in blueprint.actions))
        states = blueprint.service_type.get("lifecycleSchema") or {}
        names = [str(each.get("name", "")) for each in states.get("states", []) if isinstance(each, dict)]
        self._states = 2 * max([len(name) for name in names] or [8]) + 3

    def start(self, place: str) -> None:
        self._place = place
        if self._quiet:
            return
        print(f"{self._blueprint.name} {self._blueprint.version} on {place}")
        print(self._row("order", "action", "state", "resources", "changed", "again"))

    def _row(self, order: str, action: str, state: str, resources: str, changed: str, again: str) -> str:
        cells = f"{order:<{self._orders}}  {action:<{self._actions}}  {state:<{self._states}}"
        return f"{cells}  {resources:>9}  {changed:>7}  {again}".rstrip()

    def show_step(self, step: StepResult) -> None:
        """Prints a step. A second call for the same step prints only its note."""
        if self._quiet:
            return
        if id(step) not in self._shown:
            self._shown.add(id(step))
            state = step.before if step.before == step.after else f"{step.before} → {step.after}"
            result = (
                "FAILED" if step.problems else "CHANGES" if step.unstable else "stable" if step.resources else "-"
            )
            counts = (str(step.resources), str(step.changed)) if step.resources else ("", "")
            print(printable(self._row(step.order, step.action, state, *counts, result)), flush=True)
            for text in (*step.problems, *(f"a second run would change: {text}" for text in step.unstable)):
                for line in text.splitlines()[:MAX_DIFF_LINES]:
                    print(f"    {printable(line)}")
        if step.note:
            print(f"    note: {printable(step.note)}", flush=True)

    def finish(self, steps: Sequence[StepResult]) -> None:
        failed = sum(1 for step in steps if step.failed)
        done = counted(len(steps), "step")
        print(f"{done}, {failed} failed" if failed else f"{done}, all passed")

    def as_json(self, steps: Sequence[StepResult]) -> dict[str, Any]:
        return {
            "blueprint": self._blueprint.name,
            "version": self._blueprint.version,
            "on": self._place,
            "steps": [
                {
                    "order": step.order,
                    "action": step.action,
                    "from": step.before,
                    "to": step.after,
                    "resources": step.resources,
                    "changed": step.changed,
                    "seconds": round(step.seconds, 3),
                    "problems": step.problems,
                    "again": step.unstable,
                    "note": step.note,
                }
                for step in steps
            ],
            "failed": sum(1 for step in steps if step.failed),
        }
