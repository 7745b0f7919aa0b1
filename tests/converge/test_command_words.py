"""Commands are split by POSIX quoting rules, without a shell."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loading import cases
from mainstay.converge.command_words import split_words
from mainstay.converge.value_kinds import Unfit


@pytest.mark.parametrize("case", cases("command_words"), ids=lambda case: repr(case["command"]))
def test_a_command_is_split_into_the_expected_words(case: dict[str, Any]) -> None:
    if "words" in case:
        assert split_words(case["command"]) == case["words"]
        return
    with pytest.raises(Unfit) as refusal:
        split_words(case["command"])
    assert str(refusal.value) == case["fault"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_quoted_words_are_split_into_the_original_words(words: list[str]) -> None:
    words = ["program", *words]
    assert split_words(shlex.join(words)) == words


@given(st.text(alphabet="ab'\"\\ \n\t$`#"))
def test_any_text_is_split_as_by_shlex_or_refused(command: str) -> None:
    try:
        found: list[str] | None = split_words(command)
    except Unfit:
        found = None
    try:
        expected: list[str] | None = shlex.split(command)
    except ValueError:
        expected = None
    # shlex keeps a newline after a backslash, and a backslash before `$` and the grave in double quotes.
    if "\\\n" in command or "\\$" in command or "\\`" in command:
        return
    assert found == (expected if expected and expected[0] else None)
