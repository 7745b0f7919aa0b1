"""Compiles declared properties, once per schema, into closures that check new values, of a creation or an update. Each
closure handles one property and contains its path."""

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
    integer_problem,
    is_integer,
    is_number,
    is_text,
    is_uuid,
    json_problem,
    number_problem,
    type_name,
    whole,
)
from mainstay.foundation.vault import is_vault_reference, reference_path

MISSING = "required field is missing"
UNKNOWN = "unknown property"
IMMUTABLE = "property is immutable and cannot be changed"
FOREIGN_REFERENCE = "a vault reference is accepted only at the path where it is stored"
PLAIN_REFERENCE = "a text that begins with vault:// is accepted only in a secret property"
# The path of an array item; closures inside of items contain the path relative to the item.
ITEM = "[]"

# (value, evaluation, outer path) → the value to store. The outer path is that of the enclosing array item, or empty; it
# precedes the path in the closure.
Admit = Callable[[object, Evaluation, str], object]
# (evaluation, outer path, the object being built): called if no value was given.
Absent = Callable[[Evaluation, str, Properties], None]
AdmitMembers = Callable[[Properties, Evaluation, str], Properties]


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The members of an object, or of the whole document."""

    # Relative to the outer path.
    path: str
    nodes: dict[str, Node]
    names: frozenset[str]
    admit: AdmitMembers


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A property with its closures."""

    declared: PropertyDeclaration
    # Relative to the outer path; empty for the items of an array.
    path: str
    # For a given value.
    admit: Admit
    # For a new object without this property. None: nothing to do.
    absent: Absent | None
    # Generates a value. None: the property has no generator.
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
    admit = _typed(declared, path, members, items)
    if declared.secret is not None:
        admit = _sealing(admit, declared.secret, declared.schema_path, path)
    admit_given = admit if declared.generate is None else _claiming(admit, declared.generate, path)
    make = None if declared.generate is None else _generating(declared.name, declared.generate, path, admit)
    return Node(declared, path, admit_given, _absent(declared, path, admit, make), make, members, items)


def faults_of_default(declared: PropertyDeclaration) -> list[PathFault]:
    """A default must pass its own type and validators. Lookups happen only when the default is used."""
    evaluation = _schema_evaluation()
    _compile_property(declared, "").admit(declared.default, evaluation, locate(declared.definition_path, "default"))
    return evaluation.faults


def _schema_evaluation() -> Evaluation:
    """For values of the schema itself, to which authorizers do not apply."""
    context = EvaluationContext(
        operation=Operation.UPDATE,
        actor=Actor.SYSTEM,
        now=datetime.min.replace(tzinfo=UTC),
        entropy=b"",
        dry=True,
        # The provider is not known yet; any id satisfies rules that need one.
        provider_id="",
    )
    evaluation = Evaluation(context, None)
    evaluation.actor = None
    return evaluation


def refuse_unauthorized(declared: PropertyDeclaration, evaluation: Evaluation, path: str) -> bool:
    """Records the refusal of every authorizer at this path. Returns whether there is one."""
    found = False
    for authorize in declared.authorizations:
        message = authorize(evaluation.context)
        if message is not None:
            evaluation.refuse(path, f"{path}: {message}")
            found = True
    return found


def _members(nodes: dict[str, Node], path: str) -> AdmitMembers:
    names = frozenset(nodes)

    def admit_members(given: Properties, evaluation: Evaluation, outer: str) -> Properties:
        refuse_unknown(given, names, evaluation, outer + path)
        out: Properties = {}
        for name, node in nodes.items():
            value = given.get(name)
            if value is not None:
                out[name] = _admit_authorized(node, value, evaluation, outer)
            elif node.absent is not None:
                node.absent(evaluation, outer, out)
        return out

    return admit_members


def _admit_authorized(node: Node, value: object, evaluation: Evaluation, outer: str) -> object:
    """Applies the authorizers first, except to a value of the schema itself: its actor is None."""
    if evaluation.actor is not None and refuse_unauthorized(node.declared, evaluation, outer + node.path):
        return Unknown.COUNTED
    return node.admit(value, evaluation, outer)


def refuse_unknown(given: Properties, names: frozenset[str], evaluation: Evaluation, path: str) -> None:
    for name in given:
        if name not in names:
            evaluation.refuse(locate(path, name), UNKNOWN)


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


def run_checks(checks: tuple[Check, ...], value: object, evaluation: Evaluation, path: str) -> None:
    for check in checks:
        message = check(value, evaluation)
        if message is not None:
            evaluation.refuse(path, message)


def _refuse_type(value: object, evaluation: Evaluation, path: str, expected: str) -> Unknown:
    return evaluation.refuse(path, f"expected {expected}, got {type_name(value)}")


_SCALARS: dict[PropertyType, Callable[[object], bool]] = {
    PropertyType.STRING: lambda value: type(value) is str and is_text(value),
    PropertyType.INTEGER: is_integer,
    PropertyType.NUMBER: is_number,
    PropertyType.BOOLEAN: lambda value: type(value) is bool,
}
_PROBLEMS: dict[PropertyType, Callable[[object], str]] = {
    PropertyType.INTEGER: integer_problem,
    PropertyType.NUMBER: number_problem,
}


def _scalars(kind: PropertyType, path: str, checks: tuple[Check, ...]) -> Admit:
    has_type = _SCALARS[kind]
    is_whole = kind is PropertyType.INTEGER
    problem = _PROBLEMS.get(kind, type_name)

    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        if not has_type(value):
            return evaluation.refuse(outer + path, f"expected {kind}, got {problem(value)}")
        if is_whole:
            value = whole(value)  # type: ignore[arg-type]
        elif is_vault_reference(value):
            return evaluation.refuse(outer + path, PLAIN_REFERENCE)
        if checks:
            run_checks(checks, value, evaluation, outer + path)
        return value

    return admit


_FREE_FORM: dict[PropertyType, type] = {
    PropertyType.OBJECT: dict,
    PropertyType.ARRAY: list,
    PropertyType.JSON: object,
}


def _free_form(kind: PropertyType, path: str, checks: tuple[Check, ...]) -> Admit:
    """A value without declared members: it only has to be JSON within the bounds."""
    wanted = _FREE_FORM[kind]

    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        if not isinstance(value, wanted):
            return _refuse_type(value, evaluation, outer + path, kind)
        problem = json_problem(value)
        if problem is not None:
            return evaluation.refuse(outer + path, f"expected {kind}, got {problem}")
        if refuse_references(value, evaluation, outer + path):
            return Unknown.COUNTED
        run_checks(checks, value, evaluation, outer + path)
        return value

    return admit


def refuse_references(value: object, evaluation: Evaluation, path: str) -> bool:
    """Records the first text inside of a free-form value that reads as a vault reference. Returns whether there is one."""
    found = reference_path(value)
    if found is None:
        return False
    for name in found:
        path = locate(path, name)
    evaluation.refuse(path, PLAIN_REFERENCE)
    return True


def _objects(members: Members, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        path = outer + members.path
        if type(value) is not dict:
            return _refuse_type(value, evaluation, path, "object")
        before = len(evaluation.faults)
        out = members.admit(value, evaluation, outer)
        if len(evaluation.faults) == before:
            run_checks(checks, out, evaluation, path)
        return out

    return admit


def _arrays(items: Node, own_path: str, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        path = outer + own_path
        if type(value) is not list:
            return _refuse_type(value, evaluation, path, "array")
        before = len(evaluation.faults)
        # Authorizers depend on the request and not on the value, so one result is valid for all items.
        is_refused = any(authorize(evaluation.context) is not None for authorize in items.declared.authorizations)
        admit_item = partial(_admit_authorized, items) if is_refused else items.admit
        out = [admit_item(item, evaluation, f"{path}[{index}]") for index, item in enumerate(value)]
        # A check of the whole array would only repeat the faults of its items.
        if len(evaluation.faults) == before:
            run_checks(checks, out, evaluation, path)
        return out

    return admit


def _uuids(path: str, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        if type(value) is not str:
            return _refuse_type(value, evaluation, outer + path, "string")
        if not is_uuid(value):
            return evaluation.refuse(outer + path, "invalid uuid format")
        run_checks(checks, value, evaluation, outer + path)
        return value

    return admit


def _references(path: str, checks: tuple[Check, ...]) -> Admit:
    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        if type(value) is not str:
            return _refuse_type(value, evaluation, outer + path, "string")
        if not is_uuid(value):
            return evaluation.refuse(outer + path, "invalid service ID format")
        service_id = value.lower()
        if service_id == evaluation.context.service_id or evaluation.service(service_id) is None:
            return evaluation.refuse(outer + path, "referenced service does not exist")
        run_checks(checks, value, evaluation, outer + path)
        return value

    return admit


def _sealing(admit_plain: Admit, kind: SecretKind, schema_path: str, path: str) -> Admit:
    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        if is_vault_reference(value):
            if value in evaluation.own_references.get(schema_path, ()):
                return value
            return evaluation.refuse(outer + path, FOREIGN_REFERENCE)
        admitted = admit_plain(value, evaluation, outer)
        if isinstance(admitted, Unknown):
            return admitted
        return evaluation.seal(SecretSlot(outer + path, schema_path, kind, RevealedSecret(admitted)))

    return admit


def _claiming(admit_value: Admit, generate: Generate, path: str) -> Admit:
    """The generator also gets a given value: a value that a user chooses must be allocated from the pool."""

    def admit(value: object, evaluation: Evaluation, outer: str) -> object:
        before = len(evaluation.faults)
        admitted = admit_value(value, evaluation, outer)
        if len(evaluation.faults) > before or isinstance(admitted, SecretSlot):
            return admitted
        try:
            return generate(outer + path, admitted, evaluation)
        except GenerationFailed as failure:
            return evaluation.refuse(outer + path, str(failure))

    return admit


def _generating(name: str, generate: Generate, own_path: str, admit: Admit) -> Absent:
    """Generates a missing value, which must pass the type and validators like a given one."""

    def make(evaluation: Evaluation, outer: str, out: Properties) -> None:
        path = outer + own_path
        try:
            value = generate(path, None, evaluation)
        except GenerationFailed as failure:
            evaluation.refuse(path, str(failure))
            return
        if isinstance(value, Unknown):
            out[name] = value
            evaluation.count(out, name)
        elif value is not None:
            evaluation.sources[path] = ValueSource.GENERATED
            out[name] = _admit_unauthorized(admit, value, evaluation, outer)

    return make


def _admit_unauthorized(admit: Admit, value: object, evaluation: Evaluation, outer: str) -> object:
    actor, evaluation.actor = evaluation.actor, None
    try:
        return admit(value, evaluation, outer)
    finally:
        evaluation.actor = actor


def _absent(declared: PropertyDeclaration, path: str, admit: Admit, make: Absent | None) -> Absent | None:
    if declared.default is not None:
        return _default(declared, path, admit)
    if make is not None or not declared.required:
        return make

    def require(evaluation: Evaluation, outer: str, _out: Properties) -> None:
        if _is_required_in_new(declared, evaluation.context):
            evaluation.refuse(outer + path, MISSING)

    return require


def _default(declared: PropertyDeclaration, path: str, admit: Admit) -> Absent:
    def use_default(evaluation: Evaluation, outer: str, out: Properties) -> None:
        evaluation.sources[outer + path] = ValueSource.DEFAULT
        out[declared.name] = _admit_unauthorized(admit, declared.default, evaluation, outer)

    return use_default


def _is_required_in_new(declared: PropertyDeclaration, context: EvaluationContext) -> bool:
    """Whether a new object must contain a required property: only of callers that may set it."""
    if declared.secret is SecretKind.EPHEMERAL:
        return context.operation is Operation.CREATE
    if context.operation is Operation.REPORT:
        return Actor.AGENT in declared.actors and (context.last_step or not context.in_create_chain)
    return not declared.agent_only
