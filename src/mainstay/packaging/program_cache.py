"""The cache in which a program file unpacks itself, and the start of a program from it.

Part of every program file, and sent to hosts as a text of its own: it imports the standard library only.

The cache is /var/cache/mainstay for root, and $XDG_CACHE_HOME/mainstay for other users. A version is a directory that
is named by the SHA-256 of its program file, filled under a temporary name and renamed. Code is run from it only if no
other user can have written to it: the cache and the version belong to the running user and have mode 0700, and no
directory above them can be changed by anyone but root and this user.
"""

from __future__ import annotations

import os
import stat
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn
    from zipfile import ZipFile

ROOT_CACHE = "/var/cache/mainstay"
TEMP_PREFIX = "tmp-"
KEPT_VERSIONS = 2
# A version may be removed between being found and being locked.
MOST_ATTEMPTS = 5
DIGEST_LENGTH = 64
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Files of the program file that only start it.
START_FILES = ("__main__.py", "mainstay_program_cache.py")


class CacheRefused(Exception):
    """The program cannot be run from the cache. The text states the problem and the way out."""


def _default_cache() -> str:
    if os.geteuid() == 0:
        return ROOT_CACHE
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not folder.startswith("/"):
        home = os.environ.get("HOME") or os.path.expanduser("~")
        if not home.startswith("/"):
            raise CacheRefused("there is no home directory for the program cache; set XDG_CACHE_HOME")
        folder = os.path.join(home, ".cache")
    return os.path.join(folder, "mainstay")


def digest_of(content: bytes) -> str:
    """SHA-256 by the interpreter's own module: loading OpenSSL costs more than this one digest."""
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            module = import_module(name)
        except ImportError:
            continue
        value: str = module.sha256(content).hexdigest()
        return value
    raise CacheRefused("this Python has no SHA-256")


def find_program(digest: str, cache: str | None = None) -> str | None:
    """Returns the directory of an unpacked version, or None. This process keeps it from being removed."""
    try:
        cache = _checked_cache(_default_cache() if cache is None else cache, create=False)
        return None if cache is None else _locked_version(cache, digest)
    except OSError as error:
        raise _refusal(error) from None


def store_program(content: bytes, digest: str, cache: str | None = None) -> str:
    """Unpacks a program file, unless its version is in the cache already, and returns its directory."""
    found = digest_of(content)
    if found != digest:
        raise CacheRefused(
            f"the program file is damaged: its SHA-256 is {found}, expected {digest}; transfer it again"
        )
    try:
        place = _checked_cache(_default_cache() if cache is None else cache, create=True)
        assert place is not None  # noqa: S101  # it was created
        for _ in range(MOST_ATTEMPTS):
            directory = _locked_version(place, digest)
            if directory is not None:
                return directory
            _unpack(content, place, digest)
            _remove_old_versions(place, digest)
    except OSError as error:
        raise _refusal(error) from None
    raise CacheRefused(f"{place}: other processes remove {digest} again and again")


def private_folder(name: str, cache: str | None = None) -> str:
    """Returns a directory beside the versions, as private as they are. Creates it if it is missing."""
    try:
        place = _checked_cache(_default_cache() if cache is None else cache, create=True)
        assert place is not None  # noqa: S101  # it was created
        path = os.path.join(place, name)
        _make_directory(path, 0o700)
        _check_own(path)
    except OSError as error:
        raise _refusal(error) from None
    return path


def run_program(directory: str, arguments: Sequence[str], program: str = "mainstay") -> NoReturn:
    """Runs the command line of an unpacked version in this process. `program` is what units that it creates start."""
    # The archive and the current directory must not be searched.
    sys.path[:] = [directory, *(place for place in sys.path if place and not os.path.isfile(place))]
    # Compiled modules belong in the cache, whatever the environment says: without them every start compiles again.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = None
    sys.argv = [program, *arguments]
    import_module("mainstay.cli.main").program()
    sys.exit(0)


def main(archive: str) -> NoReturn:
    """Runs a program file with the arguments of this process, and unpacks it on first use."""
    try:
        with open(archive, "rb") as file:
            content = file.read()
        digest = digest_of(content)
        directory = find_program(digest) or store_program(content, digest)
    except (CacheRefused, OSError) as problem:
        sys.stderr.write(f"mainstay: {problem}\n")
        sys.exit(1)
    del content
    run_program(directory, sys.argv[1:], archive)


def _checked_cache(cache: str, *, create: bool) -> str | None:
    """Returns the real path of the cache; None if it does not exist and need not be created."""
    above, name = os.path.split(cache)
    above = os.path.realpath(above)
    # From the top: no other user can exchange a directory whose parent has passed.
    place = "/"
    for part in ("", *above.strip("/").split("/")):
        place = os.path.join(place, part) if part else place
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            if not create:
                return None
            _make_directory(place, 0o755 if os.geteuid() == 0 else 0o700)
            found = os.lstat(place)
        _check_above(place, found)
    place = os.path.join(above, name)
    try:
        os.lstat(place)
    except FileNotFoundError:
        if not create:
            return None
        _make_directory(place, 0o700)
    _check_own(place)
    return place


def _make_directory(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        # Another process was faster. The caller checks what it created.
        return


def _check_above(path: str, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise CacheRefused(f"{path} is no directory, so the program cache cannot be below it")
    if found.st_uid not in (0, os.geteuid()):
        raise CacheRefused(
            f"{path} belongs to uid {found.st_uid}, who could replace the program cache below it; {_way_out()}"
        )
    # In a sticky directory such as /tmp, users cannot replace what belongs to others.
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise CacheRefused(f"other users can write to {path} and replace the program cache below it; {_way_out()}")


def _check_own(path: str) -> os.stat_result:
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise CacheRefused(f"{path} is a link; the program cache must be a directory. Remove the link")
    if not stat.S_ISDIR(found.st_mode):
        raise CacheRefused(f"{path} is no directory; the program cache needs this name. Remove the file")
    if found.st_uid != os.geteuid():
        raise CacheRefused(
            f"{path} belongs to uid {found.st_uid}, not to you (uid {os.geteuid()}); no program is run from it."
            " Check who created it, then remove it"
        )
    if found.st_mode & 0o077:
        raise CacheRefused(
            f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, so other users may have changed it; no program is run"
            " from it. Check it, then remove it"
        )
    return found


def _way_out() -> str:
    return "correct its owner and mode" if os.geteuid() == 0 else "correct its owner and mode, or set XDG_CACHE_HOME"


def _locked_version(cache: str, digest: str) -> str | None:
    import fcntl

    path = os.path.join(cache, digest)
    try:
        found = _check_own(path)
        handle = os.open(path, OPEN_DIRECTORY)
    except FileNotFoundError:
        return None
    # Never closed: the version stays locked for as long as this process runs.
    fcntl.flock(handle, fcntl.LOCK_SH)
    try:
        is_current = os.path.samestat(os.lstat(path), os.fstat(handle)) and os.path.samestat(found, os.fstat(handle))
    except FileNotFoundError:
        is_current = False
    if not is_current:
        os.close(handle)
        return None
    return path


def _unpack(content: bytes, cache: str, digest: str) -> None:
    import fcntl
    from io import BytesIO
    from zipfile import ZipFile

    temp = os.path.join(cache, f"{TEMP_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
    os.mkdir(temp, 0o700)
    handle = os.open(temp, OPEN_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        with ZipFile(BytesIO(content)) as archive:
            _write_files(archive, temp)
        try:
            os.rename(temp, os.path.join(cache, digest))
        except OSError:
            # Another process was faster. If not, the caller meets the fault again when it looks for the version.
            if not os.path.lexists(os.path.join(cache, digest)):
                raise
            _remove_tree(temp)
    except BaseException:
        _remove_tree(temp)
        raise
    finally:
        os.close(handle)


def _write_files(archive: ZipFile, folder: str) -> None:
    written = []
    made = {folder}
    for name in archive.namelist():
        if name in START_FILES:
            continue
        if name.startswith("/") or ".." in name.split("/"):
            raise CacheRefused(f"the program file contains the unsafe name {name!r}")
        path = os.path.join(folder, name)
        parent = os.path.dirname(path)
        if parent not in made:
            os.makedirs(parent, 0o700, exist_ok=True)
            made.add(parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        written.append(handle)
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(archive.read(name))
    # After all writes, so that the file system can join them: a crash of the host must not leave an empty module.
    for handle in written:
        os.fsync(handle)
        os.close(handle)


def _remove_old_versions(cache: str, digest: str) -> None:
    """Keeps the newest versions, and those that are in use; removes what killed processes left."""
    versions = []
    for name in os.listdir(cache):
        path = os.path.join(cache, name)
        if name.startswith(TEMP_PREFIX):
            _remove_unused(path)
        elif len(name) == DIGEST_LENGTH and name != digest:
            try:
                versions.append((os.lstat(path).st_mtime, path))
            except FileNotFoundError:
                continue
    for _, path in sorted(versions, reverse=True)[KEPT_VERSIONS - 1 :]:
        _remove_unused(path)


def _remove_unused(path: str) -> None:
    import fcntl

    try:
        handle = os.open(path, OPEN_DIRECTORY)
    except OSError:
        # Removed by another process, or nothing that this program created.
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # No process finds a version of which a part is missing.
        temp = os.path.join(os.path.dirname(path), f"{TEMP_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        os.rename(path, temp)
        _remove_tree(temp)
    except OSError:
        return
    finally:
        os.close(handle)


def _remove_tree(path: str) -> None:
    from shutil import rmtree

    rmtree(path, ignore_errors=True)


def _refusal(error: OSError) -> CacheRefused:
    where = f" {error.filename}" if error.filename else ""
    return CacheRefused(f"the program cache cannot be used: {error.strerror}{where}; {_way_out()}")
