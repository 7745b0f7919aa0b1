"""A kind of health check is one file: loader, schema, run and redaction take it from the registry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from applying import Applied
from loading import faults_of
from mainstay.converge import health_checks, resources
from mainstay.converge.manifest.rendering import render_manifest
from mainstay.converge.manifest.schema import manifest_schema
from mainstay.converge.run import RunRequest, load

PATH_KIND = """
from mainstay.converge.contract import HealthCheckKind, Property
from mainstay.converge.value_kinds import BOOLEAN, TEXT


class PathCheck(HealthCheckKind):
    name = "path"
    properties = {
        "path": Property(TEXT, "a path that must exist"),
        "password": Property(TEXT, "hidden", secret=True),
        "gone": Property(BOOLEAN, "whether it must not exist"),
    }

    def run_once(self, check, host):
        exists = host.files.exists(check.values["path"])
        is_good = exists is not check.values.get("gone", False)
        return "OK" if is_good else "CRITICAL", f"{check.values['path']} exists: {exists}"


KIND = PathCheck()
"""


@pytest.fixture
def path_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "kinds"
    folder.mkdir()
    (folder / "path.py").write_text(PATH_KIND)
    monkeypatch.setattr(health_checks, "__path__", [*health_checks.__path__, str(folder)])
    yield
    sys.modules.pop("mainstay.converge.health_checks.path", None)


CHECKED = "- exec:\n    - 'true': {health_checks: [CHECK]}\n"


def test_every_kind_requires_the_property_of_its_name() -> None:
    for name, kind in health_checks.kinds().items():
        assert name == kind.name, f"health_checks/{name}.py: KIND.name must be {name!r}"
        assert name in kind.properties, f"health_checks/{name}.py: properties must have {name!r}"


def test_a_long_output_keeps_its_end(apply: Callable[..., Applied]) -> None:
    script = "sh -c 'seq 1 500; echo ConnectionRefusedError; exit 2'"
    done = apply(CHECKED.replace("CHECK", f'{{command: "{script}", name: answers}}'))
    (error,) = done.errors
    first, *_, last = error.split("\n")
    assert (first, last) == ("health check answers is CRITICAL: …", "ConnectionRefusedError")
    assert len(error) < 400
    # The report has the whole output.
    assert str(done.report.events[0].output).startswith("1\n2\n")


@pytest.mark.usefixtures("path_kind")
def test_a_new_file_is_a_new_kind(apply: Callable[..., Applied], root: Path) -> None:
    good = apply(CHECKED.replace("CHECK", "{path: ROOT}, {command: 'true'}, {path: ROOT/x, gone: true}"))
    assert good.outcomes == ["changed"]
    bad = apply(CHECKED.replace("CHECK", "{path: ROOT/x}, {path: ROOT/x, name: there}"))
    assert bad.errors == [
        f"health check {root}/x is CRITICAL: {root}/x exists: False",
        f"health check there is CRITICAL: {root}/x exists: False",
    ]


@pytest.mark.usefixtures("path_kind")
def test_mistakes_name_all_kinds(root: Path) -> None:
    checks = "{name: x}, {path: a, command: b}, {path: a, pasword: c}, 7"
    kinds = " or ".join(f"`{name}`" for name in health_checks.kinds())
    assert [fault.partition(" ")[2] for fault in faults_of(CHECKED.replace("CHECK", checks), root)] == [
        f"exec#true: health_checks: a check needs {kinds}",
        f"exec#true: health_checks: a check has one of {kinds}",
        "exec#true: health_checks: unknown key 'pasword' (did you mean 'password'?)",
        f"exec#true: health_checks: each check is a map with {kinds}, got 7",
    ]


@pytest.mark.usefixtures("path_kind")
def test_the_schema_accepts_and_refuses_what_the_loader_does() -> None:
    types = [found for name in resources.names() if (found := resources.find(name)) is not None]
    validator = jsonschema.Draft202012Validator(manifest_schema(types, list(health_checks.kinds().values())))

    def is_valid(check: dict[str, object]) -> bool:
        return validator.is_valid([{"exec": [{"true": {"health_checks": [check]}}]}])

    assert is_valid({"path": "/x", "gone": True, "tries": 2})
    assert is_valid({"command": "true"})
    assert not is_valid({"path": "/x", "command": "true"})
    assert not is_valid({"name": "x"})


@pytest.mark.usefixtures("path_kind")
def test_a_secret_of_a_check_is_hidden(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(CHECKED.replace("CHECK", "{path: /hunter2/x, password: hunter2}"))
    _, manifest = load(RunRequest(str(path)))
    assert "hunter2" not in str(render_manifest(manifest)).replace("/hunter2/x", "")
    assert manifest.resources[0].sensitive
