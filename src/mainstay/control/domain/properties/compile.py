"""Turns declared properties into closures that admit new values: on creation, and wherever an update gives one.

This is the hot path. Each closure does one property; paths are built only where a fault or a container needs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

from mainstay.control.domain.faults import Fault, locate
from mainstay.control.domain.properties.contract import (
    Actor,
    Check,
    Generate,
    GenerationFailed,
    Operation,
    Plain,
    PropertyType,
    SecretKind,
    Situation,
    Unknown,
)
from mainstay.control.domain.properties.declared import Property
from mainstay.control.domain.properties.proof import LEAST_MEMBERS, Prove, is_owed, is_provable, make_prove
from mainstay.control.domain.properties.run import How, Run, SecretSlot
from mainstay.control.domain.values import Properties, is_text, is_uuid, json_problem, type_name, whole

VAULT_PREFIX = "vault://"
MISSING = "required field is missing"
UNKNOWN = "unknown property"
IMMUTABLE = "property is immutable and cannot be changed"
FOREIGN_REFERENCE = "a vault reference may only be sent back where it is stored"

# (value, run, path of the parent, own name or index) → the value as it will be kept
Admit = Callable[[object, Run, str, str | int], object]
# (run, path of the parent, the object being built): what happens where no value was given
Absent = Callable[[Run, str, Properties], None]
AdmitMembers = Callable[[Properties, Run, str], Properties]


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The inside of an object, or the whole document."""

    nodes: dict[str, Node]
    names: frozenset[str]
    admit: AdmitMembers


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A property with its closures."""

    declared: Property
    # For a value that somebody gives, and for one that the schema or a generator made.
    admit: Admit
    admit_made: Admit
    # Where an object that is newly given lacks it; None if there is nothing to do.
    absent: Absent | None
    members: Members | None
    items: Node | None


def compile_members(members: tuple[Property, ...], prove_from: int = LEAST_MEMBERS) -> Members:
    """`prove_from` is the number of plain members from which a proof is tried; the outcome does not hang on it."""
    nodes = {member.name: compile_property(member, prove_from) for member in members}
    return Members(nodes, frozenset(nodes), _members(nodes, prove_from))


def compile_property(declared: Property, prove_from: int = LEAST_MEMBERS) -> Node:
    members = None if declared.members is None else compile_members(declared.members, prove_from)
    items = None if declared.items is None else compile_property(declared.items, prove_from)
    made = _typed(declared, members, items)
    if declared.secret is not None:
        made = _sealing(made, declared.secret, declared.schema_path)
    given = made if declared.generate is None else _claiming(made, declared.generate)
    return Node(declared, given, made, _absent(declared, made), members, items)


def faults_of_default(declared: Property) -> list[Fault]:
    """A default must pass its own type and validators; what the outside decides is asked when the default is used."""
    run = Run(
        Situation(
            operation=Operation.UPDATE,
            actor=Actor.SYSTEM,
            now=datetime.min.replace(tzinfo=UTC),
            entropy=b"",
            dry=True,
        ),
        None,
    )
    run.actor = None
    compile_property(declared).admit(declared.default, run, declared.definition_path, "default")
    return run.faults


def refused(declared: Property, run: Run, parent: str, key: str | int) -> bool:
    """Notes what every authorizer has against the value; True if any has."""
    found = False
    for judge in declared.judges:
        message = judge(run.situation)
        if message is not None:
            path = locate(parent, key)
            run.refuse(path, f"{path}: {message}")
            found = True
    return found


# A member as the loop wants it: name, whether it is judged, what to do with a value and without one, and the property.
# Without an `Admit` the value has been proved.
_Row = tuple[str, bool, Admit | None, Absent | None, Property]


@dataclass(frozen=True, slots=True)
class _Way:
    """How one kind of request is admitted: by all rows, or by a proof and the rows that are left after it."""

    rows: tuple[_Row, ...]
    prove: Prove | None = None
    rows_left: tuple[_Row, ...] = ()


def _members(nodes: dict[str, Node], prove_from: int) -> AdmitMembers:
    names = frozenset(nodes)
    # Whom no authorizer can stop need not be judged: settled here for every actor and both kinds of request.
    ways = {who: _find_way(nodes, prove_from, *who) for who in product((*Actor, None), (True, False))}

    def admit_members(given: Properties, run: Run, path: str) -> Properties:
        way = ways[run.actor, run.creating]
        if way.prove is not None and way.prove(given, run):
            out = dict(given)
            rows = way.rows_left
        else:
            if not given.keys() <= names:
                refuse_unknown(given, names, run, path)
            out = {}
            rows = way.rows
        for name, judged, admit, absent, declared in rows:
            value = given.get(name)
            if value is None:
                out.pop(name, None)
                if absent is not None:
                    absent(run, path, out)
            elif admit is None:
                continue
            elif judged and refused(declared, run, path, name):
                out[name] = Unknown.COUNTED
            else:
                out[name] = admit(value, run, path, name)
        return out

    return admit_members


def _find_way(nodes: dict[str, Node], prove_from: int, actor: Actor | None, creating: bool) -> _Way:  # noqa: FBT001
    rows: list[_Row] = []
    covered: set[str] = set()
    for name, node in nodes.items():
        judged = is_judged(node.declared, actor, creating=creating)
        rows.append((name, judged, node.admit, node.absent, node.declared))
        if not judged and is_provable(node.declared):
            covered.add(name)
    if len(covered) < prove_from:
        return _Way(tuple(rows))
    prove = make_prove({name: node.declared for name, node in nodes.items()}, frozenset(covered))
    left = [row if row[0] not in covered else (*row[:2], None, *row[3:]) for row in rows if _is_left(row, covered)]
    return _Way(tuple(rows), prove, tuple(left))


def _is_left(row: _Row, covered: set[str]) -> bool:
    """What a proof has covered still has something to do where it is absent, if it has a default."""
    name, _, _, absent, declared = row
    return name not in covered or (absent is not None and not is_owed(declared))


def is_judged(declared: Property, actor: Actor | None, *, creating: bool) -> bool:
    """Whether an authorizer could object. Nobody is judged for what the schema itself puts in place: its actor is None."""
    if actor is None:
        return False
    return actor not in declared.actors or any(not (creating and each.updates_only) for each in declared.further)


def refuse_unknown(given: Properties, names: frozenset[str], run: Run, path: str) -> None:
    for name in given:
        if name not in names:
            run.refuse(locate(path, name), UNKNOWN)


def _typed(declared: Property, members: Members | None, items: Node | None) -> Admit:
    checks = declared.checks
    match declared.type:
        case PropertyType.STRING:
            return _strings(checks)
        case PropertyType.INTEGER:
            return _integers(checks)
        case PropertyType.NUMBER:
            return _numbers(checks)
        case PropertyType.BOOLEAN:
            return _booleans(checks)
        case PropertyType.OBJECT:
            return _free("object", dict, checks) if members is None else _objects(members.admit, checks)
        case PropertyType.ARRAY:
            return _free("array", list, checks) if items is None else _arrays(items, checks)
        case PropertyType.JSON:
            return _free("json", object, checks)
        case PropertyType.REFERENCE | PropertyType.UUID:
            return _references(checks) if declared.refers else _uuids(checks)


def run_checks(checks: tuple[Check, ...], value: object, run: Run, parent: str, key: str | int) -> None:
    for check in checks:
        message = check(value, run)
        if message is not None:
            run.refuse(locate(parent, key), message)


def _mismatch(run: Run, parent: str, key: str | int, expected: str, got: str) -> Unknown:
    return run.refuse(locate(parent, key), f"expected {expected}, got {got}")


def _strings(checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if type(value) is not str or not (value.isascii() or is_text(value)):
            return _mismatch(run, parent, key, "string", type_name(value))
        # The loop of `run_checks`, without the call: most properties are strings and integers.
        for check in checks:
            message = check(value, run)
            if message is not None:
                run.refuse(locate(parent, key), message)
        return value

    return admit


def _integers(checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if type(value) is not int:
            if type(value) is not float or not value.is_integer():
                return _mismatch(run, parent, key, "integer", type_name(value))
            value = whole(value)
        for check in checks:
            message = check(value, run)
            if message is not None:
                run.refuse(locate(parent, key), message)
        return value

    return admit


def _numbers(checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        # A float minus itself is zero, unless it is infinite or no number at all.
        if type(value) is not int and (type(value) is not float or value - value != 0):
            return _mismatch(run, parent, key, "number", type_name(value))
        run_checks(checks, value, run, parent, key)
        return value

    return admit


def _booleans(checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if type(value) is not bool:
            return _mismatch(run, parent, key, "boolean", type_name(value))
        run_checks(checks, value, run, parent, key)
        return value

    return admit


def _free(expected: str, wanted: type, checks: tuple[Check, ...]) -> Admit:
    """A value whose inside nobody described: it must be JSON within the bounds, and nothing more."""

    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if not isinstance(value, wanted):
            return _mismatch(run, parent, key, expected, type_name(value))
        problem = json_problem(value)
        if problem is not None:
            return _mismatch(run, parent, key, expected, problem)
        if checks:
            run_checks(checks, value, run, parent, key)
        return value

    return admit


def _objects(admit_members: AdmitMembers, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if type(value) is not dict:
            return _mismatch(run, parent, key, "object", type_name(value))
        before = len(run.faults)
        out = admit_members(value, run, locate(parent, key))
        if checks and len(run.faults) == before:
            run_checks(checks, out, run, parent, key)
        return out

    return admit


def _arrays(items: Node, checks: tuple[Check, ...]) -> Admit:
    declared, admit_item = items.declared, items.admit
    everybody = product((*Actor, None), (True, False))
    judged_for = {(actor, creating): is_judged(declared, actor, creating=creating) for actor, creating in everybody}

    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if type(value) is not list:
            return _mismatch(run, parent, key, "array", type_name(value))
        judged = judged_for[run.actor, run.creating]
        before = len(run.faults)
        path = locate(parent, key)
        out: list[object] = []
        for index, item in enumerate(value):
            if not (judged and refused(declared, run, path, index)):
                out.append(admit_item(item, run, path, index))
        # Comparing items that are wrong, or are not there, would only add noise.
        if len(run.faults) == before:
            run_checks(checks, out, run, parent, key)
        return out

    return admit


def _uuids(checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if type(value) is not str:
            return _mismatch(run, parent, key, "string", type_name(value))
        if not is_uuid(value):
            return run.refuse(locate(parent, key), "invalid uuid format")
        run_checks(checks, value, run, parent, key)
        return value

    return admit


def _references(checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        if type(value) is not str:
            return _mismatch(run, parent, key, "string", type_name(value))
        if not is_uuid(value):
            return run.refuse(locate(parent, key), "invalid service ID format")
        service_id = value.lower()
        if service_id == run.situation.service_id or run.service(service_id) is None:
            return run.refuse(locate(parent, key), "referenced service does not exist")
        run_checks(checks, value, run, parent, key)
        return value

    return admit


def _sealing(admit_plain: Admit, kind: SecretKind, schema_path: str) -> Admit:
    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        path = locate(parent, key)
        if type(value) is str and value.startswith(VAULT_PREFIX):
            if value in run.own_references.get(schema_path, ()):
                return value
            return run.refuse(path, FOREIGN_REFERENCE)
        admitted = admit_plain(value, run, parent, key)
        if isinstance(admitted, Unknown):
            return admitted
        return run.seal(SecretSlot(path, schema_path, kind, Plain(admitted)))

    return admit


def _claiming(admit_value: Admit, generate: Generate) -> Admit:
    """A generator also sees a value that was given: a pool must own what a user picks from it."""

    def admit(value: object, run: Run, parent: str, key: str | int) -> object:
        before = len(run.faults)
        admitted = admit_value(value, run, parent, key)
        if len(run.faults) > before or isinstance(admitted, SecretSlot):
            return admitted
        path = locate(parent, key)
        try:
            return generate(path, admitted, run)
        except GenerationFailed as failure:
            return run.refuse(path, str(failure))

    return admit


def make_value(generate: Generate, name: str, admit_made: Admit, run: Run, parent: str, out: Properties) -> None:
    """Lets the generator make a value where there is none; it passes the type and validators like any other."""
    path = locate(parent, name)
    try:
        value = generate(path, None, run)
    except GenerationFailed as failure:
        run.refuse(path, str(failure))
        return
    if isinstance(value, Unknown):
        out[name] = value
        run.count(out, name)
    elif value is not None:
        run.made[path] = How.GENERATED
        out[name] = _unjudged(admit_made, value, run, parent, name)


def _unjudged(admit: Admit, value: object, run: Run, parent: str, key: str) -> object:
    judged, run.actor = run.actor, None
    try:
        return admit(value, run, parent, key)
    finally:
        run.actor = judged


def _absent(declared: Property, admit_made: Admit) -> Absent | None:
    name, default, generate = declared.name, declared.default, declared.generate
    if default is not None:

        def use_default(run: Run, parent: str, out: Properties) -> None:
            run.made[locate(parent, name)] = How.DEFAULT
            out[name] = _unjudged(admit_made, default, run, parent, name)

        return use_default
    if generate is not None:

        def use_generator(run: Run, parent: str, out: Properties) -> None:
            make_value(generate, name, admit_made, run, parent, out)

        return use_generator
    if not declared.required:
        return None

    def demand(run: Run, parent: str, _out: Properties) -> None:
        if is_demanded_of_new(declared, run.situation):
            run.refuse(locate(parent, name), MISSING)

    return demand


def is_demanded_of_new(declared: Property, situation: Situation) -> bool:
    """Whether a required property must be in an object that is newly given: it is asked only of those who could set it."""
    if declared.secret is SecretKind.EPHEMERAL:
        return situation.operation is Operation.CREATE
    if situation.operation is Operation.REPORT:
        return Actor.AGENT in declared.actors and (situation.last_step or not situation.create_run)
    return not declared.agent_only
