"""Which Python a command needs, and which commands are part of the program file."""

from __future__ import annotations

# These run on managed hosts: they need PyYAML and Jinja2 and nothing else.
HOST_COMMANDS = frozenset(
    ("apply", "completion", "ensure", "facts", "history", "render", "restore", "schema", "status", "validate")
)
HOST_PYTHON = (3, 9)
SERVER_PYTHON = (3, 11)


def oldest_python(command: str) -> tuple[int, int]:
    return HOST_PYTHON if command in HOST_COMMANDS else SERVER_PYTHON
