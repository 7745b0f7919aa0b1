"""Blueprints for tests of `blueprint check`: the one of `blueprint new` with changes, and what the check finds."""

from __future__ import annotations

from pathlib import Path

from mainstay.blueprints.check import check_blueprint
from mainstay.blueprints.scaffold import files_of


def make(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Writes the blueprint of `blueprint new` with the replacements (file, old, new); an empty old text appends."""
    files = files_of("demo")
    for path, old, new in changes:
        content = files.get(path, "")
        assert old in content, (path, old)
        files[path] = content.replace(old, new, 1) if old else content + new
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return folder


def findings_of(folder: Path) -> tuple[list[str], list[str]]:
    """Faults and warnings, with paths inside the blueprint."""
    _, found = check_blueprint(str(folder))
    lines = [line.removeprefix(f"{folder}/") for line in found.lines()]
    faults = [line for line in lines if ": warning: " not in line]
    return faults, [line for line in lines if ": warning: " in line]
