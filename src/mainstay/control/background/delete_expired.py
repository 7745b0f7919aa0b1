"""Deletes rows that are older than the retention settings allow, a few in each transaction."""

from __future__ import annotations

from mainstay.control.operations.retention import delete_expired

INTERVAL_SECONDS = 60.0
run_once = delete_expired
