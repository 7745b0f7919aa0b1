"""Entry point: loads the module of the requested command, runs it, and turns refusals into exit codes.

Also what commands of all kinds share: refusals, error messages, JSON documents, and options with numbers and durations."""

from __future__ import annotations

import os
import sys

from mainstay import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType
    from typing import Any, NoReturn

EXIT_USAGE = 2
# The groups of `mainstay --help`, in its order. Each command names one of them as its GROUP.
GROUPS = ("this host", "many hosts", "order", "operate", "write blueprints")
# Earlier names of commands. They work, and are not listed.
ALIASES = {"orphans": "clean-ups"}
INSTALL = "for the others install the package mainstay-plane"


class CommandRefused(Exception):
    """The command cannot run as requested. The text states the problem and the way out."""

    def __init__(self, message: str, *, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def program() -> NoReturn:
    """The installed command. Skips interpreter teardown, which takes a tenth of a small run."""
    code = main()
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        # sys.exit waits for the threads.
        _discard_unwritable_output()
        sys.exit(code)
    import atexit

    atexit._run_exitfuncs()
    _discard_unwritable_output()
    os._exit(code)


def _discard_unwritable_output() -> None:
    """Redirects streams that cannot be flushed, so that the interpreter prints no error at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    _reopen_closed_streams()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except CommandRefused as refusal:
        print_error(str(refusal))
        return refusal.exit_code
    except BrokenPipeError:
        # The reader closed the pipe (`| head`).
        return 141
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print_error(f"{error.strerror or error}{where}")
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _reopen_closed_streams() -> None:
    """Opens /dev/null for closed streams: otherwise the next opened file gets their descriptor and receives the output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            place = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(place, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115  # stays open
        elif number and hasattr(stream, "reconfigure"):
            # The terminal encoding may lack characters.
            stream.reconfigure(errors="backslashreplace")


def print_error(text: str) -> None:
    from mainstay.cli.views.run_display import printable

    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is sys.stderr:
                print(f"mainstay: {printable(text, keep_newlines=True)}", file=stream)
            stream.flush()
        except OSError:
            continue


def print_json(document: object) -> None:
    """Prints an indented document. Large reports use `print_pieces`."""
    from json import dumps

    from mainstay.converge.json_lines import finite

    # Lone surrogates represent non-UTF-8 bytes of file names; JSON can only escape them.
    text = dumps(finite(document), ensure_ascii=False, indent=1)
    print_pieces((text.encode("utf-8", "backslashreplace"), b"\n"))


def print_pieces(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name == "help" and len(arguments) > 1:
        return _dispatch([*arguments[1:], "--help"])
    if name in ("-h", "--help", "help"):
        print(_overview())
        return 0 if arguments else EXIT_USAGE
    if name in ("-V", "--version"):
        print(f"mainstay {__version__}")
        return 0
    if sys.version_info < (3, 11):
        _refuse_old_python(name)
    try:
        command = load_command(name)
        if command is None:
            raise _unknown_command(name)
        words = arguments[1:]
        parser = make_parser(name, command, words)
        code: int = command.run(_parse(parser, command, words))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mainstay"):
            if _is_program_file():
                raise CommandRefused(
                    f"the command {name} needs more than this program file contains; {INSTALL}"
                ) from None
            raise
        # An agent host has no server packages.
        raise CommandRefused(
            f"the server packages are not installed ({error.name} is missing): pip install 'mainstay-plane[server]'"
        ) from None
    return code


def _unknown_command(name: str) -> CommandRefused:
    from mainstay.foundation.suggestions import did_you_mean

    others = _other_commands() if _is_program_file() else []
    if name in others:
        hint = f" in this program file, which contains the commands of hosts; {INSTALL}"
    else:
        hint = did_you_mean(name, [*command_names(), *others])
    return CommandRefused(f"there is no command {name!r}{hint}; `mainstay --help` lists them")


def _refuse_old_python(name: str) -> None:
    from mainstay.foundation.python_versions import oldest_python

    oldest = oldest_python(name)
    if sys.version_info < oldest and name in command_names():
        found = ".".join(map(str, sys.version_info[:2]))
        raise CommandRefused(
            f"the command {name} needs Python {oldest[0]}.{oldest[1]} or newer, and {sys.executable} is Python {found}"
        )


def _is_program_file() -> bool:
    """Whether this is the host's half alone (`packaging/`)."""
    return not os.path.exists(os.path.join(os.path.dirname(os.path.dirname(__file__)), "control"))


def _other_commands() -> list[str]:
    from mainstay.foundation.python_versions import OTHER_COMMANDS

    try:
        with open(os.path.join(os.path.dirname(__file__), OTHER_COMMANDS), encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def _parse(parser: argparse.ArgumentParser, command: ModuleType, words: Sequence[str]) -> argparse.Namespace:
    # A command that takes the words of others parses them itself: argparse would interpret `--`.
    own: argparse.Namespace | None = command.parse(words) if hasattr(command, "parse") else None
    if own is not None:
        return own
    positionals = [action for action in parser._actions if not action.option_strings]
    counts = {action.nargs for action in positionals}
    if len(positionals) > 1 and counts <= {None, "?", "*", "+"} and "?" in counts:
        # Otherwise an option between two arguments ends the optional ones: `server backup --data-dir D FILE`.
        # argparse would take its own usage text for a format: the `%` of `--batch N|N%` is no place for a value.
        parser.usage = parser.format_usage().removeprefix("usage: ").replace("%", "%%")
        return parser.parse_intermixed_args(words)
    return parser.parse_args(words)


def command_names() -> list[str]:
    """All commands: the modules of `commands/`, with dashes for underscores."""
    from mainstay.foundation.module_names import module_names

    found = module_names([os.path.join(os.path.dirname(__file__), "commands")])
    return [name.replace("_", "-") for name in found]


def commands_by_group() -> dict[str, dict[str, str]]:
    """Group → command → summary, from the commands' sources: importing all takes long, and some need more packages."""
    found: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for name in command_names():
        group, summary = (_declared_text(name, constant) for constant in ("GROUP", "SUMMARY"))
        found[group][name] = summary
    return {group: commands for group, commands in found.items() if commands}


def _declared_text(name: str, constant: str) -> str:
    from ast import literal_eval

    path = os.path.join(os.path.dirname(__file__), "commands", f"{name.replace('-', '_')}.py")
    with open(path, encoding="utf-8") as file:
        line = next(line for line in file if line.startswith(f"{constant} = "))
    return str(literal_eval(line.partition("=")[2].strip()))


def load_command(name: str) -> ModuleType | None:
    from importlib import import_module

    module = ALIASES.get(name, name).replace("-", "_")
    if "_" in name or not module.isidentifier() or module.startswith("_"):
        return None
    path = f"mainstay.cli.commands.{module}"
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if error.name == path:
            return None
        raise


def make_parser(name: str, command: ModuleType, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of one command. `words` are the arguments it will parse, used in error messages."""
    import argparse

    # Skip gettext: there are no translations, and the lookup takes longer than parsing.
    vars(argparse)["_"] = str

    class Parser(argparse.ArgumentParser):
        """Reports errors in our words, also those of sub-commands."""

        def error(self, message: str) -> NoReturn:
            from mainstay.cli.usage_errors import explain

            raise CommandRefused(f"{explain(self, message, words)}\nSee `{self.prog} --help`.")

    parser = Parser(
        prog=f"mainstay {name}",
        description=command.__doc__,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=_help_width()),
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def _help_width() -> int:
    """Replaces `shutil.get_terminal_size`: importing shutil takes longer than importing argparse."""
    try:
        return min(os.get_terminal_size().columns - 2, 110)
    except OSError:
        return 98


def add_limit_option(parser: argparse.ArgumentParser, default: int) -> None:
    from mainstay.foundation.numbers import LARGEST_NUMBER

    kind = whole_number(1, LARGEST_NUMBER, "of at least 1")
    add_argument(parser, "--limit", "N", f"maximum number (default {default})", type=kind, default=default)


def add_argument(
    parser: argparse._ActionsContainer, name: str, metavar: str | None, help_text: str | None, **more: Any
) -> None:
    """An argument, or an option with a value."""
    parser.add_argument(name, metavar=metavar, help=help_text, **more)


def add_switch(parser: argparse._ActionsContainer, *names_and_help: str) -> None:
    """An option without a value."""
    *names, help_text = names_and_help
    parser.add_argument(*names, action="store_true", help=help_text)


def add_list_option(parser: argparse._ActionsContainer, option: str, metavar: str, help_text: str) -> None:
    """An option that may be repeated; its value is the list of all."""
    add_argument(parser, option, metavar, help_text, action="append", default=[])


def whole_number(least: int, most: int, shown: str) -> Callable[[str], int]:
    """The type of an option. `shown`: which numbers it takes, as its error says it."""
    from argparse import ArgumentTypeError

    from mainstay.foundation.numbers import parse_count

    def parse(text: str) -> int:
        number = parse_count(text, least, most)
        if number is None:
            raise ArgumentTypeError(f"must be a whole number {shown}, not {text!r}")
        return number

    return parse


def parse_seconds(text: str, option: str) -> float:
    """The duration that an option gives, such as 30s or 5m."""
    from mainstay.converge.value_kinds import Unfit, parse_duration

    try:
        return parse_duration(text)
    except Unfit as error:
        raise CommandRefused(f"{option}: {error}") from None


def _overview() -> str:
    groups = commands_by_group()
    width = max(len(name) for commands in groups.values() for name in commands)
    lines = ["usage: mainstay COMMAND …", "", "Applies manifests to hosts, and offers services on them."]
    for group, commands in groups.items():
        lines += ["", f"{group.capitalize()}:"]
        lines += [f"  {name:<{width}}  {summary}" for name, summary in commands.items()]
    lines += ["", "`mainstay COMMAND --help` describes a command."]
    return "\n".join(lines)
