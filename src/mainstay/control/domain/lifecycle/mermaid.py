"""A lifecycle as Mermaid text, for pages and wikis that render it."""

from __future__ import annotations

from mainstay.control.domain.lifecycle.drawn_text import printable
from mainstay.control.domain.lifecycle.schema import Lifecycle


def draw_mermaid(lifecycle: Lifecycle) -> str:
    # State names may contain any character, so ids are numbers and the name is a label.
    number = {state: f"s{index}" for index, state in enumerate(lifecycle.states)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{_quoted(state)}" as {number[state]}' for state in lifecycle.states]
    lines.append(f"    [*] --> {number[lifecycle.initial_state]}")
    # One arrow for success and one for errors between two states, labelled by the actions. A dict keeps their order.
    labels: dict[tuple[str, str, bool], dict[str, None]] = {}
    for action, each in lifecycle.transitions():
        failed = "" if not each.on_error else " fails" if each.pattern is None else f" fails: {each.pattern}"
        labels.setdefault((each.origin, each.to, each.on_error), {})[f"{action.name}{failed}"] = None
    for (origin, to, _), texts in labels.items():
        lines.append(f"    {number[origin]} --> {number[to]} : {_quoted(', '.join(texts))}")
    lines += [f"    {number[state]} --> [*]" for state in lifecycle.states if state in lifecycle.terminal_states]
    running = [number[state] for state in lifecycle.states if state in lifecycle.running_states]
    if running:
        lines += ["    classDef running fill:#d8f3dc", f"    class {','.join(running)} running"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Escapes characters that would end a text or a line, as Mermaid requires."""
    safe = printable(text)
    for character in '#;":{}<>':
        safe = safe.replace(character, f"\0{ord(character)}\1")
    return safe.replace("\0", "#").replace("\1", ";")
