"""Lookups of a manifest that find nothing: unknown names, and properties that may be absent."""

from __future__ import annotations

from mainstay.blueprints.checked_manifest import CheckedManifest
from mainstay.blueprints.expressions import Use
from mainstay.control.domain.properties.contract import Actor, PropertyType, SecretKind
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.converge.manifest.manifest_warnings import Text, texts_in
from mainstay.foundation.suggestions import did_you_mean

# Names below `service` and `job`. Names below `instance` come from the outputs of the manifests.
SERVICE_NAMES = ("id", "name", "status", "root", "type")
JOB_NAMES = ("action", "attempt", "params")
NESTING = (PropertyType.OBJECT, PropertyType.ARRAY, PropertyType.JSON)


def find_unknown_lookups(checked: CheckedManifest, instance: set[str]) -> None:
    for text in texts_in(checked.node):
        for use in checked.reader.uses(text.text, is_bare=text.is_bare):
            _check_use(checked, text, use, instance)


def _check_use(checked: CheckedManifest, text: Text, use: Use, instance: set[str]) -> None:
    root, *rest = use.path
    if root == "job" and rest[:1] == ["params"] and len(rest) > 1:
        _check_property(checked, text, use, rest[1:])
    elif root == "properties":
        _check_property(checked, text, use, rest)
    elif root in ("service", "job", "instance") and rest:
        known = {"service": SERVICE_NAMES, "job": JOB_NAMES, "instance": sorted(instance)}[root]
        if rest[0] not in known and not use.has_default:
            reason = "no manifest sets it in outputs.instance_data" if root == "instance" else "there is no such name"
            checked.add(text, use, f"{root}.{rest[0]}: {reason}{did_you_mean(rest[0], known)}")


def _check_property(checked: CheckedManifest, text: Text, use: Use, names: list[str]) -> None:
    """Follows the path through the schema as far as it declares names."""
    found: list[PropertyDeclaration] = []
    members = checked.members or ()
    for index, name in enumerate(names if checked.members is not None else ()):
        declared = next((each for each in members if each.name == name), None)
        if declared is None and found and name.isdigit():
            declared = found[-1].items
        if declared is None:
            checked.add(text, use, _unknown_property(names, index, found, [each.name for each in members]))
            return
        found.append(declared)
        if declared.type is PropertyType.JSON or (declared.type is PropertyType.OBJECT and declared.members is None):
            break
        members = declared.members or ()
    if not use.has_default:
        _check_absence(checked, text, use, names, found)


def _unknown_property(names: list[str], index: int, above: list[PropertyDeclaration], known: list[str]) -> str:
    shown = f"properties.{'.'.join(names)}"
    if above and above[-1].type not in NESTING:
        return f"{shown}: {'.'.join(['properties', *names[:index]])} is a {above[-1].type} and has no properties"
    return f"{shown}: there is no such property{did_you_mean(names[index], known)}"


def _check_absence(
    checked: CheckedManifest, text: Text, use: Use, names: list[str], found: list[PropertyDeclaration]
) -> None:
    absent = next((each for each in found if _may_be_absent(checked, each)), None)
    if absent is not None:
        or_else = "" if absent.default is None else ", or make the property required beside its default"
        reason = f"may be absent ({_why_absent(checked, absent)}): give the lookup a default{or_else}"
        checked.add(text, use, f"properties.{'.'.join(names)} {reason}", is_warning=True)


def _may_be_absent(checked: CheckedManifest, declared: PropertyDeclaration) -> bool:
    if declared.secret is SecretKind.EPHEMERAL and checked.lacks_ephemeral:
        return True
    if declared.agent_only and "create" in checked.served:
        return True
    if declared.required or declared.generate is not None:
        return False
    may_be_cleared = checked.after_updates and not declared.immutable and Actor.USER in declared.actors
    return declared.default is None or may_be_cleared


def _why_absent(checked: CheckedManifest, declared: PropertyDeclaration) -> str:
    if declared.secret is SecretKind.EPHEMERAL and checked.lacks_ephemeral:
        return "a short-lived secret is gone after its job"
    if declared.agent_only:
        return "only the agent sets it"
    if declared.default is None:
        return "it is optional and has no default"
    return "it is optional, so an update may clear it"
