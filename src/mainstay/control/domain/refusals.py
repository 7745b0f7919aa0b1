"""The refusals the domain knows by name; anything else that is raised here is a bug."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.control.domain.faults import PathFault, listed


class Refusal(Exception):
    """Asked for something that the rules do not allow; the text names the thing and the way out."""


class InvalidDefinition(Refusal):
    """A schema that may not be written, with every fault in it."""

    def __init__(self, faults: Sequence[PathFault]) -> None:
        super().__init__("; ".join(str(fault) for fault in listed(faults)))
        self.faults = tuple(faults)


class RuleTaken(Refusal):
    """Two rules of the same name, so a schema that names it could mean either."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is already a {kind} named {name}; rename the one that was added")


class NotARule(Refusal):
    """An installed package offers something else where a rule is expected."""

    def __init__(self, group: str, expected: str, found: str) -> None:
        super().__init__(f"an entry point of {group} must be a {expected}, got {found}")


class RuleNotLoaded(Refusal):
    """An installed package offers a rule and cannot bring it."""

    def __init__(self, group: str, name: str, reason: str) -> None:
        super().__init__(
            f"the rule '{name}' of {group} cannot be loaded ({reason}); repair or remove the package that offers it"
        )


class UnansweredQuestion(Refusal):
    """The engine asked for something and was called again without it."""

    def __init__(self, kind: str, subject: str) -> None:
        super().__init__(
            f"the engine asked for {kind} {subject} and got no answer; answer every question it returned"
        )


class TooLargeToDraw(Refusal):
    def __init__(self) -> None:
        super().__init__("the lifecycle has too many arrows over too many layers for a picture; read its report")


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


class WrongState(Refusal):
    def __init__(self, action: str, state: str, allowed: Sequence[str]) -> None:
        starts = f"it starts from: {', '.join(allowed)}" if allowed else "it has no success transition at all"
        super().__init__(f"action '{action}' cannot be performed in state '{state}'; {starts}")
