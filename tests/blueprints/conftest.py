"""Tests that push a blueprint use the same embedded server as the tests of the agent."""

from agent.conftest import bridge, server

__all__ = ["bridge", "server"]
