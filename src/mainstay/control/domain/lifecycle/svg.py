"""A lifecycle as SVG. The state of a service is lit, and its possible actions are links.

Without style sheets and scripts, so that it works under a strict content security policy: elements have colours as
attributes, which the style sheet of the pages overrides by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from mainstay.control.domain.lifecycle.drawn_text import printable, shortened
from mainstay.control.domain.lifecycle.layout import ActionTrunk, LifecycleLayout, StateBox, lay_out
from mainstay.control.domain.lifecycle.path_data import Point, head_path, number, rounded_path, without_head
from mainstay.control.domain.lifecycle.schema import Action, Lifecycle
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state

# A narrower drawing keeps its text size, because the style sheet scales the view box to the width of the card.
LEAST_WIDTH = 760.0
# A wider drawing keeps its own size and scrolls.
MOST_WIDTH = 960
HALO = 3.0
# Isolate a name of any direction from the text around it.
ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
INK, ERROR_INK = "#334155", "#b91c1c"
FILLS: dict[StateKind, str] = {
    "new": "#dbeafe",
    "up": "#d8f3dc",
    "end": "#e5e7eb",
    "bad": "#fee2e2",
    "work": "#eef2ff",
    "rest": "#ffffff",
}
# The shape of the kind: a state is recognized without colour.
MARKS: dict[StateKind, str] = {
    "bad": "m-4-4l8 8m0-8l-8 8",
    "work": "m0-4.4a4.4 4.4 0 1 1-4.4 4.4",
    "end": "m-4-4h8v8h-8z",
}
RING = "m-4.4 0a4.4 4.4 0 1 0 8.8 0a4.4 4.4 0 1 0-8.8 0"


@dataclass(frozen=True, slots=True)
class ServiceMoves:
    """What a service can do now. Nothing of it for the drawing of a service type."""

    # None: no state is lit.
    state: str | None = None
    # Action → address of its plan.
    links: Mapping[str, str] = field(default_factory=dict)
    # The action of the running job. None: no job runs.
    running: str | None = None


NO_MOVES = ServiceMoves()


def draw_svg(lifecycle: Lifecycle, title: str = "Lifecycle", moves: ServiceMoves = NO_MOVES) -> Markup:
    """For a page with one drawing: the ids in it are always the same."""
    layout = lay_out(lifecycle)
    width, height = max(layout.width, LEAST_WIDTH), number(layout.height)
    left = number((layout.width - width) / 2)
    return Markup(
        '<svg class="{kind}" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        ' viewBox="{left} 0 {width} {height}" role="{role}" aria-labelledby="lc-t lc-d"'
        ' font-family="system-ui, sans-serif" font-size="13">'
        '<title id="lc-t">{title}</title><desc id="lc-d">{description}</desc>'
        '<rect class="ground" x="{left}" width="{width}" height="{height}" fill="#ffffff"/>'
        '<g aria-hidden="true">{edges}{states}</g>{labels}</svg>\n'
    ).format(
        kind="lc wide" if layout.width > MOST_WIDTH else "lc",
        width=number(width),
        height=height,
        left=left,
        role="group" if moves.links else "img",
        title=printable(title),
        description=" ".join(sentences(lifecycle, moves)),
        edges=Markup().join(_edges(layout, moves)),
        states=Markup().join(
            _state(box, kind_of_state(lifecycle, box.state), lit=box.state == moves.state) for box in layout.boxes
        ),
        labels=Markup().join(_label(lifecycle, trunk, moves) for trunk in layout.trunks),
    )


def _edges(layout: LifecycleLayout, moves: ServiceMoves) -> Iterator[Markup]:
    """Edges that leave the lit state come last, over those that share a trunk with them."""
    lit = []
    for trunk in layout.trunks:
        kind, ink, dashes = ("err", ERROR_INK, "5 4") if trunk.on_error else ("", INK, "none")
        for branch in trunk.branches:
            if branch.origin == moves.state and not trunk.on_error and moves.running in (None, trunk.action):
                lit.append(_edge(branch.points, "can" if moves.running is None else "moving", INK))
            if branch.joining is None:
                yield _edge(branch.points, kind, ink, dashes)
            else:
                yield _line(branch.joining, kind, ink, dashes)
    yield from lit


def _edge(points: tuple[Point, ...], kind: str, ink: str, dashes: str = "none") -> Markup:
    tip = Markup('<path class="{}" d="{}" fill="{}"/>').format(f"tip {kind}".rstrip(), head_path(points), ink)
    return _line(without_head(points), kind, ink, dashes) + tip


def _line(points: tuple[Point, ...], kind: str, ink: str, dashes: str) -> Markup:
    return Markup('<path class="{}" d="{}" fill="none" stroke="{}" stroke-dasharray="{}"/>').format(
        f"edge {kind}".rstrip(), rounded_path(points), ink, dashes
    )


def _state(box: StateBox, kind: StateKind, *, lit: bool) -> Markup:
    halo = (box.x - HALO, box.y - HALO, box.width + 2 * HALO, box.height + 2 * HALO)
    name, middle = shortened(box.state), box.y + box.height / 2
    return Markup(
        '{halo}<g class="node {kind}">{tooltip}{rect}'
        '<path class="mk" d="M{mark}{shape}" fill="{filled}" stroke="{ink}"/>'
        '<text x="{x}" y="{y}" text-anchor="middle">{name}</text></g>'
    ).format(
        halo=_rect(*halo, 11, Markup('class="halo"')) if lit else "",
        kind=f"{kind} lit" if lit else kind,
        tooltip=_tooltip(box.state, name),
        rect=_rect(box.x, box.y, box.width, box.height, 8, Markup('fill="{}" stroke="{}"').format(FILLS[kind], INK)),
        mark=f"{number(box.x + 16)} {number(middle)}",
        shape=MARKS.get(kind, RING),
        filled=INK if kind in ("up", "end") else "none",
        ink=INK,
        x=number(box.x + box.width / 2 + 8),
        y=number(middle + 4.5),
        name=name,
    )


def _rect(x: float, y: float, width: float, height: float, radius: int, paint: str = "") -> Markup:
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="{}" {}/>').format(
        *map(number, (x, y, width, height)), radius, paint
    )


def _label(lifecycle: Lifecycle, trunk: ActionTrunk, moves: ServiceMoves) -> Markup:
    possible = not trunk.on_error and any(branch.origin == moves.state for branch in trunk.branches)
    if possible and moves.running is not None:
        kind = "doing" if trunk.action == moves.running else "off"
        return Markup('<g class="{}">{}</g>').format(kind, _chip(trunk))
    if possible and trunk.action in moves.links:
        danger = Markup(' class="danger"') if trunk.to in lifecycle.terminal_states else Markup()
        return Markup('<a href="{}"{} aria-label="{}: see the plan">{}</a>').format(
            moves.links[trunk.action], danger, printable(trunk.action), _chip(trunk)
        )
    kind = "lbl err m" if trunk.pattern is not None else "lbl err" if trunk.on_error else "lbl"
    text = trunk.label.text
    if trunk.on_error and trunk.pattern is None:
        text = f"{ISOLATE}{text.removesuffix(' fails')}{POP_ISOLATE} fails"
    return Markup(
        '<text class="{}" x="{}" y="{}" text-anchor="middle" font-size="12" fill="{}" stroke="#ffffff" stroke-width="6"'
        ' paint-order="stroke">{}{}</text>'
    ).format(
        kind,
        number(trunk.label.x),
        number(trunk.label.y + 4),
        ERROR_INK if trunk.on_error else INK,
        _tooltip(trunk.pattern or trunk.action, text),
        text,
    )


def _chip(trunk: ActionTrunk) -> Markup:
    label = trunk.label
    box = _rect(label.x - label.width / 2, label.y - label.height / 2, label.width, label.height, 6)
    text = Markup('<text x="{}" y="{}">{}</text>').format(number(label.x), number(label.y + 4), label.text)
    return _tooltip(trunk.action, label.text) + box + text


def _tooltip(whole: str, shown: str) -> Markup:
    """The whole text of a name that is cut."""
    text = printable(whole)
    return Markup() if text in shown else Markup("<title>{}</title>").format(text)


def sentences(lifecycle: Lifecycle, moves: ServiceMoves) -> Iterator[str]:
    """The whole meaning of the drawing, for screen readers."""
    if moves.state is not None:
        yield f"Now in {_isolated(moves.state)}."
    if moves.running is not None:
        yield f"{_isolated(moves.running)} is running."
    yield f"Starts in {_isolated(lifecycle.initial_state)}."
    for action in lifecycle.actions.values():
        yield f"{_isolated(action.name)}: {'; '.join(_clauses(action))}."


def _clauses(action: Action) -> Iterator[str]:
    kept = [each.origin for each in action.transitions if not each.on_error and each.origin == each.to]
    moved: dict[str, list[str]] = {}
    failed: dict[tuple[str, str | None], list[str]] = {}
    for each in action.transitions:
        if each.on_error:
            failed.setdefault((each.to, each.pattern), []).append(each.origin)
        elif each.origin != each.to:
            moved.setdefault(each.to, []).append(each.origin)
    for to, origins in moved.items():
        yield f"{_any_of(origins)} to {_isolated(to)}"
    if kept:
        yield f"stays in {_any_of(kept)}"
    for (to, pattern), origins in failed.items():
        when = "" if pattern is None else f" when the message matches {_isolated(pattern)}"
        yield f"if it fails in {_any_of(origins)}, {_isolated(to)}{when}"


def _any_of(states: list[str]) -> str:
    names = [_isolated(state) for state in states]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _isolated(name: str) -> str:
    text = printable(name)
    return text if text.isascii() else f"{ISOLATE}{text}{POP_ISOLATE}"
