"""`max {value}`: the greatest value of a number."""

from __future__ import annotations

from mainstay.control.domain.properties.limits import limit_value

RULE = limit_value("max", "maximum", least=False)
