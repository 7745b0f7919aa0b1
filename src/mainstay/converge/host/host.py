"""The host as a run sees it: files, accounts, commands, and notes for the current event."""

from __future__ import annotations

import os

from mainstay.converge.failures import Failure, NotYetThere, StopFlag
from mainstay.converge.host.accounts import Accounts
from mainstay.converge.host.files import Files
from mainstay.converge.host.interruption import Interruption
from mainstay.converge.host.sources import is_inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mainstay.converge.host.account_databases import AccountDatabases
    from mainstay.converge.host.commands import Commands
    from mainstay.converge.host.secret_files import SecretFiles
    from mainstay.converge.host.state import StateDirectory
    from mainstay.converge.host.written_files import WrittenFiles


class Host:
    """Passed to providers. In a dry run `files` includes the changes that earlier resources would have made."""

    def __init__(self, run_id: str, state: StateDirectory, stop: StopFlag, *, noop: bool) -> None:
        self.run_id = run_id
        self.state = state
        self.files = _make_files(run_id, state, noop=noop)
        # The bundle that relative sources must not leave; None: the manifest is not in one.
        self.bundle: str | None = None
        self.work_in("/")
        self.accounts = Accounts()
        self.stop = stop
        self.interruption = Interruption(stop)
        self._commands: Commands | None = None
        # Where the current command is recorded; None in a dry run, which runs only guards.
        self._running_path: str | None = None
        self.environ: Mapping[str, str] = process_environment()
        self.notes: list[str] = []
        self._secret_paths: set[str] = set()
        self._is_dry = noop
        self._secret_files_path = f"{state.path}/secret-files"
        # Set in runs of services: other runs show their diffs only to users of this host.
        self.written_files: WrittenFiles | None = None
        # The diff of the current event for readers who may not see what others wrote; None: the same.
        self.consumer_diff: str | None = None
        # Whether events show diffs.
        self.shows_differences = False
        # None until a run of this host has written a secret.
        self.secret_files = _open_secret_files(self._secret_files_path)
        # In a dry run: the first resource that would change, and whether an earlier change has unknown effects.
        self.would_change: str | None = None
        self.uncertain = False
        # Paths at which, or below which, an earlier change has unknown effects.
        self.uncertain_paths: list[str] = []
        self.show_line: Callable[[str], None] = self.note
        # Called before each command, which may take long, so that pending output is shown.
        self.about_to_wait: Callable[[], None] = lambda: None

    def work_in(self, directory: str) -> None:
        """Sets the directory of relative sources, which are trusted as the manifest is."""
        self.working_directory = directory
        self.files.trust(directory)

    @property
    def commands(self) -> Commands:
        """Imported on first use: most runs of stable files run no command."""
        # A command may replace or unmount directories.
        self.files.forget_directories()
        if self._commands is None:
            from mainstay.converge.host.commands import Commands

            self._commands = Commands(self.stop, self.about_to_wait, self.interruption)
            if self._running_path is not None:
                from mainstay.converge.host.running_command import RunningCommand

                self._commands.running = RunningCommand(self._running_path)
        return self._commands

    def watch_commands(self, path: str) -> None:
        """Ends the command that a killed run left, and records the commands of this run."""
        if os.path.exists(path):
            from mainstay.converge.host.running_command import RunningCommand

            RunningCommand(path).end_left_over()
        self._running_path = path

    def may_appear(self, path: str | None) -> bool:
        """Whether an earlier change of this dry run might create a path, or anything if it is None."""
        return self.uncertain or (path is not None and self._may_be_unpacked(path))

    def require_known(self, path: str | None) -> None:
        """Raises `NotYetThere` if an earlier archive of this dry run might bring a path that does not exist."""
        if path is not None and self._may_be_unpacked(path):
            raise NotYetThere(f"{path} does not exist, and an earlier archive may bring it", path=path)

    def _may_be_unpacked(self, path: str) -> bool:
        if not self.uncertain_paths:
            return False
        places = (path, self._real(path))
        return any(
            f"{place}/".startswith(f"{each.rstrip('/')}/") for each in self.uncertain_paths for place in places
        )

    def keep_secret(self, path: str) -> None:
        """Marks the path, and everything below it, as secret for later reads in this run."""
        self._secret_paths.update((path, self._real(path)))

    def is_secret(self, path: str) -> bool:
        """Whether the path was marked in this run, or holds what a run wrote as a secret."""
        # Compared by real path, because of links and spellings.
        if self._secret_paths:
            place = self._real(path)
            while place not in self._secret_paths and len(place) > 1:
                place = os.path.dirname(place)
            if place in self._secret_paths:
                return True
        return self.held_secret(path)

    def remember_secret(self, path: str) -> None:
        """Call it before a secret is written to the path, or below it: later runs do not show its content."""
        if self._is_dry:
            return
        if self.secret_files is None:
            from mainstay.converge.host.secret_files import SecretFiles

            self.secret_files = SecretFiles(self._secret_files_path)
        for each in {path, self._real(path)}:
            self.secret_files.record(each)

    def forget_secret(self, path: str) -> None:
        """Call it after other content replaced the content of the path, or after the path was removed."""
        if self.secret_files is not None and not self._is_dry:
            for each in {path, self._real(path)}:
                self.secret_files.strike_off(each)

    def held_secret(self, path: str) -> bool:
        """Whether the content that was last written to the path, by any run, held a secret."""
        if self.secret_files is None:
            # Another run may have written its first secret since.
            self.secret_files = _open_secret_files(self._secret_files_path)
        found = self.secret_files
        return found is not None and (found.holds(path) or found.holds(self._real(path)))

    def _real(self, path: str) -> str:
        try:
            return self.files.real_path(path)
        except (OSError, ValueError):
            return os.path.normpath(path)

    @property
    def activity(self) -> int:
        """Grows with every file that is changed and every command that may have changed something."""
        return len(self.files.touched) + (0 if self._commands is None else self._commands.count)

    def account_databases(self) -> AccountDatabases:
        """The local account databases; in a dry run, as earlier resources would leave them."""
        return self.accounts.databases(self.files, self.activity)

    def note(self, text: str) -> None:
        """Adds a warning to the event of the current resource."""
        self.notes.append(text)

    def resolve_source(self, source: str) -> str:
        if source.startswith("/"):
            return source
        place = f"{self.working_directory.rstrip('/')}/{source}"
        if self.bundle is not None and ".." in source and not is_inside(place, self.bundle):
            raise Failure(f"{source} is outside the bundle; a bundle contains all its files")
        return place


def process_environment() -> dict[str, str]:
    return dict(os.environ)


def _open_secret_files(path: str) -> SecretFiles | None:
    """Imported on first need: most hosts have no secret files."""
    if not os.path.exists(path):
        return None
    from mainstay.converge.host.secret_files import SecretFiles

    return SecretFiles(path)


def _make_files(run_id: str, state: StateDirectory, *, noop: bool) -> Files:
    if not noop:
        return Files(run_id, state)
    from mainstay.converge.host.forecast_files import ForecastFiles

    return ForecastFiles(run_id, state)
