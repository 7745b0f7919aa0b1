"""A new member of a noun takes one line and one migration: everything else derives from the declaration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from browser_session import signed_in
from control_plane import Server, running
from fork_server import PROGRAM

SOURCE = Path(__file__).resolve().parents[2] / "src"
NAME_LINE = '        Member("name", NAME, "name of the participant", required=True, argument="PARTICIPANT"),\n'
CONTACT_LINE = '        Member("contact", "line", "how to reach it", default=""),\n'
MIGRATION = "ALTER TABLE participants ADD COLUMN contact TEXT NOT NULL DEFAULT '';\n"


@dataclass(frozen=True)
class ChangedProgram:
    """A copy of the program whose participants have a contact, and a server of it."""

    server: Server
    environment: dict[str, str]

    def run(self, *words: str, code: int = 0) -> str:
        login = {"MAINSTAY_URL": self.server.url, "MAINSTAY_TOKEN": str(self.server.admin.token)}
        done = subprocess.run(
            [PROGRAM, *words],
            env={**os.environ, **self.environment, **login},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangedProgram]:
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    declaration = folder / "src/mainstay/nouns/participants.py"
    text = declaration.read_text()
    assert NAME_LINE in text
    declaration.write_text(text.replace(NAME_LINE, NAME_LINE + CONTACT_LINE))
    (folder / "src/mainstay/control/store/engine/migrations/9999_contact.sql").write_text(MIGRATION)
    environment = {"PYTHONPATH": str(folder / "src")}
    with running(folder / "data", environment=environment, installed=True) as server:
        yield ChangedProgram(server, environment)


def create(changed: ChangedProgram, name: str, contact: str) -> Any:
    return changed.server.admin.post("/participants", {"name": name, "contact": contact})


def test_the_api_sets_bounds_filters_and_describes_it(changed: ChangedProgram) -> None:
    admin = changed.server.admin
    created = create(changed, "api", "ops@api.example")
    assert created["contact"] == "ops@api.example"
    assert admin.post("/participants", {"name": "silent"})["contact"] == ""
    for unfit in ("x" * 256, "a\0b", 7):
        admin.patch(f"/participants/{created['id']}", {"contact": unfit}, expect=400)
    admin.patch(f"/participants/{created['id']}", {"contact": "noc@api.example"})
    assert [each["name"] for each in admin.get("/participants?contact=noc@api.example")["items"]] == ["api"]
    newest = admin.get("/events?sort=-sequenceNumber&pageSize=1")["items"][0]
    assert {"op": "replace", "path": "/contact", "value": "noc@api.example"} in newest["properties"]["diff"]
    schemas = urllib3.request("GET", f"{changed.server.url}/openapi.json").json()["components"]["schemas"]
    described = ("Participant", "NewParticipant", "ParticipantChange")
    assert all("contact" in schemas[name]["properties"] for name in described)


def test_the_command_line_sets_and_shows_it(changed: ChangedProgram) -> None:
    changed.run("participants", "add", "cli", "--contact", "ops@cli.example")
    assert "ops@cli.example" in changed.run("participants")
    assert "CONTACT" in changed.run("participants")
    changed.run("participants", "change", "cli", "--contact", "noc@cli.example")
    assert "noc@cli.example" in changed.run("participants")
    assert "use --name or --contact" in changed.run("participants", "change", "cli", code=2)


def test_plane_files_set_and_export_it(changed: ChangedProgram, tmp_path: Path) -> None:
    create(changed, "stored", "ops@stored.example")
    exported = changed.run("plane", "export", "--only", "participants")
    assert "contact: ops@stored.example" in exported
    assert "contact" not in exported.partition("admin:")[2].partition("\n")[0]
    plane = tmp_path / "plane.yaml"
    plane.write_text("participants:\n  stored:\n    contact: noc@stored.example\n")
    changed.run("plane", "apply", str(plane), "--yes")
    assert "contact: noc@stored.example" in changed.run("plane", "export", "--only", "participants")
    schema = json.loads(changed.run("schema", "plane"))
    entry = schema["properties"]["participants"]["additionalProperties"]["properties"]
    assert entry["contact"] == {"type": "string", "description": "how to reach it"}


def test_the_pages_list_and_set_it(changed: ChangedProgram) -> None:
    row = create(changed, "shown", "ops@shown.example")
    browser = signed_in(changed.server.url, str(changed.server.admin.token))
    listed = browser.get("/participants").text
    assert ">Contact</th>" in listed
    assert "ops@shown.example" in listed
    assert "<span>Contact <bdi>ops@shown.example</bdi></span>" in browser.get(f"/participants/{row['id']}").text
    form = browser.get(f"/participants/{row['id']}/edit").text
    assert 'value="ops@shown.example"' in form
    assert "How to reach it." in form
    browser.post(f"/participants/{row['id']}/edit", {"name": "shown", "contact": ""}, csrf=browser.csrf)
    assert changed.server.admin.get(f"/participants/{row['id']}")["contact"] == ""
