"""Runs commands with `/bin/sh -c`, only if a manifest asks for it."""

from __future__ import annotations

from mainstay.converge.contract import Failure
from mainstay.converge.providers.exec.posix import PosixCommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.converge.host.commands import Finished

COULD_NOT_RUN = {126: "cannot be executed", 127: "was not found"}


class ShellCommands(PosixCommands):
    name = "shell"
    # Never the default: a shell interprets the text of a command.
    priority = 100

    def _words(self, command: str | Sequence[str]) -> list[str]:
        # The type keeps the text of a shell command whole.
        return ["/bin/sh", "-c", str(command)]

    def _refuse_guard(self, done: Finished, name: str) -> None:
        if done.exit_code in COULD_NOT_RUN:
            raise Failure(f"{name}: the command {COULD_NOT_RUN[done.exit_code]}", output=done.output)


PROVIDER = ShellCommands()
