"""Merges an update or an agent's report into stored properties. Rules apply only to values that differ."""

from __future__ import annotations

from mainstay.control.domain.properties.compile import (
    IMMUTABLE,
    MISSING,
    Members,
    Node,
    refuse_unauthorized,
    refuse_unknown,
    run_checks,
)
from mainstay.control.domain.properties.contract import EvaluationContext, Operation, SecretKind, Unknown
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.evaluation import Evaluation
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import secrets_in
from mainstay.control.domain.values import Properties, canonical, equal
from mainstay.foundation.vault import is_vault_reference


def revise_root(root: Members, given: Properties, stored: Properties, evaluation: Evaluation) -> Properties:
    # An update without changes requires and generates nothing; a report must still contain the agent's properties.
    if evaluation.context.operation is Operation.UPDATE and not _changes_members(root, given, stored, merge=True):
        return stored
    return _revise_members(root, given, stored, evaluation, "", merge=True)


def find_own_references(schema: PropertySchema, stored: Properties) -> dict[str, set[str]]:
    own: dict[str, set[str]] = {}
    for place in secrets_in(schema, stored) if schema.has_secrets else ():
        own.setdefault(place.schema_path, set()).add(place.reference)
    return own


def _revise_members(
    members: Members, given: Properties, stored: Properties, evaluation: Evaluation, outer: str, *, merge: bool
) -> Properties:
    """With `merge`, members that were not given are kept; without, the object replaces the old one, as in arrays."""
    names = members.names
    if not given.keys() <= names:
        left_over = {name for name in given if merge and _is_left_over(name, given, stored, names)}
        refuse_unknown(given, names | left_over, evaluation, outer + members.path)
    # Properties of an older schema stay until they are removed.
    out: Properties = {name: value for name, value in stored.items() if name not in names} if merge else {}
    for name, member in members.nodes.items():
        value, old = given.get(name), stored.get(name)
        if merge and name not in given:
            _keep(member, old, evaluation, outer, out)
        elif not merge and value is None and old is None and member.declared.default is not None:
            member.absent(evaluation, outer, out)  # type: ignore[misc]  # (a default always has its closure)
        else:
            wanted = _wanted_value(member, value, old, merge=merge)
            out |= _revise_member(member, wanted, old, evaluation, outer, merge=merge)
    return out


def _is_left_over(name: str, given: Properties, stored: Properties, names: frozenset[str]) -> bool:
    """A value of an older schema that is sent back unchanged does not count as given."""
    return name not in names and name in stored and equal(given[name], stored[name])


def _wanted_value(node: Node, value: object, old: object, *, merge: bool) -> object:
    """The value that a request wants for a member. In a replaced object a missing member gets its default; a generated
    value stays, because it cannot be empty."""
    if value is not None or merge:
        return value
    return node.declared.default if node.make is None else old


def _keep(node: Node, old: object, evaluation: Evaluation, outer: str, out: Properties) -> None:
    if old is None:
        _leave_unset(node, evaluation, outer, out)
    else:
        out[node.declared.name] = _kept(node, old, evaluation, outer)


def _kept(node: Node, old: object, evaluation: Evaluation, outer: str) -> object:
    """A stored value that does not change. The last step requires the agent's properties inside of it."""
    if evaluation.context.last_step:
        if node.members is not None and isinstance(old, dict):
            return _revise_members(node.members, {}, old, evaluation, outer, merge=True)
        if node.items is not None and isinstance(old, list):
            path = outer + node.path
            return [_kept(node.items, item, evaluation, f"{path}[{index}]") for index, item in enumerate(old)]
    return old


def _leave_unset(node: Node, evaluation: Evaluation, outer: str, out: Properties) -> None:
    declared = node.declared
    if node.make is not None and evaluation.context.operation is Operation.UPDATE:
        node.make(evaluation, outer, out)
    elif declared.required and _is_still_required(declared, evaluation.context):
        evaluation.refuse(outer + node.path, MISSING)


def _is_still_required(declared: PropertyDeclaration, context: EvaluationContext) -> bool:
    if declared.secret is SecretKind.EPHEMERAL:
        return False
    if declared.agent_only:
        return context.operation is Operation.REPORT and context.in_create_chain and context.last_step
    return context.operation is Operation.UPDATE


def _revise_member(
    node: Node, value: object, old: object, evaluation: Evaluation, outer: str, *, merge: bool
) -> Properties:
    """The member by its name; empty if it is not set any more."""
    declared, out = node.declared, Properties()
    path = outer + node.path
    if old is None:
        _set_first(node, value, evaluation, outer, out)
    elif not _changes(node, value, old, merge=merge):
        out[declared.name] = _kept(node, old, evaluation, outer)
    elif refuse_unauthorized(declared, evaluation, path):
        out[declared.name] = Unknown.COUNTED
    elif declared.immutable and not evaluation.context.moves and _breaks_immutable(node, value, old, merge=merge):
        out[declared.name] = evaluation.refuse(path, f"{path}: {IMMUTABLE}")
    elif value is None:
        _clear(node, old, evaluation, outer, out)
    else:
        out[declared.name] = _replace(node, value, old, evaluation, outer, merge=merge)
    return out


def _set_first(node: Node, value: object, evaluation: Evaluation, outer: str, out: Properties) -> None:
    declared = node.declared
    if value is None:
        _leave_unset(node, evaluation, outer, out)
    elif refuse_unauthorized(declared, evaluation, outer + node.path):
        out[declared.name] = Unknown.COUNTED
    else:
        out[declared.name] = node.admit(value, evaluation, outer)


def _clear(node: Node, old: object, evaluation: Evaluation, outer: str, out: Properties) -> None:
    declared = node.declared
    if node.make is not None:
        # A generated value cannot be empty: clearing it generates another.
        node.make(evaluation, outer, out)
    elif declared.required and declared.secret is not SecretKind.EPHEMERAL:
        out[declared.name] = evaluation.refuse(outer + node.path, MISSING)
    else:
        _authorize_removal(node, old, evaluation, outer)


def _authorize_removal(node: Node, old: object, evaluation: Evaluation, outer: str) -> None:
    """Removing an object removes its members, so the rules of every member that is set must allow it."""
    if node.members is None or not isinstance(old, dict):
        return
    for name, member in node.members.nodes.items():
        if old.get(name) is None:
            continue
        declared = member.declared
        path = outer + member.path
        if refuse_unauthorized(declared, evaluation, path):
            continue
        if declared.immutable:
            evaluation.refuse(path, f"{path}: {IMMUTABLE}")
        else:
            _authorize_removal(member, old[name], evaluation, outer)


def _replace(node: Node, value: object, old: object, evaluation: Evaluation, outer: str, *, merge: bool) -> object:
    declared = node.declared
    if node.members is not None and isinstance(value, dict) and isinstance(old, dict):
        before = len(evaluation.faults)
        merged = _revise_members(node.members, value, old, evaluation, outer, merge=merge)
        if len(evaluation.faults) == before:
            run_checks(declared.checks, merged, evaluation, outer + node.path)
        return merged
    if (
        node.items is not None
        and node.items.members is not None
        and isinstance(value, list)
        and isinstance(old, list)
    ):
        return _replace_items(node, node.items, value, old, evaluation, outer)
    return node.admit(value, evaluation, outer)


def _replace_items(
    node: Node, items: Node, value: list[object], old: list[object], evaluation: Evaluation, outer: str
) -> list[object]:
    """An array is replaced as a whole, but unchanged items do not count as given."""
    path = outer + node.path
    known = {canonical(item) for item in old}
    before = len(evaluation.faults)
    out: list[object] = []
    for index, item in enumerate(value):
        where = f"{path}[{index}]"
        if canonical(item) in known:
            out.append(_kept(items, item, evaluation, where))
        elif refuse_unauthorized(items.declared, evaluation, where):
            continue
        elif index < len(old):
            out.append(_replace(items, item, old[index], evaluation, where, merge=False))
        else:
            out.append(items.admit(item, evaluation, where))
    if len(evaluation.faults) == before:
        run_checks(node.declared.checks, out, evaluation, path)
    return out


def _changes(node: Node, value: object, old: object, *, merge: bool) -> bool:
    """Whether the value differs from the stored one. With `merge` only the given members of an object count."""
    if value is None or old is None:
        return value is not old
    declared = node.declared
    if declared.secret is not None:
        # Only the reference counts as unchanged. A comparison with the plain value would let a caller find it by trial.
        return not is_vault_reference(value) or value != old
    if node.members is not None and isinstance(value, dict) and isinstance(old, dict):
        return _changes_members(node.members, value, old, merge=merge)
    return not equal(value, old)


def _changes_members(members: Members, given: Properties, stored: Properties, *, merge: bool) -> bool:
    for name in given if merge else {**given, **members.nodes}:
        member, old = members.nodes.get(name), stored.get(name)
        if member is None:
            if not (merge and _is_left_over(name, given, stored, members.names)):
                return True
        elif _changes(member, _wanted_value(member, given.get(name), old, merge=merge), old, merge=merge):
            return True
    return False


def _breaks_immutable(node: Node, value: object, old: object, *, merge: bool) -> bool:
    """An ephemeral secret is removed when the run ends; giving it again does not change an immutable object."""
    if node.members is None or not isinstance(value, dict) or not isinstance(old, dict):
        return True
    ephemeral = {
        name for name, member in node.members.nodes.items() if member.declared.secret is SecretKind.EPHEMERAL
    }
    lasting = {name: item for name, item in value.items() if name not in ephemeral}
    stored = {name: item for name, item in old.items() if name not in ephemeral}
    return _changes_members(node.members, lasting, stored, merge=merge)
