"""Direct access to the tables of a test server, to damage rows and to see what they hold."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path


def run_sql(data_dir: Path, database_url: str | None, statement: str) -> str:
    """Runs one statement beside the server and returns the rows as text, with columns separated by `|`."""
    if database_url is not None:
        command = ["psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-qAt", "-c", statement, database_url]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    with closing(sqlite3.connect(data_dir / "mainstay.db", timeout=10)) as connection, connection:
        connection.execute("PRAGMA secure_delete=ON")
        rows = connection.execute(statement).fetchall()
    return "\n".join("|".join("" if each is None else str(each) for each in row) for row in rows)
