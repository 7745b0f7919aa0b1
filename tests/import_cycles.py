"""Finds import cycles in the source, by reading it: imports inside functions and for types count as others do."""

from __future__ import annotations

import ast
from pathlib import Path


def import_graph(source: Path) -> dict[str, set[str]]:
    """Module → modules of the same package that it imports anywhere; `source` is the folder of the package."""
    files = {".".join(_parts(file, source)): file for file in sorted(source.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        graph[module] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[module] |= {alias.name for alias in node.names} & files.keys()
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    graph[module] |= {name if name in files else node.module} & files.keys()
    return graph


def _parts(file: Path, source: Path) -> tuple[str, ...]:
    parts = file.relative_to(source.parent).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others, each sorted (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for imported in sorted(graph[module]):
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in stack:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[-len(group) :]
            if len(group) > 1 or module in graph[module]:
                found.append(sorted(group))

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return sorted(found)
