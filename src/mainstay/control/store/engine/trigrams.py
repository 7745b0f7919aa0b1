"""Queries the trigram index of names in SQLite. The index returns candidates; the condition then checks each name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainstay.control.store.engine.contract import Transaction, Value, encode_json

LENGTH = 3
# The first trigrams are selective enough.
MAX_TRIGRAMS = 12
MAX_PARTS = 10
# With more matches, fetching and sorting them costs more than scanning the table for the first page.
MANY = 5000


def expression(parts: Sequence[str]) -> str | None:
    """The MATCH expression. None: the index does not apply, since a part is too short or there are too many parts."""
    if not 0 < len(parts) <= MAX_PARTS or any(len(part) < LENGTH for part in parts):
        return None
    return " OR ".join(f"({' AND '.join(map(_quoted, _trigrams(part)))})" for part in parts)


def _trigrams(part: str) -> list[str]:
    found = dict.fromkeys(part[start : start + LENGTH] for start in range(len(part) - LENGTH + 1))
    return list(found)[:MAX_TRIGRAMS]


def _quoted(trigram: str) -> str:
    doubled = trigram.replace('"', '""')
    return f'"{doubled}"'


async def find(
    tx: Transaction, index: str, wanted: str, condition: str, parameters: Mapping[str, Value]
) -> str | None:
    """The ids of the rows whose name satisfies the condition, as a JSON list; None: more than `MANY`."""
    rows = await tx.fetch(
        f"SELECT id FROM (SELECT kept.id, kept.name_folded FROM {index} CROSS JOIN {index}_rows AS kept"
        f" ON kept.number = {index}.rowid WHERE {index} MATCH :wanted) AS offered WHERE {condition} LIMIT {MANY + 1}",
        slow=True,
        wanted=wanted,
        **parameters,
    )
    return None if len(rows) > MANY else encode_json([row["id"] for row in rows])
