"""The edges of a lifecycle diagram: one for success and one for errors between two states, labelled by actions."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.domain.lifecycle.schema import Action, Lifecycle, Transition


@dataclass(frozen=True, slots=True)
class DiagramEdge:
    origin: str
    to: str
    on_error: bool
    labels: tuple[str, ...]


def diagram_edges(lifecycle: Lifecycle) -> tuple[DiagramEdge, ...]:
    """In the order of declaration. Actions with the same states share an edge."""
    labels: dict[tuple[str, str, bool], list[str]] = {}
    for action, transition in lifecycle.transitions():
        key = (transition.origin, transition.to, transition.on_error)
        labels.setdefault(key, []).append(_label(action, transition))
    return tuple(DiagramEdge(*key, tuple(dict.fromkeys(texts))) for key, texts in labels.items())


def _label(action: Action, transition: Transition) -> str:
    if not transition.on_error:
        return action.name
    if transition.pattern is None:
        return f"{action.name} fails"
    return f"{action.name} fails: {transition.pattern}"
