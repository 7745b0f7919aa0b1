"""Runs commands directly, without a shell."""

from __future__ import annotations

import stat as modes

from mainstay.converge.command_words import words_of
from mainstay.converge.contract import Change, Failure, Missing, Provider
from mainstay.converge.host.commands import DEFAULT_SEARCH_PATH, find_program, refuse_without_interpreter
from mainstay.converge.resources.exec import ExecState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstay.converge.host.commands import Finished
    from mainstay.converge.host.host import Host
    from mainstay.converge.resources.exec import Exec


SHELL_WORDS = {"|", "||", "&&", ">", ">>", "<", "2>&1"}


class PosixCommands(Provider):
    name = "posix"

    # ---- reading ----
    def read(self, wanted: Exec, host: Host, *, refresh: bool) -> ExecState:
        state = ExecState()
        self._check_creates(wanted, state, host)
        # A refresh ignores all conditions, and `creates` decides before the guards: others are not checked.
        if refresh or state.creates_satisfied:
            return state
        if wanted.onlyif is not None:
            state.onlyif_satisfied = self._guard(wanted.onlyif, "onlyif", wanted, host)
        if wanted.unless is not None and state.onlyif_satisfied:
            state.unless_satisfied = self._guard(wanted.unless, "unless", wanted, host)
        return state

    def confirm(self, wanted: Exec, actual: ExecState, host: Host) -> ExecState:
        self._check_creates(wanted, actual, host)
        if wanted.creates is not None and not actual.creates_satisfied and actual.exit_code in wanted.returns:
            host.note(f"the command succeeded but did not create {wanted.creates}")
        return actual

    def _check_creates(self, wanted: Exec, state: ExecState, host: Host) -> None:
        if wanted.creates is not None and host.files.lexists(wanted.creates):
            state.creates_satisfied = True
            state.ensure = "present"

    def _guard(self, command: str | Sequence[str], name: str, wanted: Exec, host: Host) -> bool:
        if host.would_change is not None:
            host.note(f"{name} ran on the host as it is, before {host.would_change} would change it")
        try:
            done = self._run(command, wanted, host, None)
        except Failure as error:
            raise error.__class__(f"{name}: {error}", output=error.output) from None
        self._refuse_guard(done, name)
        return done.exit_code == 0

    def _refuse_guard(self, done: Finished, name: str) -> None:
        """Raises `Failure` if the exit code means that a shell could not run the guard. Not used without a shell."""

    # ---- changing ----
    def perform(self, wanted: Exec, actual: ExecState, change: Change, host: Host) -> None:
        self._note_shell_words(wanted.command_line, host)
        on_line = host.show_line if wanted.logoutput else None
        done = self._run(wanted.command_line, wanted, host, on_line)
        actual.exit_code = done.exit_code
        actual.output = done.output
        actual.stdout = done.stdout

    def forecast(self, wanted: Exec, actual: ExecState, change: Change, host: Host) -> None:
        self._note_shell_words(wanted.command_line, host)
        _, program, _ = self._prepare(wanted.command_line, wanted, host)
        refuse_without_interpreter(host.files, program)

    def _run(
        self, command: str | Sequence[str], wanted: Exec, host: Host, on_line: Callable[[str], None] | None
    ) -> Finished:
        words, program, environment = self._prepare(command, wanted, host)
        # Raises only for the guards of a dry run.
        host.files.refuse_to_run(program)
        host.files.refuse_to_run(wanted.cwd)
        return host.commands.run(
            words,
            program=program,
            cwd=wanted.cwd,
            environment=environment,
            timeout_seconds=wanted.timeout,
            on_line=on_line,
            ends_with_run=True,
        )

    def _prepare(
        self, command: str | Sequence[str], wanted: Exec, host: Host
    ) -> tuple[list[str], str, dict[str, str]]:
        try:
            found = host.files.stat(wanted.cwd)
        except FileNotFoundError:
            raise Missing(f"cwd {wanted.cwd} does not exist") from None
        if not modes.S_ISDIR(found.st_mode):
            raise Failure(f"cwd {wanted.cwd} is not a directory")
        environment = dict(host.environ)
        for entry in wanted.environment:
            key, _, value = entry.partition("=")
            environment[key] = value
        if wanted.path is not None:
            environment["PATH"] = wanted.path
        words = self._words(command)
        program = find_program(host.files, words[0], environment.get("PATH", DEFAULT_SEARCH_PATH), wanted.cwd)
        return words, program, environment

    def _words(self, command: str | Sequence[str]) -> list[str]:
        return words_of(command)

    def _note_shell_words(self, command: str | Sequence[str], host: Host) -> None:
        """Warns about shell operators, which are plain arguments here."""
        operators = [word for word in self._words(command) if word in SHELL_WORDS]
        if operators:
            host.note(
                f"{' '.join(operators)} is passed as a plain argument, because no shell runs the command;"
                " use `provider: shell`"
            )


PROVIDER = PosixCommands()
