"""A change of CONTRIBUTING's table that lacks a piece fails here: the message names the file and what to write."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import inspect

from mainstay.cli.main import GROUPS, command_names, load_command
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.operations.machinery.bodies import PATTERN_FAULTS, Body, Name
from mainstay.control.operations.services import ServiceCondition
from mainstay.control.store.engine import migrations
from mainstay.control.store.engine.records import ColumnKind, Record, Table
from mainstay.converge import health_checks, resources
from mainstay.converge.contract import Property
from mainstay.converge.manifest.resource_reading import HEALTH_CHECK
from mainstay.converge.value_kinds import TEXT
from mainstay.foundation.module_names import module_names, registered

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src" / "mainstay"


def report(offences: list[str]) -> None:
    assert not offences, "\n" + "\n".join(offences)


# ---- request bodies ----
# Documents without a fixed form, with what bounds them in control/operations/. `agents`, `services` and `orders` bound
# properties and configurations by `machinery/property_decisions.py`.
DOCUMENTS = {
    "OwnStatus.facts": "MAX_FACTS_BYTES",
    "RequestBatch.requests[].body": "the endpoint that the request names",
    "ActionRequest.properties": "MAX_PROPERTIES_BYTES",
    "AgentChange.configuration": "MAX_PROPERTIES_BYTES",
    "AgentTypeChange.configurationSchema": "MAX_DEFINITION_BYTES",
    "Completion.agentInstanceData": "MAX_INSTANCE_DATA_BYTES",
    "Completion.properties": "MAX_PROPERTIES_BYTES",
    "Completion.report": "the size of the request",
    "FailureReport.report": "the size of the request",
    "CleanUpConfirmation.report": "the size of the request",
    "CleanUpFailure.report": "the size of the request",
    "ConfigPoolChange.generatorConfig": "MAX_VALUE_BYTES",
    "NewConfigPool.generatorConfig": "MAX_VALUE_BYTES",
    "NewConfigPoolValue.value": "MAX_VALUE_BYTES",
    "NewAgent.configuration": "MAX_PROPERTIES_BYTES",
    "NewAgentType.configurationSchema": "MAX_DEFINITION_BYTES",
    "NewPool.generatorConfig": "parse_subnet, which refuses unknown keys",
    "NewPoolValue.value": "MAX_VALUE_BYTES",
    "NewService.properties": "MAX_PROPERTIES_BYTES",
    "NewServiceOption.value": "MAX_VALUE_BYTES",
    "NewServiceType.lifecycleSchema": "MAX_DEFINITION_BYTES",
    "NewServiceType.propertySchema": "MAX_DEFINITION_BYTES",
    "OrderCheck.properties": "MAX_PROPERTIES_BYTES",
    "PlanAnswer.events[]": "the size of the request",
    "PlanAnswer.summary": "the size of the request",
    "PoolChange.generatorConfig": "parse_subnet, which refuses unknown keys",
    "ServiceChange.properties": "MAX_PROPERTIES_BYTES",
    "ServiceOptionChange.value": "MAX_VALUE_BYTES",
    "ServiceTypeChange.lifecycleSchema": "MAX_DEFINITION_BYTES",
    "ServiceTypeChange.propertySchema": "MAX_DEFINITION_BYTES",
}
# Only classes of characters, none of them inverted: such a pattern cannot match NUL.
CLASSES = re.compile(r"\^(\[[A-Za-z0-9_-]+\](\+|\{\d+\})?|-)+\$(\(\?!\[\\s\\S\]\))?")


def bodies() -> dict[str, type]:
    """Structs of requests by name; the endpoint of conditions reads a list."""
    found: dict[str, type] = {endpoint.body.__name__: endpoint.body for endpoint in all_endpoints() if endpoint.body}
    return {**found, "ServiceCondition": ServiceCondition}


def members(path: str, kind: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """Every type within a type, with its path; a document without a fixed form has no members."""
    yield path, kind
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from members(f"{path}.{field.encode_name}", field.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from members(path, each)
    elif isinstance(kind, inspect.ListType | inspect.SetType | inspect.VarTupleType):
        yield from members(f"{path}[]", kind.item_type)
    elif isinstance(kind, inspect.DictType) and not is_document(kind):
        yield from members(f"{path}.*", kind.value_type)
        yield from members(f"{path} (its names)", kind.key_type)


def is_document(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.DictType):
        return is_document(kind.value_type)
    return isinstance(kind, inspect.AnyType) or (isinstance(kind, inspect.CustomType) and kind.cls is object)


# `failure_to_store` shortens them and replaces NUL: the server never refuses a result for its length.
SHORTENED = ("FailureReport.errorMessage", "CleanUpFailure.errorMessage")


def unbounded(name: str, body: type) -> Iterator[str]:
    place = f"{name} in control/operations/{body.__module__.rpartition('.')[2]}.py"
    for path, kind in members(name, inspect.type_info(body)):
        if isinstance(kind, inspect.StrType) and path not in SHORTENED:
            if kind.max_length is None:
                yield f"{place}: {path} has no max_length; use Name, Tag or Text of operations/machinery/bodies.py"
            if kind.pattern not in PATTERN_FAULTS and not CLASSES.fullmatch(kind.pattern or ""):
                yield f"{place}: {path} accepts NUL, which PostgreSQL cannot store; add pattern=NO_ZERO or PLAIN_NAME to its Meta"
        elif isinstance(kind, inspect.ListType) and kind.max_length is None:
            yield f"{place}: {path} has no max_length; annotate the list with msgspec.Meta(max_length=…)"
        elif is_document(kind) and path not in DOCUMENTS:
            yield f"{place}: call refuse_large() for {path} in the operation, then add it to DOCUMENTS of this test"


def test_every_text_list_and_document_of_a_request_is_bounded() -> None:
    report([offence for name, body in bodies().items() for offence in unbounded(name, body)])


def test_the_table_of_documents_has_no_row_without_a_field() -> None:
    found = {path for name, body in bodies().items() for path, _ in members(name, inspect.type_info(body))}
    report([f"DOCUMENTS: remove {path}, no request has it" for path in DOCUMENTS if path not in found])


class Inner(msgspec.Struct):
    text: str


class Unbounded(Body, frozen=True, kw_only=True):
    plain: str
    optional: str | None = None
    listed: Annotated[list[str], msgspec.Meta(max_length=3)] = []
    endless: list[Name] = []
    nested: Inner | None = None
    mapped: dict[str, Name] = {}
    free: object = None
    inverted: Annotated[str, msgspec.Meta(max_length=3, pattern="^[^a]+$")] = ""


def test_the_rule_about_bodies_finds_each_form() -> None:
    found = [offence.partition(": ")[2].split(";")[0] for offence in unbounded("Unbounded", Unbounded)]
    texts = ("plain", "optional", "listed[]", "nested.text", "mapped (its names)")
    assert sorted(found) == sorted(
        [
            *(f"Unbounded.{path} has no max_length" for path in (*texts, "endless")),
            *(f"Unbounded.{path} accepts NUL, which PostgreSQL cannot store" for path in (*texts, "inverted")),
            "call refuse_large() for Unbounded.free in the operation, then add it to DOCUMENTS of this test",
        ]
    )


# ---- tables and migrations ----
MIGRATIONS = SOURCE / "control/store/engine/migrations"
SQL_TYPES = {ColumnKind.TEXT: "TEXT", ColumnKind.JSON: "TEXT", ColumnKind.REAL: "REAL"}
MIGRATION_NAME = re.compile(r"(\d{4}_[a-z0-9_]+)(\.sqlite|\.postgresql|\.postgresql\.optional)?\.sql")


def tables() -> Iterator[tuple[str, Table[Any]]]:
    """Every table with its file."""
    for name in module_names([str(SOURCE / "control/store")]):
        module = import_module(f"mainstay.control.store.{name}")
        yield from ((f"control/store/{name}.py", each) for each in vars(module).values() if isinstance(each, Table))


def migrated() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    for migration in migrations.migrations("sqlite"):
        database.executescript(migration.script)
    return database


def missing_columns(place: str, table: Table[Any], database: sqlite3.Connection) -> Iterator[str]:
    types = dict(database.execute("SELECT name, type FROM pragma_table_info(?)", (table.name,)).fetchall())
    last = max(int(path.name[:4]) for path in MIGRATIONS.glob("[0-9]*.sql"))
    for name, kind in table.kinds.items():
        wanted = SQL_TYPES.get(kind, "INTEGER")
        if name not in types:
            yield (
                f"{place}: {table.record.__name__}.{name} has no column; write control/store/engine/migrations/"
                f"{last + 1:04}_<name>.sql: ALTER TABLE {table.name} ADD COLUMN {name} {wanted};"
            )
        elif types[name] not in (wanted, ""):
            # The expressions of a view have no type.
            yield f"{place}: {table.record.__name__}.{name} needs a column of type {wanted}, the migrations have {types[name]}"


def test_every_field_of_a_row_has_a_column() -> None:
    with migrated() as database:
        report([offence for place, table in tables() for offence in missing_columns(place, table, database)])


class Noted(Record, frozen=True, kw_only=True):
    note: str
    label: int


def test_the_rule_about_columns_names_the_migration_to_write() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE noted (id TEXT, created_at INTEGER, updated_at INTEGER, label TEXT)")
    without_column, of_other_type = missing_columns("control/store/x.py", Table("noted", "noted", Noted), database)
    assert re.fullmatch(
        r"control/store/x.py: Noted.note has no column; write control/store/engine/migrations/"
        r"\d{4}_<name>.sql: ALTER TABLE noted ADD COLUMN note TEXT;",
        without_column,
    )
    assert of_other_type == "control/store/x.py: Noted.label needs a column of type INTEGER, the migrations have TEXT"


def bad_migration_names(names: list[str]) -> Iterator[str]:
    for name in names:
        if not MIGRATION_NAME.fullmatch(name):
            yield f"migrations/{name}: rename it to NNNN_name.sql, NNNN_name.sqlite.sql or NNNN_name.postgresql.sql"
    for dialect, other in (("sqlite", ".postgresql"), ("postgresql", ".sqlite")):
        own = [name for name in names if other not in name]
        for number, count in Counter(name[:4] for name in own).items():
            if count > 1:
                shared = ", ".join(name for name in own if name.startswith(number))
                yield f"migrations: {dialect} has number {number} {count} times ({shared}); give each its own number"


def test_migrations_have_names_and_numbers_of_their_own() -> None:
    report(list(bad_migration_names([path.name for path in sorted(MIGRATIONS.glob("*.sql"))])))


def test_the_rule_about_migrations_finds_each_mistake() -> None:
    right = ["0001_a.sql", "0002_b.sqlite.sql", "0002_b.postgresql.optional.sql", "0004_c.sql"]
    assert list(bad_migration_names(right)) == []
    for wrong in ("7_a.sql", "a.sql", "0007-a.sql", "0007_a.postgres.sql", "0007_A.sql", "0007_.sql"):
        assert len(list(bad_migration_names([wrong]))) == 1, wrong
    same = list(bad_migration_names([*right, "0002_again.sqlite.sql", "0004_again.sql"]))
    assert [problem.partition(" (")[0] for problem in same] == [
        "migrations: sqlite has number 0002 2 times",
        "migrations: sqlite has number 0004 2 times",
        "migrations: postgresql has number 0004 2 times",
    ]


# ---- registry folders ----
def test_a_module_without_what_it_registers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "telnet.py"
    file.write_text("KINDD = None\n")
    monkeypatch.setattr(health_checks, "__path__", [*health_checks.__path__, str(tmp_path)])
    with pytest.raises(ImportError, match=f"^{file}: define KIND, as every file of this folder does$"):
        health_checks.kinds()


@pytest.mark.parametrize("package", ["converge.resources", "converge.health_checks", "control.api.endpoints"])
def test_every_file_of_a_registry_folder_registers_something(package: str) -> None:
    """The folders of providers and rules are loaded by other tests of this file and by every order."""
    attributes = {
        "converge.resources": ["TYPE"],
        "converge.health_checks": ["KIND"],
        "control.api.endpoints": ["ENDPOINTS"],
    }
    for name in module_names(import_module(f"mainstay.{package}").__path__):
        for attribute in attributes[package]:
            registered(import_module(f"mainstay.{package}.{name}"), attribute)


def test_every_command_has_its_parts() -> None:
    commands = {name: load_command(name) for name in command_names()}
    offences = [
        f"cli/commands/{name}.py: define {part}"
        for name, command in commands.items()
        for part in ("SUMMARY", "GROUP", "__doc__", "configure", "run")
        if not getattr(command, part, None)
    ]
    offences += [
        f"cli/commands/{name}.py: GROUP must be one of {', '.join(GROUPS)}"
        for name, command in commands.items()
        if getattr(command, "GROUP", GROUPS[0]) not in GROUPS
    ]
    report(offences)


# ---- resource types ----
def test_every_resource_type_has_its_files() -> None:
    offences = []
    for name in resources.names():
        found = resources.find(name)
        if found is not None and found.composes:
            # The resources of the manifest that it applies have providers.
            pass
        elif not (SOURCE / f"converge/providers/{name}/__init__.py").exists():
            offences.append(f"{name}: write converge/providers/{name}/__init__.py and a first provider beside it")
        elif not module_names([str(SOURCE / f"converge/providers/{name}")]):
            offences.append(f"{name}: write a first provider, converge/providers/{name}/<name>.py with PROVIDER")
        if not list(TESTS.glob(f"cases/{name}/*.yaml")):
            offences.append(f"{name}: write cases in tests/cases/{name}/, one YAML file for each subject")
        if not (TESTS / f"converge/test_{name}_cases.py").exists():
            offences.append(f"{name}: write tests/converge/test_{name}_cases.py, which reads tests/cases/{name}/")
    report(offences)


@cache
def sources_of_tests() -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != Path(__file__))


def is_read(folder: str, stem: str) -> bool:
    """Whether a test names the file, or reads all files of its folder."""
    return any(
        f'"{folder}/{stem}"' in source
        or f'"{folder}" / "{stem}.yaml"' in source
        or (f'"cases" / "{folder}"' in source and re.search(rf'"{stem}(\.yaml)?"|"\*\.yaml"', source))
        for source in sources_of_tests()
    )


def test_every_file_of_cases_is_read_by_a_test() -> None:
    report(
        [
            f"{path.relative_to(TESTS.parent)}: no test reads it; name it in tests/converge/test_{path.parent.name}_cases.py"
            for path in sorted(TESTS.glob("cases/*/*.yaml"))
            if not is_read(path.parent.name, path.stem)
        ]
    )


def test_the_rule_about_cases_finds_a_file_that_is_not_read() -> None:
    assert is_read("file", "all files of this folder are read")
    assert is_read("manifest", "faults")
    assert not is_read("manifest", "never-written")
    assert not is_read("package", "never-written")


# ---- hidden properties ----
# Parts of names of values that must not be shown.
SECRET_WORDS = (
    "password",
    "passphrase",
    "passwd",
    "secret",
    "token",
    "hash",
    "key",
    "credential",
    "headers",
    "cookie",
)


def looks_secret(place: str, properties: Mapping[str, Property]) -> list[str]:
    return [
        f"{place}: {name} looks like a secret; add `secret=True` to its Property (never shown), or `private=True` "
        "(hidden under `sensitive: true`)"
        for name, entry in properties.items()
        if any(word in name.lower() for word in SECRET_WORDS) and not entry.secret and not entry.private
    ]


def declared_properties() -> Iterator[tuple[str, Mapping[str, Property]]]:
    for name in resources.names():
        module = import_module(f"mainstay.converge.resources.{name}")
        yield f"converge/resources/{name}.py", registered(module, "TYPE").properties
    for name, kind in health_checks.kinds().items():
        yield f"converge/health_checks/{name}.py", kind.properties
    yield "converge/manifest/resource_reading.py", HEALTH_CHECK


def test_properties_that_look_like_a_secret_are_declared() -> None:
    report([problem for place, properties in declared_properties() for problem in looks_secret(place, properties)])


def test_an_undeclared_property_that_looks_like_a_secret_is_named() -> None:
    properties = {
        "api_token": Property(TEXT, "neither"),
        "password": Property(TEXT, "secret", secret=True),
        "key": Property(TEXT, "private", private=True),
        "path": Property(TEXT, "harmless"),
    }
    (problem,) = looks_secret("converge/health_checks/http.py", properties)
    assert problem.startswith("converge/health_checks/http.py: api_token looks like a secret; add `secret=True` to")
