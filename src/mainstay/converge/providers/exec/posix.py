"""Runs commands directly, without a shell."""

from __future__ import annotations

import stat as modes

from mainstay.converge.command_words import words_of
from mainstay.converge.contract import Change, Provider
from mainstay.converge.failures import CommandFailed, Failure, Missing, TimedOut
from mainstay.converge.host.clock import sleep
from mainstay.converge.host.commands import DEFAULT_SEARCH_PATH, Finished, find_program, refuse_without_interpreter
from mainstay.converge.resources.exec import Exec, ExecState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstay.converge.host.host import Host
    from mainstay.converge.host.path_tests import PathTest


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
        if wanted.unless is not None and (wanted.onlyif is None or state.onlyif_satisfied):
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
            forecast = self._forecast_guard(command, name, wanted, host)
            if forecast is not None:
                return forecast
            host.note(f"{name} ran on the host as it is, before {host.would_change} would change it")
        try:
            done = self._run(command, wanted, host, None)
        except Failure as error:
            raise error.__class__(f"{name}: {error}", output=error.output) from None
        self._refuse_guard(done, name)
        return done.exit_code == 0

    def _forecast_guard(self, command: str | Sequence[str], name: str, wanted: Exec, host: Host) -> bool | None:
        """Returns the result of a guard that only tests a path, after earlier changes of a dry run; None: another guard."""
        test = self._path_test(command, wanted.cwd)
        if test is None:
            return None
        succeeds, exists = test.run(host.files)
        prevents = succeeds == (name == "unless")
        if prevents and not exists and host.may_appear(test.path):
            raise Missing(f"{name}: {test.path} does not exist", path=test.path)
        return succeeds

    def _path_test(self, command: str | Sequence[str], cwd: str) -> PathTest | None:
        from mainstay.converge.host.path_tests import parse_path_test

        return parse_path_test(words_of(command), cwd)

    def _refuse_guard(self, done: Finished, name: str) -> None:
        """Raises `Failure` if the exit code means that a shell could not run the guard. Not used without a shell."""

    # ---- changing ----
    def perform(self, wanted: Exec, actual: ExecState, change: Change, host: Host) -> None:
        self._note_shell_words(wanted.command_line, host)
        number = 1
        while True:
            failure = self._try(wanted, actual, host)
            succeeded = failure is None and actual.exit_code in wanted.returns
            if succeeded or number == wanted.tries or self._is_stopped_before_next_try(wanted, host):
                break
            number += 1
        if wanted.tries > 1:
            self._note_tries(wanted, number, host, succeeded=succeeded)
        if failure is not None:
            raise failure

    def _try(self, wanted: Exec, actual: ExecState, host: Host) -> Failure | None:
        """Runs the command once. Returns the failure of a command that has no exit code."""
        actual.exit_code = None
        try:
            done = self._run(wanted.command_line, wanted, host, host.show_line if wanted.logoutput else None)
        except (CommandFailed, TimedOut) as error:
            return error
        actual.exit_code = done.exit_code
        actual.output = done.output
        actual.stdout = done.stdout
        return None

    def _is_stopped_before_next_try(self, wanted: Exec, host: Host) -> bool:
        host.about_to_wait()
        sleep(wanted.try_sleep, host.stop)
        return host.stop.reason is not None

    def _note_tries(self, wanted: Exec, number: int, host: Host, *, succeeded: bool) -> None:
        if succeeded and number > 1:
            host.note(f"the command succeeded in try {number} of {wanted.tries}")
        elif not succeeded and number == wanted.tries:
            host.note(f"all {number} tries failed")
        elif not succeeded:
            host.note(f"stopped by {host.stop.reason} after try {number} of {wanted.tries}")

    def forecast(self, wanted: Exec, actual: ExecState, change: Change, host: Host) -> None:
        if not change.refresh:
            host.require_known(wanted.creates)
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
            raise Missing(f"cwd {wanted.cwd} does not exist", path=wanted.cwd) from None
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
