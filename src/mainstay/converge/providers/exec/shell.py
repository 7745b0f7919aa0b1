"""Runs commands with `/bin/sh -c`, only if a manifest asks for it."""

from __future__ import annotations

from mainstay.converge.command_words import split_words
from mainstay.converge.failures import CommandFailed, Missing
from mainstay.converge.providers.exec.posix import PosixCommands
from mainstay.converge.value_kinds import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.converge.host.commands import Finished
    from mainstay.converge.host.path_tests import PathTest

NOT_FOUND = 127
COULD_NOT_RUN = {126: "cannot be executed", NOT_FOUND: "was not found"}


class ShellCommands(PosixCommands):
    name = "shell"
    # Never the default: a shell interprets the text of a command.
    priority = 100

    def _words(self, command: str | Sequence[str]) -> list[str]:
        # The type keeps the text of a shell command whole.
        return ["/bin/sh", "-c", str(command)]

    def _path_test(self, command: str | Sequence[str], cwd: str) -> PathTest | None:
        from mainstay.converge.host.path_tests import parse_shell_test

        text = str(command)
        try:
            return parse_shell_test(text, split_words(text), cwd)
        except Unfit:
            # Only the shell can read it.
            return None

    def _refuse_guard(self, done: Finished, name: str) -> None:
        if done.exit_code in COULD_NOT_RUN:
            message = f"{name}: the command {COULD_NOT_RUN[done.exit_code]}"
            raise (Missing if done.exit_code == NOT_FOUND else CommandFailed)(message, output=done.output)


PROVIDER = ShellCommands()
