"""One host as a run sees it: the doors to files, accounts and commands, and what is noted on the way."""

from __future__ import annotations

import os

from mainstay.converge.host.accounts import Accounts
from mainstay.converge.host.files import Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mainstay.converge.contract import StopFlag
    from mainstay.converge.host.commands import Commands
    from mainstay.converge.host.state import StateDirectory


class Host:
    """What providers are given. In a dry run `files` also knows what earlier resources would have done."""

    def __init__(
        self, run_id: str, state: StateDirectory, stop: StopFlag, *, noop: bool, working_directory: str = "/"
    ) -> None:
        self.run_id = run_id
        self.state = state
        self.working_directory = working_directory
        self.files: Files = _make_files(run_id, state, noop=noop)
        self.accounts = Accounts()
        self.stop = stop
        self._commands: Commands | None = None
        # Where the command at hand is named; None in a dry run, which runs only guards.
        self._running_path: str | None = None
        self.environ: Mapping[str, str] = process_environment()
        self.notes: list[str] = []
        self._secret_paths: set[str] = set()
        # In a dry run: the first resource that would change, and whether one of them could bring anything.
        self.would_change: str | None = None
        self.uncertain = False
        self.say: Callable[[str], None] = self.note
        # Called before each command: it may take long, and whoever shows the run may have something to show.
        self.about_to_wait: Callable[[], None] = lambda: None

    @property
    def commands(self) -> Commands:
        """Loaded on first need: most runs of stable files run no command."""
        if self._commands is None:
            from mainstay.converge.host.commands import Commands

            self._commands = Commands(self.stop, self.about_to_wait)
            if self._running_path is not None:
                from mainstay.converge.host.running_command import RunningCommand

                self._commands.running = RunningCommand(self._running_path)
        return self._commands

    def watch_commands(self, path: str) -> None:
        """Ends the command that a killed run left, and names those of this one there."""
        if os.path.exists(path):
            from mainstay.converge.host.running_command import RunningCommand

            RunningCommand(path).end_left_over()
        self._running_path = path

    def keep_secret(self, path: str) -> None:
        """What stands at or below this path is a secret, whoever reads it later in the run."""
        self._secret_paths.update((path, self._real(path)))

    def is_secret(self, path: str) -> bool:
        if not self._secret_paths:
            return False
        # However it is spelled, and whatever links lead there.
        place = self._real(path)
        while place not in self._secret_paths:
            if len(place) <= 1:
                return False
            place = os.path.dirname(place)
        return True

    def _real(self, path: str) -> str:
        try:
            return self.files.real_path(path)
        except (OSError, ValueError):
            return os.path.normpath(path)

    @property
    def activity(self) -> int:
        """Grows with every file that is changed and every command that may have changed something."""
        return len(self.files.touched) + (0 if self._commands is None else self._commands.count)

    def note(self, text: str) -> None:
        """Something the event of the current resource should say."""
        self.notes.append(text)

    def resolve_source(self, source: str) -> str:
        return source if source.startswith("/") else f"{self.working_directory.rstrip('/')}/{source}"


def process_environment() -> dict[str, str]:
    return dict(os.environ)


def _make_files(run_id: str, state: StateDirectory, *, noop: bool) -> Files:
    if not noop:
        return Files(run_id, state)
    from mainstay.converge.host.forecast_files import ForecastFiles

    return ForecastFiles(run_id, state)
