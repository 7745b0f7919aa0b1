"""The one door of the program: finds the command's file, loads only that, and turns refusals into exit codes."""

from __future__ import annotations

import os
import sys

from mainstay import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import ModuleType
    from typing import NoReturn

EXIT_USAGE = 2
# What other tools call our options.
OTHER_NAMES = {"--dry-run": "--noop", "--check": "--noop", "-n": "--noop", "--extra-vars": "--set"}


class CommandRefused(Exception):
    """The command cannot be carried out as asked; the text says what is wrong and what to do."""

    def __init__(self, message: str, *, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def program() -> NoReturn:
    """The installed command. Ends the process without taking it apart, which would cost a tenth of a small run."""
    code = main()
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        # Threads may still have something to finish.
        _give_up_unwritable()
        sys.exit(code)
    import atexit

    atexit._run_exitfuncs()
    _give_up_unwritable()
    os._exit(code)


def _give_up_unwritable() -> None:
    """Keeps the interpreter from complaining at exit about what cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    _mend_streams()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except CommandRefused as refusal:
        complain(str(refusal))
        return refusal.exit_code
    except BrokenPipeError:
        # The reader went away (`| head`): stop quietly.
        return 141
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        complain(f"{error.strerror or error}{where}")
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _mend_streams() -> None:
    """Whoever starts us may have closed some: what is opened first would take their place, and be written to."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            place = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(place, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115  # open to the end
        elif number and hasattr(stream, "reconfigure"):
            # Not every terminal knows every character.
            stream.reconfigure(errors="backslashreplace")


def complain(text: str) -> None:
    from mainstay.cli.views.run_display import printable

    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is sys.stderr:
                print(f"mainstay: {printable(text, keep_newlines=True)}", file=stream)
            stream.flush()
        except OSError:
            continue


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
    command = load(name)
    if command is None:
        from mainstay.foundation.suggestions import did_you_mean

        meant = did_you_mean(name, names())
        raise CommandRefused(f"there is no command {name!r}{meant}; `mainstay --help` lists them")
    words = arguments[1:]
    parser = make_parser(name, command, words)
    try:
        code: int = command.run(parser.parse_args(words))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mainstay"):
            raise
        # A host is installed without what only the control plane needs.
        raise CommandRefused(
            f"the server's parts are not installed ({error.name}): pip install 'mainstay[server]'"
        ) from None
    return code


def names() -> list[str]:
    """Every command, from the folder that holds them."""
    from mainstay.foundation.module_names import module_names

    return module_names([os.path.join(os.path.dirname(__file__), "commands")])


def load(name: str) -> ModuleType | None:
    from importlib import import_module

    if not name.isidentifier() or name.startswith("_"):
        return None
    path = f"mainstay.cli.commands.{name}"
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if error.name == path:
            return None
        raise


def make_parser(name: str, command: ModuleType, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of one command; `words` are what it will be given, for better messages."""
    import argparse

    # argparse would look for translations of its own words; there are none, and looking costs more than parsing.
    vars(argparse)["_"] = str

    class Parser(argparse.ArgumentParser):
        """argparse, with a way out in each message."""

        def error(self, message: str) -> NoReturn:
            raise CommandRefused(f"{message}{self.way_out(message)}\nSee `{self.prog} --help`.")

        def way_out(self, message: str) -> str:
            hint = _switch_hint(words, _options_of(self))
            if hint:
                return hint
            _, found, rest = message.partition("unrecognized arguments: ")
            if not found or not rest:
                return ""
            from mainstay.foundation.suggestions import did_you_mean

            word = rest.split()[0].partition("=")[0]
            return did_you_mean(OTHER_NAMES.get(word, word), _options_of(self))

    parser = Parser(
        prog=f"mainstay {name}",
        description=command.__doc__,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=_help_width()),
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def _switch_hint(words: Sequence[str], options: Sequence[str]) -> str:
    """`--enable false` and `--enable=false` are how others say `--no-enable`."""
    from itertools import pairwise

    joined = (word.split("=", 1) for word in words if "=" in word)
    for option, value in (*pairwise(words), *joined):
        negated = f"--no-{option.removeprefix('--')}"
        if negated in options and value in ("true", "false"):
            return f"; a switch takes no value, write {option if value == 'true' else negated}"
    return ""


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Every option of a parser, those of its sub-commands included."""
    found: list[str] = []
    for action in parser._actions:
        found += action.option_strings
        if isinstance(action.choices, dict):
            found += [option for child in action.choices.values() for option in _options_of(child)]
    return found


def _help_width() -> int:
    """argparse would ask a module for this that costs more to load than argparse itself."""
    try:
        return min(os.get_terminal_size().columns - 2, 110)
    except OSError:
        return 98


def at_least_one(text: str) -> int:
    """The value of an option that counts."""
    from argparse import ArgumentTypeError

    from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count

    number = parse_count(text, 1, LARGEST_NUMBER)
    if number is None:
        raise ArgumentTypeError(f"must be a number from 1 on, not {text!r}")
    return number


def _overview() -> str:
    rows = [(name, command.SUMMARY) for name in names() if (command := load(name)) is not None]
    width = max((len(name) for name, _ in rows), default=0)
    lines = [
        "usage: mainstay COMMAND …",
        "",
        "Brings hosts to what a manifest says, and offers services on them.",
        "",
    ]
    lines += [f"  {name:<{width}}  {summary}" for name, summary in rows]
    lines += ["", "`mainstay COMMAND --help` tells more."]
    return "\n".join(lines)
