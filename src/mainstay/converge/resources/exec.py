"""The `exec` type: a command, and the conditions under which it runs. Only decides; providers act."""

from __future__ import annotations

from collections.abc import Iterator

from mainstay.converge.command_words import split_template, split_words
from mainstay.converge.contract import Change, Property, Resource, ResourceType, State
from mainstay.converge.failures import TemplateFailed
from mainstay.converge.value_kinds import (
    BOOLEAN,
    COMMAND,
    DURATION_SECONDS,
    EXIT_CODES,
    TEXT,
    TEXTS,
    TRIES,
    Unfit,
    text_problem,
)
from mainstay.foundation import Any
from mainstay.foundation.text import Tainted, shorten

EXECUTE = "execute"
SHELL = "shell"


class Exec(Resource):
    # As written, or the words that the template of a command without a shell gave.
    command: str | tuple[str, ...] | None = None
    cwd: str = "/"
    environment: tuple[str, ...] = ()
    path: str | None = None
    returns: tuple[int, ...] = (0,)
    timeout: float | None = None
    creates: str | None = None
    onlyif: str | tuple[str, ...] | None = None
    unless: str | tuple[str, ...] | None = None
    refresh_only: bool = False
    tries: int = 1
    try_sleep: float = 1.0
    logoutput: bool = False

    @property
    def command_line(self) -> str | tuple[str, ...]:
        return self.name if self.command is None else self.command


class ExecState(State):
    """The state before and after the command. A guard that is not run is not satisfied, and decides nothing."""

    creates_satisfied: bool = False
    onlyif_satisfied: bool = False
    unless_satisfied: bool = False
    exit_code: int | None = None
    stdout: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "ensure": self.ensure,
            "exit_code": self.exit_code,
            "creates_satisfied": self.creates_satisfied,
            "onlyif_satisfied": self.onlyif_satisfied,
            "unless_satisfied": self.unless_satisfied,
        }


class ExecType(ResourceType):
    name = "exec"
    resource = Exec
    ensures = ("present",)
    has_unknown_effects = True
    time_limit_seconds = None
    refreshable = True
    name_property = "command"
    # The effect of a failed command is unknown; by contract it triggers no refresh.
    altered_by = ()
    properties = {
        "command": Property(COMMAND, "what to run; the name when not given", deferred=True, private=True),
        "cwd": Property(TEXT, "working directory; / when not given", deferred=True),
        "environment": Property(TEXTS, "KEY=value entries added to the environment", deferred=True, private=True),
        "path": Property(TEXT, "directories to search for programs, separated by colons"),
        "returns": Property(EXIT_CODES, "exit codes that count as success; [0] when not given"),
        "timeout": Property(
            DURATION_SECONDS, "longest time one try of the command, or a guard, may take, such as 30s or 5m"
        ),
        "creates": Property(TEXT, "a path; when it exists the command does not run", deferred=True),
        "onlyif": Property(COMMAND, "a guard; the command runs only if it exits 0", deferred=True, private=True),
        "unless": Property(
            COMMAND, "a guard; the command runs only if it does not exit 0", deferred=True, private=True
        ),
        "refresh_only": Property(BOOLEAN, "run only when a subscribed resource changed"),
        "refreshonly": Property(BOOLEAN, "another name of refresh_only", alias_of="refresh_only"),
        "subscribe": Property(TEXTS, "resources (`type#name`) whose change makes the command run"),
        "tries": Property(TRIES, "how often the command is tried until it succeeds; 1 when not given"),
        "try_sleep": Property(DURATION_SECONDS, "pause between two tries; `1s` when not given"),
        "logoutput": Property(BOOLEAN, "show the command's output line by line"),
    }

    # ---- at load ----
    def splits_commands(self, wanted: Exec) -> bool:
        return wanted.provider != SHELL

    def check(self, wanted: Exec) -> Iterator[tuple[str | None, str]]:
        deferred = wanted.deferred or {}
        for key in ("command", "onlyif", "unless"):
            command = deferred.get(key) or (wanted.command_line if key == "command" else getattr(wanted, key))
            problem = None if command is None else self._command_problem(wanted, command)
            if problem:
                yield (key if key in wanted.__dict__ or key in deferred else None), f"{key}: {problem}"
        for entry in wanted.environment:
            problem = text_problem(entry)
            if problem:
                yield "environment", f"environment: an entry {problem}"
            if entry.find("=") < 1:
                yield "environment", f"environment: {shorten(entry)!r} is not KEY=value"
        if wanted.path is not None:
            for directory in wanted.path.split(":"):
                if directory[:1] != "/":
                    yield "path", f"path: {shorten(directory)!r} is not an absolute directory"
        for key in ("cwd", "creates"):
            value = getattr(wanted, key)
            problem = text_problem(value or "")
            if problem:
                yield key, f"{key}: the path {problem}"
            if value is not None and value[:1] != "/":
                yield key, f"{key}: {shorten(value)!r} is not an absolute path"

    def check_rendered(self, wanted: Exec) -> None:
        for _, message in self.check(wanted):
            raise TemplateFailed(message)

    def _command_problem(self, wanted: Exec, command: Any) -> str | None:
        """`command` is a text, the words that a template gave, or a template."""
        if isinstance(command, (tuple, list, dict)):
            # Words need no check, and the loader refuses lists and maps.
            return None
        if isinstance(command, str) and not self.splits_commands(wanted):
            return text_problem(command) if command.strip() else "the command is empty"
        try:
            if isinstance(command, str):
                split_words(command)
                return text_problem(command)
            if self.splits_commands(wanted):
                split_template(command.parts, command.text)
        except Unfit as error:
            return str(error)
        return None

    # ---- in a run ----
    def compares(self, wanted: Exec, names: frozenset[str]) -> bool:
        """A guard may compare a variable; a dry run looks for the program, and for nothing else of the command."""
        has_guard = wanted.onlyif is not None or wanted.unless is not None
        command = wanted.command_line
        if isinstance(command, tuple) and isinstance(command[0], Tainted):
            return True
        return not names <= ({"command"} if has_guard else {"command", "environment"})

    def desired(self, wanted: Exec, actual: ExecState) -> tuple[bool, str]:
        if actual.exit_code is not None:
            # After the command ran, only its exit code decides.
            if actual.exit_code in wanted.returns:
                return True, ""
            expected = " or ".join(str(code) for code in wanted.returns)
            return False, f"exit code is {actual.exit_code}, expected {expected}"
        if wanted.creates is not None and actual.creates_satisfied:
            return True, f"{wanted.creates} exists"
        if wanted.onlyif is not None and not actual.onlyif_satisfied:
            return True, "onlyif did not exit 0"
        if wanted.unless is not None and actual.unless_satisfied:
            return True, "unless exited 0"
        if wanted.refresh_only:
            return True, "no subscribed resource changed"
        if wanted.creates is not None:
            return False, f"{wanted.creates} does not exist"
        has_guard = wanted.onlyif is not None or wanted.unless is not None
        return False, "its guards allow it to run" if has_guard else "no guard: it runs every time"

    def decide(self, wanted: Exec, actual: ExecState, *, refresh: bool) -> tuple[Change, ...]:
        if refresh:
            return (Change(EXECUTE, "a subscribed resource changed", refresh=True),)
        reached, reason = self.desired(wanted, actual)
        return () if reached else (Change(EXECUTE, reason),)

    def describe(self, wanted: Exec, actual: ExecState, changes: tuple[Change, ...]) -> str:
        return "Would have executed via subscribe" if changes[0].refresh else "Would have executed"


TYPE = ExecType()
