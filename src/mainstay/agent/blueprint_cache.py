"""Where the agent has its blueprints from: directories it was given, or bundles fetched by digest, verified and kept."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tarfile
import threading
import zlib

from mainstay.agent.blueprint import digest_of, read_blueprint
from mainstay.converge.host.bundles import BundleRefused, tar_entries, write_entries
from mainstay.converge.host.state import list_names
from mainstay.foundation.faults import DoesNotLoad, Fault
from mainstay.foundation.private_files import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.agent.blueprint import Blueprint
    from mainstay.agent.client import Client
    from mainstay.converge.host.state import StateDirectory

MOST_KEPT = 100
LARGEST_UNPACKED_BYTES = 100 * 1024 * 1024
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class NoBlueprint(Exception):
    """A job cannot be done for want of a blueprint; the text says which and what to do."""


class BlueprintCache:
    def __init__(self, state: StateDirectory, client: Client, local: Sequence[str] = ()) -> None:
        self._client = client
        self._state = state
        self._folder = state.directory("agent", "blueprints")
        self._local = {read_blueprint(directory).type_name: os.path.abspath(directory) for directory in local}
        self._lock = threading.Lock()
        self._read: dict[str, Blueprint] = {}

    def find(self, type_name: str, digest: str | None) -> Blueprint:
        """A directory that the agent was given wins, and is read anew each time. Raises `NoBlueprint`."""
        try:
            if type_name in self._local:
                return read_blueprint(self._local[type_name])
            if digest is None:
                raise NoBlueprint(
                    f"there is no blueprint for service type {type_name}: push one, or start the agent with --blueprint"
                )
            with self._lock:
                return self._fetched(digest)
        except DoesNotLoad as refusal:
            raise NoBlueprint(f"the blueprint of {type_name} does not load: {refusal}") from None

    def _fetched(self, digest: str) -> Blueprint:
        """Unpacked anew from the kept bundle once in a process' life: what lies unpacked may have met a power cut."""
        if digest not in self._read:
            if not DIGEST.fullmatch(digest):
                raise NoBlueprint(f"{digest!r} is no digest of a blueprint")
            place = os.path.join(self._folder, digest.replace(":", "-"))
            bundle = f"{place}.tar.gz"
            if digest_of(_read_if_there(bundle)) != digest:
                self._fetch(digest, bundle)
            self._unpack(digest, bundle, place)
            self._read[digest] = read_blueprint(place)
        return self._read[digest]

    def _fetch(self, digest: str, place: str) -> None:
        content = self._client.get(f"/blueprints/{digest}", headers={"Accept": "*/*"})
        if not isinstance(content, bytes) or digest_of(content) != digest:
            raise NoBlueprint(f"what the server sent is not the blueprint {digest}")
        self._tidy_up()
        self._state.write(place, content)

    def _unpack(self, digest: str, bundle: str, place: str) -> None:
        fresh = f"{place}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            os.mkdir(fresh, 0o700)
            write_entries(tar_entries(bundle), fresh, LARGEST_UNPACKED_BYTES)
            shutil.rmtree(place, ignore_errors=True)
            os.rename(fresh, place)
        except BundleRefused as error:
            raise NoBlueprint(f"blueprint {digest} cannot be unpacked: {error}") from None
        except (gzip.BadGzipFile, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
            raise NoBlueprint(
                f"blueprint {digest} cannot be unpacked: it is no .tar.gz, or damaged: {error}"
            ) from None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        os.utime(bundle)

    def _tidy_up(self) -> None:
        """Those that were not used for the longest time go."""
        names = [name for name in list_names(self._folder) if name.endswith(".tar.gz")]
        bundles = sorted((os.path.join(self._folder, name) for name in names), key=os.path.getmtime, reverse=True)
        for bundle in bundles[MOST_KEPT:]:
            place = bundle.removesuffix(".tar.gz")
            self._read = {digest: found for digest, found in self._read.items() if found.directory != place}
            remove(bundle)
            shutil.rmtree(place, ignore_errors=True)


def _read_if_there(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def check_local(directories: Sequence[str]) -> None:
    """Refuses at the start what would fail at every job."""
    faults: list[Fault] = []
    for directory in directories:
        try:
            read_blueprint(directory)
        except DoesNotLoad as refusal:
            faults += refusal.faults
    if faults:
        raise DoesNotLoad(faults)
