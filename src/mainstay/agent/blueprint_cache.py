"""The blueprints of the agent: local directories, or bundles that are fetched by digest, verified and cached on disk."""

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
    """The blueprint of a job is not available; the message names it and the way out."""


class BlueprintCache:
    def __init__(self, state: StateDirectory, client: Client, local: Sequence[str] = ()) -> None:
        self._client = client
        self._state = state
        self._folder = state.directory("agent", "blueprints")
        self._local = {read_blueprint(directory).type_name: os.path.abspath(directory) for directory in local}
        self._lock = threading.Lock()
        self._loaded: dict[str, Blueprint] = {}

    def find(self, type_name: str, digest: str | None) -> Blueprint:
        """A local directory takes precedence and is read at every call. Raises `NoBlueprint`."""
        try:
            if type_name in self._local:
                return read_blueprint(self._local[type_name])
            if digest is None:
                raise NoBlueprint(
                    f"there is no blueprint for service type {type_name}: push one, or start the agent with --blueprint"
                )
            with self._lock:
                return self._load(digest)
        except DoesNotLoad as refusal:
            raise NoBlueprint(f"the blueprint of {type_name} does not load: {refusal}") from None

    def _load(self, digest: str) -> Blueprint:
        """Unpacks the cached bundle again once per process: a power cut may have damaged the unpacked files."""
        if digest not in self._loaded:
            if not DIGEST.fullmatch(digest):
                raise NoBlueprint(f"{digest!r} is not the digest of a blueprint")
            directory = os.path.join(self._folder, digest.replace(":", "-"))
            bundle = f"{directory}.tar.gz"
            if digest_of(_read_or_empty(bundle)) != digest:
                self._fetch(digest, bundle)
            self._unpack(digest, bundle, directory)
            self._loaded[digest] = read_blueprint(directory)
        return self._loaded[digest]

    def _fetch(self, digest: str, path: str) -> None:
        content = self._client.get(f"/blueprints/{digest}", headers={"Accept": "*/*"})
        if not isinstance(content, bytes) or digest_of(content) != digest:
            raise NoBlueprint(f"the server sent other content than the blueprint {digest}")
        self._evict()
        self._state.write(path, content)

    def _unpack(self, digest: str, bundle: str, directory: str) -> None:
        fresh = f"{directory}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            os.mkdir(fresh, 0o700)
            write_entries(tar_entries(bundle), fresh, LARGEST_UNPACKED_BYTES)
            shutil.rmtree(directory, ignore_errors=True)
            os.rename(fresh, directory)
        except BundleRefused as error:
            raise NoBlueprint(f"blueprint {digest} cannot be unpacked: {error}") from None
        except (gzip.BadGzipFile, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
            raise NoBlueprint(
                f"blueprint {digest} cannot be unpacked: it is damaged or not a .tar.gz: {error}"
            ) from None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        os.utime(bundle)

    def _evict(self) -> None:
        """Removes the least recently used bundles beyond `MOST_KEPT`."""
        names = [name for name in list_names(self._folder) if name.endswith(".tar.gz")]
        bundles = sorted((os.path.join(self._folder, name) for name in names), key=os.path.getmtime, reverse=True)
        for bundle in bundles[MOST_KEPT:]:
            directory = bundle.removesuffix(".tar.gz")
            self._loaded = {digest: each for digest, each in self._loaded.items() if each.directory != directory}
            remove(bundle)
            shutil.rmtree(directory, ignore_errors=True)


def _read_or_empty(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def check_local(directories: Sequence[str]) -> None:
    """Raises `DoesNotLoad` at the start of the agent instead of failing every job."""
    faults: list[Fault] = []
    for directory in directories:
        try:
            read_blueprint(directory)
        except DoesNotLoad as refusal:
            faults += refusal.faults
    if faults:
        raise DoesNotLoad(faults)
