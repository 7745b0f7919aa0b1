"""Rules about the source itself, which neither the type checker nor the import contracts can express.

One test is one rule. Each reports every offence as `file:line: what is wrong`, with the way out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from import_cycles import import_cycles, import_graph
from mainstay.control.domain.event_types import EVENT_TYPES
from mainstay.control.store.engine.records import Table
from mainstay.converge import resources
from mainstay.converge.manifest.rendering import INTERNAL
from mainstay.foundation.module_names import module_names, registered

SOURCE = Path(__file__).resolve().parent.parent / "src" / "mainstay"
STORE = "control/store/"
MOST_LINES_OF_A_FUNCTION = 70
MOST_LINES_OF_A_MODULE = 600
# Code lines of each package: no blank lines, comments and docstrings. A larger number needs a decision that says why.
BUDGET = {
    ".": 1,
    "agent": 2890,
    "blueprints": 1900,
    "cli": 10160,
    "control": 1120,
    "control/api": 3840,
    "control/domain": 4750,
    "control/operations": 6680,
    "control/store": 4990,
    "control/vault": 120,
    "control/web": 6820,
    "converge": 3000,
    "converge/health_checks": 60,
    "converge/host": 5080,
    "converge/manifest": 3310,
    "converge/providers": 1720,
    "converge/resources": 1630,
    "foundation": 1100,
    "nouns": 450,
    "packaging": 360,
    "push": 1880,
}


@dataclass(frozen=True)
class Module:
    # Relative to src/mainstay.
    path: str
    tree: ast.Module

    def at(self, node: ast.stmt | ast.expr, problem: str) -> str:
        return f"src/mainstay/{self.path}:{node.lineno}: {problem}"


@cache
def modules() -> tuple[Module, ...]:
    return tuple(
        Module(file.relative_to(SOURCE).as_posix(), ast.parse(file.read_text(encoding="utf-8")))
        for file in sorted(SOURCE.rglob("*.py"))
    )


def texts(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Every text literal that is not a docstring; a hole of an f-string is `{}`."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            # A statement that is only a text: a docstring.
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            if id(node) not in skipped:
                yield (
                    node,
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values),
                )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node, node.value


def imported(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """The full names of what a module imports, wherever the import is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def called_name(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def report(offences: list[str]) -> None:
    assert not offences, "\n" + "\n".join(offences)


# Upper case as the store writes it, so that prose about an update or a selection is no match.
SQL = re.compile(
    r"\bSELECT\b.*\bFROM\b|\bSELECT 1\b|\bINSERT INTO\b|\bUPDATE\b.*\bSET\b|\bDELETE FROM\b|\bCREATE (TABLE|INDEX)\b"
    r"|\b(ORDER|GROUP) BY\b|\bIS (NOT )?NULL\b|(^|[ (])[a-z_.{}]+ (=|<>|<|>|<=|>=|IN|LIKE) \(?:[a-z{]"
    r"|^\(?[a-z_.{}]+ = ([01]|'[^']*')\)?$",
    re.DOTALL,
)


def raw_sql(module: Module) -> Iterator[str]:
    for node, text in texts(module.tree):
        if SQL.search(text):
            yield module.at(
                node, f"raw SQL {text[:60]!r}; move the statement to a function of control/store/<noun>.py"
            )
    for call in (node for node in ast.walk(module.tree) if isinstance(node, ast.Call)):
        if called_name(call) == "SqlCondition":
            yield module.at(
                call, "SqlCondition is built outside the store; name the condition in control/store/<noun>.py"
            )
        if called_name(call) in ("fetch", "execute", "defer") and "tx" in ast.unparse(call.func):
            yield module.at(call, "a statement is run outside the store; call a function of control/store/<noun>.py")


def test_only_the_store_contains_sql() -> None:
    report([offence for module in modules() if not module.path.startswith(STORE) for offence in raw_sql(module)])


@pytest.mark.parametrize(
    "code",
    [
        'rows = q("SELECT id FROM jobs")',
        'q(f"SELECT id FROM {table} WHERE {column} = :id")',
        'q("SELECT 1 AS one")',
        'q("INSERT INTO jobs VALUES (1)")',
        'q("UPDATE jobs SET status = 1")',
        'q("DELETE FROM jobs")',
        'part = "is_terminal = 0"',
        'part = f"{flag} = 1"',
        'part = f"{column} = :own_{whose}"',
        "part = \"status = 'Pending'\"",
        'part = "sequence_number IS NOT NULL"',
        "condition = paging.SqlCondition(text)",
        "rows = await work.tx.fetch(text)",
    ],
)
def test_the_rule_about_sql_finds_it(code: str) -> None:
    (offence, *_) = raw_sql(Module("control/operations/x.py", ast.parse(f"async def f():\n  {code}")))
    assert offence.startswith("src/mainstay/control/operations/x.py:2: ")


def test_the_machinery_of_operations_imports_no_noun() -> None:
    """Nouns import machinery; the other way round two nouns would depend on each other through it."""
    package = "mainstay.control.operations."
    report(
        [
            module.at(node, f"machinery imports {name}; move what is shared into operations/machinery/")
            for module in modules()
            if module.path.startswith("control/operations/machinery/")
            for node, name in imported(module.tree)
            if name.startswith(package) and not f"{name}.".startswith(f"{package}machinery.")
        ]
    )


def test_the_default_lifecycle_imports_nothing() -> None:
    """The command line shows it, and may be installed without the packages of the server."""
    (module,) = (each for each in modules() if each.path == "control/domain/lifecycle/default.py")
    report(
        [
            module.at(node, f"imports {name}; keep this module a plain document")
            for node, name in imported(module.tree)
            if not name.startswith("__future__.")
        ]
    )


VERBS = {"insert": "created", "update": "updated", "delete": "deleted"}
# Functions that change rows for the operations which call them: the position of the table, and what they do.
PLAIN_CHANGES = {"PlainNoun": (1, ("created", "updated", "deleted")), "create_row": (2, ("created",))}
PLAIN_MODULE = "control/operations/machinery/plain_nouns.py"


# Where the domain chooses among event types: how they begin.
DECIDED_EVENTS = {"control/domain/jobs.py": "job.", "control/domain/rollouts.py": "rollout."}


def recorded_event_types() -> Iterator[tuple[str, str]]:
    """(event type, where it is recorded): by name, or by a change through the unit of work of a table's row."""
    nouns = {
        name: table.noun
        for file in (SOURCE / STORE).glob("*.py")
        for name, table in vars(import_module(f"mainstay.control.store.{file.stem}")).items()
        if isinstance(table, Table)
    }
    for module in modules():
        if module.path in DECIDED_EVENTS:
            noun = DECIDED_EVENTS[module.path]
            yield from ((text, module.at(node, text)) for node, text in texts(module.tree) if text.startswith(noun))
        for call in (node for node in ast.walk(module.tree) if isinstance(node, ast.Call)):
            if called_name(call) in ("record_event", "record_plane_event"):
                found = (text for _, text in texts(call.args[0]) if "{}" not in text)
                yield from ((text, module.at(call, text)) for text in found)
            elif module.path == PLAIN_MODULE:
                continue
            elif called_name(call) in PLAIN_CHANGES:
                position, verbs = PLAIN_CHANGES[called_name(call)]
                noun = nouns[ast.unparse(call.args[position])]
                yield from ((f"{noun}.{verb}", module.at(call, noun)) for verb in verbs)
            elif ast.unparse(call.func) in {f"work.{method}" for method in VERBS}:
                name = f"{nouns[ast.unparse(call.args[0])]}.{VERBS[called_name(call)]}"
                yield name, module.at(call, name)


def test_every_recorded_event_type_is_in_the_table_and_every_row_is_recorded() -> None:
    recorded = dict(recorded_event_types())
    table = "control/domain/event_types.py"
    report(
        [
            *(
                f"{place}: unknown event type; add it to {table}"
                for name, place in recorded.items()
                if name not in EVENT_TYPES
            ),
            *(
                f"{table}: nothing records {name}; record it or remove it"
                for name in EVENT_TYPES
                if name not in recorded
            ),
        ]
    )


def test_functions_and_modules_fit_on_few_screens() -> None:
    """Complexity is limited by ruff (C901)."""
    offences = []
    for module in modules():
        lines = len((SOURCE / module.path).read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES_OF_A_MODULE:
            offences.append(f"src/mainstay/{module.path}: {lines} lines; split it by responsibility")
        offences += [
            module.at(node, f"{node.name} has {lines} lines; name its steps")
            for node in ast.walk(module.tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
        ]
    report(offences)


def code_lines(module: Module) -> int:
    """Lines that contain a statement or a part of one, without docstrings."""
    text = (SOURCE / module.path).read_text(encoding="utf-8")
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {
        line for token in tokens if token.type not in skipped for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            found -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def test_each_package_keeps_its_budget() -> None:
    counted: Counter[str] = Counter()
    for module in modules():
        folder, *rest = module.path.split("/")[:-1] or ["."]
        counted["/".join([folder, *rest[:1]]) if folder in ("control", "converge") else folder] += code_lines(module)
    report(
        [
            f"src/mainstay/{package}: {lines} code lines, its budget is {BUDGET.get(package, 0)}; take away what the change"
            " replaces, or raise the budget in tests/test_structure.py together with a decision"
            for package, lines in sorted(counted.items())
            if lines > BUDGET.get(package, 0)
        ]
    )


def test_every_folder_with_modules_is_a_package() -> None:
    """The import contracts do not see a folder without `__init__.py`."""
    folders = {(SOURCE / module.path).parent for module in modules()}
    report([f"{folder}: add an __init__.py" for folder in folders if not (folder / "__init__.py").exists()])


def test_no_property_has_the_name_of_an_attribute_of_every_resource() -> None:
    """Properties are attributes of a resource, so a property `parent` would replace the `apply` resource around it."""
    for name in resources.names():
        found = resources.find(name)
        assert found is not None
        taken = set(found.properties) & (INTERNAL | {"key_of"})
        assert not taken, f"resources/{name}.py: {', '.join(sorted(taken))} is an attribute of every resource"


def test_the_file_of_a_resource_type_and_of_a_provider_has_its_name() -> None:
    for name in resources.names():
        found = resources.find(name)
        assert found is not None
        assert found.name == name, f"resources/{name}.py: TYPE.name must be {name!r}"
        if found.composes:
            continue
        for file in module_names(import_module(f"mainstay.converge.providers.{name}").__path__):
            provider = registered(import_module(f"mainstay.converge.providers.{name}.{file}"), "PROVIDER")
            assert provider.name == file, f"providers/{name}/{file}.py: PROVIDER.name must be {file!r}"


def test_no_modules_import_each_other() -> None:
    """Neither directly nor through others, inside functions and for types included: such modules are read as one."""
    report(
        [
            f"{' → '.join(each)} → …: move what they share to a third module"
            for each in import_cycles(import_graph(SOURCE))
        ]
    )
