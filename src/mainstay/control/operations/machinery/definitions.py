"""A cache of compiled definitions, by type and version."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from mainstay.control.domain.properties.contract import Purpose, Rulebook
from mainstay.control.domain.properties.parse import parse_property_schema
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.service_types import ServiceTypeDefinition, parse_service_type
from mainstay.control.store.agent_types import AgentType
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow

MAX_CACHED = 500
Version = tuple[str, datetime]


class Definitions:
    def __init__(self, rulebook: Rulebook) -> None:
        self.rulebook = rulebook
        self._service_types: OrderedDict[Version, ServiceTypeDefinition] = OrderedDict()
        self._agent_types: OrderedDict[Version, PropertySchema] = OrderedDict()

    async def read(self, tx: Transaction, type_id: str, version: datetime) -> ServiceTypeDefinition:
        """Reads the type only if this version is not cached."""
        found = self._service_types.get((type_id, version))
        if found is not None:
            return found
        return self.of_service_type(await SERVICE_TYPES.require(tx, type_id))

    def of_service_type(self, service_type: ServiceTypeRow) -> ServiceTypeDefinition:
        version = (service_type.id, service_type.updated_at)
        found = self._service_types.get(version)
        if found is None:
            found = parse_service_type(service_type.property_schema, service_type.lifecycle_schema, self.rulebook)
            self._service_types[version] = found
            if len(self._service_types) > MAX_CACHED:
                self._service_types.popitem(last=False)
        return found

    def of_agent_type(self, agent_type: AgentType) -> PropertySchema:
        version = (agent_type.id, agent_type.updated_at)
        found = self._agent_types.get(version)
        if found is None:
            found = self.parse_configuration_schema(agent_type.configuration_schema)
            self._agent_types[version] = found
            if len(self._agent_types) > MAX_CACHED:
                self._agent_types.popitem(last=False)
        return found

    def parse_configuration_schema(self, document: object) -> PropertySchema:
        return parse_property_schema(document, self.rulebook, purpose=Purpose.AGENT_CONFIGURATION)
