"""Vault references, by which a property names a secret in the vault."""

from __future__ import annotations

VAULT_PREFIX = "vault://"


def is_vault_reference(value: object) -> bool:
    """Whether a value reads as a reference, whatever it refers to."""
    return type(value) is str and value.startswith(VAULT_PREFIX)


def reference_path(value: object) -> tuple[str | int, ...] | None:
    """Where a document of any depth contains a text that reads as a reference, as a value or as a key. None: nowhere."""
    pending: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    while pending:
        path, each = pending.pop()
        if is_vault_reference(each):
            return path
        if isinstance(each, dict):
            for name, item in each.items():
                if is_vault_reference(name):
                    return (*path, name)
                if isinstance(item, (str, dict, list)):
                    pending.append(((*path, name), item))
        elif isinstance(each, list):
            pending += (
                ((*path, index), item) for index, item in enumerate(each) if isinstance(item, (str, dict, list))
            )
    return None
