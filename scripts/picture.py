#!/usr/bin/env -S .venv/bin/python
"""Draws docs/pictures/*.svg from real runs on a pseudo-terminal, so the README shows real output."""

from __future__ import annotations

import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = str(ROOT / ".venv/bin/mainstay")
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
    """Runs a command on a terminal and returns its output."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        command, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT
    )
    os.close(follower)
    output = b""
    try:
        while chunk := os.read(leader, 65536):
            output += chunk
    except OSError:
        pass
    child.wait()
    return output.decode()


def final_lines(output: str) -> list[str]:
    """The lines left on the screen, without overwritten progress."""
    lines = output.replace("\r\n", "\n").split("\n")
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


def prompt(command: str) -> str:
    return f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m"


def truncate(line: str) -> str:
    """Shortens a line to the width of the picture; lines with colours are short enough."""
    return line if "\x1b" in line or len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"


def save(name: str, lines: list[str]) -> None:
    target = ROOT / "docs" / "pictures" / f"{name}.svg"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(draw([truncate(line.rstrip()) for line in lines]))
    print(f"drew {target.relative_to(ROOT)}")


def picture_apply(scratch: Path, environment: dict[str, str]) -> None:
    site = scratch / "website"
    base = [PROGRAM, "apply", "examples/website/manifest.yaml", "--set", f"root={site}"]
    base += ["--set", f"owner={os.getuid()}", "--set", f"group={os.getgid()}"]
    record(base, environment)
    (site / "index.html").write_text((site / "index.html").read_text().replace("operational", "down"))
    (site / "publish").chmod(0o777)
    lines = []
    for options in (["--noop", "--diff"], [], ["-v"]):
        lines.append(prompt(" ".join(["mainstay apply website/manifest.yaml", *options])))
        output = record([*base, *options], environment)
        lines += [line.replace(str(site), "/srv/website")[: COLUMNS + 60] for line in final_lines(output)]
        lines.append("")
    save("apply", lines[:-1])


def picture_order(scratch: Path, environment: dict[str, str]) -> None:
    """Runs a server and an agent in a scratch directory, and orders with the CLI as a user would."""
    host, log = scratch / "host", scratch / "server.log"
    host.mkdir()
    port = str(free_port())
    with log.open("wb") as out:
        server = subprocess.Popen(
            [PROGRAM, "server", "--port", "0", "--data-dir", str(scratch / "data")],
            env=environment,
            stdout=out,
            stderr=out,
        )
    wait_until(lambda: (scratch / "data/admin.token").exists() and "listens on" in log.read_text())
    url = log.read_text().split("listens on ")[1].split()[0]

    def run(*words: str) -> str:
        return subprocess.run(
            [PROGRAM, *words], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    run("login", url, "--data-dir", str(scratch / "data"))
    run("blueprint", "push", "examples/blueprints/web-app")
    code = run("agents", "add", "host1", "--serves", "web-app").split("agent enroll ")[1].split()[1]
    run("agent", "enroll", url, code)
    agent = subprocess.Popen(
        [PROGRAM, "agent", "run", "--root", str(host), "--drift-interval", "2s"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    run("participants", "add", "shop-team", "--token-file", str(scratch / "team.token"))
    run("login", url, "--token-file", str(scratch / "team.token"))
    (scratch / "key.txt").write_text("not-a-real-key")
    lines: list[str] = []

    def show(command: str, *words: str) -> None:
        lines.append(prompt(f"mainstay {command}"))
        for line in final_lines(record([PROGRAM, *words], environment)):
            plain = (
                line.replace(f"{host}/", "/opt/").replace(str(scratch), "").replace(service_part, "web-app-9f86d081")
            )
            lines.append(plain.replace(port, "8080")[: COLUMNS + 60])
        lines.append("")

    service_part = "web-app-?"
    order = ["order", "web-app", "shop", "-p", f"port={port}", "-p", f"adminKey=@{scratch}/key.txt"]
    try:
        show("order web-app shop -p port=8080 -p adminKey=@key.txt", *order)
        (folder,) = host.iterdir()
        service_part = folder.name
        change = ["do", "shop", "update", "-p", "greeting=Good day"]
        show("do shop update -p 'greeting=Good day' --plan", *change, "--plan")
        show("do shop update -p 'greeting=Good day'", *change)
        (folder / "config.json").write_text('{"greeting": "hacked"}\n')
        wait_until(lambda: "Repaired" in run("show", "shop"))
        show("services", "services")
        run("do", "shop", "delete")
    finally:
        agent.terminate()
        agent.wait()
        server.terminate()
        server.wait()
    save("order", lines[:-1])


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)


def main() -> int:
    for picture in (picture_apply, picture_order):
        scratch = Path(tempfile.mkdtemp(prefix="mainstay-picture-"))
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "MAINSTAY_STATE_DIR": str(scratch / "state"),
            "MAINSTAY_CONFIG_DIR": str(scratch / "config"),
            "COLUMNS": str(COLUMNS),
        }
        environment.pop("NO_COLOR", None)
        try:
            picture(scratch, environment)
        finally:
            shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
