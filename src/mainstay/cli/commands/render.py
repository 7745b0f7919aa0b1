"""Prints a manifest as resolved on this host: data merged, templates rendered, defaults applied.

Templates that are rendered during the run are shown as written; sensitive values as [redacted]."""

from __future__ import annotations

from mainstay.cli.local_run import add_value_options, load_or_exit, print_json, value_layers
from mainstay.cli.main import print_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "print a manifest as resolved on this host"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST")
    parser.add_argument("--json", action="store_true", help="print JSON instead of YAML")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print which overrides are used, to stderr")
    add_value_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from mainstay.converge.manifest.rendering import render_manifest

    manifest = load_or_exit(arguments.manifest, lambda: value_layers(arguments), as_json=arguments.json)
    if arguments.verbose:
        for note in (*manifest.hierarchy.notes(), *manifest.warnings, *manifest.hierarchy.warnings()):
            print_error(note)
    document = render_manifest(manifest)
    if arguments.json:
        print_json(document)
        return 0
    import yaml

    from mainstay.foundation.yaml.scalars import CORE

    class Dumper(yaml.SafeDumper):
        """Writes multi-line text as literal blocks."""

        def represent_text(self, text: str) -> yaml.ScalarNode:
            style = "|" if "\n" in text.rstrip("\n") or text.endswith("\n") else None
            if CORE.fullmatch(text):
                # PyYAML follows YAML 1.1, where texts such as 1e3 and 0o17 need no quotes.
                style = "'"
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

        def ignore_aliases(self, data: object) -> bool:
            return True

    Dumper.add_representer(str, Dumper.represent_text)
    print(yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100), end="")
    return 0
