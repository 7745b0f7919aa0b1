"""`state {allowedStates}`: in which states of the service the property may be updated; creation is always allowed."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Authorizer, Config, EvaluationContext, Permission


def compile_rule(config: Config) -> Permission | None:
    states = config.strings("allowedStates")
    if states is None:
        return None
    allowed = frozenset(states)

    def authorize(context: EvaluationContext) -> str | None:
        if context.creating or context.state in allowed:
            return None
        return f"property cannot be updated in state '{context.state}'"

    return Permission(authorize, states=states)


RULE = Authorizer("state", compile_rule, service_only=True)
