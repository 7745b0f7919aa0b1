"""Compiles declared properties, once per schema, into closures that admit new values: on creation, and wherever an
update gives a value. Each closure handles one property and knows its path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.domain.properties.contract import (
    Actor,
    Check,
    EvaluationContext,
    Generate,
    GenerationFailed,
    Operation,
    PropertyType,
    RevealedSecret,
    SecretKind,
    Unknown,
)
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.evaluation import Evaluation, SecretSlot, ValueSource
from mainstay.control.domain.values import (
    Properties,
    is_integer,
    is_number,
    is_text,
    is_uuid,
    json_problem,
    type_name,
    whole,
)
from mainstay.foundation.vault import VAULT_PREFIX

MISSING = "required field is missing"
UNKNOWN = "unknown property"
IMMUTABLE = "property is immutable and cannot be changed"
FOREIGN_REFERENCE = "a vault reference may only be sent back where it is stored"
# The path of an array item; the closures of what is inside the item know their path from there on.
ITEM = "[]"

# (value, run, outer path) → the value as it will be kept. The outer path is that of the array item around the property,
# and empty where there is none: it goes in front of the path that the closure knows.
Admit = Callable[[object, Evaluation, str], object]
# (run, outer path, the object being built): what happens where no value was given
Absent = Callable[[Evaluation, str, Properties], None]
AdmitMembers = Callable[[Properties, Evaluation, str], Properties]


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The inside of an object, or the whole document."""

    # The path of the object, behind the outer path.
    path: str
    nodes: dict[str, Node]
    names: frozenset[str]
    admit: AdmitMembers


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A property with its closures."""

    declared: PropertyDeclaration
    # Behind the outer path; empty for the items of an array.
    path: str
    # For a value that somebody gives.
    admit: Admit
    # Where an object that is newly given lacks it; None if there is nothing to do.
    absent: Absent | None
    # Lets the generator make a value; None if it has none.
    make: Absent | None
    members: Members | None
    items: Node | None


def compile_members(members: tuple[PropertyDeclaration, ...], path: str = "") -> Members:
    paths = {member.name: locate(path, member.name).removeprefix(ITEM) for member in members}
    nodes = {member.name: _compile_property(member, paths[member.name]) for member in members}
    own_path = path.removeprefix(ITEM)
    return Members(own_path, nodes, frozenset(nodes), _members(nodes, own_path))


def _compile_property(declared: PropertyDeclaration, path: str) -> Node:
    members = None if declared.members is None else compile_members(declared.members, path or ITEM)
    items = None if declared.items is None else _compile_property(declared.items, "")
    made = _typed(declared, path, members, items)
    if declared.secret is not None:
        made = _sealing(made, declared.secret, declared.schema_path, path)
    given = made if declared.generate is None else _claiming(made, declared.generate, path)
    make = None if declared.generate is None else _making(declared.name, declared.generate, path, made)
    return Node(declared, path, given, _absent(declared, path, made, make), make, members, items)


def faults_of_default(declared: PropertyDeclaration) -> list[PathFault]:
    """A default must pass its own type and validators; what the outside decides is asked when the default is used."""
    run = _unasked_run()
    _compile_property(declared, "").admit(declared.default, run, locate(declared.definition_path, "default"))
    return run.faults


def _unasked_run() -> Evaluation:
    """For what the schema itself puts in place: nobody is judged."""
    situation = EvaluationContext(
        operation=Operation.UPDATE,
        actor=Actor.SYSTEM,
        now=datetime.min.replace(tzinfo=UTC),
        entropy=b"",
        dry=True,
        # Nobody knows yet which provider; that there will be one is enough.
        provider_id="",
    )
    run = Evaluation(situation, None)
    run.actor = None
    return run


def refused(declared: PropertyDeclaration, run: Evaluation, path: str) -> bool:
    """Notes the objection of every authorizer to a value at this path; True if there is one."""
    found = False
    for judge in declared.judges:
        message = judge(run.situation)
        if message is not None:
            run.refuse(path, f"{path}: {message}")
            found = True
    return found


def _members(nodes: dict[str, Node], path: str) -> AdmitMembers:
    names = frozenset(nodes)

    def admit_members(given: Properties, run: Evaluation, outer: str) -> Properties:
        refuse_unknown(given, names, run, outer + path)
        out: Properties = {}
        for name, node in nodes.items():
            value = given.get(name)
            if value is not None:
                out[name] = _admit_judged(node, value, run, outer)
            elif node.absent is not None:
                node.absent(run, outer, out)
        return out

    return admit_members


def _admit_judged(node: Node, value: object, run: Evaluation, outer: str) -> object:
    """Asks the authorizers first. A value that the schema itself provides is not judged: its actor is None."""
    if run.actor is not None and refused(node.declared, run, outer + node.path):
        return Unknown.COUNTED
    return node.admit(value, run, outer)


def refuse_unknown(given: Properties, names: frozenset[str], run: Evaluation, path: str) -> None:
    for name in given:
        if name not in names:
            run.refuse(locate(path, name), UNKNOWN)


def _typed(declared: PropertyDeclaration, path: str, members: Members | None, items: Node | None) -> Admit:
    kind, checks = declared.type, declared.checks
    if members is not None:
        return _objects(members, checks)
    if items is not None:
        return _arrays(items, path, checks)
    match kind:
        case PropertyType.OBJECT | PropertyType.ARRAY | PropertyType.JSON:
            return _free_form(kind, path, checks)
        case PropertyType.REFERENCE | PropertyType.UUID:
            return _references(path, checks) if declared.refers else _uuids(path, checks)
        case _:
            return _scalars(kind, path, checks)


def run_checks(checks: tuple[Check, ...], value: object, run: Evaluation, path: str) -> None:
    for check in checks:
        message = check(value, run)
        if message is not None:
            run.refuse(path, message)


def _refuse_type(value: object, run: Evaluation, path: str, expected: str) -> Unknown:
    return run.refuse(path, f"expected {expected}, got {type_name(value)}")


_SCALARS: dict[PropertyType, Callable[[object], bool]] = {
    PropertyType.STRING: lambda value: type(value) is str and is_text(value),
    PropertyType.INTEGER: is_integer,
    PropertyType.NUMBER: is_number,
    PropertyType.BOOLEAN: lambda value: type(value) is bool,
}


def _scalars(kind: PropertyType, path: str, checks: tuple[Check, ...]) -> Admit:
    has_type = _SCALARS[kind]
    is_whole = kind is PropertyType.INTEGER

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if not has_type(value):
            return _refuse_type(value, run, outer + path, kind)
        if is_whole:
            value = whole(value)  # type: ignore[arg-type]
        if checks:
            run_checks(checks, value, run, outer + path)
        return value

    return admit


_FREE_FORM: dict[PropertyType, type] = {
    PropertyType.OBJECT: dict,
    PropertyType.ARRAY: list,
    PropertyType.JSON: object,
}


def _free_form(kind: PropertyType, path: str, checks: tuple[Check, ...]) -> Admit:
    """A value whose inside is not declared: it must be JSON within the bounds, and nothing more."""
    wanted = _FREE_FORM[kind]

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if not isinstance(value, wanted):
            return _refuse_type(value, run, outer + path, kind)
        problem = json_problem(value)
        if problem is not None:
            return run.refuse(outer + path, f"expected {kind}, got {problem}")
        run_checks(checks, value, run, outer + path)
        return value

    return admit


def _objects(members: Members, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Evaluation, outer: str) -> object:
        path = outer + members.path
        if type(value) is not dict:
            return _refuse_type(value, run, path, "object")
        before = len(run.faults)
        out = members.admit(value, run, outer)
        if len(run.faults) == before:
            run_checks(checks, out, run, path)
        return out

    return admit


def _arrays(items: Node, own_path: str, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Evaluation, outer: str) -> object:
        path = outer + own_path
        if type(value) is not list:
            return _refuse_type(value, run, path, "array")
        before = len(run.faults)
        # Authorizers look at the request and not at the value, so without an objection no item needs to be judged.
        objects = any(judge(run.situation) is not None for judge in items.declared.judges)
        admit_item = partial(_admit_judged, items) if objects else items.admit
        out = [admit_item(item, run, f"{path}[{index}]") for index, item in enumerate(value)]
        # A check of the whole array would only repeat the faults of its items.
        if len(run.faults) == before:
            run_checks(checks, out, run, path)
        return out

    return admit


def _uuids(path: str, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not str:
            return _refuse_type(value, run, outer + path, "string")
        if not is_uuid(value):
            return run.refuse(outer + path, "invalid uuid format")
        run_checks(checks, value, run, outer + path)
        return value

    return admit


def _references(path: str, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not str:
            return _refuse_type(value, run, outer + path, "string")
        if not is_uuid(value):
            return run.refuse(outer + path, "invalid service ID format")
        service_id = value.lower()
        if service_id == run.situation.service_id or run.service(service_id) is None:
            return run.refuse(outer + path, "referenced service does not exist")
        run_checks(checks, value, run, outer + path)
        return value

    return admit


def _sealing(admit_plain: Admit, kind: SecretKind, schema_path: str, path: str) -> Admit:
    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is str and value.startswith(VAULT_PREFIX):
            if value in run.own_references.get(schema_path, ()):
                return value
            return run.refuse(outer + path, FOREIGN_REFERENCE)
        admitted = admit_plain(value, run, outer)
        if isinstance(admitted, Unknown):
            return admitted
        return run.seal(SecretSlot(outer + path, schema_path, kind, RevealedSecret(admitted)))

    return admit


def _claiming(admit_value: Admit, generate: Generate, path: str) -> Admit:
    """A generator also sees a value that was given: a pool must own what a user picks from it."""

    def admit(value: object, run: Evaluation, outer: str) -> object:
        before = len(run.faults)
        admitted = admit_value(value, run, outer)
        if len(run.faults) > before or isinstance(admitted, SecretSlot):
            return admitted
        try:
            return generate(outer + path, admitted, run)
        except GenerationFailed as failure:
            return run.refuse(outer + path, str(failure))

    return admit


def _making(name: str, generate: Generate, own_path: str, admit_made: Admit) -> Absent:
    """Lets the generator make a value where there is none; it passes the type and validators like any other."""

    def make(run: Evaluation, outer: str, out: Properties) -> None:
        path = outer + own_path
        try:
            value = generate(path, None, run)
        except GenerationFailed as failure:
            run.refuse(path, str(failure))
            return
        if isinstance(value, Unknown):
            out[name] = value
            run.count(out, name)
        elif value is not None:
            run.made[path] = ValueSource.GENERATED
            out[name] = _unjudged(admit_made, value, run, outer)

    return make


def _unjudged(admit: Admit, value: object, run: Evaluation, outer: str) -> object:
    judged, run.actor = run.actor, None
    try:
        return admit(value, run, outer)
    finally:
        run.actor = judged


def _absent(declared: PropertyDeclaration, path: str, admit_made: Admit, make: Absent | None) -> Absent | None:
    if declared.default is not None:
        return _default(declared, path, admit_made)
    if make is not None or not declared.required:
        return make

    def demand(run: Evaluation, outer: str, _out: Properties) -> None:
        if _is_demanded_of_new(declared, run.situation):
            run.refuse(outer + path, MISSING)

    return demand


def _default(declared: PropertyDeclaration, path: str, admit_made: Admit) -> Absent:
    def use_default(run: Evaluation, outer: str, out: Properties) -> None:
        run.made[outer + path] = ValueSource.DEFAULT
        out[declared.name] = _unjudged(admit_made, declared.default, run, outer)

    return use_default


def _is_demanded_of_new(declared: PropertyDeclaration, situation: EvaluationContext) -> bool:
    """Whether an object that is newly given must contain a required property: only callers who may set it owe it."""
    if declared.secret is SecretKind.EPHEMERAL:
        return situation.operation is Operation.CREATE
    if situation.operation is Operation.REPORT:
        return Actor.AGENT in declared.actors and (situation.last_step or not situation.create_run)
    return not declared.agent_only
