"""A browser as far as forms go: renders fields with the real templates and returns what a form would post."""

from __future__ import annotations

from html.parser import HTMLParser

from mainstay.control.web import rendering
from mainstay.control.web.forms.fields import PropertyForm


def render(form: PropertyForm) -> str:
    return rendering.render("parts/property_form.html", {"form": form, "heading": "Faults"})


class _Controls(HTMLParser):
    """Successful controls, as the HTML standard defines them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.posted: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self._area: str | None = None
        self._text = ""
        self._select: str | None = None
        self._options: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.append(found["id"])
        self.references += found.get("aria-describedby", "").split()
        if "for" in found:
            self.references.append(found["for"])
        if tag == "a" and found.get("href", "").startswith("#"):
            self.references.append(found["href"][1:])
        if tag == "input" and found.get("name"):
            self._input(found)
        elif tag == "textarea":
            self._area, self._text = found["name"], ""
        elif tag == "select":
            self._select, self._options = found["name"], []
        elif tag == "option" and self._select is not None:
            self._options.append((found["value"], "selected" in found))

    def _input(self, found: dict[str, str]) -> None:
        kind = found.get("type", "text")
        if kind in ("checkbox", "radio"):
            if "checked" in found:
                self._post(found["name"], found["value"])
            return
        text = found.get("value", "")
        if kind in ("text", "password"):
            text = text.replace("\n", "").replace("\r", "")
        self._post(found["name"], text)

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            self._post(self._area, self._text.removeprefix("\n"))
            self._area = None
        elif tag == "select" and self._select is not None:
            chosen = [value for value, selected in self._options if selected] or [self._options[0][0]]
            self._post(self._select, chosen[-1])
            self._select = None

    def _post(self, name: str, text: str) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
        self.posted.append((name, text))


def controls(page: str) -> _Controls:
    parsed = _Controls()
    # The parser of a browser reads every line break as \n.
    parsed.feed(page.replace("\r\n", "\n").replace("\r", "\n"))
    parsed.close()
    return parsed


def successful(page: str) -> list[tuple[str, str]]:
    return controls(page).posted
