"""Service options and their types: the five standard endpoints each."""

from __future__ import annotations

from mainstay.control.api.nouns import noun_endpoints
from mainstay.control.operations import service_options
from mainstay.control.store.service_options import SERVICE_OPTION_TYPES, SERVICE_OPTIONS

ENDPOINTS = (
    *noun_endpoints(
        "/api/v1/service-option-types",
        SERVICE_OPTION_TYPES,
        (service_options.NewServiceOptionType, service_options.create_type),
        (service_options.ServiceOptionTypeChange, service_options.change_type),
        service_options.delete_type,
    ),
    *noun_endpoints(
        "/api/v1/service-options",
        SERVICE_OPTIONS,
        (service_options.NewServiceOption, service_options.create),
        (service_options.ServiceOptionChange, service_options.change),
        service_options.delete,
    ),
)
