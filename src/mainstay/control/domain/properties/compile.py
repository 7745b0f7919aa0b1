"""Turns declared properties into closures that admit new values: on creation, and wherever an update gives one.

This is the hot path. Each closure does one property and knows its path, so that the usual faults are made beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import NamedTuple

from mainstay.control.domain.faults import PathFault, locate, make_fault
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
from mainstay.control.domain.properties.evaluation import COUNTED, CREATE, DEFAULT, GENERATED, Evaluation, SecretSlot
from mainstay.control.domain.properties.proof import (
    LEAST_MEMBERS,
    Prove,
    is_owed,
    is_provable,
    make_prove,
    make_prove_value,
)
from mainstay.control.domain.values import JSON_TYPES, Properties, is_text, is_uuid, json_problem, type_name, whole
from mainstay.foundation.vault import VAULT_PREFIX

MISSING = "required field is missing"
UNKNOWN = "unknown property"
IMMUTABLE = "property is immutable and cannot be changed"
FOREIGN_REFERENCE = "a vault reference may only be sent back where it is stored"
# Where an item of an array stands; what is inside knows its path from there on.
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


def compile_members(
    members: tuple[PropertyDeclaration, ...], prove_from: int = LEAST_MEMBERS, path: str = ""
) -> Members:
    """`prove_from` is the number of plain members from which a proof is tried; the outcome does not hang on it."""
    paths = {member.name: locate(path, member.name).removeprefix(ITEM) for member in members}
    nodes = {member.name: _compile_property(member, paths[member.name], prove_from) for member in members}
    own_path = path.removeprefix(ITEM)
    return Members(own_path, nodes, frozenset(nodes), _members(nodes, own_path, prove_from))


def _compile_property(declared: PropertyDeclaration, path: str, prove_from: int = LEAST_MEMBERS) -> Node:
    members = None if declared.members is None else compile_members(declared.members, prove_from, path or ITEM)
    items = None if declared.items is None else _compile_property(declared.items, "", prove_from)
    made = _typed(declared, path, members, items, prove_from)
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
    """Notes what every authorizer has against the value; True if any has."""
    found = False
    for judge in declared.judges:
        message = judge(run.situation)
        if message is not None:
            run.refuse(path, f"{path}: {message}")
            found = True
    return found


# A member as the loop wants it: its name; for plain ones the type of a right value, the path and the checks; what to do
# with any other value, and what to do without one.
_Row = tuple[str, type | None, str, tuple[Check, ...], Admit, Absent | None]
_PLAIN: dict[PropertyType, type] = {
    PropertyType.STRING: str,
    PropertyType.INTEGER: int,
    PropertyType.NUMBER: int,
    PropertyType.BOOLEAN: bool,
}


class _Way(NamedTuple):
    """How one kind of request is admitted: by all rows, or by a proof and the rows that are left after it."""

    rows: tuple[_Row, ...]
    prove: Prove | None = None
    # The members that the proof does not cover, and the rows that are left if one of them is given, or none.
    uncovered: frozenset[str] = frozenset()
    rows_left: tuple[_Row, ...] = ()
    rows_absent: tuple[_Row, ...] = ()


def _members(nodes: dict[str, Node], object_path: str, prove_from: int) -> AdmitMembers:
    names = frozenset(nodes)
    # Whom no authorizer can stop need not be judged: settled here for every actor and both kinds of request.
    to_create, to_change = (
        {actor: _find_way(nodes, prove_from, actor, creating=creating) for actor in (*Actor, None)}
        for creating in (True, False)
    )

    def admit_members(given: Properties, run: Evaluation, outer: str) -> Properties:
        rows, prove, uncovered, rows_left, rows_absent = (to_create if run.creating else to_change)[run.actor]
        if prove is None or not prove(given, run):
            if not names.issuperset(given):
                refuse_unknown(given, names, run, outer + object_path)
            out: Properties = {}
        elif uncovered.isdisjoint(given):
            out = given.copy()
            rows = rows_absent
        else:
            out = {name: value for name, value in given.items() if value is not None}
            rows = rows_left
        get, faults = given.get, run.faults
        for name, plain, path, checks, admit, absent in rows:
            value = get(name)
            if value is None:
                if absent is not None:
                    absent(run, outer, out)
            elif type(value) is plain and (plain is not str or value.isascii()):  # type: ignore[attr-defined]
                # As the closure of the property would, without the call: most properties are plain.
                for check in checks:
                    message = check(value, run)
                    if message is not None:
                        faults.append(make_fault((outer + path, message)))
                out[name] = value
            else:
                out[name] = admit(value, run, outer)
        return out

    return admit_members


def _find_way(nodes: dict[str, Node], prove_from: int, actor: Actor | None, *, creating: bool) -> _Way:
    rows: list[_Row] = []
    covered: set[str] = set()
    for name, node in nodes.items():
        judged = _is_judged(node.declared, actor, creating=creating)
        rows.append(_row(node, judged=judged))
        if not judged and is_provable(node.declared):
            covered.add(name)
    if len(covered) < prove_from:
        return _Way(tuple(rows))
    prove = make_prove({name: node.declared for name, node in nodes.items()}, frozenset(covered))
    # What a proof has covered still has something to do where it is absent, if it has a default.
    settled = {name for name in covered if nodes[name].absent is None or is_owed(nodes[name].declared)}
    left = [_proved_row(nodes[row[0]]) if row[0] in covered else row for row in rows if row[0] not in settled]
    absent_only = [row for row in left if row[-1] is not None]
    return _Way(tuple(rows), prove, frozenset(nodes) - covered, tuple(left), tuple(absent_only))


def _row(node: Node, *, judged: bool) -> _Row:
    declared = node.declared
    admit = _judging(node) if judged else node.admit
    special = judged or declared.secret is not None or declared.generate is not None
    plain = None if special else _PLAIN.get(declared.type)
    return (declared.name, plain, node.path, declared.checks, admit, node.absent)


def _proved_row(node: Node) -> _Row:
    return (node.declared.name, None, node.path, (), _keep, node.absent)


def _keep(value: object, _run: Evaluation, _outer: str) -> object:
    return value


def _judging(node: Node) -> Admit:
    declared, path, admit_value = node.declared, node.path, node.admit

    def admit(value: object, run: Evaluation, outer: str) -> object:
        return COUNTED if refused(declared, run, outer + path) else admit_value(value, run, outer)

    return admit


def _is_judged(declared: PropertyDeclaration, actor: Actor | None, *, creating: bool) -> bool:
    """Whether an authorizer could object. Nobody is judged for what the schema itself puts in place: its actor is None."""
    if actor is None:
        return False
    return actor not in declared.actors or any(not (creating and each.updates_only) for each in declared.further)


def refuse_unknown(given: Properties, names: frozenset[str], run: Evaluation, path: str) -> None:
    for name in given:
        if name not in names:
            run.refuse(locate(path, name), UNKNOWN)


def _typed(
    declared: PropertyDeclaration, path: str, members: Members | None, items: Node | None, prove_from: int
) -> Admit:
    checks = declared.checks
    match declared.type:
        case PropertyType.STRING:
            return _strings(path, checks)
        case PropertyType.INTEGER:
            return _integers(path, checks)
        case PropertyType.NUMBER:
            return _numbers(path, checks)
        case PropertyType.BOOLEAN:
            return _booleans(path, checks)
        case PropertyType.OBJECT:
            return _free("object", dict, path, checks) if members is None else _objects(members, checks)
        case PropertyType.ARRAY:
            return _free("array", list, path, checks) if items is None else _arrays(declared, items, path, prove_from)
        case PropertyType.JSON:
            return _free("json", object, path, checks)
        case PropertyType.REFERENCE | PropertyType.UUID:
            return _references(path, checks) if declared.refers else _uuids(path, checks)


def run_checks(checks: tuple[Check, ...], value: object, run: Evaluation, path: str) -> None:
    for check in checks:
        message = check(value, run)
        if message is not None:
            run.refuse(path, message)


def _mismatch(path: str, expected: str) -> Admit:
    """Refuses a value of another type. There are few types, so there are few faults, and they are made here."""
    faults = {kind: PathFault(path, f"expected {expected}, got {name}") for kind, name in JSON_TYPES.items()}
    # Some floats are no JSON at all, and some strings neither; of these `type_name` knows more.
    del faults[float]

    def refuse(value: object, run: Evaluation, outer: str) -> Unknown:
        kind = type(value)
        fault = faults.get(kind)
        if outer or fault is None or (kind is str and not value.isascii()):  # type: ignore[attr-defined]
            fault = PathFault(outer + path, f"expected {expected}, got {type_name(value)}")
        run.faults.append(fault)
        return COUNTED

    return refuse


def _strings(path: str, checks: tuple[Check, ...]) -> Admit:
    mismatch = _mismatch(path, "string")

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not str or not (value.isascii() or is_text(value)):
            return mismatch(value, run, outer)
        # The loop of `run_checks`, without the call, as for integers: most items of arrays are of these types.
        for check in checks:
            message = check(value, run)
            if message is not None:
                run.faults.append(make_fault((outer + path, message)))
        return value

    return admit


def _integers(path: str, checks: tuple[Check, ...]) -> Admit:
    mismatch = _mismatch(path, "integer")

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not int:
            if type(value) is not float or not value.is_integer():
                return mismatch(value, run, outer)
            value = whole(value)
        for check in checks:
            message = check(value, run)
            if message is not None:
                run.faults.append(make_fault((outer + path, message)))
        return value

    return admit


def _numbers(path: str, checks: tuple[Check, ...]) -> Admit:
    mismatch = _mismatch(path, "number")

    def admit(value: object, run: Evaluation, outer: str) -> object:
        # A float minus itself is zero, unless it is infinite or no number at all.
        if type(value) is not int and (type(value) is not float or value - value != 0):
            return mismatch(value, run, outer)
        if checks:
            run_checks(checks, value, run, outer + path)
        return value

    return admit


def _booleans(path: str, checks: tuple[Check, ...]) -> Admit:
    mismatch = _mismatch(path, "boolean")

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not bool:
            return mismatch(value, run, outer)
        if checks:
            run_checks(checks, value, run, outer + path)
        return value

    return admit


def _free(expected: str, wanted: type, path: str, checks: tuple[Check, ...]) -> Admit:
    """A value whose inside nobody described: it must be JSON within the bounds, and nothing more."""
    mismatch = _mismatch(path, expected)

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if not isinstance(value, wanted):
            return mismatch(value, run, outer)
        problem = json_problem(value)
        if problem is not None:
            return run.refuse(outer + path, f"expected {expected}, got {problem}")
        if checks:
            run_checks(checks, value, run, outer + path)
        return value

    return admit


def _objects(members: Members, checks: tuple[Check, ...]) -> Admit:
    path, admit_members = members.path, members.admit
    mismatch = _mismatch(path, "object")

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not dict:
            return mismatch(value, run, outer)
        if not checks:
            return admit_members(value, run, outer)
        before = len(run.faults)
        out = admit_members(value, run, outer)
        if len(run.faults) == before:
            run_checks(checks, out, run, outer + path)
        return out

    return admit


def _arrays(declared: PropertyDeclaration, items: Node, path: str, prove_from: int) -> Admit:
    checks = declared.checks
    # Many plain items are proved at once, whatever the rest of the document is like.
    prove = make_prove_value(declared) if prove_from <= LEAST_MEMBERS and is_provable(declared) else None
    mismatch = _mismatch(path, "array")
    judged_items = _judging(items)
    everybody = product((*Actor, None), (True, False))
    judged = {who for who in everybody if _is_judged(items.declared, who[0], creating=who[1])}
    admit_quickly = items.admit if _needs_no_path(items.declared) else None

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not list:
            return mismatch(value, run, outer)
        if prove is not None and prove(value, run):
            return value
        before = len(run.faults)
        if judged and (run.actor, run.creating) in judged:
            out = _each(judged_items, value, run, outer + path)
        elif admit_quickly is None:
            out = _each(items.admit, value, run, outer + path)
        else:
            # A comprehension would be slower for a few items.
            out = []
            for item in value:
                out.append(admit_quickly(item, run, ""))
            if len(run.faults) != before:
                # Only now paths are needed: the items are looked at once more.
                del run.faults[before:]
                out = _each(admit_quickly, value, run, outer + path)
        # Comparing items that are wrong, or are not there, would only add noise.
        if len(run.faults) == before:
            for check in checks:
                message = check(out, run)
                if message is not None:
                    run.refuse(outer + path, message)
        return out

    return admit


def _each(admit: Admit, values: list[object], run: Evaluation, path: str) -> list[object]:
    return [admit(value, run, f"{path}[{index}]") for index, value in enumerate(values)]


def _needs_no_path(items: PropertyDeclaration) -> bool:
    """Whether a right item leaves nothing behind that is known by its path."""
    return items.members is None and items.items is None and items.secret is None and items.generate is None


def _uuids(path: str, checks: tuple[Check, ...]) -> Admit:
    mismatch = _mismatch(path, "string")

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not str:
            return mismatch(value, run, outer)
        if not is_uuid(value):
            return run.refuse(outer + path, "invalid uuid format")
        run_checks(checks, value, run, outer + path)
        return value

    return admit


def _references(path: str, checks: tuple[Check, ...]) -> Admit:
    mismatch = _mismatch(path, "string")

    def admit(value: object, run: Evaluation, outer: str) -> object:
        if type(value) is not str:
            return mismatch(value, run, outer)
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
            run.made[path] = GENERATED
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
    fault = PathFault(path, MISSING)
    # Asked here for the request that is most frequent.
    demanded_by_creation = _is_demanded_of_new(declared, CREATE, owed_by_agent=False)

    def demand(run: Evaluation, outer: str, _out: Properties) -> None:
        situation = run.situation
        if situation.operation is CREATE:
            demanded = demanded_by_creation
        else:
            owed_by_agent = situation.last_step or not situation.create_run
            demanded = _is_demanded_of_new(declared, situation.operation, owed_by_agent=owed_by_agent)
        if demanded:
            run.faults.append(make_fault((outer + path, MISSING)) if outer else fault)

    return demand


def _default(declared: PropertyDeclaration, path: str, admit_made: Admit) -> Absent:
    name, default = declared.name, declared.default

    def use_default(run: Evaluation, outer: str, out: Properties) -> None:
        run.made[outer + path] = DEFAULT
        out[name] = _unjudged(admit_made, default, run, outer)

    if not _is_settled(declared):
        return use_default
    value = admit_made(default, _unasked_run(), "")

    def use_settled_default(run: Evaluation, outer: str, out: Properties) -> None:
        run.made[outer + path] = DEFAULT
        out[name] = value

    return use_settled_default


def _is_settled(declared: PropertyDeclaration) -> bool:
    """Whether a default is the same each time: a plain value, and no check of it can ask the outside."""
    plain = isinstance(declared.default, str | int | float) and declared.secret is None and not declared.refers
    return plain and all(keywords is not None for keywords in declared.keywords_of_checks)


def _is_demanded_of_new(declared: PropertyDeclaration, operation: Operation, *, owed_by_agent: bool) -> bool:
    """Whether a required property must be in an object that is newly given: it is asked only of those who could set it."""
    if declared.secret is SecretKind.EPHEMERAL:
        return operation is Operation.CREATE
    if operation is Operation.REPORT:
        return Actor.AGENT in declared.actors and owed_by_agent
    return not declared.agent_only
