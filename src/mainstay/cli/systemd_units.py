"""Systemd units of this program: the words of their commands, whether a sandbox hides the program, and their installation
with the convergence engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from mainstay.cli.local_run import run_and_report
from mainstay.cli.main import CommandRefused, print_error
from mainstay.converge.actual_state import as_text
from mainstay.converge.apply import Options
from mainstay.converge.run import RunRequest
from mainstay.foundation.yaml.scalars import Node, PlainScalar

UNIT_DIRECTORY = "/etc/systemd/system"
# Any other character may mean something to systemd, in some position.
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@-")
ESCAPED = {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"}
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


# ---- words ----
def quoted_word(word: str) -> str:
    """Escapes a word for ExecStart."""
    if word and PLAIN.issuperset(word):
        return word
    return '"' + "".join(_escape(character) for character in word) + '"'


def _escape(character: str) -> str:
    # A line break would end the directive.
    return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else ESCAPED.get(character, character)


def unit_path(written: str) -> str:
    """An absolute path that a unit can name."""
    path = os.path.abspath(written)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise CommandRefused(f"{path} is not UTF-8, which units of systemd must be; rename it") from None
    if any(character < " " or character == "\x7f" for character in path):
        raise CommandRefused(f"{path} contains control characters; rename it")
    return path


def program_words() -> list[str]:
    """The words with which a unit runs this program."""
    # Of the program file; it runs from its cache, but the unit must start the file.
    archive = getattr(getattr(sys.modules["__main__"], "__loader__", None), "archive", None)
    if archive is not None:
        return [sys.executable, os.path.abspath(archive)]
    if "/" not in sys.argv[0]:
        raise CommandRefused("a unit needs the path of this program; start it by its path, or install mainstay")
    program = os.path.abspath(sys.argv[0])
    return [program] if os.access(program, os.X_OK) else [sys.executable, program]


# ---- sandboxes ----
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


# ---- installation ----
def install_units(name: str, unit: str, files: Mapping[str, str], *, noop: bool) -> int:
    """Writes the files of units by name, and runs one of them, now and at boot. It is restarted if its file changes.
    Prints the run and returns the exit code."""
    attributes: dict[str, Node] = {"ensure": "present", "owner": "root", "group": "root", "mode": "0644"}
    # The content is taken as it is: braces in it are no template.
    written: list[Node] = [
        {f"{UNIT_DIRECTORY}/{file}": {**attributes, "content": as_text(content)}} for file, content in files.items()
    ]
    watched: list[Node] = [f"file#{UNIT_DIRECTORY}/{unit}"]
    running: Node = {_name(unit): {"ensure": "running", "enable": PlainScalar("true"), "subscribe": watched}}
    return _apply(name, [{"file": written}, {"service": [running]}], noop=noop)


def remove_units(name: str, unit: str, files: Sequence[str], *others: str, noop: bool) -> int:
    """Stops a unit and removes the files of units by name, and other files. Prints the run and returns the exit code."""
    paths = [f"{UNIT_DIRECTORY}/{file}" for file in files]
    first: list[Node] = []
    if os.path.exists(f"{UNIT_DIRECTORY}/{unit}"):
        first.append({"service": [{_name(unit): {"ensure": "stopped", "enable": PlainScalar("false")}}]})
    for file in files:
        # A failed run of the unit that a timer starts stays in `systemctl --failed` otherwise.
        if file != unit:
            forgotten: Node = {f"systemctl reset-failed {file}": {"onlyif": f"systemctl is-failed {file}"}}
            first.append({"exec": [forgotten]})
    absent: list[Node] = [{path: {"ensure": "absent"}} for path in (*paths, *others)]
    removed: list[Node] = [f"file#{path}" for path in paths]
    # systemd forgets the units whose files were removed.
    reload: Node = {"systemctl daemon-reload": {"refresh_only": PlainScalar("true"), "subscribe": removed}}
    return _apply(name, [*first, {"file": absent}, {"exec": [reload]}], noop=noop)


def _name(unit: str) -> str:
    return unit.removesuffix(".service")


def _apply(name: str, document: Node, *, noop: bool) -> int:
    request = RunRequest(name, document=document, identity=name, options=Options(noop=noop, differences=True))
    return run_and_report(lambda: request, as_json=False, verbose=True)
