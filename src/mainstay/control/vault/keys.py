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
    """None: no vault; secrets are refused with `vault is not configured`."""
    if settings.vault == "off":
        return None
    try:
        keys = load_keys(settings, environment)
    except BadKey as error:
        raise BadSettings(str(error)) from None
    return Vault(keys) if keys else None


def load_keys(settings: ServerSettings, environment: Mapping[str, str]) -> tuple[bytes, ...]:
    if VARIABLE in environment:
        keys = parse_keys([environment[VARIABLE]], VARIABLE)
        old = environment.get(OLD_VARIABLE, "")
        return keys + (parse_keys(old.split(","), OLD_VARIABLE) if old else ())
    path = settings.data_path / FILE
    if not path.exists():
        if not settings.is_embedded:
            # Each replica would create its own key, and none could open secrets of the others.
            return ()
        # If two servers start at once, both use the key of the first.
        write_private_file(path, f"{new_key()}\n".encode("ascii"), durable=True, keep_existing=True)
    return parse_keys(path.read_text(encoding="ascii", errors="replace").splitlines(), str(path))
