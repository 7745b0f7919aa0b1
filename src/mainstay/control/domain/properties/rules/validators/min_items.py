"""`minItems {value}`: the least number of items of an array."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.domain.properties.limits import limit_length

RULE = limit_length("minItems", PropertyType.ARRAY, least=True)
