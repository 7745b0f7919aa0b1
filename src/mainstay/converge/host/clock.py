"""Time, in one place so that what decides never asks for it."""

from __future__ import annotations

import time

monotonic = time.perf_counter
sleep = time.sleep
