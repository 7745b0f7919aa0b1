"""A lifecycle as SVG. Without style sheets and scripts, so that it works under a strict content security policy."""

from __future__ import annotations

from xml.sax.saxutils import escape

from mainstay.control.domain.lifecycle.diagram_edges import diagram_edges
from mainstay.control.domain.lifecycle.drawn_text import printable, shortened
from mainstay.control.domain.lifecycle.layout import ActionTrunk, StateBox, TrunkBranch, lay_out
from mainstay.control.domain.lifecycle.path_data import head_path, number, rounded_path, without_head
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state

MARGIN = 16.0
INK, ERROR_INK, LABEL_INK = "#334155", "#b91c1c", "#475569"
FILLS: dict[StateKind, str] = {
    "new": "#dbeafe",
    "up": "#d8f3dc",
    "end": "#e5e7eb",
    "bad": "#fee2e2",
    "work": "#eef2ff",
    "rest": "#ffffff",
}


def draw_svg(lifecycle: Lifecycle, title: str = "Lifecycle") -> str:
    layout = lay_out(lifecycle)
    width, height = number(layout.width + 2 * MARGIN), number(layout.height + 2 * MARGIN)
    size = f'width="{width}" height="{height}"'
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img" {font}>',
            f"<title>{_text(title)}</title>",
            f"<desc>{_text(_description(lifecycle))}</desc>",
            f'<rect {size} fill="#ffffff"/>',
            f'<g transform="translate({number(MARGIN)} {number(MARGIN)})">',
            *(_branch(trunk, branch) for trunk in layout.trunks for branch in trunk.branches),
            *(_state(box, kind_of_state(lifecycle, box.state)) for box in layout.boxes),
            *map(_label, layout.trunks),
            "</g>",
            "</svg>",
            "",
        )
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _description(lifecycle: Lifecycle) -> str:
    """The diagram as text, for screen readers."""
    moves = (f"{', '.join(arrow.labels)}: {arrow.origin} to {arrow.to}" for arrow in diagram_edges(lifecycle))
    return f"Starts in {lifecycle.initial_state}. {'. '.join(moves)}."


def _branch(trunk: ActionTrunk, branch: TrunkBranch) -> str:
    ink, dashes = (ERROR_INK, ' stroke-dasharray="5 4"') if trunk.on_error else (INK, "")
    line = rounded_path(branch.joining or without_head(branch.points))
    path = f'<path d="{line}" fill="none" stroke="{ink}" stroke-width="1.3"{dashes}/>'
    return path if branch.joining else f'{path}<path d="{head_path(branch.points)}" fill="{ink}"/>'


def _state(box: StateBox, kind: StateKind) -> str:
    x, y = number(box.x + box.width / 2), number(box.y + box.height / 2 + 4.5)
    name = shortened(box.state)
    full = f"<title>{_text(box.state)}</title>" if name != box.state else ""
    return (
        f'<g>{full}<rect x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" height="{number(box.height)}"'
        f' rx="8" fill="{FILLS[kind]}" stroke="{INK}" stroke-width="{2.5 if kind == "end" else 1.3}"/>'
        f'<text x="{x}" y="{y}" text-anchor="middle" fill="#0f172a">{_text(name)}</text></g>'
    )


def _label(trunk: ActionTrunk) -> str:
    return (
        f'<text x="{number(trunk.label.x)}" y="{number(trunk.label.y + 4)}" text-anchor="middle" font-size="12"'
        f' fill="{ERROR_INK if trunk.on_error else LABEL_INK}" stroke="#ffffff" stroke-width="6" paint-order="stroke">'
        f"{_text(trunk.label.text)}</text>"
    )
