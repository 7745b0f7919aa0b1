"""Wrong command lines: the message names the problem, what was probably meant, and where to read on."""

from __future__ import annotations

import argparse

import pytest

from mainstay.cli.main import GROUPS, CommandRefused, command_names, load_command, main, make_parser

# (typed, message)
MISTAKES = [
    ("agents ad", "`mainstay agents` has no sub-command 'ad' (did you mean 'add'?); it has add, code, "),
    (
        "agent enrol",
        "`mainstay agent` has no sub-command 'enrol' (did you mean 'enroll'?); it has enroll, run, install",
    ),
    ("agent", "a sub-command is missing: `mainstay agent` has enroll, run, install"),
    (
        "server bakcup",
        "`mainstay server` has no sub-command 'bakcup' (did you mean 'backup'?); it has run, migrate, ",
    ),
    ("vault rotat", "`mainstay vault` has no sub-command 'rotat' (did you mean 'rotate'?); it has rotate"),
    ("completion tcsh", "'tcsh' is not one of bash, zsh, fish"),
    ("completion", "one of these is missing: bash|zsh|fish, --words"),
    ("jobs --status Faild", "--status cannot be 'Faild' (did you mean 'Failed'?); it takes Completed, Failed, "),
    ("jobs --limit none", "--limit: must be a whole number of at least 1, not 'none'"),
    ("apply", "MANIFEST is missing"),
    ("ensure file", "NAME is missing"),
    ("order", "TYPE and NAME are missing"),
    ("apply a b", "unexpected argument 'b'"),
    ("apply --set", "--set needs a value: --set KEY=VALUE"),
    ("apply a --nop", "there is no option --nop (did you mean '--noop'?)"),
    ("apply a --dry-run", "there is no option --dry-run (did you mean '--noop'?)"),
    ("blueprint test --shown", "DIR is missing"),
    (
        "ensure service x --enable=false",
        "--enable/--no-enable cannot be 'false'; a switch takes no value, use --no-enable",
    ),
    ("apply a --json=yes", "--json cannot be 'yes'; it takes no value"),
]


@pytest.mark.parametrize(("typed", "message"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_wrong_command_line_is_explained(typed: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    problem, way_out = capsys.readouterr().err.splitlines()
    assert problem.startswith(f"mainstay: {message}")
    assert way_out.startswith("See `mainstay ")
    assert way_out.endswith(" --help`.")


def parsers() -> list[argparse.ArgumentParser]:
    found = []
    for name in command_names():
        command = load_command(name)
        assert command is not None
        parser = make_parser(name, command)
        found.append(parser)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += action.choices.values()
    return found


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: parser.prog)
def test_every_command_refuses_an_unknown_option_in_our_words(parser: argparse.ArgumentParser) -> None:
    needed = ["x" for action in parser._actions if not action.option_strings and action.required]
    with pytest.raises(CommandRefused) as refused:
        parser.parse_args([*needed, "--no-such-option"])
    text = str(refused.value)
    for word in ("unrecognized arguments", "invalid choice", "following arguments", "argument "):
        assert word not in text
    assert f"See `{parser.prog} --help`." in text


def test_every_command_and_verb_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    failed = []
    for parser in parsers():
        try:
            main([*parser.prog.split()[1:], "--help"])
        except SystemExit as end:
            problem = end.code
        except ValueError as error:
            problem = str(error)
        else:
            problem = "returned"
        if problem or not capsys.readouterr().out.startswith(f"usage: {parser.prog}"):
            failed.append(f"{parser.prog}: {problem}")
    assert not failed, "\n".join(failed)


def test_no_help_shows_a_hidden_option() -> None:
    for parser in parsers():
        assert "SUPPRESS" not in parser.format_help()


def test_the_overview_lists_every_command_once_below_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    sections = capsys.readouterr().out.split("\n\n")[2:-1]
    assert [section.partition("\n")[0] for section in sections] == [f"{group.capitalize()}:" for group in GROUPS]
    rows = [line for section in sections for line in section.splitlines()[1:]]
    assert sorted(row.split()[0] for row in rows) == command_names()
