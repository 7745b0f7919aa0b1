"""Classes that only hold values, without `dataclasses`: its import takes longer than the run of a small manifest."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import dataclass_transform

    @dataclass_transform(eq_default=False)
    class Struct:
        """Takes the values of its annotated attributes, by position or by name. A value in the class is the default."""
else:

    class Struct:
        # In the order of the class. Types and missing values are checked by mypy, not in a run.
        _fields = ()

        def __init_subclass__(cls):
            cls._fields += tuple(cls.__annotations__)

        def __init__(self, *values, **named):
            self.__dict__.update(zip(self._fields, values), **named)
