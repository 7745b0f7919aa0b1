"""Whether a systemd unit can reach this program: a sandbox may hide the directory that it lies in."""

from __future__ import annotations

import os
import sys

from mainstay.cli.main import CommandRefused, print_error
from mainstay.cli.unit_installation import UNIT_DIRECTORY
from mainstay.cli.unit_words import program_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  # names to compare with
HOMES = ("/home", "/root", "/run/user")
TRUE_WORDS = ("yes", "true", "on", "1", "y", "t")
# Directive: the values with which it hides the directories from the unit.
HIDING = {
    "PrivateTmp": (TRUE_WORDS, TEMPORARY),
    "ProtectHome": ((*TRUE_WORDS, "tmpfs"), HOMES),
}
WAY_OUT = "install mainstay where every unit can read it, such as /opt, and run this command from there"
LARGEST_DROP_IN_BYTES = 64 * 1024


def program_places() -> list[str]:
    """What a unit needs to run this program: program, interpreter and packages, as named and where links lead."""
    import mainstay

    places = [*program_words(), sys.executable, sys.prefix, sys.base_prefix, os.path.dirname(mainstay.__file__)]
    return list(dict.fromkeys(path for place in places for path in (os.path.abspath(place), os.path.realpath(place))))


def is_below(path: str, directories: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{directory}/") for directory in directories)


def refuse_hidden_program(unit: str, text: str) -> None:
    """Raises if the unit of this name and text, with its drop-ins, would hide this program from itself.

    Otherwise it would be installed and then fail at every start, with nothing but `status=203/EXEC` in the journal."""
    settings = _settings(text)
    source = dict.fromkeys(settings, unit)
    for drop_in in _drop_ins(unit):
        found = _settings(_read(drop_in))
        settings.update(found)
        source.update(dict.fromkeys(found, drop_in))
    for place in program_places():
        for directive, (values, directories) in HIDING.items():
            value = settings.get(directive, "")
            if value.lower() in values and is_below(place, directories):
                directory = next(each for each in directories if place.startswith(f"{each}/"))
                raise CommandRefused(
                    f"{unit} could not run {place}: {directive}={value} in {source[directive]} hides {directory} from it;"
                    f" {WAY_OUT}"
                )


def warn_of_temporary_program(unit: str) -> None:
    """For a unit without a sandbox, which starts for now."""
    place = next((path for path in program_places() if is_below(path, TEMPORARY)), None)
    if place is not None:
        print_error(f"warning: {unit} fails once {place} is removed, as temporary files are at boot; {WAY_OUT}")


def _settings(text: str) -> dict[str, str]:
    """The directives that hide something; the last one of a name counts, as for systemd."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() in HIDING:
            found[name.strip()] = value.strip()
    return found


def _drop_ins(unit: str) -> Iterator[str]:
    """Files that `systemctl edit` writes; those of the unit come after those of all services."""
    for name in ("service.d", f"{unit}.d"):
        folder = f"{UNIT_DIRECTORY}/{name}"
        if os.path.isdir(folder):
            yield from (f"{folder}/{file}" for file in sorted(os.listdir(folder)) if file.endswith(".conf"))


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST_DROP_IN_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise CommandRefused(f"cannot read {path}: {error.strerror}") from None
