"""The lifecycle of a service type or service on its page."""

from __future__ import annotations

from markupsafe import Markup

from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.svg import NO_MOVES, ServiceMoves, draw_svg, sentences
from mainstay.control.domain.refusals import TooLargeToDraw
from mainstay.control.web.drawings.numbers import join

MAX_LISTED_ACTIONS = 200


def draw_lifecycle(lifecycle: Lifecycle, title: str, moves: ServiceMoves = NO_MOVES) -> Markup:
    """A lifecycle that is too large to draw is a list of sentences."""
    try:
        return draw_svg(lifecycle, title, moves)
    except TooLargeToDraw:
        listed = list(sentences(lifecycle, moves))
    if len(listed) > MAX_LISTED_ACTIONS:
        listed[MAX_LISTED_ACTIONS:] = [f"{len(listed) - MAX_LISTED_ACTIONS:,} more actions."]
    return Markup('<ul class="stack">{}</ul>').format(join(Markup("<li>{}</li>").format(each) for each in listed))
