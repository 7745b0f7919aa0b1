"""The refusals of the domain. Any other exception raised in the domain is a bug."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.control.domain.faults import PathFault, listed


class Refusal(Exception):
    """A request that the rules do not allow; the message names the thing and the way out."""


class InvalidDefinition(Refusal):
    """An invalid schema, with all its faults."""

    def __init__(self, faults: Sequence[PathFault]) -> None:
        super().__init__("; ".join(str(fault) for fault in listed(faults)))
        self.faults = tuple(faults)


class RuleTaken(Refusal):
    """Two rules have the same name, so a schema that uses it is ambiguous."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"a {kind} named {name} already exists; rename the added rule")


class NotARule(Refusal):
    """An entry point of an installed package is not a rule."""

    def __init__(self, group: str, expected: str, found: str) -> None:
        super().__init__(f"an entry point of {group} must be a {expected}, got {found}")


class RuleNotLoaded(Refusal):
    """A rule of an installed package cannot be loaded."""

    def __init__(self, group: str, name: str, reason: str) -> None:
        super().__init__(
            f"the rule '{name}' of {group} cannot be loaded ({reason}); repair or remove the package that provides it"
        )


class UnansweredQuestion(Refusal):
    """The engine was called again without an answer to one of its questions."""

    def __init__(self, kind: str, subject: str) -> None:
        super().__init__(
            f"the engine asked for {kind} {subject} and got no answer; answer every question it returned"
        )


class TooLargeToDraw(Refusal):
    def __init__(self) -> None:
        super().__init__("the lifecycle has too many states or transitions for a diagram; read its report")


class UnknownAction(Refusal):
    def __init__(self, action: str, known: Sequence[str]) -> None:
        super().__init__(f"unknown action '{action}'; the lifecycle has: {', '.join(known)}")


class TerminalState(Refusal):
    def __init__(self, state: str) -> None:
        super().__init__(f"cannot perform action on service in terminal state: {state}")


class NotPending(Refusal):
    def __init__(self, status: str) -> None:
        super().__init__(f"the job is {status}, so it cannot be claimed")


class NotProcessing(Refusal):
    def __init__(self, status: str) -> None:
        super().__init__(f"the job is {status}, not Processing")


class LeaseLost(Refusal):
    """The caller does not hold the job's current lease."""


class BadBatch(Refusal):
    def __init__(self, given: str, largest: int) -> None:
        super().__init__(f"batch {given!r} must be a number from 1 to {largest}, or a percentage such as 10%")


class WrongRolloutState(Refusal):
    def __init__(self, verb: str, status: str, allowed: Sequence[str]) -> None:
        super().__init__(f"the roll-out is {status}; {verb} is possible while it is {' or '.join(allowed)}")


class WrongState(Refusal):
    def __init__(self, action: str, state: str, allowed: Sequence[str]) -> None:
        starts = f"it starts from: {', '.join(allowed)}" if allowed else "it has no success transition at all"
        super().__init__(f"action '{action}' cannot be performed in state '{state}'; {starts}")
