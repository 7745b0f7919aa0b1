"""Random users and groups: a dry run forecasts every outcome, and what a run changed is stable in the next."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings

from applying import Applied
from own_accounts import databases, own_accounts
from random_accounts import account_entries
from torture import count_of

Apply = Callable[..., Applied]


def listed(entries: list[str]) -> str:
    return "\n".join(f"- {each}" for each in entries)


@settings(max_examples=count_of(600))
@given(before=account_entries(), after=account_entries())
def test_a_dry_run_forecasts_the_run(before: list[str], after: list[str], apply: Apply) -> None:
    with own_accounts():
        apply(listed(before))
        text = listed(after)
        untouched = databases()
        forecast = apply(text, noop=True)
        assert databases() == untouched
        done = apply(text)
        for expected, found in zip(forecast.report.events, done.report.events, strict=True):
            for key in ("outcome", "errors", "reason", "warnings"):
                shown = (found.resource.id, key, before, after)
                assert getattr(expected, key) == getattr(found, key), shown
