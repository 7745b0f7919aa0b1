"""Service groups: the five standard endpoints."""

from __future__ import annotations

from mainstay.control.api.nouns import noun_endpoints
from mainstay.control.operations import service_groups
from mainstay.control.store.service_groups import SERVICE_GROUPS

ENDPOINTS = noun_endpoints(
    "/api/v1/service-groups",
    SERVICE_GROUPS,
    (service_groups.NewServiceGroup, service_groups.create),
    (service_groups.GROUPS.change_body, service_groups.GROUPS.change),
    service_groups.delete,
    names=service_groups.GROUP_NAMES,
)
