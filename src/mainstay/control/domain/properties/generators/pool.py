"""`pool {poolType}`: a value that belongs to one service at a time, from the agent's pool set; in a configuration, to one agent, from a config pool."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import (
    Config,
    Generate,
    GenerationFailed,
    Generator,
    Lookups,
    Placement,
    PoolQuestion,
    PropertyType,
    Unknown,
)


def _compile_rule(config: Config, placement: Placement) -> Generate | None:
    pool_type = _read_pool_type(config)
    if pool_type is None:
        return None
    if placement.secret:
        config.fault(
            "poolType", "pool values are not encrypted, so a property with a pool generator cannot be a secret"
        )
        return None

    def generate(path: str, current: object, lookups: Lookups) -> object:
        if lookups.context.agent_id is None:
            if lookups.context.dry:
                return Unknown.COUNTED if current is None else current
            raise GenerationFailed("pool generator requires service context")
        return lookups.pool_value(PoolQuestion(path, pool_type, placement.type, current))

    return generate


def _read_pool_type(config: Config) -> str | None:
    pool_type = config.get("poolType")
    if pool_type is None:
        config.fault("poolType", "pool generator config missing 'poolType'")
    elif type(pool_type) is not str:
        config.fault("poolType", "pool generator config 'poolType' must be a string")
    elif not pool_type:
        config.fault("poolType", "pool generator config 'poolType' cannot be empty")
    else:
        return pool_type
    return None


RULE = Generator(
    "pool",
    _compile_rule,
    fits=frozenset(
        {PropertyType.STRING, PropertyType.INTEGER, PropertyType.NUMBER, PropertyType.BOOLEAN, PropertyType.JSON}
    ),
    pool_type=lambda config: str(config["poolType"]),
)
