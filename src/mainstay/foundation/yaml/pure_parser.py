"""PyYAML's event parser in Python, with the interface of its C parser. For hosts where the C module does not load."""

from __future__ import annotations

from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

from mainstay.foundation import Any


class PureParser:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._events: _Events | None = None

    def get_event(self) -> Any:
        try:
            if self._events is None:
                # Here, because it may raise: the constructor of the C parser does not.
                self._events = _Events(self._content.decode())
            return self._events.get_event()  # type: ignore[no-untyped-call]
        except ReaderError as error:
            # The C parser counts bytes.
            error.position = len(self._content.decode()[: error.position].encode())
            raise


class _Events(Reader, Scanner, Parser):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
