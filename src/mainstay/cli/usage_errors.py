"""Rewrites the error messages of argparse: what is wrong, what was probably meant, and what is accepted.

Loaded only after an error, because most commands are typed correctly."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from mainstay.foundation.suggestions import did_you_mean

# Names of our options in other tools.
FOREIGN_OPTIONS = {"--dry-run": "--noop", "--check": "--noop", "-n": "--noop", "--extra-vars": "--set"}
MISSING = "the following arguments are required: "
UNKNOWN = "unrecognized arguments: "
INVALID = "invalid choice: "
ONE_NEEDED = "one of the arguments "
HAS_NO_VALUE = "ignored explicit argument "
EXCLUSIVE = "not allowed with argument "
MOST_SHOWN = 30


def explain(parser: argparse.ArgumentParser, message: str, words: Sequence[str]) -> str:
    """Returns the message for users. `words` are the arguments that were typed."""
    known = _options_of(parser)
    switch_hint = _switch_hint(words, known)
    if message.startswith(UNKNOWN):
        return f"{_unknown(message.removeprefix(UNKNOWN), known)}{switch_hint}"
    if message.startswith(MISSING):
        return _missing(parser, message.removeprefix(MISSING).split(", "))
    if message.startswith(ONE_NEEDED):
        names = message.removeprefix(ONE_NEEDED).removesuffix(" is required").split(" ")
        return f"one of these is missing: {', '.join(names)}"
    if not message.startswith("argument "):
        return f"{message}{switch_hint}"
    name, _, problem = message.removeprefix("argument ").partition(": ")
    action = next((each for each in parser._actions if _name_of(each) == name), None)
    if problem.startswith(EXCLUSIVE):
        return f"{name} and {problem.removeprefix(EXCLUSIVE)} exclude each other"
    if action is not None and problem.startswith(INVALID):
        value = problem.removeprefix(INVALID).partition(" (choose")[0].strip("'\"")
        return _invalid_choice(parser, action, value) + switch_hint
    if action is not None and problem == "expected one argument":
        return f"{name} needs a value: {action.option_strings[-1]} {_value_of(action)}"
    if problem.startswith(HAS_NO_VALUE):
        return f"{name} cannot be {problem.removeprefix(HAS_NO_VALUE)}{switch_hint or '; it takes no value'}"
    return f"{name}: {problem}{switch_hint}"


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    """All options of a parser and its sub-commands, without hidden ones."""
    found: list[str] = []
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            found += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            found += [option for child in action.choices.values() for option in _options_of(child)]
    return found


def _unknown(rest: str, known: Sequence[str]) -> str:
    word = rest.partition(" ")[0]
    if not word.startswith("-"):
        return f"unexpected argument {word!r}"
    option = word.partition("=")[0]
    return f"there is no option {option}{did_you_mean(FOREIGN_OPTIONS.get(option, option), known)}"


def _missing(parser: argparse.ArgumentParser, names: list[str]) -> str:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and _name_of(action) in names:
            return f"a sub-command is missing: `{parser.prog}` has {_listed(action.choices)}"
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing"


def _invalid_choice(parser: argparse.ArgumentParser, action: argparse.Action, value: str) -> str:
    choices = [str(choice) for choice in action.choices or ()]
    hint = did_you_mean(value, choices)
    if action.option_strings:
        return f"{action.option_strings[-1]} cannot be {value!r}{hint}; it takes {_listed(choices)}"
    if isinstance(action, argparse._SubParsersAction) or action.dest == "verb":
        return f"`{parser.prog}` has no sub-command {value!r}{hint}; it has {_listed(choices)}"
    return f"{value!r} is not one of {_listed(choices)}{hint}"


def _listed(choices: Iterable[object]) -> str:
    names = [str(choice) for choice in choices]
    shown = ", ".join(names[:MOST_SHOWN])
    return shown if len(names) <= MOST_SHOWN else f"{shown}, …"


def _name_of(action: argparse.Action) -> str | None:
    return argparse._get_action_name(action)


def _value_of(action: argparse.Action) -> str:
    if action.metavar:
        return str(action.metavar)
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _switch_hint(words: Sequence[str], options: Sequence[str]) -> str:
    """Other tools write `--enable false` or `--enable=false` for `--no-enable`."""
    joined = (word.split("=", 1) for word in words if "=" in word)
    for option, value in (*zip(words, words[1:]), *joined):
        negated = f"--no-{option.removeprefix('--')}"
        if negated in options and value in ("true", "false"):
            return f"; a switch takes no value, use {option if value == 'true' else negated}"
    return ""
