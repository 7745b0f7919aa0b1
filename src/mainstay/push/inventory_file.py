"""Reads an inventory: a YAML or JSON file, standard input, or a program that prints JSON."""

from __future__ import annotations

import os
import sys

from mainstay.foundation.documents import read_json, read_yaml
from mainstay.foundation.faults import refused
from mainstay.foundation.yaml.document import decode
from mainstay.push.inventory import Inventory, parse_inventory

LARGEST_BYTES = 16 * 1024 * 1024
PROGRAM_SECONDS = 60.0
STANDARD_INPUT = "-"


def read_inventory(path: str) -> Inventory:
    """Raises `DoesNotLoad` with all faults."""
    if path == STANDARD_INPUT:
        return _parse_yaml(sys.stdin.buffer.read(LARGEST_BYTES + 1), "stdin")
    if os.path.isfile(path) and os.access(path, os.X_OK):
        text = decode(_bounded(_run(path), path), path)
        return parse_inventory(read_json(text, f"output of {path}"), f"output of {path}", None)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror}") from None
    if path.endswith(".json"):
        return parse_inventory(read_json(decode(_bounded(content, path), path), path), path, None)
    return _parse_yaml(content, path)


def _parse_yaml(content: bytes, name: str) -> Inventory:
    text = decode(_bounded(content, name), name)
    return parse_inventory(read_yaml(text, name), name, text)


def _bounded(content: bytes, name: str) -> bytes:
    if len(content) > LARGEST_BYTES:
        raise refused(name, f"is larger than {LARGEST_BYTES // 1024 // 1024} MB")
    return content


def _run(path: str) -> bytes:
    """The output of an inventory program. Its errors go to the operator's terminal."""
    import subprocess

    program = path if "/" in path else f"./{path}"
    try:
        process = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        reason = "it is executable, but no program; remove its x bit" if error.errno == 8 else error.strerror
        raise refused(path, f"cannot be run: {reason}") from None
    with process:
        if process.stdout is None:
            raise refused(path, "cannot be run: it has no output")
        output, is_late = _read_until(process.stdout.fileno())
        if is_late or len(output) > LARGEST_BYTES:
            process.kill()
    if is_late:
        raise refused(path, f"did not finish within {PROGRAM_SECONDS:.0f} s")
    if process.returncode and len(output) <= LARGEST_BYTES:
        raise refused(path, f"failed with exit code {process.returncode}")
    return output


def _read_until(descriptor: int) -> tuple[bytes, bool]:
    """What arrives within the time and the bound, and whether the time is over."""
    import select
    from time import monotonic

    output = bytearray()
    deadline = monotonic() + PROGRAM_SECONDS
    while len(output) <= LARGEST_BYTES:
        left = deadline - monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return bytes(output), True
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        output += piece
    return bytes(output), False
