"""The alert rules in deploy/prometheus: promtool accepts them, their tests pass, and they use only our metrics."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from control_plane import missing
from mainstay.control.api.prometheus import METRICS

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "prometheus"
RULES = FOLDER / "mainstay.rules.yml"


@pytest.mark.parametrize("words", [("check", "rules", "mainstay.rules.yml"), ("test", "rules", "mainstay.test.yml")])
def test_promtool_accepts_the_rules_and_their_tests(words: tuple[str, ...]) -> None:
    if shutil.which("promtool") is None:
        missing("promtool", "the package prometheus is not installed")
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_use_metrics_that_the_server_has() -> None:
    used = set(re.findall(r"\bmainstay_[a-z_]+", RULES.read_text()))
    assert used <= {each.name for each in METRICS}


def test_every_alert_has_a_severity_and_an_action_and_is_tested() -> None:
    text = RULES.read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    assert (
        len(alerts) == len(re.findall(r"severity: (?:critical|warning)", text)) == len(re.findall(r"action: ", text))
    )
    tested = re.findall(r'alertname="(\w+)"', (FOLDER / "mainstay.test.yml").read_text())
    assert sorted(alerts) == sorted(tested)
