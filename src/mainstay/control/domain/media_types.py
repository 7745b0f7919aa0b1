"""Media types that users define for a response. Only plain ones: no quoting, so nothing can leave the header."""

from __future__ import annotations

import re

_WORD = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*"
_CHARSET = r"; ?[Cc]harset=[Uu][Tt][Ff]-8"
# For JSON Schema and Python alike. A look-ahead, because `$` also matches before a line break at the end.
MEDIA_TYPE = rf"^({_WORD}/{_WORD}({_CHARSET}|; ?(?![Cc][Hh][Aa][Rr]){_WORD}={_WORD}){{0,5}})?$(?![\s\S])"
NOT_A_MEDIA_TYPE = "must be a media type such as text/plain or application/json; the charset is utf-8"


def is_media_type(text: str) -> bool:
    return re.match(MEDIA_TYPE, text) is not None


def without_charset(text: str) -> str:
    return re.sub(_CHARSET, "", text)
