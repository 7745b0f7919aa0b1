"""Waits for the first of several things to happen, for a while."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence


async def first_of(events: Sequence[asyncio.Event], seconds: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        for each in waits:
            with contextlib.suppress(asyncio.CancelledError):
                await each
