"""Agent types: the five standard endpoints."""

from __future__ import annotations

from mainstay.control.api.nouns import noun_endpoints
from mainstay.control.operations import agent_types
from mainstay.control.store.agent_types import AGENT_TYPES

ENDPOINTS = noun_endpoints(
    "/api/v1/agent-types",
    AGENT_TYPES,
    (agent_types.NewAgentType, agent_types.create),
    (agent_types.AgentTypeChange, agent_types.change),
    agent_types.delete,
)
