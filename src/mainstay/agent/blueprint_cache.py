"""The blueprints of the agent: local directories, or bundles that are fetched by digest, verified and cached on disk."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tarfile
import threading
import zlib
from collections.abc import Mapping, Sequence

from mainstay.agent.blueprint import LEFT_OUT, Blueprint, digest_of, read_blueprint
from mainstay.agent.client import Client
from mainstay.agent.log import Log
from mainstay.agent.signatures import (
    SIGNATURE,
    SignedFile,
    Untrusted,
    read_files,
    require_signature,
    statement,
)
from mainstay.converge.host.bundles import BundleRefused, tar_entries, write_entries
from mainstay.converge.host.state import StateDirectory, list_names
from mainstay.foundation.faults import DoesNotLoad, Fault
from mainstay.foundation.private_files import remove

MOST_KEPT = 100
LARGEST_UNPACKED_BYTES = 100 * 1024 * 1024
LOCAL_PREFIX = "local-"
NO_FILE = SignedFile(b"", executable=False)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class NoBlueprint(Exception):
    """The blueprint of a job is not available; the message names it and the way out."""


class UntrustedBlueprint(NoBlueprint):
    """The blueprint exists, but no trusted key signed it."""


class BlueprintCache:
    def __init__(
        self, state: StateDirectory, client: Client, log: Log, local: Sequence[str] = (), trust: str | None = None
    ) -> None:
        self._client = client
        self._log = log
        self._state = state
        self._folder = state.directory("agent", "blueprints")
        self._local: dict[str, str] = {}
        for directory in local:
            blueprint = read_blueprint(directory)
            self._warn_of_old_keys(blueprint)
            self._local[blueprint.type_name] = os.path.abspath(directory)
        # File with the trusted keys; None: blueprints need no signature.
        self._trust = trust
        self._lock = threading.Lock()
        self._loaded: dict[str, Blueprint] = {}
        # Made again once per process: a power cut may have damaged them.
        for copy in self._copies():
            shutil.rmtree(copy, ignore_errors=True)

    def find(self, type_name: str, digest: str | None) -> Blueprint:
        """A local directory takes precedence and is read at every call. Raises `NoBlueprint`."""
        blueprint = self._find(type_name, digest)
        if self._trust is not None:
            try:
                require_signature(blueprint.directory, blueprint.name, blueprint.version, self._trust)
            except Untrusted as problem:
                raise UntrustedBlueprint(str(problem)) from None
        return blueprint

    def _find(self, type_name: str, digest: str | None) -> Blueprint:
        try:
            if type_name in self._local:
                directory = self._local[type_name]
                return read_blueprint(directory if self._trust is None else self._copy(directory))
            if digest is None:
                raise NoBlueprint(
                    f"there is no blueprint for service type {type_name}: push one, or start the agent with --blueprint"
                )
            with self._lock:
                return self._load(digest)
        except DoesNotLoad as refusal:
            raise NoBlueprint(f"the blueprint of {type_name} does not load: {refusal}") from None

    def _copy(self, directory: str) -> str:
        """Copies a local directory to where only the agent writes, so that what is verified is what runs."""
        try:
            files = read_files(directory, LEFT_OUT)
        except Untrusted as problem:
            raise UntrustedBlueprint(str(problem)) from None
        content = digest_of(statement("", "", files) + files.get(SIGNATURE, NO_FILE).content)
        target = os.path.join(self._folder, f"{LOCAL_PREFIX}{content.replace(':', '-')}")
        with self._lock:
            if not os.path.isdir(target):
                for copy in sorted(self._copies(), key=os.path.getmtime, reverse=True)[MOST_KEPT:]:
                    shutil.rmtree(copy, ignore_errors=True)
                fresh = f"{target}.new"
                shutil.rmtree(fresh, ignore_errors=True)
                _write_files(files, fresh)
                os.rename(fresh, target)
        return target

    def _copies(self) -> list[str]:
        names = [name for name in list_names(self._folder) if name.startswith(LOCAL_PREFIX)]
        return [os.path.join(self._folder, name) for name in names]

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
            self._warn_of_old_keys(self._loaded[digest])
        return self._loaded[digest]

    def _warn_of_old_keys(self, blueprint: Blueprint) -> None:
        for path in blueprint.old_keys:
            place = ".".join(map(str, path))
            version = f"{blueprint.name} {blueprint.version}"
            self._log.warning("old key in a blueprint", blueprint=version, key=place, use="upgrades")

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


def _write_files(files: Mapping[str, SignedFile], directory: str) -> None:
    for path, file in files.items():
        place = os.path.join(directory, path)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if file.executable else 0o600)
        with open(descriptor, "wb") as copy:
            copy.write(file.content)


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
