"""Two releases on one database: the older one works on after the newer one has added to the tables."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import mainstay
from control_plane import SHARED_KEY, Client, Cluster, running
from fork_server import PROGRAM
from mainstay.control.store.engine.migrations import NewerDatabase, migrations, pending
from required_parts import need, need_program
from scenario import Scenario

pytestmark = pytest.mark.test_all

ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/mainstay/control/store/engine/migrations"
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


def git(*words: str) -> bytes:
    # Also in a clone of another user.
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout


def earlier_releases() -> dict[str, str]:
    """Name of a migration → the last commit without it: of the newest migration, and of the first one that the newest says
    it is compatible with. Empty: older servers must stop before the newest migration."""
    known = [each.name for each in migrations("postgresql")]
    since = migrations("postgresql")[-1].compatible_since
    if since is None:
        return {}
    oldest = next(name for name in known if name[:4] > since)
    found = {}
    for name in dict.fromkeys((oldest, known[-1])):
        added = git("log", "--diff-filter=A", "--format=%H", "--", f"{MIGRATIONS}/{name}*.sql").split()
        # One that is not committed yet is not in the last commit.
        found[name] = f"{added[-1].decode()}^" if added else "HEAD"
    return found


def earlier_release(folder: Path, commit: str) -> dict[str, str]:
    """The program of a commit with its packages; returns the environment that runs it."""
    packed = io.BytesIO(git("archive", "--format=tar", commit, "src", "requirements/server.txt"))
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(folder, filter="data")
    packages = installed_packages(folder / "requirements" / "server.txt")
    return {"PYTHONPATH": f"{folder / 'src'}:{packages}"}


def installed_packages(requirements: Path) -> Path:
    """A folder with these packages, which is kept in the cache of test parts."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mainstay-test-parts"
    folder = cache / f"packages-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        new = folder.with_name(f"{folder.name}.{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--target", str(new)]
        done = subprocess.run([*command, "-r", requirements], capture_output=True, text=True)
        need(present=done.returncode == 0, what=f"the packages of an earlier release: {done.stderr.strip()[-300:]}")
        new.rename(folder)
    return folder


def test_servers_of_earlier_releases_work_beside_this_one(tmp_path: Path, postgresql: Cluster) -> None:
    """With their own code: the last commits before the migrations that this release adds for them."""
    need_program("git")
    whole = (ROOT / ".git").exists() and git("rev-parse", "--is-shallow-repository").strip() == b"false"
    if not whole:
        # No script can install it.
        pytest.skip("needs the whole history of the repository: clone it without --depth")
    releases = earlier_releases()
    if not releases:
        pytest.skip("the newest migration needs all servers to stop")
    for name, commit in releases.items():
        folder = tmp_path / name
        environment = earlier_release(folder / "program", commit)
        assert not list((folder / "program" / MIGRATIONS).glob(f"{name}*")), f"{commit} has {name}"
        work_beside(folder, environment, postgresql.new_database())


def work_beside(folder: Path, environment: dict[str, str], url: str) -> None:
    with running(folder / "old", database_url=url, environment=environment) as old:
        scenario = Scenario(old.admin)
        kind = scenario.service_type({"size": {"type": "integer"}})
        before = scenario.order(kind, {"size": 1})
        with running(folder / "new", database_url=url) as new:
            # A code of the new server enrolls there; its agent then works with both.
            admin = Client(new.url, old.admin.token)
            body = {"agentTypeId": scenario.agent_type_id, "providerId": scenario.provider_id, "count": 2}
            code = admin.post("/enrolment-codes", body)["code"]
            token = Client(new.url).post("/enrol", {"code": code, "name": "h"})["token"]
            assert Client(old.url, token).get("/agents/me")["name"] == "h"
            assert scenario.complete(before)["properties"] == {"size": 1}
            scenario.complete(scenario.order(kind, {"size": 2}))
            # An order of the new server is changed by the old one.
            placed = {
                "serviceTypeId": kind["id"],
                "name": "new",
                "properties": {"size": 3},
                "agentId": scenario.agent_id,
            }
            ordered = Client(new.url, scenario.consumer.token).post("/services", placed)
            scenario.complete(ordered)
            assert old.admin.get(f"/services/{ordered['id']}")["properties"] == {"size": 3}
            # A batch of the new server, and the rows of it.
            request = {"method": "POST", "path": "/participants", "body": {"name": "batched"}}
            admin.post("/batch", {"requests": [request], "ifRevision": admin.get("/batch")["revision"]}, expect=200)
            assert old.admin.get("/participants?name=batched")["totalItems"] == 1
            # The older server deletes a provider with its codes.
            other = old.admin.post("/participants", {"name": "other"})
            kept = admin.post("/enrolment-codes", {**body, "providerId": other["id"]})
            old.admin.delete(f"/participants/{other['id']}")
            admin.get(f"/enrolment-codes/{kept['id']}", expect=404)
    with running(folder / "old", database_url=url, environment=environment) as old:
        assert old.admin.get("/services")["totalItems"] == 3


ONLY_ADDS = re.compile(
    r"CREATE (UNIQUE )?INDEX |CREATE TABLE "
    r'|ALTER TABLE \w+ ADD COLUMN \w+ \w+( COLLATE "C")?( NOT NULL DEFAULT .+| DEFAULT .+| GENERATED ALWAYS AS .+)?$',
    re.DOTALL,
)
# An index with other columns gives the same rows.
REPLACED_INDEX = re.compile(r"DROP INDEX (\w+);\s*(?=CREATE INDEX \1 )")
# Writes to what older releases read: an agent status that they know too, and an event, whose type they read as any text.
HARMLESS_WRITES = re.compile(
    r"UPDATE agents SET status = 'New' WHERE [^;]*;|INSERT INTO events \([^;]*'events\.deleted'[^;]*;"
)
TRIGGER = re.compile(
    r"CREATE TRIGGER .*?(?:\bEND|EXECUTE FUNCTION \w+\(\));|CREATE FUNCTION .*?\$\$.*?\$\$;", re.DOTALL
)


def why_incompatible(script: str) -> str | None:
    """None: it only adds. A trigger is an addition too, if it writes only to tables of the same migration."""
    text = HARMLESS_WRITES.sub("", REPLACED_INDEX.sub("", re.sub(r"--.*", "", script)))
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
        ("UPDATE agents SET status = 'Gone' WHERE b = 1;", False),
        ("DROP INDEX a; CREATE INDEX a ON b (c)", True),
        ("DROP INDEX a; CREATE INDEX d ON b (c)", False),
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
