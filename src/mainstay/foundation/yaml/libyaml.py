"""libyaml's event parser without the rest of PyYAML, whose `__init__` takes longer than a whole run of one file.

Of its package the C module needs only the classes of events and marks, which are cheap to import, and the names of
errors, whose modules are not (they compile large patterns). So the package is registered unfinished, error classes
are imported when an error is raised, and the first access to any other attribute of `yaml` completes the import.
If anything is unexpected, the plain `import yaml` is used. Measured in docs/decisions/0005-lean-yaml.md.
Where PyYAML has no C module, its own parser is used (`pure_parser.py`).
"""

from __future__ import annotations

import sys
from _thread import RLock
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType

from mainstay.foundation import Any

LIGHT_PARTS = ("error", "tokens", "events", "nodes")
ERRORS = {
    "reader": "ReaderError",
    "scanner": "ScannerError",
    "parser": "ParserError",
    "composer": "ComposerError",
    "constructor": "ConstructorError",
    "emitter": "EmitterError",
    "serializer": "SerializerError",
    "representer": "RepresenterError",
}


class Unfinished(ModuleType):
    """The package `yaml` before its `__init__` has run; the first access to a missing attribute runs it."""

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        with state["_mainstay_lock"]:
            if self.__class__ is Unfinished and not state.get("_mainstay_is_finishing"):
                state["_mainstay_is_finishing"] = True
                _finish(self)
        if name in state:
            return state[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class ErrorOnDemand(ModuleType):
    """Replaces a module of PyYAML while the C module imports the name of its error."""

    def __init__(self, module: str, name: str) -> None:
        super().__init__(module)

        def make(*arguments: Any) -> Any:
            return getattr(import_module(f"yaml.{module}"), name)(*arguments)

        setattr(self, name, make)


def _prepare() -> None:
    """Loads the C module, so that its import costs nothing more."""
    if "yaml" in sys.modules:
        return
    try:
        _load_unfinished()
    except Exception:  # noqa: BLE001  # an unknown version of PyYAML: the plain import always works
        for name in [name for name in sys.modules if name == "yaml" or name.startswith("yaml.")]:
            del sys.modules[name]


def _load_unfinished() -> None:
    spec = PathFinder.find_spec("yaml")
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        raise ImportError("PyYAML is not a regular package")
    package = ModuleType("yaml")
    package.__spec__ = spec
    package.__loader__ = spec.loader
    package.__package__ = "yaml"
    package.__file__ = spec.origin
    package.__dict__["__cached__"] = spec.cached
    package.__path__ = spec.submodule_search_locations
    sys.modules["yaml"] = package
    for part in LIGHT_PARTS:
        import_module(f"yaml.{part}")
    for module, name in ERRORS.items():
        setattr(package, module, ErrorOnDemand(module, name))
    try:
        import_module("yaml._yaml")
    finally:
        for module in ERRORS:
            delattr(package, module)
    # Code that uses the C module by this name may compare its errors, which are not the real classes yet.
    del package.__dict__["_yaml"]
    package.__dict__["_mainstay_lock"] = RLock()
    package.__class__ = Unfinished


def _finish(package: ModuleType) -> None:
    """Completes the package, as a plain import would."""
    spec = package.__spec__
    if spec is None or spec.loader is None:
        raise ImportError("the package yaml has lost its loader", name="yaml")
    spec.loader.exec_module(package)
    parser = package.__dict__["_yaml"] = sys.modules["yaml._yaml"]
    for module, name in ERRORS.items():
        setattr(parser, name, getattr(import_module(f"yaml.{module}"), name))
    del package.__dict__["_mainstay_is_finishing"]
    package.__class__ = ModuleType


_prepare()
try:
    from yaml._yaml import CParser
except ImportError:
    from mainstay.foundation.yaml.pure_parser import PureParser as CParser  # type: ignore[assignment]
from yaml.error import MarkedYAMLError, YAMLError  # noqa: E402  # needs _prepare()
from yaml.events import (  # noqa: E402  # needs _prepare()
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

__all__ = [
    "AliasEvent",
    "CParser",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "MappingEndEvent",
    "MappingStartEvent",
    "MarkedYAMLError",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
    "YAMLError",
]
