"""Translates the older keys of a definition: `source`, `updatable`, `updatableIn`, `servicePoolType`."""

from __future__ import annotations

from collections.abc import Iterable

from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.domain.properties.contract import Actor, Config, Permission
from mainstay.control.domain.properties.rules.authorizers import state
from mainstay.control.domain.properties.rules.authorizers.actor import permit
from mainstay.control.domain.values import Properties

KEYS = frozenset({"source", "updatable", "updatableIn", "servicePoolType"})
SOURCES = {"input": Actor.USER, "agent": Actor.AGENT, "system": Actor.SYSTEM}
UPDATABLE = ("always", "never", "statuses")


def immutable(definition: Properties, path: str, faults: list[PathFault], *, declared: bool) -> bool:
    updatable = definition.get("updatable")
    if updatable is None:
        return declared
    if updatable not in UPDATABLE:
        faults.append(PathFault(locate(path, "updatable"), f"updatable must be one of: {', '.join(UPDATABLE)}"))
        return declared
    never = updatable == "never"
    if type(definition.get("immutable")) is bool and declared != never:
        faults.append(PathFault(locate(path, "updatable"), f"updatable '{updatable}' contradicts immutable"))
    return never


def permissions(
    definition: Properties, declared: Iterable[Permission], path: str, faults: list[PathFault]
) -> tuple[Permission, ...]:
    """The permissions that the old keys add to the declared authorizers. Equal declarations are allowed."""
    declared = tuple(declared)
    return (*_of_actors(definition, declared, path, faults), *_of_states(definition, declared, path, faults))


def _of_actors(
    definition: Properties, declared: tuple[Permission, ...], path: str, faults: list[PathFault]
) -> list[Permission]:
    wanted: dict[str, Actor] = {}
    source = definition.get("source")
    if source is not None:
        if isinstance(source, str) and source in SOURCES:
            wanted["source"] = SOURCES[source]
        else:
            faults.append(PathFault(locate(path, "source"), f"source must be one of: {', '.join(SOURCES)}"))
    if definition.get("servicePoolType") is not None:
        wanted["servicePoolType"] = Actor.SYSTEM
    actors = next((permission.actors for permission in declared if permission.actors is not None), None)
    for key, actor in wanted.items():
        if actors is not None and actors != (actor,):
            faults.append(
                PathFault(locate(path, key), f"{key} contradicts the actors of the property: [{', '.join(actors)}]")
            )
        else:
            actors = (actor,)
    if not wanted or actors is None or any(permission.actors is not None for permission in declared):
        return []
    return [permit(actors)]


def _of_states(
    definition: Properties, declared: tuple[Permission, ...], path: str, faults: list[PathFault]
) -> list[Permission]:
    states = definition.get("updatableIn")
    if definition.get("updatable") != "statuses":
        if states is not None:
            faults.append(PathFault(locate(path, "updatableIn"), "updatableIn needs updatable 'statuses'"))
        return []
    # Drops the rule's own faults: they would name a key that is not in the document.
    permission = state.compile_rule(Config("updatable", {"allowedStates": states}, path, []))
    if permission is None:
        faults.append(
            PathFault(
                locate(path, "updatableIn"), "updatable 'statuses' needs a non-empty array of states in updatableIn"
            )
        )
        return []
    for other in declared:
        if other.states is not None and set(other.states) != set(permission.states or ()):
            faults.append(PathFault(locate(path, "updatableIn"), "updatableIn contradicts the state authorizer"))
        if other.states is not None:
            return []
    return [permission]


def generator(definition: Properties, path: str, faults: list[PathFault]) -> tuple[object, str] | None:
    """The generator and its path for faults. None: there is none."""
    declared = definition.get("generator")
    pool_type = definition.get("servicePoolType")
    if pool_type is None:
        return None if declared is None else (declared, locate(path, "generator"))
    translated = {"type": "pool", "config": {"poolType": pool_type}}
    if declared is None:
        return translated, locate(path, "servicePoolType")
    if declared != translated:
        faults.append(PathFault(locate(path, "servicePoolType"), "servicePoolType contradicts generator"))
    return declared, locate(path, "generator")
