"""SVG elements that the drawings share. Lengths are attributes, colours are classes of the style sheet."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from mainstay.control.domain.lifecycle.drawn_text import printable
from mainstay.control.domain.lifecycle.path_data import number

# All drawings of numbers are this wide, so that their text and gaps have the same scale side by side.
PICTURE_WIDTH = 320.0


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def picture(
    view_box: tuple[float, float, float, float], label: str, body: Markup, *, kind: str = "pic", links: bool = False
) -> Markup:
    """A drawing of numbers. `label` carries all of them for screen readers, which skip links in an image."""
    return Markup('<svg class="{}" viewBox="{}" role="{}" aria-label="{}">{}</svg>').format(
        kind, " ".join(map(number, view_box)), "group" if links else "img", printable(label), body
    )


def rectangle(
    kind: str,
    place: tuple[float, float, float, float],
    radius: float,
    *,
    opacity: str = "",
    title: str = "",
) -> Markup:
    """`place` is x, y, width and height. `title` appears under the pointer."""
    x, y, width, height = map(number, place)
    faded = Markup(' opacity="{}"').format(opacity) if opacity else Markup()
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="{}"{}>{}</rect>').format(
        kind, x, y, width, height, number(radius), faded, tooltip(title)
    )


def tooltip(title: str) -> Markup:
    return Markup("<title>{}</title>").format(printable(title)) if title else Markup()
