"""Fails jobs that were not claimed, renewed or finished in time."""

from __future__ import annotations

from mainstay.control.operations.jobs import time_out_overdue

INTERVAL_SECONDS = 0.5
run_once = time_out_overdue
