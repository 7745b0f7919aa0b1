"""Prints the JSON Schema (2020-12) that editors use to complete and check a document.

mainstay schema manifest > manifest.schema.json
The first line of a document names it: # yaml-language-server: $schema=manifest.schema.json"""

from __future__ import annotations

import argparse

from mainstay.cli.main import add_argument, print_json
from mainstay.foundation import Any

SUMMARY = "print the JSON Schema of a kind of document"
GROUP = "this host"
DOCUMENTS = ("manifest", "blueprint", "service-type", "order", "inventory", "plane")


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "document", "DOCUMENT", ", ".join(DOCUMENTS), choices=DOCUMENTS)


def run(arguments: argparse.Namespace) -> int:
    print_json(_schema_of(arguments.document))
    return 0


def _schema_of(document: str) -> dict[str, Any]:
    if document == "manifest":
        from mainstay.converge import health_checks, resources
        from mainstay.converge.manifest.schema import manifest_schema

        types = [found for name in resources.names() if (found := resources.find(name)) is not None]
        return manifest_schema(types, list(health_checks.kinds().values()))
    if document == "inventory":
        from mainstay.push.inventory_schema import inventory_schema

        return inventory_schema()
    if document == "plane":
        from mainstay.cli.plane.schema import plane_schema

        return plane_schema()
    from mainstay.blueprints.document_schemas import blueprint_schema, order_schema, service_type_schema

    if document == "service-type":
        from mainstay.control.rulebook import installed_rulebook

        return service_type_schema(installed_rulebook())
    return blueprint_schema() if document == "blueprint" else order_schema()
