"""The bytes that a host's Python receives first."""

from __future__ import annotations

import json
import os
import zlib

from mainstay.packaging.program_file import program_cache_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.push.shipment import Shipment


def first_stage_bytes(program: Shipment, index: Shipment) -> bytes:
    """The size of the packed first stage, the stage, and the digests that it looks for."""
    with open(os.path.join(os.path.dirname(__file__), "first_stage.py"), encoding="utf-8") as file:
        text = file.read()
    # `r` is standard input; see `RUN_FIRST_STAGE`.
    call = f"\nmain(r, {program_cache_source().encode()!r})\n"
    stage = zlib.compress((text + call).encode(), 9)
    digests = json.dumps({"program": program.digest, "index": index.digest}).encode()
    return b"%d\n%s%s\n" % (len(stage), stage, digests)
