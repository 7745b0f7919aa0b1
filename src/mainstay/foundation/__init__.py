"""Shared by host convergence and the control plane. Imports no other package of mainstay.

Here is the base of classes that only hold values, without `dataclasses`, whose import takes longer than the run of a small
manifest. It is no module of its own, which every run would have to load.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, ClassVar, NoReturn, TypeAlias, dataclass_transform
else:
    # Only mypy reads them; the import of `typing` takes longer than the run of a small manifest.
    Any = IO = NoReturn = TypeAlias = object
    dataclass_transform = lambda **_: lambda cls: cls  # noqa: E731

__all__ = ["IO", "Any", "NoReturn", "Struct", "TypeAlias"]


@dataclass_transform(eq_default=False)
class Struct:
    """Takes the values of its annotated attributes, by position or by name. A value in the class is the default; each
    object has its own copy of a list, map or set.

    mypy checks types and missing values, a run does not."""

    # In the order of the class.
    _fields: ClassVar[tuple[str, ...]] = ()
    # Copied to each object, because look-ups in the class take longer.
    _defaults: ClassVar[dict[str, Any]] = {}
    _copied: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields += tuple(cls.__annotations__)
        cls._defaults = {name: getattr(cls, name) for name in cls._fields if hasattr(cls, name)}
        cls._copied = tuple(name for name, value in cls._defaults.items() if isinstance(value, (list, dict, set)))

    def __init__(self, *values: Any, **named: Any) -> None:
        given = {**self._defaults, **dict(zip(self._fields, values)), **named}
        for name in self._copied:
            if given[name] is self._defaults[name]:
                given[name] = given[name].copy()
        self.__dict__ = given
