"""What every provider does that replaces the content of a file: validate the new content, back up the old, show a diff."""

from __future__ import annotations

from collections.abc import Callable

from mainstay.converge.command_words import join_words
from mainstay.converge.failures import CommandFailed, Failure
from mainstay.converge.host.host import Host
from mainstay.foundation import Any
from mainstay.foundation.text import shorten

LARGEST_DIFF_BYTES = 512 * 1024


# ---- backups ----
def keep_backup(host: Host, path: str, found: Any, *, sensitive: bool) -> None:
    """Keeps a copy of the file with the status `found`, which is about to be replaced or removed."""
    if sensitive or host.held_secret(path):
        host.note("not backed up: its content comes from a secret, which is not kept in the state directory")
    else:
        host.files.keep_backup(path, found)


# ---- validating ----
def validator_of(wanted: Any, host: Host, timeout_seconds: float) -> Callable[[str], None] | None:
    """Returns what runs the command `validate` of a resource with the path of the new file, and raises `Failure`."""
    return None if wanted.validate is None else lambda path: _validate(wanted, path, host, timeout_seconds)


def _validate(wanted: Any, path: str, host: Host, timeout_seconds: float) -> None:
    from mainstay.converge.host.commands import find_program, search_path

    words = [_fill_in(word, path) for word in wanted.validate]
    try:
        program = find_program(host.files, words[0], search_path(host.environ), "/")
        host.files.refuse_to_run(program)
    except Failure as error:
        if not wanted.sensitive:
            raise
        # The path of the new file inside a word hides the word from redaction.
        raise error.__class__("validate: its program is not found or cannot be run") from None
    done = host.commands.run(words, program=program, environment=host.environ, timeout_seconds=timeout_seconds)
    if done.exit_code != 0:
        command = shorten(join_words(wanted.validate))
        raise CommandFailed(f"validate refused the new file (exit {done.exit_code}): {command}", output=done.output)


def _fill_in(word: str, path: str) -> str:
    """`%` is the path of the new file, `%%` a percent sign."""
    return "%".join(part.replace("%", path) for part in word.split("%%"))


# ---- differences ----
def unified(old: bytes | None, new: bytes | None, path: str) -> str:
    from difflib import unified_diff

    if old is None or new is None:
        return f"{path}: too large to show"
    try:
        before, after = old.decode("utf-8"), new.decode("utf-8")
    except UnicodeDecodeError:
        return f"{path}: binary content differs"
    if "\0" in before or "\0" in after:
        return f"{path}: binary content differs"
    lines = unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{path} (actual)", f"{path} (desired)"
    )
    shown = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(shown).rstrip("\n")
