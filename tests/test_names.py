"""Names: a class name has one owner, and an underscore marks what only its own module uses."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Looked up by name in the modules of a registry folder, or named in pyproject.toml.
ENTRY_POINTS = {"configure", "main", "parse", "program", "run", "run_once"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the project by its dotted name; those outside of `src` by their path."""
    found = {}
    for folder in ("src", "tests", "benchmarks", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(SOURCE if folder == "src" else ROOT))[: -len(".py")].replace("/", ".")
            found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def own_modules() -> dict[str, ast.Module]:
    return {name: tree for name, tree in trees().items() if name.startswith("mainstay.")}


@cache
def used_from_elsewhere() -> dict[str, set[str]]:
    """Which modules use `module.name`, by import or as an attribute of the imported module."""
    users: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    users[f"{node.module}.{alias.name}"].add(module)
            elif isinstance(node, ast.Import):
                imported |= {alias.asname: alias.name for alias in node.names if alias.asname}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
                users[f"{imported[node.value.id]}.{node.attr}"].add(module)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "mainstay." in node.value:
                # Programs that a test starts, and names that it replaces.
                for owner, name in re.findall(r"from (mainstay\.[\w.]+) import (\w+)", node.value):
                    users[f"{owner}.{name}"].add(module)
                users[node.value].add(module)
    return users


def test_a_class_name_has_one_owner() -> None:
    owners: dict[str, list[str]] = defaultdict(list)
    for module, tree in own_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(f"{module}:{node.lineno}")
    twice = {name: places for name, places in owners.items() if len(places) > 1}
    assert not twice, f"rename all but one, or start the name with an underscore: {twice}"


def test_a_function_of_one_module_starts_with_an_underscore() -> None:
    wrong = []
    for module, tree in own_modules().items():
        for node in tree.body:
            if not isinstance(node, Function):
                continue
            elsewhere = used_from_elsewhere().get(f"{module}.{node.name}", set()) - {module}
            if node.name.startswith("_") and elsewhere:
                wrong.append(f"{module}.{node.name} is used by {sorted(elsewhere)[0]}: drop the underscore")
            elif not node.name.startswith("_") and not elsewhere and node.name not in ENTRY_POINTS:
                wrong.append(f"{module}.{node.name} is used by no other module: start it with an underscore")
    assert not wrong, "\n".join(wrong)
