"""How many living services each agent has. Triggers on `services` add a row for every change; the sum of the rows of an
agent is the number."""

from __future__ import annotations

from collections import Counter

from mainstay.control.store.engine.contract import Transaction

# An SQL expression over `agents`.
LIVING_SERVICES = "coalesce((SELECT sum(living) FROM agent_loads WHERE agent_loads.agent_id = agents.id), 0)"


async def combine_rows(tx: Transaction, limit: int) -> bool:
    """Replaces the rows of an agent by one row. Returns whether there may be more.

    A row that is added meanwhile stays, and counts. Of two that combine at once, the second finds nothing to delete."""
    rows = await tx.fetch(
        "DELETE FROM agent_loads WHERE id IN (SELECT id FROM agent_loads AS one WHERE EXISTS (SELECT 1 FROM agent_loads"
        f" AS another WHERE another.agent_id = one.agent_id AND another.id <> one.id) LIMIT {int(limit)})"
        " RETURNING agent_id, living"
    )
    loads: Counter[str] = Counter()
    for row in rows:
        loads[str(row["agent_id"])] += int(str(row["living"]))
    for agent_id, living in loads.items():
        if living:
            await tx.defer(
                "INSERT INTO agent_loads (agent_id, living) VALUES (:agent_id, :living)",
                agent_id=agent_id,
                living=living,
            )
    return len(rows) == limit
