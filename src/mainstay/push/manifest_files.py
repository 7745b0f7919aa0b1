"""Finds the files that a manifest needs on the host, and which of them a host must not keep.

Only files that the manifest names travel: its directory may contain inventories and data of other hosts. A name with
an expression means all files that fit the text around it (`files/{{ … }}.conf`: all of `files/*.conf`).

Private are files of `sensitive` resources, and manifests that contain such a resource or the value of a secret property.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

from mainstay.converge import resources
from mainstay.converge.host.sources import BUNDLE_ENDS, OTHER_ARCHIVE_ENDS, is_inside, read_bytes
from mainstay.converge.manifest.expressions import split
from mainstay.converge.manifest.scope import BadExpression
from mainstay.converge.redaction import secret_names
from mainstay.foundation.faults import refused
from mainstay.foundation.yaml.document import decode, parse
from mainstay.foundation.yaml.scalars import Node, PlainScalar, leaves

# Properties whose value is the path of a file beside the manifest.
PATH_PROPERTIES = ("source", "url", "manifest")
# `template('a')`, `file("a")`, also with a computed rest: `template('conf/' ~ lookup('facts.os.id'))`.
CALL = re.compile(r"\b(?:template|file)\(\s*(?:'([^'\n]*)'|\"([^\"\n]*)\")?\s*(\)?)")
# What a template file loads itself.
STATEMENT = re.compile(r"\{%[-+]?\s*(?:include|import|extends|from)\s+(?:'([^'\n]*)'|\"([^\"\n]*)\")")
MOST_FILES = 10_000
LARGEST_TEMPLATE_BYTES = 16 * 1024 * 1024
DEEPEST_CHILD = 10


class ManifestFiles:
    """The files of one manifest: `root` is the directory that contains them all."""

    def __init__(self, manifest: str) -> None:
        self.manifest = os.path.realpath(manifest)
        # Real path → whether it is a template or manifest that may name more files.
        self.paths: dict[str, bool] = {}
        # Real paths of files that may contain secrets.
        self.private: set[str] = set()
        # Values that are known only on the host, and name files in no directory.
        self.computed: list[str] = []

    @property
    def root(self) -> str:
        return os.path.commonpath([os.path.dirname(self.manifest), *map(os.path.dirname, self.paths)])

    @property
    def name(self) -> str:
        """The path of the manifest below `root`."""
        return os.path.relpath(self.manifest, self.root)


def is_bundle(manifest: str) -> bool:
    return manifest.endswith(BUNDLE_ENDS)


def find_files(manifest: str) -> ManifestFiles:
    """Raises `DoesNotLoad` if the manifest or one that it applies cannot be read."""
    if manifest.endswith(OTHER_ARCHIVE_ENDS):
        raise refused(manifest, "a bundle is packed as .tar.gz, .tgz or .zip")
    found = ManifestFiles(manifest)
    _Search(found).manifest(manifest, manifest, depth=0)
    return found


class _Search:
    def __init__(self, found: ManifestFiles) -> None:
        self.found = found
        self.directory = os.path.dirname(found.manifest)
        # Texts in `data`, which may be names of files.
        self.data_texts: list[str] = []
        self.secret_keys = _secret_keys()
        # Whether what is found now belongs to a sensitive resource.
        self.is_private = False
        # Whether a sensitive resource has a path that is known only on the host.
        self.is_computed_private = False

    def manifest(self, path: str, shown: str, *, depth: int) -> None:
        real = os.path.realpath(path)
        is_known = self.found.paths.get(real, False)
        if depth > DEEPEST_CHILD or (is_known and (real in self.found.private or not self.is_private)):
            return
        self.found.paths[real] = True
        text = decode(read_bytes(path), shown)
        node = parse(text or "\n", shown)
        if self.is_private or self._has_secrets(node):
            self.found.private.add(real)
        outer = self.directory, self.is_private
        self.directory = os.path.dirname(real)
        self.is_private = self.is_private or _has_sensitive_defaults(node)
        try:
            self._walk(node, depth, key="")
            self.is_private = self.is_private or self.is_computed_private
            for candidate in self.data_texts if self.found.computed else ():
                self._add(candidate, depth, is_child=False)
        finally:
            self.directory, self.is_private = outer

    def _has_secrets(self, node: Node) -> bool:
        if isinstance(node, dict):
            is_marked = _is_sensitive(node) or not self.secret_keys.isdisjoint(node)
            return is_marked or any(map(self._has_secrets, node.values()))
        return isinstance(node, list) and any(map(self._has_secrets, node))

    def _walk(self, node: Node, depth: int, *, key: str) -> None:
        if isinstance(node, dict):
            outer, self.is_private = self.is_private, self.is_private or _is_sensitive(node)
            for name, child in node.items():
                if name == "apply":
                    self._applied(child, depth)
                if name in ("data", "overrides"):
                    self.data_texts += _texts(child)
                self._text(name, depth, key="")
                self._walk(child, depth, key=name)
            self.is_private = outer
        elif isinstance(node, list):
            for child in node:
                self._walk(child, depth, key="")
        else:
            self._text(str(node), depth, key=key)

    def _applied(self, node: Node, depth: int) -> None:
        """The children of `apply` entries: the property `manifest`, else the name."""
        entries = node if isinstance(node, list) else [node]
        for entry in entries:
            named = entry if isinstance(node, list) and isinstance(entry, dict) else {}
            for name, properties in named.items():
                given = properties.get("manifest") if isinstance(properties, dict) else None
                if name != "defaults" and given is None:
                    self._add_child(name, properties, depth)
            if not isinstance(node, list) and isinstance(entry, dict) and "manifest" not in entry and "name" in entry:
                self._add_child(str(entry["name"]), entry, depth)

    def _add_child(self, name: str, properties: Node, depth: int) -> None:
        outer, self.is_private = self.is_private, self.is_private or _is_sensitive(properties)
        self._add_template(name, depth, is_child=True)
        self.is_private = outer

    def _text(self, text: str, depth: int, *, key: str) -> None:
        if key in PATH_PROPERTIES:
            self._add_template(text, depth, is_child=key == "manifest")
        if "(" in text:
            self._calls(text, depth)

    def _calls(self, text: str, depth: int) -> None:
        for single, double, closing in CALL.findall(text):
            path = single or double
            if path and closing:
                self._add(path, depth, is_child=False)
            elif path:
                self._add_pattern(f"{glob.escape(path)}*", depth, is_child=False)
            else:
                self._add_computed(text)

    def _add_computed(self, text: str) -> None:
        self.found.computed.append(text)
        self.is_computed_private = self.is_computed_private or self.is_private

    def _add_template(self, text: str, depth: int, *, is_child: bool) -> None:
        if "{{" not in text:
            self._add(text, depth, is_child=is_child)
            return
        try:
            parts = split(text)
        except BadExpression:
            # A fault that loading reports.
            return
        if not isinstance(parts[0], str):
            self._add_computed(text)
            return
        pattern = "".join(glob.escape(part) if isinstance(part, str) else "*" for part in parts)
        self._add_pattern(pattern, depth, is_child=is_child)

    def _add_pattern(self, pattern: str, depth: int, *, is_child: bool) -> None:
        if pattern.startswith("/"):
            return
        for path in sorted(glob.glob(pattern, root_dir=self.directory)):
            self._add(path, depth, is_child=is_child)

    def _add(self, path: str, depth: int, *, is_child: bool) -> None:
        """Adds a file or the files of a directory. A path that does not exist is a fault of the run."""
        if path.startswith("/") or "://" in path or "\0" in path or not path:
            return
        real = os.path.realpath(os.path.join(self.directory, path))
        if is_child and os.path.isfile(real):
            self.manifest(real, path, depth=depth + 1)
        # A source such as `.` or `..` would take files that the manifest does not mean.
        elif os.path.isdir(real) and is_inside(real, self.directory):
            for folder, _, names in os.walk(real):
                for name in names:
                    self._add_file(os.path.join(folder, name))
        elif os.path.isfile(real) and self._add_file(real):
            self._template_file(real, depth)

    def _add_file(self, path: str) -> bool:
        """Returns whether that is new."""
        if not os.path.isfile(path) or (
            path in self.found.paths and (path in self.found.private or not self.is_private)
        ):
            return False
        self.found.paths.setdefault(path, False)
        if self.is_private:
            self.found.private.add(path)
        if len(self.found.paths) > MOST_FILES:
            raise refused(self.found.manifest, f"it names more than {MOST_FILES:,} files")
        return True

    def _template_file(self, real: str, depth: int) -> None:
        """Adds what a template file includes or reads."""
        try:
            if os.path.getsize(real) > LARGEST_TEMPLATE_BYTES:
                return
            with open(real, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError):
            return
        if "{{" in text or "{%" in text:
            for single, double in STATEMENT.findall(text):
                self._add(single or double, depth, is_child=False)
            self._calls(text, depth)


def _secret_keys() -> frozenset[str]:
    """Names of properties that are always hidden. As keys of `data` they mean a secret most likely, too."""
    types = [found for found in map(resources.find, resources.names()) if found is not None]
    return frozenset(name for found in types for name in secret_names(found.properties))


def _is_sensitive(node: Node | None) -> bool:
    """True also for a template: what may be secret is not kept."""
    if not isinstance(node, dict) or "sensitive" not in node:
        return False
    value = node["sensitive"]
    return not isinstance(value, PlainScalar) or value.value not in (False, None)


def _has_sensitive_defaults(node: Node) -> bool:
    if isinstance(node, dict):
        return _is_sensitive(node.get("defaults")) or any(map(_has_sensitive_defaults, node.values()))
    return isinstance(node, list) and any(map(_has_sensitive_defaults, node))


def _texts(node: Node) -> Iterator[str]:
    return (str(leaf) for _, leaf in leaves(node) if isinstance(leaf, str))
