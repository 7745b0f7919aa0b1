"""Service options and their types: the five standard endpoints each."""

from __future__ import annotations

from mainstay.control.api.nouns import noun_endpoints, plain_endpoints
from mainstay.control.operations import service_options
from mainstay.control.store.service_options import SERVICE_OPTIONS

ENDPOINTS = (
    *plain_endpoints(service_options.TYPES),
    *noun_endpoints(
        "/api/v1/service-options",
        SERVICE_OPTIONS,
        (service_options.NewServiceOption, service_options.create),
        (service_options.OPTIONS.change_body, service_options.OPTIONS.change),
        service_options.OPTIONS.delete,
    ),
)
