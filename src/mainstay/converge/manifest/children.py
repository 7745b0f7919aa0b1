"""Reads the manifests that a manifest applies, and adds their resources to its own. Loaded by manifests that use `apply`."""

from __future__ import annotations

from collections.abc import Iterable

from mainstay.converge.contract import Resource
from mainstay.converge.manifest import Manifest, OpenedManifest, Source
from mainstay.converge.manifest.hierarchy import DataLayer
from mainstay.converge.manifest.repetition import MOST_ITEMS
from mainstay.converge.manifest.scope import taint
from mainstay.foundation import Any, Struct
from mainstay.foundation.faults import Fault
from mainstay.foundation.text import PrivateText, shorten
from mainstay.foundation.yaml.document import locate, nearest_place

DEEPEST_CHILD = 10
# Manifests that apply others several times must not grow without bound.
MOST_CHILDREN = MOST_RESOURCES = MOST_ITEMS
MOST_FAULTS = 1000
MOST_DUPLICATES = 50


class ChildRefused(Exception):
    """A manifest cannot be applied by another; the text is the reason."""


class Composition(Struct):
    """What all manifests of a run share: how many they are, and the faults of children."""

    count: int = 0
    # The number of resources of all manifests that others apply.
    resource_count: int = 0
    faults: list[Fault] = []
    _known: set[tuple[Any, ...]] = set()

    def add_faults(self, faults: Iterable[Fault]) -> None:
        """Adds each fault once: a manifest that is applied twice has the same faults twice."""
        for fault in faults:
            key = (fault.file, fault.line, fault.column, fault.message)
            if key not in self._known and len(self._known) < MOST_FAULTS:
                self._known.add(key)
                self.faults.append(fault)

    def find_duplicates(self, manifest: Manifest) -> None:
        """A resource may be in one manifest of a run only: two would set the same thing."""
        first: dict[str, Resource] = {}
        found = 0
        for resource in manifest.resources:
            other = first.setdefault(resource.id, resource)
            if other is resource or other.declared_in is resource.declared_in or found >= MOST_DUPLICATES:
                continue
            found += 1
            where = (other.declared_in or manifest).position(other.place)
            self.add_fault_of(
                resource,
                f"{shorten(resource.id, 200)}: is also in {where}{_named(other)}; a resource may be in one manifest of a run"
                " only",
                resource.declared_in or manifest,
            )

    def add_fault_of(self, resource: Resource, message: str, home: Manifest | None = None) -> None:
        """Adds a fault of a resource, in the file of its manifest."""
        manifest: Manifest = home or resource.declared_in
        place = nearest_place(locate(manifest.text, [resource.place]), resource.place, at_key=True)
        self.add_faults([Fault(manifest.file, *place, message)])


def _named(resource: Resource) -> str:
    return f" ({shorten(resource.within[-1])})" if resource.within else ""


def child_layer(resource: Any, manifest: Manifest, *, is_sensitive: bool) -> DataLayer:
    """The data that an `apply` resource gives to its manifest."""
    data = taint(dict(resource.data), mark=PrivateText) if is_sensitive else resource.data
    return DataLayer(data, f"data of {shorten(resource.id)} in {manifest.file}")


def open_child(resource: Any, manifest: Manifest, source: Source, composition: Composition) -> OpenedManifest:
    """Opens the manifest of an `apply` resource; raises `ChildRefused` or `DoesNotLoad`."""
    if len(resource.within) >= DEEPEST_CHILD:
        raise ChildRefused(
            f"manifests can apply each other {DEEPEST_CHILD} levels deep; this is level {DEEPEST_CHILD + 1}"
        )
    composition.count += 1
    if composition.count > MOST_CHILDREN:
        raise ChildRefused(f"a run can apply at most {MOST_CHILDREN:,} manifests")
    if composition.resource_count > MOST_RESOURCES:
        raise ChildRefused(f"the manifests before it have more than {MOST_RESOURCES:,} resources, the most of a run")
    path = resource.manifest or resource.name
    if path.startswith(("http://", "https://")):
        raise ChildRefused("a manifest is applied from a local path, not from a URL")
    opened = source.open_child(path, manifest.file, manifest.directory)
    if opened.real_path in manifest.chain:
        raise ChildRefused(f"{opened.file} would apply itself, directly or through other manifests")
    return opened
