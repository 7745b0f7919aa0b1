"""Why a resource cannot reach its desired state, and how a run is asked to stop. Imports nothing of ours."""

from __future__ import annotations

import stat as modes


class Failure(Exception):
    """A resource cannot reach its desired state; the text names the thing and the reason.

    `kind` is the `error_kind` of the event."""

    kind = "Refused"

    def __init__(self, message: str, *, output: str | None = None) -> None:
        super().__init__(message)
        self.output = output


class Missing(Failure):
    """Something that the resource needs does not exist; in a dry run an earlier exec or package might create it.

    `path` is what does not exist, if it is a path: an earlier archive might bring it."""

    kind = "NotFound"

    def __init__(self, message: str, *, output: str | None = None, path: str | None = None) -> None:
        super().__init__(message, output=output)
        self.path = path


class NotYetThere(Missing):
    """A dry run would have to run a program that an earlier resource would create or change."""


class MissingForGood(Failure):
    """Something that the resource needs does not exist, and no resource can create it."""

    kind = Missing.kind


class DesiredStateFailed(Failure):
    """The change was made, but the desired state was not reached."""

    kind = "DesiredStateFailed"


class CommandFailed(Failure):
    """A command ran, or could not be run, and did not succeed."""

    kind = "CommandFailed"


class TimedOut(Failure):
    """A command, or the wait for a lock, took longer than allowed."""

    kind = "Timeout"


class TemplateFailed(Failure):
    """A template cannot be evaluated, or gave a value that its property cannot hold."""

    kind = "TemplateFailed"


class Stopped(Exception):
    """The caller asked the run to end while a command was running."""


class Interrupted(BaseException):
    """The work on a resource is ended from outside. No code takes it for an error of its own and continues."""

    def __init__(self, message: str, kind: str = CommandFailed.kind) -> None:
        super().__init__(message)
        self.kind = kind


class StopFlag:
    """Requests the end of a run: between two resources, or at once, together with the running command."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.at_once = False

    def request(self, reason: str, *, at_once: bool = False) -> None:
        self.at_once = self.at_once or at_once
        self.reason = self.reason or reason


def file_word(mode: int) -> str:
    """Names the kind of a file that is neither regular, a directory nor a link."""
    for test, word in (
        (modes.S_ISFIFO, "a fifo"),
        (modes.S_ISSOCK, "a socket"),
        (modes.S_ISCHR, "a character device"),
        (modes.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return word
    return "of an unknown kind"


def kind_of(error: OSError) -> str:
    """The `error_kind` of an event that fails with an error of the system."""
    return Missing.kind if isinstance(error, FileNotFoundError) else Failure.kind


def describe_os_error(error: OSError) -> str:
    # A file name that is a descriptor number is useless in a message.
    where = f": {error.filename}" if isinstance(error.filename, str) else ""
    return f"{error.strerror or error}{where}"
