"""Prints documents as YAML that our own reader reads back unchanged. Loads PyYAML."""

from __future__ import annotations

import yaml

from mainstay.foundation import Any
from mainstay.foundation.yaml.scalars import CORE


class ManifestDumper(yaml.SafeDumper):
    """Writes multi-line text as literal blocks, and indents lists as the guides do."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text.rstrip("\n") or text.endswith("\n") else None
        if CORE.fullmatch(text):
            # PyYAML follows YAML 1.1, where texts such as 1e3 and 0o17 need no quotes.
            style = "'"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def ignore_aliases(self, data: object) -> bool:
        return True


ManifestDumper.add_representer(str, ManifestDumper.represent_text)


def to_yaml(document: Any) -> str:
    text: str = yaml.dump(document, Dumper=ManifestDumper, sort_keys=False, allow_unicode=True, width=100)
    return text
