"""`maxLength {value}`: the greatest number of characters of a string."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.domain.properties.limits import limit_length

RULE = limit_length("maxLength", PropertyType.STRING, least=False)
