"""Health checks by a command with the exit codes of Nagios plugins."""

from __future__ import annotations

from mainstay.converge.command_words import split_words
from mainstay.converge.contract import HealthCheckKind, Property
from mainstay.converge.value_kinds import COMMAND, SCALAR_SCHEMA, parsed_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.converge.contract import HealthCheck
    from mainstay.converge.host.host import Host

STATUSES = {0: "OK", 1: "WARNING", 2: "CRITICAL"}


def _parse_command(text: str) -> str:
    split_words(text)
    return text


class CommandCheck(HealthCheckKind):
    name = "command"
    properties = {
        "command": Property(
            parsed_kind(COMMAND.name, _parse_command, SCALAR_SCHEMA),
            "exit code 0 is OK, 1 WARNING, 2 CRITICAL, any other UNKNOWN; every result but OK fails the resource",
            private=True,
        ),
    }

    def run_once(self, check: HealthCheck, host: Host) -> tuple[str, str]:
        from mainstay.converge.host.commands import DEFAULT_SEARCH_PATH, find_program

        words = split_words(check.values["command"])
        program = find_program(host.files, words[0], host.environ.get("PATH", DEFAULT_SEARCH_PATH), "/")
        done = host.commands.run(
            words, program=program, environment=host.environ, timeout_seconds=check.timeout_seconds
        )
        return STATUSES.get(done.exit_code, "UNKNOWN"), done.output


KIND = CommandCheck()
