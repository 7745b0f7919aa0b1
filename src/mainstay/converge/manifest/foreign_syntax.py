"""Expressions of a related manifest family, `${ … }`, which are text here. Loaded with the first text that holds `${`."""

from __future__ import annotations

import re

# Other texts with `${` are most likely meant for a shell or a configuration file.
EXPRESSION = re.compile(r"\$\{\s*(?:(?:data|facts|environ)\b|lookup\()", re.IGNORECASE)
PROBLEM = "${ … } is not supported; write {{ … }}"


def has_foreign_expression(text: str) -> bool:
    return EXPRESSION.search(text) is not None
