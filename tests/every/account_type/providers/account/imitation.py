"""Stores an account in the file of its name, and shows every value wherever a provider could show a value."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from mainstay.converge.contract import Change, Provider, State
from mainstay.converge.failures import Failure


class AccountState(State):
    ensure = "present"
    password_hash: str | None = None
    stdout: str = ""

    def as_json(self, *_arguments: Any, **_options: Any) -> dict[str, Any]:
        return {"ensure": self.ensure, "password_hash": self.password_hash}


class ImitatedAccounts(Provider):
    name = "imitation"

    def __init__(self) -> None:
        self.faded = ""

    def read(self, wanted: Any, host: Any, *, refresh: bool) -> AccountState:
        state = AccountState()
        if os.path.exists(wanted.name):
            with open(wanted.name) as file:
                state.password_hash = file.read()
        return state

    def perform(self, wanted: Any, actual: AccountState, change: Change, host: Any) -> None:
        text = values_of(wanted)
        host.note(f"{text} replaces {actual.password_hash!r}")
        for line in text.splitlines():
            host.show_line(f"line {line}")
        if wanted.way == "fail":
            raise Failure(f"chpasswd refused {text!r}", output=f"output {text}")
        if wanted.way == "crash":
            raise RuntimeError(f"a bug with {text}")
        if wanted.way == "fade":
            self.faded = text
        with open(wanted.name, "w") as file:
            file.write(text)

    def confirm(self, wanted: Any, actual: AccountState, host: Any) -> AccountState:
        state = self.read(wanted, host, refresh=False)
        state.output = state.stdout = f"output {values_of(wanted)}"
        return state

    def forecast(self, wanted: Any, actual: AccountState, change: Change, host: Any) -> None:
        host.note(f"would set {values_of(wanted)}")

    def difference(self, wanted: Any, actual: AccountState, host: Any) -> str:
        return f"-{actual.password_hash}\n+{values_of(wanted)}"

    def recheck(self, host: Any) -> Iterable[Any]:
        if self.faded:
            raise RuntimeError(f"faded: {self.faded}")
        return ()


def values_of(wanted: Any) -> str:
    return " ".join(str(value) for value in (wanted.password_hash, *wanted.pins, wanted.token, wanted.note) if value)


PROVIDER = ImitatedAccounts()
