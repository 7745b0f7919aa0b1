"""Vault references: how a property names a secret that the vault holds."""

from __future__ import annotations

VAULT_PREFIX = "vault://"
