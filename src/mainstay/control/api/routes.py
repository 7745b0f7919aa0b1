"""Finds endpoints and pages by the segments of a path. Literal segments come before parameters such as `{id}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Routed(Protocol):
    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Routed)


@dataclass(slots=True)
class _Node(Generic[R]):
    literals: dict[str, _Node[R]] = field(default_factory=dict)
    parameter: _Node[R] | None = None
    by_method: dict[str, R] = field(default_factory=dict)


class RouteTable(Generic[R]):
    def __init__(self, routes: Iterable[R]) -> None:
        self._root = _Node[R]()
        for route in routes:
            self._node_of(route.path).by_method[route.method] = route

    def _node_of(self, path: str) -> _Node[R]:
        node = self._root
        for segment in _segments(path):
            if segment.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        return node

    def find(self, segments: Sequence[str]) -> Mapping[str, R]:
        """The routes of a path by method; empty if there is none."""
        return _find(self._root, segments, 0)


def _find(node: _Node[R], segments: Sequence[str], position: int) -> Mapping[str, R]:
    if position == len(segments):
        return node.by_method
    literal = node.literals.get(segments[position])
    found = {} if literal is None else _find(literal, segments, position + 1)
    if found or node.parameter is None or not segments[position]:
        return found
    return _find(node.parameter, segments, position + 1)


def parameters_of(path: str, segments: Sequence[str]) -> dict[str, str]:
    """The values of the parameters of a route's path."""
    pairs = zip(_segments(path), segments, strict=True)
    return {name[1:-1]: value for name, value in pairs if name.startswith("{")}


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]
