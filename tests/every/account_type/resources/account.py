"""A resource type for tests: an account with secret and private properties, which its messages show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mainstay.converge.contract import Change, Property, Resource, ResourceType
from mainstay.converge.failures import Failure
from mainstay.converge.value_kinds import TEXT, TEXTS


class Account(Resource):
    password_hash: str | None = None
    pins: tuple[str, ...] = ()
    token: str | None = None
    note: str | None = None
    # How the provider misbehaves: `fail`, `crash`, or `fade` at the end of the run.
    way: str | None = None


class AccountType(ResourceType):
    name = "account"
    resource = Account
    properties = {
        "password_hash": Property(TEXT, "hash of the password", secret=True),
        "pins": Property(TEXTS, "one-time codes", secret=True),
        "token": Property(
            TEXT, "a token that is known when the run reaches the resource", deferred=True, secret=True
        ),
        "note": Property(TEXT, "a remark", private=True),
        "way": Property(TEXT, "how the provider misbehaves", choices=("", "fail", "crash", "fade")),
    }

    def check(self, wanted: Account) -> Iterator[tuple[str | None, str]]:
        for name in ("password_hash", "note"):
            value = getattr(wanted, name) or ""
            if value.startswith("refused"):
                yield name, f"{name} {value!s} is refused, {value!r} in quotes, {value[:59]}… in short"

    def check_rendered(self, wanted: Account) -> None:
        if (wanted.token or "").startswith("refused"):
            raise Failure(f"token {wanted.token!s} is refused")

    def desired(self, wanted: Account, actual: Any) -> tuple[bool, str]:
        if actual.password_hash == all_of(wanted):
            return True, ""
        return False, f"password_hash is {actual.password_hash}, expected {all_of(wanted)}"

    def decide(self, wanted: Account, actual: Any, *, refresh: bool) -> tuple[Change, ...]:
        reached, reason = self.desired(wanted, actual)
        return () if reached else (Change("set", reason),)

    def describe(self, wanted: Account, actual: Any, changes: tuple[Change, ...]) -> str:
        return f"Would have set {all_of(wanted)} in place of {actual.password_hash}"

    def was_altered(self, wanted: Account, before: Any, after: Any) -> bool:
        return bool(before.password_hash != after.password_hash)


def all_of(wanted: Account) -> str:
    return " ".join(str(value) for value in (wanted.password_hash, *wanted.pins, wanted.token, wanted.note) if value)


TYPE = AccountType()
