"""The commands of a guide that a test runs: those in `sh` blocks, which no test of all pages runs."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guide"


def guide_commands(page: str, heading: str) -> list[list[str]]:
    """The lines of each block below a heading, such as `## Without the key`, up to the next one."""
    after = (GUIDE / page).read_text().partition(f"\n{heading}\n")[2]
    section = re.split(r"\n#+ ", after, maxsplit=1)[0]
    found = [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)]
    assert found, f"{page} has no commands below {heading}"
    return found
