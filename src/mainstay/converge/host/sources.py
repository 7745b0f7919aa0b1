"""Opens a manifest: a file, a bundle, or standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from mainstay.converge.host.state import StateDirectory
from mainstay.foundation import Struct
from mainstay.foundation.faults import DoesNotLoad, Fault, refused

OTHER_ARCHIVE_ENDS = (".tar", ".tar.xz", ".tar.bz2", ".tar.zst", ".txz", ".tbz2", ".7z", ".rar")
BUNDLE_ENDS = (".tar.gz", ".tgz", ".zip")
STANDARD_INPUT = "-"
READ_BYTES = 256 * 1024 * 1024 + 1


class ManifestText(Struct):
    """The text of a manifest, the directory of its relative sources, and its identity between runs."""

    name: str
    content: bytes
    working_directory: str
    identity: str
    # The real path of the manifest; empty if it is not a file.
    path: str = ""
    # Whether the working directory is an unpacked bundle, which relative paths must not leave.
    is_bundle: bool = False
    remove_bundle: Callable[[], None] | None = None

    def close(self) -> None:
        if self.remove_bundle is not None:
            self.remove_bundle()


class BundleTrust(Struct):
    """Why a bundle from a URL may be applied: its digest, and the authority of its server."""

    sha256: str | None = None
    ca_file: str | None = None


def is_url(path: str) -> bool:
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.isalpha()


def open_manifest(path: str, state: StateDirectory, run_id: str, trust: BundleTrust | None = None) -> ManifestText:
    if is_url(path):
        from mainstay.converge.host.fetched_bundles import open_fetched

        trust = trust or BundleTrust()
        return _unpacked(*open_fetched(path, state, run_id, trust.sha256, trust.ca_file))
    if trust is not None and trust.sha256 is not None:
        raise refused(path, "--sha256 is for a bundle from a URL; this is none")
    if path == STANDARD_INPUT:
        here = current_directory()
        return ManifestText("stdin", sys.stdin.buffer.read(READ_BYTES), here, here)
    # Opening a name with a NUL fails later.
    path_from_root = path if path.startswith("/") else f"{current_directory()}/{path}"
    real = os.path.realpath(path_from_root.replace("\0", ""))
    if path.endswith(OTHER_ARCHIVE_ENDS):
        raise refused(path, "a bundle is packed as .tar.gz, .tgz or .zip")
    if path.endswith(BUNDLE_ENDS):
        from mainstay.converge.host.bundles import unpack

        folder, close = unpack(real, path, state, run_id, is_zip=path.endswith(".zip"))
        return _unpacked(path, real, folder, close)
    return ManifestText(path, read_bytes(path), os.path.dirname(real), real, real)


def _unpacked(name: str, identity: str, folder: str, remove: Callable[[], None]) -> ManifestText:
    manifest = os.path.join(folder, "manifest.yaml")
    try:
        content = read_bytes(manifest)
    except DoesNotLoad:
        remove()
        raise
    real = os.path.realpath(manifest)
    return ManifestText(
        f"{name}/manifest.yaml", content, folder, identity, real, is_bundle=True, remove_bundle=remove
    )


def open_child(path: str, parent: str, directory: str, bundle: str | None) -> ManifestText:
    """Opens a manifest that the manifest `parent` names. `bundle` is the directory that it must not leave, if any."""
    place = path if path.startswith("/") else f"{directory.rstrip('/')}/{path}"
    real = os.path.realpath(place.replace("\0", ""))
    shown = path if path.startswith("/") else os.path.normpath(os.path.join(os.path.dirname(parent), path))
    if path.endswith((*BUNDLE_ENDS, *OTHER_ARCHIVE_ENDS)):
        raise refused(shown, "is a bundle; name a YAML file")
    if bundle is not None and not is_inside(real, bundle):
        raise refused(shown, "is outside the bundle; a bundle contains all its manifests")
    try:
        return ManifestText(shown, read_bytes(place), os.path.dirname(real), real)
    except DoesNotLoad as refusal:
        raise DoesNotLoad([Fault(shown, None, None, fault.message) for fault in refusal.faults]) from None


def is_inside(path: str, directory: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(directory).rstrip("/") + "/")


def current_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        reason = f"the current directory cannot be used: {error.strerror}; change to one that exists"
        raise refused("mainstay", reason) from None


def read_bytes(path: str) -> bytes:
    """Returns the content of a file; raises `DoesNotLoad` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(READ_BYTES)
    except IsADirectoryError:
        reason = "it is a directory; name the file in it"
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:
        reason = str(error)
    raise refused(path, f"cannot be read: {reason}")
