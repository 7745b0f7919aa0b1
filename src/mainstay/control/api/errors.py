"""Maps refusals to HTTP: the only module that turns an exception into a status code."""

from __future__ import annotations

from mainstay.control.access import RoleRefused
from mainstay.control.domain import refusals as domain
from mainstay.control.domain.faults import PathFault, listed
from mainstay.control.operations.machinery import refusals as operations
from mainstay.control.store.engine.contract import Duplicate, StillReferenced, Unavailable
from mainstay.control.store.engine.paging import BadQuery

PHRASES = {
    400: "Invalid request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    412: "Precondition failed",
    413: "Body too large",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Unavailable",
    504: "Agent silent",
}


class HttpRefusal(Exception):
    """A refusal of the HTTP layer itself: no token, a body too large, too many requests."""

    def __init__(self, status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}


STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (operations.NotPermitted, 403, ""),
    (operations.NotFound, 404, ""),
    (operations.Conflict, 409, ""),
    (operations.Stale, 412, ""),
    (operations.AgentSilent, 504, ""),
    (operations.OperationRefused, 400, ""),
    (RoleRefused, 403, "forbidden"),
    (BadQuery, 400, "bad_query"),
    (domain.TooLargeToDraw, 400, "too_large_to_draw"),
    (domain.UnknownAction, 400, "unknown_action"),
    (domain.BadBatch, 400, "bad_batch"),
    (domain.WrongRolloutState, 409, "wrong_state"),
    (domain.LeaseLost, 409, "lease_lost"),
    (domain.NotPending, 409, "not_pending"),
    (domain.NotProcessing, 409, "not_processing"),
    (domain.TerminalState, 409, "terminal_state"),
    (domain.WrongState, 409, "wrong_state"),
    (StillReferenced, 409, "in_use"),
    (Unavailable, 503, "unavailable"),
)

Document = dict[str, object]
# Columns that hold another form of a member.
STORED_AS = {"value_key": "value"}


def refusal_answer(error: Exception) -> tuple[int, Document, dict[str, str]] | None:
    """Status, body and headers; None: not a refusal, but a bug."""
    if isinstance(error, HttpRefusal):
        return error.status, _body(error.status, error.code, str(error)), error.headers
    if isinstance(error, operations.InvalidProperties):
        return 400, _faults(error.faults, error.code), {}
    if isinstance(error, domain.InvalidDefinition):
        return 400, _faults(error.faults, "invalid_definition"), {}
    if isinstance(error, Duplicate):
        return 409, _body(409, "duplicate", f"another record already has this {_member(error.columns)}"), {}
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            body = _body(status, getattr(error, "code", "") or code, _message(error))
            headers = {"Retry-After": "1"} if status == 503 else {}
            return status, body | getattr(error, "details", {}), headers
    return None


def _member(columns: str) -> str:
    """The JSON name of the member that is not unique, from the columns of the constraint."""
    column = columns.rsplit(", ", maxsplit=1)[-1].rpartition(".")[2]
    first, *others = STORED_AS.get(column, column).split("_")
    return first + "".join(other.title() for other in others)


def _message(error: Exception) -> str:
    if isinstance(error, StillReferenced):
        return "another record still references it, or a record that it references was deleted meanwhile"
    if isinstance(error, Unavailable):
        return "the database is not available; try again"
    return str(error)


def _body(status: int, code: str, message: str) -> Document:
    return {"status": PHRASES[status], "error": message, "code": code}


def _faults(faults: tuple[PathFault, ...], code: str) -> Document:
    return {
        "status": "Validation failed",
        "error": "; ".join(str(fault) for fault in faults[:20]),
        "code": code,
        "valid": False,
        "errors": [{"path": fault.path, "message": fault.message} for fault in listed(faults)],
    }


def bug_answer(incident: str) -> Document:
    return _body(500, "internal", f"internal error; see {incident} in the server log") | {"id": incident}
