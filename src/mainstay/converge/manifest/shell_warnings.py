"""Warnings about values that a shell would read as code. `mainstay validate` shows them. Pure."""

from __future__ import annotations

from mainstay.converge.manifest.expressions import Template
from mainstay.converge.value_kinds import COMMAND
from mainstay.foundation.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.converge.contract import Resource
    from mainstay.converge.manifest import Manifest


def shell_warnings(manifest: Manifest) -> list[str]:
    found = []
    for resource in manifest.resources:
        if not manifest.types[resource.type].splits_commands(resource):
            found += list(_unquoted(resource, manifest))
    return found


def _unquoted(resource: Resource, manifest: Manifest) -> Iterator[str]:
    templates = {key: tree for key, tree in (resource.deferred or {}).items() if isinstance(tree, Template)}
    if resource.name_template:
        templates["name"] = Template(resource.name_template)
    properties = manifest.types[resource.type].properties
    for key, template in templates.items():
        if key != "name" and properties[key].kind is not COMMAND:
            continue
        for part in template.parts:
            if isinstance(part, str) or part.ends_in_quote():
                continue
            shown = "an expression" if resource.sensitive else f"{{{{ {shorten(part.source.strip())} }}}}"
            yield f"{shorten(resource.id)}: {key}: the shell reads the value of {shown} as code; end it with `| quote`"
