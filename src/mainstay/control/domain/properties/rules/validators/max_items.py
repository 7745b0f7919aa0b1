"""`maxItems {value}`: the greatest number of items of an array."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.domain.properties.limits import limit_length

RULE = limit_length("maxItems", PropertyType.ARRAY, least=False)
