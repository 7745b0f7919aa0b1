"""Config pools: the five standard endpoints; their values: all but a change."""

from __future__ import annotations

from mainstay.control.api.nouns import create_endpoint, delete_endpoint, list_endpoint, noun_endpoints, show_endpoint
from mainstay.control.operations import config_pools
from mainstay.control.store.config_pools import CONFIG_POOL_VALUES, CONFIG_POOLS

VALUES = "/api/v1/config-pool-values"

ENDPOINTS = (
    *noun_endpoints(
        "/api/v1/config-pools",
        CONFIG_POOLS,
        (config_pools.NewConfigPool, config_pools.create_pool),
        (config_pools.ConfigPoolChange, config_pools.change_pool),
        config_pools.delete_pool,
    ),
    list_endpoint(VALUES, CONFIG_POOL_VALUES),
    show_endpoint(VALUES, CONFIG_POOL_VALUES),
    create_endpoint(VALUES, CONFIG_POOL_VALUES, config_pools.NewConfigPoolValue, config_pools.create_value),
    delete_endpoint(VALUES, CONFIG_POOL_VALUES, config_pools.delete_value),
)
