"""Starts the next services of roll-outs and records which have ended, one item per transaction."""

from __future__ import annotations

from mainstay.control.operations.rollouts import advance

INTERVAL_SECONDS = 1.0
run_once = advance
