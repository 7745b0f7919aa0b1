"""The rulebook: built-in rules, rules of other packages by entry points, and refused duplicates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mainstay.control.domain.properties import generators
from mainstay.control.domain.properties.rules import authorizers, schema_validators, validators
from mainstay.control.rulebook import installed_rulebook

EVEN = """
from mainstay.control.domain.properties.contract import Generator, PropertyType, Validator

def compile_even(config, placement):
    by = config.number("by")
    return None if by is None else lambda value, outside: None if value % by == 0 else f"not divisible by {by}"

EVEN = Validator("{name}", compile_even, fits=frozenset({PropertyType.INTEGER}))
NOT_A_RULE = 5
"""
TRY = """
from property_requests import faults, schema_faults
rule = lambda **config: {"p": {"type": "integer", "validators": [{"type": "divisible", "config": config}]}}
print(faults(rule(by=3), {"p": 9}), faults(rule(by=3), {"p": 10}), schema_faults(rule()), schema_faults(rule(by=3, x=1)))
"""

RUN = "import sys; from mainstay.cli.main import main; sys.exit(main())"


def install(folder: Path, entry: str, name: str = "divisible") -> None:
    (folder / "even.py").write_text(EVEN.replace("{name}", name))
    metadata = folder / "even-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: even\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[mainstay.validators]\ndivisible = {entry}\n")


def run_with(folder: Path) -> subprocess.CompletedProcess[str]:
    tests = Path(__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-c", TRY],
        env={"PYTHONPATH": f"{folder}:{tests}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_package_adds_a_rule_with_its_own_configuration_check(tmp_path: Path) -> None:
    install(tmp_path, "even:EVEN")
    done = run_with(tmp_path)
    assert done.stderr == ""
    assert done.stdout.split("} {") == [
        "{",
        "'p': 'not divisible by 3'",
        "'p.validators[0].config.by': 'divisible by must be a number'",
        "'p.validators[0].config.x': 'unknown key in the configuration of divisible'}\n",
    ]


@pytest.mark.parametrize(
    ("entry", "name", "refusal"),
    [
        ("even:EVEN", "min", "RuleTaken: a Validator named min already exists; rename the added rule"),
        ("even:NOT_A_RULE", "x", "NotARule: an entry point of mainstay.validators must be a Validator, got int"),
        ("even:NOWHERE", "x", "RuleNotLoaded: the rule 'divisible' of mainstay.validators cannot be loaded"),
        ("odd:EVEN", "x", "(ModuleNotFoundError: No module named 'odd')"),
    ],
)
def test_a_rule_that_is_a_duplicate_or_cannot_be_loaded_is_refused(
    tmp_path: Path, entry: str, name: str, refusal: str
) -> None:
    install(tmp_path, entry, name)
    assert refusal in run_with(tmp_path).stderr


def test_a_command_reports_the_rule_that_cannot_be_loaded(tmp_path: Path) -> None:
    install(tmp_path, "odd:EVEN")
    (tmp_path / "type.yaml").write_text("propertySchema: {}\n")
    done = subprocess.run(
        [sys.executable, "-c", RUN, "type", "check", str(tmp_path / "type.yaml")],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("mainstay: the rule 'divisible' of mainstay.validators cannot be loaded")


def test_each_file_is_one_rule() -> None:
    rulebook = installed_rulebook()
    for folder, rules in (
        (authorizers, rulebook.authorizers),
        (validators, rulebook.validators),
        (schema_validators, rulebook.schema_validators),
        (generators, rulebook.generators),
    ):
        files = {path.stem for path in Path(folder.__path__[0]).glob("*.py")} - {"__init__"}
        assert {name.replace("_", "").lower() for name in files} == {name.lower() for name in rules}
