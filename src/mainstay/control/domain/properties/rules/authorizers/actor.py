"""`actor {actors}`: the actors that may set the property."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Actor, Authorizer, Config, EvaluationContext, Permission

KNOWN = tuple(Actor)


def permit(actors: tuple[Actor, ...]) -> Permission:
    message = f"property can only be set by: [{', '.join(actors)}]"

    def authorize(context: EvaluationContext) -> str | None:
        return None if context.actor in actors else message

    return Permission(authorize, actors=actors)


def _compile_rule(config: Config) -> Permission | None:
    names = config.strings("actors")
    if names is None:
        return None
    unknown = [name for name in names if name not in KNOWN]
    for name in unknown:
        config.fault("actors", f"unknown actor '{name}', expected one of: {', '.join(KNOWN)}")
    return None if unknown else permit(tuple(map(Actor, names)))


RULE = Authorizer("actor", _compile_rule)
