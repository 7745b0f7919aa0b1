"""The blueprints of the agent: what it logs when it loads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mainstay.agent.blueprint_cache import BlueprintCache
from mainstay.agent.client import Client
from mainstay.agent.log import Log
from mainstay.converge.host.state import StateDirectory

EXAMPLE = Path(__file__).parents[2] / "examples" / "blueprints" / "web-app"


def test_the_agent_warns_of_the_old_name_of_upgrades(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "web-app"
    shutil.copytree(EXAMPLE, folder)
    state = StateDirectory(str(tmp_path / "state"))
    for old, expected in ((False, ""), (True, "key=actions.update.moves use=upgrades\n")):
        if old:
            definition = folder / "blueprint.yaml"
            definition.write_text(definition.read_text().replace("upgrades: true", "moves: true"))
        cache = BlueprintCache(state, Client("http://127.0.0.1:9"), Log(), [str(folder)])
        assert cache.find("web-app", None).actions["update"].upgrades
        logged = capsys.readouterr().err
        assert logged.endswith(expected)
        assert bool(logged) is old
