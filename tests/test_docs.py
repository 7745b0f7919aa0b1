"""Runs the commands of the documentation and compares their output; checks generated pages and links."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from control_plane import running
from mainstay.converge.host.throw_away_host import why_unavailable
from required_parts import need

ROOT = Path(__file__).resolve().parent.parent
GUIDES = sorted((ROOT / "docs" / "guide").rglob("*.md"))
FRONT_PAGE = ROOT / "docs" / "README.md"
PAGES = [ROOT / "README.md", *GUIDES]
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Pages use this directory and this server address; tests replace them.
PLACE = "/tmp/tutorial"
ADDRESS = "127.0.0.1:8420"


def console_pages() -> list[Path]:
    return [page for page in PAGES if "```console" in page.read_text()]


def commands(block: str) -> list[tuple[str, str]]:
    """(command, expected output) pairs of a console block."""
    pairs: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        else:
            pairs[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in pairs]


def pattern(expected: str) -> re.Pattern[str]:
    """`…` matches any text within a line; a line with only `…` matches any lines."""
    lines = []
    for line in expected.split("\n"):
        lines.append(r"(?s:.*)" if line == "…" else r"[^\n]*".join(re.escape(part) for part in line.split("…")))
    return re.compile("\n".join(lines))


@pytest.mark.parametrize("page", console_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_print_the_documented_output(page: Path, tmp_path: Path) -> None:
    if "$ mainstay try " in page.read_text():
        reason = why_unavailable()
        need(present=reason is None, what=f"a throw-away host ({reason})")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    text = page.read_text().replace(PLACE, str(tmp_path / "tutorial"))
    with ExitStack() as stack:
        if ADDRESS in text:
            server = stack.enter_context(running(tmp_path / "plane"))
            text = text.replace(ADDRESS, server.url.removeprefix("http://"))
            stack.callback(end_processes, tmp_path)
        run_page(text, tmp_path, environment)


def end_processes(folder: Path) -> None:
    """Terminates processes that a page left running."""
    for note in folder.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(note.read_text()), signal.SIGTERM)


def run_page(text: str, tmp_path: Path, environment: dict[str, str]) -> None:
    ran = 0
    for language, block in BLOCK.findall(text):
        named = re.match(r"# file: (\S+)\n", block)
        if named:
            (tmp_path / named[1]).write_text(block)
        if language != "console":
            continue
        for command, expected in commands(block):
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
            )
            output = (done.stdout + done.stderr).rstrip("\n")
            assert pattern(expected).fullmatch(output), f"$ {command}\n{output}\n--- expected ---\n{expected}"
            ran += 1
    assert ran


def test_the_reference_is_current() -> None:
    pages = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["pages"]()
    for name, content in pages.items():
        assert (ROOT / "docs" / "reference" / name).read_text() == content, f"run scripts/reference.py: {name} is old"


def links(page: Path) -> list[Path]:
    return [(page.parent / target).resolve() for target, _ in LINK.findall(page.read_text())]


def test_links_between_pages_are_valid() -> None:
    """Both the page and the heading exist."""
    dead = []
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")):
        for target, anchor in LINK.findall(page.read_text()):
            found = page.parent / target if target else page
            if not found.exists() or (anchor and anchor not in anchors(found)):
                dead.append(f"{page.relative_to(ROOT)}: {target}{anchor and '#'}{anchor}")
    assert not dead, dead


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_guide_is_on_the_front_page() -> None:
    assert [page for page in GUIDES if page not in links(FRONT_PAGE)] == []


def test_every_guide_ends_with_one_next_step() -> None:
    offences = []
    for page in GUIDES:
        steps = [line for line in page.read_text().splitlines() if line.startswith("**Next:**")]
        last = page.read_text().rstrip("\n").rpartition("\n")[2]
        if steps != [last] or len(LINK.findall(last)) != 1:
            offences.append(f"{page.relative_to(ROOT)}: its last line must be `**Next:** [page](page.md), reason.`")
    assert not offences, offences


def test_paths_in_the_architecture_and_contributing_pages_exist() -> None:
    """A bare file name belongs to the folder of the path before it in the same line."""
    missing = []
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
            folder = Path()
            for text in re.findall(r"`((?:[\w.-]+/)*[\w.-]+(?:\.py|/))`", line):
                places = [start / text for start in (ROOT / "src/mainstay", ROOT, folder)]
                found = next((place for place in places if place.exists()), None)
                if found is None:
                    missing.append(f"{page}:{number}: {text}")
                else:
                    folder = found.parent if found.is_file() else found
    assert not missing, missing


def test_the_readme_is_read_in_a_minute() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120, "move details to a guide"


def test_the_architecture_is_short_and_its_types_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.encode()) <= 9000, "modules are listed in docs/reference/modules.md"
    rows = re.findall(r"^\| (`[A-Z].*?) \| `(\S+\.py)` \|", text, re.MULTILINE)
    assert len(rows) == 10
    missing = [
        f"{name} in {file}"
        for names, file in rows
        for name in re.findall(r"`(\w+)`", names)
        if not re.search(rf"^class {name}\b", (ROOT / "src" / "mainstay" / file).read_text(), re.MULTILINE)
    ]
    assert not missing, missing


def test_the_index_of_decisions_has_a_line_for_each() -> None:
    folder = ROOT / "docs" / "decisions"
    decisions = sorted(folder.glob("[0-9]*.md"))
    titles = [page.read_text().partition("\n")[0].removeprefix("# ").partition(". ") for page in decisions]
    expected = [(number, page.name, title) for page, (number, _, title) in zip(decisions, titles, strict=True)]
    lines = re.findall(
        r"^\| \[(\d+)\]\((\S+)\) \| (.*) \| [a-z ]+ \| (in force|in force, amended by \S+|superseded by \S+) \|$",
        (folder / "README.md").read_text(),
        re.MULTILINE,
    )
    assert [line[:3] for line in lines] == expected
    unmarked = [
        name
        for _, name, _, status in lines
        if status.startswith("superseded") != ("Superseded by [" in (folder / name).read_text())
    ]
    assert not unmarked, "a superseded decision says so below its title: *Superseded by [53](…): what remains.*"


def test_every_term_of_the_glossary_has_one_meaning() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "GLOSSARY.md").read_text(), re.MULTILINE)
    assert len(terms) > 50
    assert sorted(terms) == sorted(set(terms))


def test_the_license_is_the_standard_text() -> None:
    """A legal text is copied exactly. The digest is that of https://www.apache.org/licenses/LICENSE-2.0.txt."""
    digest = sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_every_promise_of_the_security_guide_names_an_existing_test() -> None:
    guide = (ROOT / "docs/guide/operating/security.md").read_text()
    proofs = re.findall(r"`([\w/]+\.py)::(\w+)`", guide)
    assert len(proofs) > 30
    missing = [
        f"{file}::{name}" for file, name in proofs if f"def {name}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert missing == []
    rows = [line for line in guide.splitlines() if line.startswith("| ") and line.count("|") == 3]
    without_proof = [line for line in rows if "::" not in line and not line.startswith("| promise")]
    assert without_proof == []
