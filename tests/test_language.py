"""Words that have no good use here appear nowhere. The other words of the old idiom are for review, not for a test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Each word with what to write instead.
WORDS = {
    "whoever": "name the subject: the caller, the client, the operator",
    "nobody": "name who: no caller, no other process; or use the passive with a named thing",
    "somebody": "name the subject: a user, another process",
    "told": "reported, notified, returned, passed",
    "stands": "is, contains, is stored, means",
    "its turn": "queued, reached, scheduled",
    "let in": "enrolled, admitted, allowed",
}
FORBIDDEN = re.compile(
    r"(?<![A-Za-z])(" + "|".join(word.replace(" ", r"[ _]") for word in WORDS) + r")(?![A-Za-z])", re.IGNORECASE
)
# A line is exempt with a reason: `# language: quoted from the seed`.
EXEMPT = re.compile(r"language: \w")
# Quoted from outside, history, migrations (bound to their checksum), or the list itself.
LEFT_OUT = (
    "tests/seeds/",
    "requirements/",
    "src/mainstay/control/store/engine/migrations/",
    "tests/test_language.py",
)
SUFFIXES = {
    "",
    ".css",
    ".html",
    ".j2",
    ".js",
    ".json",
    ".md",
    ".py",
    ".service",
    ".sql",
    ".svg",
    ".toml",
    ".txt",
    ".yaml",
}


def files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [
        name
        for name in listed
        if not name.startswith(LEFT_OUT) and Path(name).suffix in SUFFIXES and (ROOT / name).is_file()
    ]


def findings(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number}: {found[1]!r}: {WORDS[found[1].lower().replace('_', ' ')]}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := FORBIDDEN.search(line)) and not EXEMPT.search(line)
    ]


def test_forbidden_words_are_not_used() -> None:
    found = [each for name in files() for each in findings(name, (ROOT / name).read_text(errors="replace"))]
    assert not found, "\n".join([f"{len(found)} lines; end a line with `language: REASON` to exempt it", *found])


def test_a_forbidden_word_is_named_with_its_line() -> None:
    assert findings("a.py", "x = 1\n# Whoever_asks is told\n") == [
        "a.py:2: 'Whoever': name the subject: the caller, the client, the operator"
    ]
    assert findings("a.py", "print('told')  # language: a quotation") == []
