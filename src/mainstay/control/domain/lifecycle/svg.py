"""A lifecycle as SVG. Without style sheets and scripts, so that it works under a strict content security policy."""

from __future__ import annotations

from xml.sax.saxutils import escape

from mainstay.control.domain.lifecycle.diagram_edges import DiagramEdge, diagram_edges
from mainstay.control.domain.lifecycle.layout import Line, Spot, lay_out
from mainstay.control.domain.lifecycle.schema import Lifecycle

CHARACTER_WIDTH = 7.2
STATE_HEIGHT = 34.0
LAYER_HEIGHT = 58.0
MARGIN = 24.0
LABEL_HEIGHT = 15.0
MAX_LABEL_LENGTH = 32
INK, ERROR_INK, LABEL_INK = "#334155", "#b91c1c", "#475569"
FILLS = {"initial": "#dbeafe", "running": "#d8f3dc", "terminal": "#e5e7eb", "other": "#ffffff"}


def draw_svg(lifecycle: Lifecycle, title: str = "Lifecycle") -> str:
    numbers = {state: index for index, state in enumerate(lifecycle.states)}
    arrows = diagram_edges(lifecycle)
    loops = {
        state: tuple(arrow for arrow in arrows if arrow.origin == arrow.to == state) for state in lifecycle.states
    }
    between = tuple(arrow for arrow in arrows if arrow.origin != arrow.to)
    layout = lay_out(
        [_state_width(state) + 2 * _loop_width(loops[state]) for state in lifecycle.states],
        [Line(numbers[arrow.origin], numbers[arrow.to], _label_width(arrow)) for arrow in between],
        numbers[lifecycle.initial_state],
    )
    spots = [spot for layer in layout.layers for spot in layer]
    width = max(spot.x + spot.width / 2 for spot in spots) + 2 * MARGIN
    height = max(_y(spot) for spot in spots) + STATE_HEIGHT / 2 + 2 * MARGIN
    body = [_arrow(arrow, route) for arrow, route in zip(between, layout.routes, strict=True)]
    for state, spot in zip(lifecycle.states, layout.states, strict=True):
        body += [_loop(arrow, spot, state) for arrow in loops[state]]
        body.append(_state(lifecycle, state, spot))
    body += [_label(arrow, _label_spot(route)) for arrow, route in zip(between, layout.routes, strict=True)]
    size = f'width="{width:.0f}" height="{height:.0f}"'
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}" role="img" {font}>',
            f"<title>{_text(title)}</title>",
            f"<desc>{_text(_description(lifecycle))}</desc>",
            "<defs>",
            _head("head", INK),
            _head("error-head", ERROR_INK),
            "</defs>",
            f'<rect {size} fill="#ffffff"/>',
            f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">',
            *body,
            "</g>",
            "</svg>",
            "",
        )
    )


def _text(text: str) -> str:
    """Replaces characters that XML does not allow and escapes the rest."""
    return escape("".join(character if character.isprintable() else " " for character in text))


def _description(lifecycle: Lifecycle) -> str:
    """The diagram as text, for screen readers."""
    moves = (f"{', '.join(arrow.labels)}: {arrow.origin} to {arrow.to}" for arrow in diagram_edges(lifecycle))
    return f"Starts in {lifecycle.initial_state}. {'. '.join(moves)}."


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
    )


def _state_width(state: str) -> float:
    return max(64.0, len(state) * CHARACTER_WIDTH + 28)


def _labels(arrow: DiagramEdge) -> list[str]:
    return [text if len(text) <= MAX_LABEL_LENGTH else f"{text[: MAX_LABEL_LENGTH - 1]}…" for text in arrow.labels]


def _label_width(arrow: DiagramEdge) -> float:
    return max(len(text) for text in _labels(arrow)) * CHARACTER_WIDTH + 8


def _loop_width(loops: tuple[DiagramEdge, ...]) -> float:
    return max((_label_width(arrow) for arrow in loops), default=0.0) + (28 if loops else 0)


def _y(spot: Spot) -> float:
    return spot.layer * LAYER_HEIGHT + STATE_HEIGHT / 2


def _kind(lifecycle: Lifecycle, state: str) -> str:
    if state in lifecycle.terminal_states:
        return "terminal"
    if state in lifecycle.running_states:
        return "running"
    return "initial" if state == lifecycle.initial_state else "other"


def _state(lifecycle: Lifecycle, state: str, spot: Spot) -> str:
    width, x, y = _state_width(state), spot.x, _y(spot)
    kind = _kind(lifecycle, state)
    box = (
        f'<rect x="{x - width / 2:.1f}" y="{y - STATE_HEIGHT / 2:.1f}" width="{width:.1f}" height="{STATE_HEIGHT}"'
        f' rx="8" fill="{FILLS[kind]}" stroke="{INK}" stroke-width="{2.5 if kind == "terminal" else 1.3}"/>'
    )
    return f'{box}\n<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle" fill="#0f172a">{_text(state)}</text>'


def _stroke(arrow: DiagramEdge) -> str:
    if arrow.on_error:
        return f'fill="none" stroke="{ERROR_INK}" stroke-width="1.3" stroke-dasharray="5 4" marker-end="url(#error-head)"'
    return f'fill="none" stroke="{INK}" stroke-width="1.3" marker-end="url(#head)"'


def _arrow(arrow: DiagramEdge, route: tuple[Spot, ...]) -> str:
    points = [(spot.x, _y(spot)) for spot in route]
    points[0] = _edge_of_box(points[0], points[1])
    points[-1] = _edge_of_box(points[-1], points[-2])
    # A Catmull-Rom spline: the direction at each point is that from the previous to the next point.
    before, after = [points[0], *points], [*points[2:], points[-1], points[-1]]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1), (x2, y2), (x3, y3) in zip(before, points, points[1:], after, strict=False):
        first = f"{x1 + (x2 - x0) / 6:.1f} {y1 + (y2 - y0) / 6:.1f}"
        second = f"{x2 - (x3 - x1) / 6:.1f} {y2 - (y3 - y1) / 6:.1f}"
        path += f" C{first} {second} {x2:.1f} {y2:.1f}"
    return f'<path d="{path}" {_stroke(arrow)}/>'


def _edge_of_box(point: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """The end of an arrow at a state: off the centre, on the side of the other end."""
    (x, y), (other_x, other_y) = point, towards
    lean = max(-22.0, min(22.0, (other_x - x) * 0.25))
    return x + lean, y + STATE_HEIGHT / 2 if other_y > y else y - STATE_HEIGHT / 2


def _label_spot(route: tuple[Spot, ...]) -> tuple[float, float]:
    widest = max(route[1:-1], key=lambda spot: spot.width)
    return widest.x, _y(widest)


def _label(arrow: DiagramEdge, at: tuple[float, float]) -> str:
    return _lines(arrow, *at, anchor="middle")


def _lines(arrow: DiagramEdge, x: float, y: float, *, anchor: str) -> str:
    texts = _labels(arrow)
    top = y - (len(texts) - 1) * LABEL_HEIGHT / 2 + 4
    colour = ERROR_INK if arrow.on_error else LABEL_INK
    return "\n".join(
        f'<text x="{x:.1f}" y="{top + index * LABEL_HEIGHT:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="12"'
        f' stroke="#ffffff" stroke-width="4" paint-order="stroke">{_text(text)}</text>'
        for index, text in enumerate(texts)
    )


def _loop(arrow: DiagramEdge, spot: Spot, state: str) -> str:
    """Beside its state: success on the right, errors on the left."""
    side = -1 if arrow.on_error else 1
    x, y = spot.x + side * _state_width(state) / 2, _y(spot)
    out = x + side * 26
    path = f"M{x:.1f} {y - 8:.1f} C{out:.1f} {y - 20:.1f} {out:.1f} {y + 20:.1f} {x:.1f} {y + 8:.1f}"
    label = _lines(arrow, x + side * 24, y, anchor="end" if side < 0 else "start")
    return f'<path d="{path}" {_stroke(arrow)}/>\n{label}'
