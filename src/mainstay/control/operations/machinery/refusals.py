"""The refusals of operations. Each has a stable code for programs and a message for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainstay.control.domain.faults import PathFault, listed


class OperationRefused(Exception):
    code = "refused"

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        # Added to the response, so that programs need not parse the message.
        self.details = dict(details or {})


class BadInput(OperationRefused):
    code = "bad_input"


class AgentNotAvailable(BadInput):
    """Unknown, disabled, of a disabled provider, or not allowed to serve the consumer: the caller must not learn which."""

    code = "agent_not_available"

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            f"agent {agent_id} does not exist or may not serve this consumer; the catalogue lists the agents that may"
        )


class InvalidProperties(OperationRefused):
    """Input with faults at paths; all faults are reported at once."""

    code = "validation_failed"

    def __init__(self, faults: Sequence[PathFault], *, code: str | None = None) -> None:
        super().__init__("; ".join(str(fault) for fault in listed(faults)), code=code)
        self.faults = tuple(faults)


class NotPermitted(OperationRefused):
    code = "forbidden"


class NotFound(OperationRefused):
    code = "not_found"

    def __init__(self, noun: str, record_id: str) -> None:
        super().__init__(f"there is no {noun.replace('_', ' ')} {record_id}")


class Conflict(OperationRefused):
    code = "conflict"


class BatchRefused(Conflict):
    """A request of a batch was refused, so none was carried out; the details contain its number and the refusal."""

    code = "batch_refused"


class BatchOutdated(Conflict):
    """Another batch came after the revision that this one names."""

    code = "batch_outdated"

    def __init__(self) -> None:
        super().__init__("another batch has changed the server meanwhile; nothing was changed: plan again")


class PlanFailed(Conflict):
    """The agent cannot forecast the job; the message contains its reason."""

    code = "plan_failed"


class PlanOutdated(Conflict):
    """The order would no longer have the planned outcome; `changed` is `expired`, `inputs` or `host`."""

    code = "plan_outdated"

    def __init__(self, changed: str, message: str) -> None:
        super().__init__(f"{message}; make a new plan", details={"changed": changed})


class SecretUnreadable(Conflict):
    """A stored secret does not open: its row was damaged or moved, or its key is not in the key ring."""

    code = "secret_unreadable"

    def __init__(self, schema_path: str, owner: str) -> None:
        super().__init__(
            f"the secret {schema_path} of {owner} cannot be opened: it is damaged, or the server lacks its key;"
            " set the property again, or give the server the key"
        )


class AgentSilent(OperationRefused):
    code = "agent_silent"


class Stale(OperationRefused):
    code = "precondition_failed"


class InUse(Conflict):
    """Living rows depend on it; the message and the details name them."""

    code = "in_use"

    def __init__(self, what: str, dependants: Mapping[str, Sequence[str]]) -> None:
        named = {noun: list(ids) for noun, ids in dependants.items() if ids}
        listed = "; ".join(f"{noun}: {', '.join(ids)}" for noun, ids in named.items())
        ways = ["delete those first"] if named.keys() - {"orphans"} else []
        if "orphans" in named:
            ways.append("a clean-up ends when its agent confirms it, or an admin forgets it")
        super().__init__(f"{what} is in use by {listed}; {'; '.join(ways)}", details={"dependants": named})
