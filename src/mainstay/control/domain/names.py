"""The characters that a name may hold. Names reach terminals, logs, pages and unit files, so they must be plain text."""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls, and what Unicode declares
# invisible (Default_Ignorable_Code_Point, interlinear marks): with it two different names look the same. Those beyond
# the first plane are the characters themselves: Python and JSON Schema write their escapes differently.
_NOT_IN_NAMES = (
    r"\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# For JSON Schema and Python alike. A look-ahead, because `$` also matches before a line break at the end.
PLAIN_NAME = rf"^(?![\s\S]*[{_NOT_IN_NAMES}])"
NOT_PLAIN = "must not hold control characters, line breaks, bidirectional controls or invisible characters"


def is_plain_name(text: str) -> bool:
    return re.match(PLAIN_NAME, text) is not None
