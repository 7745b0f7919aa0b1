"""Tests that push a blueprint share the embedded server of the agent tests."""

from agent.conftest import bridge, server

__all__ = ["bridge", "server"]
