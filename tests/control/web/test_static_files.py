"""Static files: small, with a digest in their name, and without what browsers do not need."""

from __future__ import annotations

import re
from importlib.resources import files

from mainstay.control.web.static_files import files_by_served_name, static_url

FOLDER = files("mainstay.control.web").joinpath("static")


def served(name: str) -> str:
    return files_by_served_name()[static_url(name).removeprefix("/static/")].content.decode()


def test_styles_and_scripts_leave_space_for_the_page_itself() -> None:
    """The first load of a page is below 100 kB in total."""
    assert sum(len(each.content) for each in files_by_served_name().values()) < 60_000


def test_scripts_are_small_together() -> None:
    scripts = [each.content for name, each in files_by_served_name().items() if name.endswith(".js")]
    assert sum(map(len, scripts)) < 20_000


def test_scripts_import_served_names() -> None:
    names = set(files_by_served_name())
    for entry in FOLDER.iterdir():
        if entry.name.endswith(".js"):
            imported = re.findall(r'from "\./([^"]+)"', served(entry.name))
            assert set(imported) <= names, entry.name
            assert len(imported) == entry.read_text().count("\nimport "), entry.name


def test_what_is_served_differs_only_in_comments_and_space() -> None:
    for entry in FOLDER.iterdir():
        text, shown = entry.read_text(), served(entry.name)
        if entry.name.endswith(".css"):
            text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        if entry.name.endswith(".js"):
            for line in text.splitlines():
                assert not line.count("`") % 2, f"{entry.name}: a template of several lines: {line}"
                assert line.strip().startswith("//") or not re.search(r"//|/\*|\*/", line), f"{entry.name}: {line}"
                assert line.count('"') % 2 == 0, f"{entry.name}: a string that is not closed in its line: {line}"
            text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
            text, shown = (re.sub(r'"\./[\w.]+\.js"', "", each) for each in (text, shown))
        assert "".join(shown.split()) == "".join(text.split()), entry.name
        assert re.findall(r'"[^"]*"', shown) == re.findall(r'"[^"]*"', text), entry.name
