"""The text of the seeds as test data: their JSON and HTTP blocks, found by heading."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

TEXT = (Path(__file__).parent / "seeds" / "service-types.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    heading: str
    lead: str
    text: str
    line: int

    @property
    def is_json(self) -> bool:
        try:
            json.loads(self.text)
        except ValueError:
            return False
        return True

    def parse(self) -> object:
        return json.loads(self.text)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: object


def json_blocks() -> list[Block]:
    return fenced("json")


def fenced(wanted: str) -> list[Block]:
    """Returns every block of this language with the heading above it and the last line of prose before it."""
    blocks: list[Block] = []
    heading = lead = ""
    fence: list[str] | None = None
    language = ""
    for number, line in enumerate(TEXT.splitlines(), start=1):
        if line.startswith("```"):
            if fence is None:
                fence, language = [], line[3:]
            else:
                if language == wanted:
                    blocks.append(Block(heading, lead, "\n".join(fence), number - len(fence)))
                fence = None
        elif fence is not None:
            fence.append(line)
        elif line.startswith("#"):
            heading, lead = line.lstrip("# "), ""
        elif line.strip():
            lead = line.strip()
    return blocks


def block(heading: str, lead: str = "") -> object:
    """Returns the only JSON block under a heading (and, if there are several, after this line of prose)."""
    found = [
        each for each in json_blocks() if each.heading == heading and each.lead.startswith(lead) and each.is_json
    ]
    assert len(found) == 1, f"{len(found)} blocks under {heading!r} after {lead!r}"
    return found[0].parse()


def requests(heading: str, lead: str = "", **names: str) -> list[Request]:
    """Returns the requests under a heading. Ids of the examples (`pool-set-uuid`) are replaced by those of `names`
    (`pool_set_uuid`), and an elided schema by null."""
    text = "\n".join(
        each.text for each in fenced("http") if each.heading == heading and each.lead.startswith(lead)
    ).replace("{...}", "null")
    for name, value in names.items():
        text = re.sub(rf"(?<![a-z-]){name.replace('_', '-')}(?![a-z-])", value, text)
    found = re.findall(r"^([A-Z]+) /api/v1(/\S+)$(.*?)(?=^[A-Z]+ /|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no requests under {heading!r} after {lead!r}"
    return [
        Request(method, path, json.loads(rest[rest.find("{") :]) if "{" in rest else None)
        for method, path, rest in found
    ]


def listed_messages() -> list[str]:
    """Returns every listed error message: the lines that start with a quoted text in code marks."""
    sections = re.split(r"Error Messages(?::\*\*|\n)", TEXT)[1:]
    return [
        message
        for section in sections
        for message in re.findall(r'^- `"(.*?)"`', re.split(r"\n\*\*|\n#", section, maxsplit=1)[0], re.MULTILINE)
    ]
