#!/usr/bin/env -S .venv/bin/python
"""Draws docs/pictures/apply.svg from a real run on a real (pseudo) terminal: what the README shows is what a user sees."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
COLOURS = {
    "31": "#e06c75",
    "32": "#98c379",
    "33": "#e5c07b",
    "35": "#c678dd",
    "36": "#56b6c2",
    "90": "#7f848e",
    "2": "#7f848e",
}
COLUMNS, LINE_HEIGHT, CHARACTER_WIDTH = 104, 19, 8.43


def record(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints on a terminal."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        command, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT
    )
    os.close(follower)
    said = b""
    try:
        while chunk := os.read(leader, 65536):
            said += chunk
    except OSError:
        pass
    child.wait()
    return said.decode()


def settled(said: str) -> list[str]:
    """Lines as they stand at the end: progress that was painted over is gone."""
    lines = said.replace("\r\n", "\n").split("\n")
    return [line.rpartition("\r\x1b[K")[2] for line in lines if line]


def draw(lines: list[str]) -> str:
    height = LINE_HEIGHT * len(lines) + 52
    width = int(CHARACTER_WIDTH * COLUMNS) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#21252b"/>',
        *(
            f'<circle cx="{22 + 18 * index}" cy="18" r="5.5" fill="{colour}"/>'
            for index, colour in enumerate(("#e06c75", "#e5c07b", "#98c379"))
        ),
        '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#dcdfe4" xml:space="preserve">',
    ]
    for number, line in enumerate(lines):
        parts.append(f'<text x="20" y="{50 + LINE_HEIGHT * number}">{spans(line)}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def spans(line: str) -> str:
    drawn, style = "", ""
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", piece)
        if code:
            style = (
                ""
                if code[1] in ("", "0")
                else ' font-weight="bold"'
                if code[1] == "1"
                else f' fill="{COLOURS[code[1]]}"'
            )
        elif piece:
            drawn += f"<tspan{style}>{escape(piece)}</tspan>"
    return drawn


def main() -> int:
    scratch = Path(tempfile.mkdtemp(prefix="mainstay-picture-"))
    try:
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "MAINSTAY_STATE_DIR": str(scratch / "state"),
            "COLUMNS": str(COLUMNS),
        }
        environment.pop("NO_COLOR", None)
        site = scratch / "website"
        base = [str(ROOT / ".venv/bin/mainstay"), "apply", "examples/website/manifest.yaml", "--set", f"root={site}"]
        base += ["--set", f"owner={os.getuid()}", "--set", f"group={os.getgid()}"]
        record(base, environment)
        (site / "index.html").write_text((site / "index.html").read_text().replace("fine", "on fire"))
        (site / "publish").chmod(0o777)
        lines = []
        for options in (["--noop", "--diff"], [], ["-v"]):
            lines.append(
                "\x1b[32m$\x1b[0m \x1b[1m" + " ".join(["mainstay apply website/manifest.yaml", *options]) + "\x1b[0m"
            )
            said = record([*base, *options], environment)
            lines += [line.replace(str(site), "/srv/website")[: COLUMNS + 60] for line in settled(said)]
            lines.append("")
        target = ROOT / "docs" / "pictures" / "apply.svg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(draw(lines[:-1]))
        print(f"drew {target.relative_to(ROOT)}")
    finally:
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
