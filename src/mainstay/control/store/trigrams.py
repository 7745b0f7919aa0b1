"""What to ask SQLite's index of names. It offers every row that may match; the name itself is compared by whoever asks."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.control.store.contract import Transaction

LENGTH = 3
# Some of them narrow the search down enough.
MAX_TRIGRAMS = 12
MAX_PARTS = 10
# Beyond it, fetching and sorting what the index offers costs more than meeting matches on the way through the table.
MANY = 5000


def expression(parts: Sequence[str]) -> str | None:
    """None: the index cannot help, because a part is too short or there are too many."""
    if not 0 < len(parts) <= MAX_PARTS or any(len(part) < LENGTH for part in parts):
        return None
    return " OR ".join(f"({' AND '.join(map(_quoted, _trigrams(part)))})" for part in parts)


def _trigrams(part: str) -> list[str]:
    found = dict.fromkeys(part[start : start + LENGTH] for start in range(len(part) - LENGTH + 1))
    return list(found)[:MAX_TRIGRAMS]


def _quoted(trigram: str) -> str:
    doubled = trigram.replace('"', '""')
    return f'"{doubled}"'


async def are_many(tx: Transaction, index: str, wanted: str) -> bool:
    rows = await tx.fetch(
        f"SELECT count(*) AS found FROM (SELECT 1 FROM {index} WHERE {index} MATCH :wanted LIMIT {MANY + 1})",
        slow=True,
        wanted=wanted,
    )
    return int(str(rows[0]["found"])) > MANY
