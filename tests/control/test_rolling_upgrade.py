"""Two releases on one database: the older one works on after the newer one has added to the tables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import mainstay
from control_plane import PROGRAM, SHARED_KEY, Client, Cluster, running
from mainstay.control.store.engine.migrations import NewerDatabase, migrations, pending
from scenario import Scenario

ADDED = """
ALTER TABLE services ADD COLUMN test_note TEXT;
ALTER TABLE jobs ADD COLUMN test_count INTEGER NOT NULL DEFAULT 0;
CREATE TABLE test_notes (id TEXT PRIMARY KEY, service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE) STRICT;
CREATE INDEX services_by_test_note ON services (test_note);
"""
NAME = "9000_test_notes"


def newer_release(folder: Path, marker: str) -> dict[str, str]:
    """A copy of the program with one more migration; returns the environment that runs it."""
    package = folder / "newer" / "mainstay"
    shutil.copytree(Path(mainstay.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / f"control/store/engine/migrations/{NAME}.sql").write_text(f"{marker}\n{ADDED}")
    return {"PYTHONPATH": str(folder / "newer")}


def test_an_older_server_works_beside_a_newer_one_that_has_added_to_the_tables(
    tmp_path: Path, postgresql: Cluster
) -> None:
    url = postgresql.new_database()
    newer = newer_release(tmp_path, f"-- Compatible since: {migrations('postgresql')[-1].name[:4]}")
    with running(tmp_path / "old", database_url=url) as old:
        scenario = Scenario(old.admin)
        kind = scenario.service_type({"size": {"type": "integer"}})
        before = scenario.order(kind, {"size": 1})
        with running(tmp_path / "new", database_url=url, environment=newer) as new:
            assert new.process.poll() is None
            # Statements that the older server prepared before the migration still run, and so do new ones.
            for number in range(3):
                service = scenario.order(kind, {"size": number})
                assert scenario.complete(service)["properties"] == {"size": number}
            scenario.complete(before)
            assert Client(new.url, old.admin.token).get("/services")["totalItems"] == 4
    # A restart of the older release is possible, too, until the upgrade is complete.
    with running(tmp_path / "old", database_url=url) as old:
        assert old.admin.get("/services")["totalItems"] == 4


def older_release(folder: Path, newest: str) -> dict[str, str]:
    """A copy of the program that knows no migration after `newest`; returns the environment that runs it."""
    package = folder / "older" / "mainstay"
    shutil.copytree(Path(mainstay.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for script in (package / "control/store/engine/migrations").glob("*.sql"):
        if script.name[:4] > newest:
            script.unlink()
    return {"PYTHONPATH": str(folder / "older")}


def test_servers_without_the_newest_migration_work_beside_this_release(tmp_path: Path, postgresql: Cluster) -> None:
    since = migrations("postgresql")[-1].compatible_since
    if since is None:
        pytest.skip("the newest migration needs all servers to stop")
    url = postgresql.new_database()
    environment = older_release(tmp_path, since)
    with running(tmp_path / "old", database_url=url, environment=environment) as old:
        scenario = Scenario(old.admin)
        kind = scenario.service_type({"size": {"type": "integer"}})
        before = scenario.order(kind, {"size": 1})
        with running(tmp_path / "new", database_url=url) as new:
            # A code of the new server enrolls there; its agent then works with both.
            admin = Client(new.url, old.admin.token)
            body = {"agentTypeId": scenario.agent_type_id, "providerId": scenario.provider_id, "count": 2}
            code = admin.post("/enrolment-codes", body)["code"]
            token = Client(new.url).post("/enrol", {"code": code, "name": "h"})["token"]
            assert Client(old.url, token).get("/agents/me")["name"] == "h"
            assert scenario.complete(before)["properties"] == {"size": 1}
            scenario.complete(scenario.order(kind, {"size": 2}))
            # The older server deletes a provider with its codes.
            other = old.admin.post("/participants", {"name": "other"})
            kept = admin.post("/enrolment-codes", {**body, "providerId": other["id"]})
            old.admin.delete(f"/participants/{other['id']}")
            admin.get(f"/enrolment-codes/{kept['id']}", expect=404)
    with running(tmp_path / "old", database_url=url, environment=environment) as old:
        assert old.admin.get("/services")["totalItems"] == 2


ONLY_ADDS = re.compile(
    r"CREATE (UNIQUE )?INDEX |CREATE TABLE |ALTER TABLE \w+ ADD COLUMN \w+ \w+( NOT NULL DEFAULT .+| DEFAULT .+)?$",
    re.DOTALL,
)
TRIGGER = re.compile(
    r"CREATE TRIGGER .*?(?:\bEND|EXECUTE FUNCTION \w+\(\));|CREATE FUNCTION .*?\$\$.*?\$\$;", re.DOTALL
)


def why_incompatible(script: str) -> str | None:
    """None: it only adds. A trigger is an addition too, if it writes only to tables of the same migration."""
    text = re.sub(r"--.*", "", script)
    added = set(re.findall(r"CREATE TABLE (\w+)", text))
    for table in re.findall(r"(?:INSERT INTO|DELETE FROM|UPDATE(?! OF)) (\w+)", text):
        if table not in added:
            return f"it writes to {table}"
    for statement in filter(None, map(str.strip, TRIGGER.sub("", text).split(";"))):
        if not ONLY_ADDS.match(statement) and not statement.startswith("INSERT INTO"):
            return statement
    return None


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_migration_that_claims_to_be_compatible_only_adds(dialect: str) -> None:
    known = [each.name[:4] for each in migrations(dialect)]
    compatible = [each for each in migrations(dialect) if each.compatible_since is not None]
    assert compatible
    for migration in compatible:
        assert migration.compatible_since in known[: known.index(migration.name[:4])], migration.name
        assert why_incompatible(migration.script) is None, migration.name


@pytest.mark.parametrize(
    ("statement", "adds"),
    [
        ("ALTER TABLE a ADD COLUMN b TEXT", True),
        ("ALTER TABLE a ADD COLUMN b INTEGER NOT NULL DEFAULT 0", True),
        ("ALTER TABLE a ADD COLUMN b INTEGER NOT NULL", False),
        ("ALTER TABLE a DROP COLUMN b", False),
        ("UPDATE a SET b = 1", False),
        ("CREATE TABLE b (c TEXT); INSERT INTO b SELECT c FROM a", True),
        ("INSERT INTO a SELECT c FROM b", False),
        (
            "CREATE TABLE b (c TEXT); CREATE TRIGGER t AFTER UPDATE OF c ON a BEGIN INSERT INTO b VALUES (new.c); END;",
            True,
        ),
        ("CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET c = 1; END;", False),
        (
            "CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN DELETE FROM b; RETURN NULL; END $$;",
            False,
        ),
    ],
)
def test_only_additions_count_as_compatible(statement: str, adds: bool) -> None:  # a case
    assert (why_incompatible(statement) is None) is adds


def test_an_older_server_refuses_tables_that_it_cannot_work_with(tmp_path: Path, postgresql: Cluster) -> None:
    url = postgresql.new_database()
    newer = newer_release(tmp_path, "-- Changes what older releases read.")
    with running(tmp_path / "new", database_url=url, environment=newer):
        pass
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    done = subprocess.run(
        [PROGRAM, "server", "--port", "0", "--data-dir", tmp_path / "old", "--database-url", url],
        env={**inherited, "VAULT_ENCRYPTION_KEY": SHARED_KEY},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"the database has migration {NAME}, which this release does not know and cannot work with" in done.stderr


@pytest.mark.parametrize(("since", "works"), [("0001", True), ("9000", False), (None, False)])
def test_an_unknown_migration_is_accepted_from_the_release_that_it_names(
    since: str | None, works: bool
) -> None:  # a case
    applied = {each.name: each.checksum for each in migrations("sqlite")} | {NAME: "x"}
    compatible = {} if since is None else {NAME: since}
    if works:
        assert pending("sqlite", applied, compatible) == ()
        return
    with pytest.raises(NewerDatabase):
        pending("sqlite", applied, compatible)
