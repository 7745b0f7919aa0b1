"""Health checks by a command with the exit codes of Nagios plugins."""

from __future__ import annotations

from mainstay.converge.command_words import WORDS
from mainstay.converge.contract import HealthCheck, HealthCheckKind, Property
from mainstay.converge.host.host import Host

STATUSES = {0: "OK", 1: "WARNING", 2: "CRITICAL"}


class CommandCheck(HealthCheckKind):
    name = "command"
    properties = {
        "command": Property(
            WORDS,
            "exit code 0 is OK, 1 WARNING, 2 CRITICAL, any other UNKNOWN; every result but OK fails the resource",
            private=True,
        ),
    }

    def run_once(self, check: HealthCheck, host: Host) -> tuple[str, str]:
        from mainstay.converge.host.commands import find_program, search_path

        words = check.values["command"]
        program = find_program(host.files, words[0], search_path(host.environ), "/")
        done = host.commands.run(
            words, program=program, environment=host.environ, timeout_seconds=check.timeout_seconds
        )
        return STATUSES.get(done.exit_code, "UNKNOWN"), done.output


KIND = CommandCheck()
