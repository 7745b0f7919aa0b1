"""Messages to systemd: the server is ready, stops, or is still alive (watchdog). Does nothing without systemd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify(environment: Mapping[str, str], message: str) -> None:
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A name in the abstract namespace begins with a zero byte.
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sent:
        sent.sendto(message.encode(), target)


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """How often systemd expects a sign of life from this process. None: never."""
    text, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    return int(text) / 1_000_000 if text.isdigit() and int(text) > 0 and process == str(os.getpid()) else None


async def send_signs_of_life(environment: Mapping[str, str]) -> None:
    """Runs until cancelled. A blocked event loop sends none, and systemd restarts the server."""
    seconds = _watchdog_seconds(environment)
    while seconds is not None:
        notify(environment, ALIVE)
        await asyncio.sleep(seconds / 3)
