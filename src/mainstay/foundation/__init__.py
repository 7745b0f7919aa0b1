"""Shared by host convergence and the control plane. Imports no other package of mainstay.

Here is the base of classes that only hold values, without `dataclasses`, whose import takes longer than the run of a small
manifest. It is no module of its own, which every run would have to load.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, dataclass_transform
else:
    # Only mypy reads it.
    dataclass_transform = lambda **_: lambda cls: cls  # noqa: E731


@dataclass_transform(eq_default=False)
class Struct:
    """Takes the values of its annotated attributes, by position or by name. A value in the class is the default.

    mypy checks types and missing values, a run does not."""

    # In the order of the class.
    _fields: ClassVar[tuple[str, ...]] = ()
    # Copied to each object, because look-ups in the class take longer.
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls._fields += tuple(cls.__annotations__)
        cls._defaults = {name: getattr(cls, name) for name in cls._fields if hasattr(cls, name)}

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__ = {**self._defaults, **dict(zip(self._fields, values)), **named}
