"""Which Python a command needs, and which commands are part of the program file."""

from __future__ import annotations

# These run on managed hosts: they need PyYAML and Jinja2 and nothing else.
HOST_COMMANDS = frozenset(
    (
        "apply",
        "completion",
        "ensure",
        "facts",
        "history",
        "render",
        "restore",
        "schedule",
        "schema",
        "status",
        "try",
        "validate",
    )
)
# A text file beside `cli/main.py` in the program file: the names of the commands that it does not contain.
OTHER_COMMANDS = "other_commands"
HOST_PYTHON, AGENT_PYTHON, SERVER_PYTHON = (3, 9), (3, 10), (3, 11)


def oldest_python(command: str) -> tuple[int, int]:
    if command in HOST_COMMANDS:
        return HOST_PYTHON
    return AGENT_PYTHON if command == "agent" else SERVER_PYTHON
