"""Text to typed resources, without touching the host. Here is the manifest itself; the modules read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mainstay.converge.contract import HealthCheckKind, Resource, ResourceType
from mainstay.converge.manifest.hierarchy import Hierarchy
from mainstay.converge.manifest.scope import TemplateScope
from mainstay.foundation import Any, Struct
from mainstay.foundation.faults import DocumentPath
from mainstay.foundation.yaml.document import locate
from mainstay.foundation.yaml.scalars import Node


class Manifest:
    """A manifest, resolved as far as possible before the run."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.resources: list[Resource] = []
        # The types of its resources, by name.
        self.types: dict[str, ResourceType] = {}
        # Second names of resources: `type#alias` → `type#name`.
        self.aliases: dict[str, str] = {}
        self.data: dict[str, Any] = {}
        self.fail_on_error = False
        self.pre_message: str | None = None
        self.post_message: Any = None
        self.outputs: Any = None
        self.hierarchy = Hierarchy()
        # What is most likely not intended; `validate` and `-v` show it.
        self.warnings: list[str] = []
        self.scope = TemplateScope({})
        # The directory of relative paths, and the real paths of this manifest and those that apply it.
        self.directory = "/"
        self.chain: tuple[str, ...] = ()

    def position(self, path: DocumentPath) -> str:
        """`file:line` of a path, for messages at run time."""
        place = locate(self.text, [path])
        while path and path not in place:
            path = path[:-1]
        return f"{self.file}:{place[path][0][0]}" if path in place else self.file

    def add_warnings_of(self, child: Manifest) -> None:
        for warning in (*child.warnings, *child.hierarchy.warnings()):
            text = f"{child.file}: {warning}"
            if text not in self.warnings:
                self.warnings.append(text)


class Source(Struct):
    """What the caller provides for a manifest: sources of values, and the known types."""

    find_type: Callable[[str], ResourceType | None]
    type_names: Callable[[], Sequence[str]]
    provider_names: Callable[[str], Sequence[str]]
    health_check_kinds: Callable[[], Mapping[str, HealthCheckKind]]
    roots: Mapping[str, Callable[[], Any]]
    functions: Mapping[str, Callable[..., Any]]
    # From outside all manifests.
    outer_layers: Sequence[Mapping[str, Any]]
    # Why a reference is wrong that leads out of this document; None: references must stay inside.
    reference_problem: Callable[[str], str | None] | None
    # The directory of relative paths, and the real path of the manifest, if it is a file.
    directory: str
    real_path: str
    # Reads a manifest that another one names: (its path, name and directory of the other).
    open_child: Callable[[str, str, str], OpenedManifest]
    # Sets the directory of relative paths for functions such as `file`.
    work_in: Callable[[str], None]
    # The data that an `apply` resource gives to this manifest.
    own_layers: Sequence[Mapping[str, Any]] = ()

    @property
    def data_layers(self) -> Sequence[Mapping[str, Any]]:
        return (*self.own_layers, *self.outer_layers)

    def with_layer(self, layer: Mapping[str, Any]) -> Source:
        """The source of a manifest that another one applies with this data."""
        return Source(**{**self.__dict__, "own_layers": (layer,)})


class OpenedManifest(Struct):
    """A manifest that was read: its name in messages, its text and nodes, its real path, and its directory."""

    file: str
    text: str
    node: Node
    real_path: str
    directory: str
