"""What an order for a new service reads before it writes: the service type, the group and the agent, in one query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mainstay.control.store.engine.contract import Row, Transaction
from mainstay.control.store.placement import ServingParties, decode_parties, may_serve, parties_columns
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.service_types import VERSION_COLUMNS, TypeVersion, decode_version


@dataclass(frozen=True, slots=True)
class OrderedGroup:
    """A group by its id, or the oldest one of a consumer with this name."""

    group_id: str | None = None
    consumer_id: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class OrderParties:
    service_type: TypeVersion
    # None: no such group.
    group: ServiceGroup | None
    # None: none was asked for, or it is unknown, disabled or may not serve the consumer.
    serving: ServingParties | None


async def find_order_parties(
    tx: Transaction, type_id: str, group: OrderedGroup, agent_id: str | None
) -> OrderParties | None:
    """None: there is no such type. A change of the type waits for the commit. It then examines the new service too."""
    by_id, with_agent = group.group_id is not None, agent_id is not None
    ending = f"{tx.for_key_share} OF service_types" if tx.for_key_share else ""
    statement = _statement(by_id=by_id, with_agent=with_agent, ending=ending)
    parameters = {
        "type_id": type_id,
        **({"group_id": group.group_id} if by_id else {"consumer_id": group.consumer_id, "group_name": group.name}),
        **({"agent_id": agent_id} if with_agent else {}),
    }
    rows = await tx.fetch(statement, **parameters)  # type: ignore[arg-type]
    if rows and rows[0]["type_updated_at"] != rows[0]["type_seen_at"]:
        # The query waited for a change of the type: its other rows are older than that change.
        rows = await tx.fetch(statement, **parameters)  # type: ignore[arg-type]
    if not rows:
        return None
    row = rows[0]
    serving = decode_parties(row) if with_agent and row["serving"] == 1 else None
    return OrderParties(decode_version(row), _decode_group(row), serving)


@cache
def _statement(*, by_id: bool, with_agent: bool, ending: str) -> str:
    group_columns = ", ".join(f"service_groups.{name} AS group_{name}" for name in SERVICE_GROUPS.columns)
    group_id, consumer_id = (
        (":group_id", "service_groups.consumer_id") if by_id else (f"({_NAMED_GROUP})", ":consumer_id")
    )
    agent_columns, agent_joins = "", ""
    if with_agent:
        agent_columns = (
            f", {parties_columns(consumer_id)}, CASE WHEN {may_serve(consumer_id)} THEN 1 ELSE 0 END AS serving"
        )
        # No join in parentheses: SQLite would read all agents for it.
        agent_joins = (
            " LEFT JOIN agents ON agents.id = :agent_id LEFT JOIN participants ON participants.id = agents.provider_id"
            " LEFT JOIN agent_types ON agent_types.id = agents.agent_type_id"
        )
    return (
        f"SELECT {VERSION_COLUMNS}, {group_columns}{agent_columns},"
        # In the snapshot of the query; the row itself is read again after a wait for its lock.
        " (SELECT seen.updated_at FROM service_types AS seen WHERE seen.id = :type_id) AS type_seen_at"
        f" FROM service_types LEFT JOIN service_groups ON service_groups.id = {group_id}{agent_joins}"
        f" WHERE service_types.id = :type_id{ending}"
    )


_NAMED_GROUP = (
    "SELECT named.id FROM service_groups AS named WHERE named.consumer_id = :consumer_id AND named.name = :group_name"
    " ORDER BY named.created_at, named.id LIMIT 1"
)


def _decode_group(row: Row) -> ServiceGroup | None:
    if row["group_id"] is None:
        return None
    return SERVICE_GROUPS.decode({name: row[f"group_{name}"] for name in SERVICE_GROUPS.columns})
