"""First stage of a push on the host: finds or fills the program cache, then starts the receiver from it.

The text of this file and the source of `packaging/program_cache.py` are sent to the host's Python. It must parse on any
Python 3 and use only the standard library.
"""

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

MARK = "mainstay-push "
OLDEST_PYTHON = (3, 9)
LARGEST_PROGRAM_BYTES = 64 * 1024 * 1024
LARGEST_INDEX_BYTES = 16 * 1024 * 1024
DISK_FULL = (28, 122)


class Refused(Exception):
    """The push cannot start on this host. The text is shown to the operator."""


class Stage:
    """One push on the host. `reader` is standard input, at the line with the wanted digests."""

    def __init__(self, reader: "IO[bytes]") -> None:
        self.reader = reader
        # Standard output carries frames only: what commands and libraries print goes to standard error.
        self.output = os.dup(1)
        os.dup2(2, 1)

    def send(self, frame: "dict[str, Any]") -> None:
        left = (MARK + json.dumps(frame) + "\n").encode("ascii")
        while left:
            left = left[os.write(self.output, left) :]

    def run(self, cache_source: bytes) -> int:
        hello: dict[str, Any] = {"python": list(sys.version_info[:3])}
        if sys.version_info < OLDEST_PYTHON:
            self.send({"hello": hello})
            return 1
        # Parsed only now: an old Python could not.
        cache: Any = type(sys)("mainstay_program_cache")
        exec(compile(cache_source, "program_cache.py", "exec"), cache.__dict__)  # noqa: S102
        umask = os.umask(0o077)
        try:
            wanted = json.loads(self._line())
            contents = cache.private_folder("contents")
            program = cache.find_program(wanted["program"])
            index = _read_index(cache, os.path.join(contents, wanted["index"]), wanted["index"])
            hello["has_program"] = program is not None
            hello["has_index"] = index is not None
            self.send({"hello": hello})
            packed_index = b""
            if program is None or index is None:
                sizes = json.loads(self._line())
                if sizes["program_bytes"]:
                    program = cache.store_program(self._receive(sizes["program_bytes"]), wanted["program"])
                packed_index = self._receive(sizes["index_bytes"])
        except (Refused, cache.CacheRefused) as refusal:
            kind = "disk_full" if "No space left" in str(refusal) else "refused"
            self.send({"fault": {"kind": kind, "message": str(refusal)}})
            return 1
        except OSError as error:
            kind = "disk_full" if error.errno in DISK_FULL else "system"
            message = "{}: {}".format(error.filename or "the program cache", error.strerror or error)
            self.send({"fault": {"kind": kind, "message": message}})
            return 1
        finally:
            os.umask(umask)
        sys.path.insert(0, program)
        from mainstay.push.receiver import receive

        return receive(contents, wanted["index"], index, packed_index, self.reader, self.output)

    def _line(self) -> str:
        line = self.reader.readline()
        if not line.endswith(b"\n"):
            raise Refused("the connection ended early")
        return line.decode("ascii")

    def _receive(self, size: int) -> bytes:
        content = self.reader.read(min(size, LARGEST_PROGRAM_BYTES))
        if len(content) != size:
            raise Refused("the transfer ended early")
        return content


def _read_index(cache: "Any", path: str, digest: str) -> "bytes | None":
    """The list of files that an earlier push left. None: there is none, or another program has changed it."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read(LARGEST_INDEX_BYTES)
    except OSError:
        return None
    return content if cache.digest_of(content) == digest else None


def main(reader: "IO[bytes]", cache_source: bytes) -> None:
    """Ends the process without its usual clean-up, which would wait for the thread that reads standard input."""
    stage = Stage(reader)
    code = 1
    try:
        code = stage.run(cache_source)
    except Exception as error:  # noqa: BLE001  # the operator must see it, whatever it is
        import traceback

        traceback.print_exc()
        stage.send({"fault": {"kind": "system", "message": f"{type(error).__name__}: {error}"}})
    finally:
        sys.stderr.flush()
        os._exit(code)
