"""The lifecycle of a service type or service. The state of a service is lit, and its possible actions are links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from mainstay.control.domain.lifecycle.drawn_text import printable, shortened
from mainstay.control.domain.lifecycle.layout import ActionTrunk, LifecycleLayout, StateBox, lay_out
from mainstay.control.domain.lifecycle.path_data import Point, head_path, number, rounded_path, without_head
from mainstay.control.domain.lifecycle.schema import Action, Lifecycle
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state
from mainstay.control.domain.refusals import TooLargeToDraw
from mainstay.control.web.drawings.elements import join, tooltip

# A narrower drawing keeps its text size, because the style sheet scales the view box to the width of the card.
LEAST_WIDTH = 760.0
# A wider drawing keeps its own size and scrolls.
MOST_WIDTH = 960
MAX_LISTED_ACTIONS = 200
HALO = 3.0
# Isolate a name of any direction from the text around it.
ISOLATE, POP_ISOLATE = "\u2068", "\u2069"


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


def draw_lifecycle(lifecycle: Lifecycle, title: str, moves: ServiceMoves = NO_MOVES) -> Markup:
    """For a page with one drawing: the ids in it are always the same."""
    try:
        layout = lay_out(lifecycle)
    except TooLargeToDraw:
        return _as_list(lifecycle, moves)
    description = " ".join(_sentences(lifecycle, moves))
    role = "group" if moves.links else "img"
    return Markup(
        '<svg class="{kind}" {size} role="{role}" aria-labelledby="lc-t lc-d">'
        '<title id="lc-t">{title}</title><desc id="lc-d">{description}</desc>'
        '<g aria-hidden="true">{edges}{states}</g>{labels}</svg>'
    ).format(
        kind="lc wide" if layout.width > MOST_WIDTH else "lc",
        size=_size(layout),
        role=role,
        title=printable(title),
        description=description,
        edges=join(_edges(layout, moves)),
        states=join(
            _state(box, kind_of_state(lifecycle, box.state), lit=box.state == moves.state) for box in layout.boxes
        ),
        labels=join(_label(lifecycle, trunk, moves) for trunk in layout.trunks),
    )


def _size(layout: LifecycleLayout) -> Markup:
    width = max(layout.width, LEAST_WIDTH)
    left = (layout.width - width) / 2
    box = Markup('viewBox="{} 0 {} {}"').format(number(left), number(width), number(layout.height))
    if layout.width <= MOST_WIDTH:
        return box
    return box + Markup(' width="{}" height="{}"').format(number(layout.width), number(layout.height))


def _edges(layout: LifecycleLayout, moves: ServiceMoves) -> Iterator[Markup]:
    """Edges that leave the lit state come last, over those that share a trunk with them."""
    lit = []
    for trunk in layout.trunks:
        for branch in trunk.branches:
            if branch.origin == moves.state and not trunk.on_error and moves.running in (None, trunk.action):
                lit.append(_edge(branch.points, "can" if moves.running is None else "moving"))
            if branch.joining is not None:
                yield _line(branch.joining, "err" if trunk.on_error else "")
            else:
                yield _edge(branch.points, "err" if trunk.on_error else "")
    yield from lit


def _edge(points: tuple[Point, ...], kind: str) -> Markup:
    tip = Markup('<path class="{}" d="{}"/>').format(f"tip {kind}".rstrip(), head_path(points))
    return _line(without_head(points), kind) + tip


def _line(points: tuple[Point, ...], kind: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(f"edge {kind}".rstrip(), rounded_path(points))


def _state(box: StateBox, kind: StateKind, *, lit: bool) -> Markup:
    name = shortened(box.state)
    halo = (
        _rect(box.x - HALO, box.y - HALO, box.width + 2 * HALO, box.height + 2 * HALO, 11, "halo")
        if lit
        else Markup()
    )
    full = tooltip(box.state if name != box.state else "")
    return Markup('{}<g class="node {}">{}{}{}<text x="{}" y="{}">{}</text></g>').format(
        halo,
        f"{kind} lit" if lit else kind,
        full,
        _rect(box.x, box.y, box.width, box.height, 8),
        _mark(kind, box.x + 16, box.y + box.height / 2),
        number(box.x + box.width / 2 + 8),
        number(box.y + box.height / 2 + 4.5),
        name,
    )


def _rect(x: float, y: float, width: float, height: float, radius: int, kind: str = "") -> Markup:
    shape = Markup('x="{}" y="{}" width="{}" height="{}" rx="{}"/>').format(
        *map(number, (x, y, width, height)), radius
    )
    return (Markup('<rect class="{}" ').format(kind) if kind else Markup("<rect ")) + shape


def _mark(kind: StateKind, x: float, y: float) -> Markup:
    """The shape of the kind: a state is recognized without colour."""
    if kind == "bad":
        data = f"M{number(x - 4)} {number(y - 4)}l8 8M{number(x + 4)} {number(y - 4)}l-8 8"
        return Markup('<path class="mk" d="{}"/>').format(data)
    if kind == "work":
        return Markup('<path class="mk" d="M{} {}a4.4 4.4 0 1 1-4.4 4.4"/>').format(number(x), number(y - 4.4))
    if kind == "end":
        return _rect(x - 4, y - 4, 8, 8, 1, "mk")
    radius = "4" if kind == "rest" else "4.4"
    return Markup('<circle class="mk" cx="{}" cy="{}" r="{}"/>').format(number(x), number(y), radius)


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
    return Markup('<text class="{}" x="{}" y="{}">{}{}</text>').format(
        kind, number(trunk.label.x), number(trunk.label.y + 4), _tooltip(trunk), text
    )


def _chip(trunk: ActionTrunk) -> Markup:
    label = trunk.label
    box = _rect(label.x - label.width / 2, label.y - label.height / 2, label.width, label.height, 6)
    text = Markup('<text x="{}" y="{}">{}</text>').format(number(label.x), number(label.y + 4), label.text)
    return _tooltip(trunk) + box + text


def _tooltip(trunk: ActionTrunk) -> Markup:
    """The whole text of a label that is cut."""
    whole = printable(trunk.action if trunk.pattern is None else trunk.pattern)
    return tooltip("" if whole in trunk.label.text else whole)


def _as_list(lifecycle: Lifecycle, moves: ServiceMoves) -> Markup:
    """A lifecycle that is too large to draw, as sentences."""
    sentences = list(_sentences(lifecycle, moves))
    listed = sentences[:MAX_LISTED_ACTIONS]
    if len(sentences) > len(listed):
        listed.append(f"{len(sentences) - len(listed):,} more actions.")
    return Markup('<ul class="stack">{}</ul>').format(join(Markup("<li>{}</li>").format(each) for each in listed))


def _sentences(lifecycle: Lifecycle, moves: ServiceMoves) -> Iterator[str]:
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
