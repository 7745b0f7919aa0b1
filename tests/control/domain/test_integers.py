"""Integers are those that every client reads exactly, and numbers those that a double can hold."""

from __future__ import annotations

import pytest

from mainstay.control.domain.values import integer_problem, is_integer, is_number, json_problem, number_problem

LARGEST = 2**53 - 1


@pytest.mark.parametrize("value", [0, LARGEST, -LARGEST, 4.0, float(LARGEST), -0.0])
def test_integers_up_to_the_largest_exact_one_are_accepted(value: float) -> None:
    assert is_integer(value)


@pytest.mark.parametrize("value", [LARGEST + 1, -LARGEST - 1, 2.0**53, 10**30, -(10**30), 1e300])
def test_a_larger_integer_is_refused_with_its_range(value: float) -> None:
    assert not is_integer(value)
    assert is_number(value)
    assert integer_problem(value) == "a number outside ±(2^53 - 1)"
    assert json_problem({"a": [value]}) is None


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**1024])
def test_a_number_beyond_a_double_is_refused_everywhere(value: int) -> None:
    assert not is_integer(value)
    assert not is_number(value)
    too_large = "a number that is too large"
    assert integer_problem(value) == number_problem(value) == json_problem({"a": [value]}) == too_large


@pytest.mark.parametrize(("value", "problem"), [(True, "boolean"), ("1", "string"), (None, "null"), (1.5, "number")])
def test_other_values_are_named_by_their_type(value: object, problem: str) -> None:
    assert not is_integer(value)
    assert integer_problem(value) == problem
