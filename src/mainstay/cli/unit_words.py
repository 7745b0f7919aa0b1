"""Words of commands in systemd units."""

from __future__ import annotations


def quoted_word(word: str) -> str:
    """Escapes a word for ExecStart."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if escaped == word and " " not in word and word else f'"{escaped}"'
