"""First stage of a push on the host: finds or fills the caches, then starts the receiver from the program cache.

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
ARCHIVES_KEPT = 10
ARCHIVES_KEPT_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 1 << 20
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
            archives = _archive_directory(cache)
            program = cache.find_program(wanted["program"])
            archive = os.path.join(archives, wanted["archive"])
            hello["has_program"] = program is not None
            hello["has_archive"] = os.path.isfile(archive)
            self.send({"hello": hello})
            order = json.loads(self._line())
            if order["program_bytes"]:
                program = cache.store_program(self._receive(order["program_bytes"]), wanted["program"])
            if order["archive_bytes"]:
                self._receive_archive(archive, wanted["archive"], order["archive_bytes"])
            else:
                os.utime(archive)
            _remove_old_archives(archives, wanted["archive"])
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

        return receive(order, archive, self.reader, self.output)

    def _line(self) -> str:
        line = self.reader.readline()
        if not line.endswith(b"\n"):
            raise Refused("the connection ended early")
        return line.decode("ascii")

    def _receive(self, size: int) -> bytes:
        content = self.reader.read(min(size, LARGEST_PROGRAM_BYTES))
        if len(content) != size:
            raise Refused("the transfer of the program ended early")
        return content

    def _receive_archive(self, path: str, wanted: str, size: int) -> None:
        import hashlib

        digest = hashlib.sha256()
        draft = os.path.join(os.path.dirname(path), f"new-{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                while size:
                    piece = self.reader.read(min(size, CHUNK_BYTES))
                    if not piece:
                        raise Refused("the transfer of the manifest ended early")
                    digest.update(piece)
                    file.write(piece)
                    size -= len(piece)
            if digest.hexdigest() != wanted:
                raise Refused("the manifest arrived damaged: its digest differs")
            os.rename(draft, path)
        except BaseException:
            _remove(draft)
            raise


def _archive_directory(cache: "Any") -> str:
    """The directory of received manifests, beside the programs and as private as they are."""
    path: str = cache.private_folder("archives")
    for name in os.listdir(path):
        parts = name.split("-")
        # What a killed push left.
        if parts[0] == "new" and not os.path.exists("/proc/" + parts[1]):
            _remove(os.path.join(path, name))
    return path


def _remove_old_archives(folder: str, current: str) -> None:
    others = [os.path.join(folder, name) for name in os.listdir(folder) if len(name) == 64 and name != current]
    left = ARCHIVES_KEPT_BYTES
    for count, path in enumerate(sorted(others, key=os.path.getmtime, reverse=True)):
        left -= os.path.getsize(path)
        if left < 0 or count >= ARCHIVES_KEPT - 1:
            _remove(path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


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
