"""The prefix of vault references, by which a property names a secret in the vault."""

from __future__ import annotations

VAULT_PREFIX = "vault://"
