"""Loads the vault keys from the environment or from the key file."""

from __future__ import annotations

from collections.abc import Mapping

from mainstay.control.settings import BadSettings, ServerSettings
from mainstay.control.vault.seal import BadKey, Vault, new_key, parse_keys
from mainstay.foundation.private_files import write_private_file

VARIABLE = "VAULT_ENCRYPTION_KEY"
# Keys that only open values sealed before a key rotation.
OLD_VARIABLE = "VAULT_ENCRYPTION_KEYS_OLD"
FILE = "vault.key"


def load_vault(settings: ServerSettings, environment: Mapping[str, str]) -> Vault | None:
    """Creates the key file of a new embedded database. None: the vault is off, and secrets are refused."""
    if settings.vault == "off":
        return None
    if settings.is_embedded and not _has_key(settings, environment):
        # If two servers start at once, both use the key of the first.
        path = settings.data_path / FILE
        write_private_file(path, f"{new_key()}\n".encode("ascii"), durable=True, keep_existing=True)
    return find_vault(settings, environment)


def find_vault(settings: ServerSettings, environment: Mapping[str, str]) -> Vault | None:
    """Creates nothing. None: the vault is off, or a new embedded database has no key yet."""
    if settings.vault == "off":
        return None
    if _has_key(settings, environment):
        try:
            return Vault(load_keys(settings, environment))
        except BadKey as error:
            raise BadSettings(str(error)) from None
    if settings.is_embedded:
        return None
    # Each replica would create its own key, and none could open secrets of the others.
    raise BadSettings(
        f"there is no vault key: with PostgreSQL all replicas share one. Create it once with `openssl rand -hex 32`, and"
        f" set {VARIABLE} or write it to {settings.data_path / FILE} (mode 0600); MAINSTAY_VAULT=off runs without secrets"
    )


def _has_key(settings: ServerSettings, environment: Mapping[str, str]) -> bool:
    return VARIABLE in environment or (settings.data_path / FILE).exists()


def load_keys(settings: ServerSettings, environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """The first key seals; all keys open."""
    if VARIABLE in environment:
        keys = parse_keys([environment[VARIABLE]], VARIABLE)
        old = environment.get(OLD_VARIABLE, "")
        return keys + (parse_keys(old.split(","), OLD_VARIABLE) if old else ())
    path = settings.data_path / FILE
    return parse_keys(path.read_text(encoding="ascii", errors="replace").splitlines(), str(path))
