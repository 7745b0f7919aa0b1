"""The characters that a name may hold. Names reach terminals, logs, pages and unit files, so they must be plain text."""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), line and paragraph separators, and bidirectional controls.
_NOT_IN_NAMES = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
# For JSON Schema and Python alike. A look-ahead, because `$` also matches before a line break at the end.
PLAIN_NAME = rf"^(?![\s\S]*[{_NOT_IN_NAMES}])"
NOT_PLAIN = "must not hold control characters, line breaks or bidirectional controls"


def is_plain_name(text: str) -> bool:
    return re.match(PLAIN_NAME, text) is not None
