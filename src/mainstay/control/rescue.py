"""What an operator does beside a running server: changing the key of the vault."""

from __future__ import annotations

from collections.abc import Mapping

from mainstay.control.operations.vault import reseal_all
from mainstay.control.serve import opened, write_private
from mainstay.control.settings import BadSettings, Settings
from mainstay.control.vault.keys import FILE, VARIABLE, load_keys
from mainstay.control.vault.seal import Vault, new_key


async def rotate_key(settings: Settings, environment: Mapping[str, str]) -> int:
    """How many secrets were sealed anew. Interrupted at any instant, every secret can still be opened: the old key
    leaves the file only when nothing needs it."""
    path = settings.data_path / FILE
    from_file = VARIABLE not in environment
    async with opened(settings, environment) as (store, tools):
        if tools.vault is None:
            raise BadSettings("there is no vault key to rotate")
        if from_file:
            kept = path.read_text(encoding="ascii").split()
            write_private(path, "\n".join([new_key(), *kept]) + "\n")
        vault = Vault(load_keys(settings, environment))
        count = 0
        while True:
            async with store.transaction() as tx:
                done = await reseal_all(tx, vault)
            count += done
            if not done:
                break
    if from_file:
        write_private(path, path.read_text(encoding="ascii").split()[0] + "\n")
    return count
