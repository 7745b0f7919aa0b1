"""Shared by commands that call a control plane: login, client, properties, plans, progress."""
