"""Pool sets, pools and pool values: the five standard endpoints each, and the usage of a pool."""

from __future__ import annotations

from mainstay.control.api.nouns import detail_endpoint, noun_endpoints, plain_endpoints
from mainstay.control.operations import service_pools
from mainstay.control.operations.service_pools import Usage
from mainstay.control.store.service_pools import SERVICE_POOL_VALUES, SERVICE_POOLS

ENDPOINTS = (
    *plain_endpoints(service_pools.SETS, names=service_pools.SET_NAMES),
    *noun_endpoints(
        "/api/v1/service-pools",
        SERVICE_POOLS,
        (service_pools.NewPool, service_pools.create_pool),
        (service_pools.PoolChange, service_pools.change_pool),
        service_pools.delete_pool,
        names=service_pools.POOL_NAMES,
    ),
    *noun_endpoints(
        "/api/v1/service-pool-values",
        SERVICE_POOL_VALUES,
        (service_pools.NewPoolValue, service_pools.create_value),
        (service_pools.PoolValueChange, service_pools.change_value),
        service_pools.delete_value,
        names=service_pools.VALUE_NAMES,
    ),
    detail_endpoint(
        "/api/v1/service-pools/{id}/usage",
        SERVICE_POOLS,
        service_pools.usage,
        summary="Show how many values a pool has and how many are allocated",
        answer=Usage,
    ),
)
