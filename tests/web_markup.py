"""Reads the HTML of a page and names markup that the content of a row must never become."""

from __future__ import annotations

import re
from html.parser import HTMLParser

# Closes every context in which a page could show a text, then opens an element.
HOSTILE = "</title></textarea></script>--></style>\"'><x-hostile onclick=alert(1)><script>alert('x-hostile')</script>"
SCHEMES = ("javascript:", "data:", "vbscript:")
ADDRESSES = {"href", "src", "action", "formaction", "xlink:href"}

USED_ICON = re.compile(r'<use href="#([^"]*)"')
DEFINED_ICON = re.compile(r'<symbol id="([^"]*)"')


class _Inspector(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if tag == "x-hostile":
            self.problems.append("the content of a row became an element")
        if tag in ("style", "base", "iframe", "object", "embed"):
            self.problems.append(f"<{tag}> is not allowed")
        is_own_file = (values.get("src") or "").startswith("/static/")
        if tag == "script" and not is_own_file and values.get("type") != "application/json":
            self.problems.append(f"<script> without a file of ours: {values}")
        for name, value in attributes:
            if name.startswith("on") or name == "style":
                self.problems.append(f"<{tag} {name}={value!r}>")
            if name in ADDRESSES and (value or "").strip().lower().startswith(SCHEMES):
                self.problems.append(f"<{tag} {name}={value!r}>")
            if name in ADDRESSES and (value or "").startswith(("http:", "https:", "//")) and tag != "a":
                self.problems.append(f"<{tag} {name}={value!r}> leads to another host")


def missing_icons(text: str) -> list[str]:
    """Icons that the page uses and does not contain: a browser shows nothing in their place."""
    used, defined = set(USED_ICON.findall(text)), set(DEFINED_ICON.findall(text))
    return [f"add the icon {name} to templates/parts/icons.html" for name in sorted(used - defined)]


def unsafe_markup(text: str) -> list[str]:
    inspector = _Inspector()
    inspector.feed(text)
    inspector.close()
    return inspector.problems
