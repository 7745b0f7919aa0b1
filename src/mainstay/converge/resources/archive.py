"""The `archive` type: a downloaded archive file, and what is unpacked from it. Only decides."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from mainstay.converge.contract import Change, Property, Resource, ResourceType, State
from mainstay.converge.failures import Failure, file_word
from mainstay.converge.resources.file import ABSENT, DIRECTORY, LINK, PRESENT, was_rewritten
from mainstay.converge.value_kinds import (
    BOOLEAN,
    TEMPLATE_SCHEMA,
    TEXT,
    TEXT_MAP,
    Unfit,
    managed_path_problems,
    parse_number,
    parsed_kind,
    path_problem,
)
from mainstay.foundation.text import line_problem, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from mainstay.converge.host.files import Files

FETCH, UNPACK, REMOVE = "fetch", "unpack", "remove"
SCHEMES = ("https", "http")
MOST_STRIPPED = 100
HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}"


# ---- kinds of values ----
def _parse_checksum(text: str) -> str:
    digest = text.strip().lower().removeprefix("sha256:")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise Unfit(f"expected the 64 hexadecimal digits of a SHA-256 digest, got {shorten(text)!r}")
    return digest


CHECKSUM = parsed_kind("SHA-256 digest", _parse_checksum, {"type": ["string", "null"]})
STRIP = parsed_kind(
    "number",
    lambda text: parse_number(text, 0, MOST_STRIPPED),
    {"anyOf": [{"type": ["integer", "null"], "minimum": 0, "maximum": MOST_STRIPPED}, TEMPLATE_SCHEMA]},
)


def _secret_parts(url: str) -> Iterator[str]:
    """The user and the query part of a URL."""
    text = str.__str__(url)
    if "://" not in text:
        return
    rest = text.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user = authority.rpartition("@")[0]
    query = text.partition("?")[2]
    for part in (user, *user.split(":", 1), query, query.partition("#")[0]):
        if part:
            yield part


def shown_location(url: str) -> str:
    """The URL without its user and query part."""
    if not is_remote(url):
        return url
    found = urlsplit(str.__str__(url))
    return f"{found.scheme}://{found.netloc.rpartition('@')[2]}{found.path}"


def is_remote(url: str) -> bool:
    return "://" in url


class Archive(Resource):
    url: str | None = None
    checksum: str | None = None
    extract_parent: str | None = None
    creates: str | None = None
    cleanup: bool = False
    strip: int = 0
    owner: str | None = None
    group: str | None = None
    headers: Mapping[str, str] = {}
    username: str | None = None
    password: str | None = None


class ArchiveState(State):
    # PRESENT, ABSENT, DIRECTORY, LINK, or "other", for example for a fifo.
    kind: str = ABSENT
    stat: Any = None
    owner: str | None = None
    group: str | None = None
    # The checksum of the file: read if the manifest gives one to compare with, otherwise added by `complete`.
    checksum: str | None = None
    # None if the manifest does not name a path that the archive creates.
    creates_exists: bool | None = None
    wanted_uid: int = -1
    wanted_gid: int = -1

    def __init__(self, name: str) -> None:
        self.name = name

    def complete(self, files: Files) -> None:
        if self.kind == PRESENT and self.checksum is None:
            self.checksum = files.checksum_of(self.name, self.stat)

    def as_json(self) -> dict[str, Any]:
        return {
            "ensure": self.ensure,
            "name": self.name,
            "checksum": self.checksum,
            "owner": self.owner,
            "group": self.group,
            "size": None if self.stat is None else self.stat.st_size,
            "creates_exists": self.creates_exists,
            "provider": "posix",
        }


class ArchiveType(ResourceType):
    """An archive file, downloaded or copied, and unpacked if `extract_parent` is given. Formats: tar, tar.gz, tar.xz, zip."""

    name = "archive"
    resource = Archive
    ensures = (PRESENT, ABSENT)
    altered_by = ("kind", "creates_exists")
    example = """- archive:
    - /var/cache/app-1.4.tar.gz:
        url: https://releases.example.com/app-1.4.tar.gz
        checksum: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        extract_parent: /opt
        creates: /opt/app-1.4
        cleanup: true
        strip: 0
        owner: root
        group: root
    - /srv/data/seed.zip:
        url: https://files.example.com/seed.zip
        checksum: 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
        username: "{{ lookup('environ.SEED_USER', 'seed') }}"
        password: "{{ lookup('environ.SEED_PASSWORD', '') }}"
        headers: {X-Tenant: shop}
"""
    properties = {
        "url": Property(
            TEXT,
            "where it comes from: https, http or a local path; required for present; user and query part are hidden",
            hidden_parts=_secret_parts,
        ),
        "checksum": Property(CHECKSUM, "SHA-256 of the archive; without it, its content is not verified"),
        "extract_parent": Property(TEXT, "the directory to unpack it into, which must exist"),
        "creates": Property(TEXT, "a path below extract_parent; when it exists, nothing is done"),
        "cleanup": Property(BOOLEAN, "do not keep the archive file; needs extract_parent and creates"),
        "strip": Property(STRIP, "how many leading directories of each entry to drop; default 0"),
        "owner": Property(
            TEXT, "user name or number, of the archive and what is unpacked; default the user of the run"
        ),
        "group": Property(TEXT, "group name or number, likewise"),
        "headers": Property(TEXT_MAP, "request headers, sent only to the host of the url", secret=True),
        "username": Property(
            TEXT, "user name for HTTP basic authentication, sent only to the host of the url", secret=True
        ),
        "password": Property(
            TEXT, "password for HTTP basic authentication, sent only to the host of the url", secret=True
        ),
    }

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        return (f"archive path {problem}" for problem in managed_path_problems(name))

    def check(self, wanted: Archive) -> Iterator[tuple[str | None, str]]:
        if wanted.ensure == ABSENT:
            for key in self.properties:
                if getattr(wanted, key) not in (None, False, 0, {}):
                    yield key, f"{key} is only valid with ensure: present"
            return
        if wanted.url is None:
            yield None, "url is required"
        else:
            problem = _url_problem(str.__str__(wanted.url))
            if problem:
                yield "url", f"url {problem}"
        yield from self._check_paths(wanted)
        yield from self._check_request(wanted)

    def _check_paths(self, wanted: Archive) -> Iterator[tuple[str | None, str]]:
        for key in ("extract_parent", "creates"):
            path = getattr(wanted, key)
            for problem in () if path is None else managed_path_problems(path):
                yield key, f"{key}: the path {problem}"
        if wanted.extract_parent is None:
            for key in ("creates", "strip"):
                if getattr(wanted, key):
                    yield key, f"{key} is only valid with extract_parent"
        elif wanted.creates is not None and not wanted.creates.startswith(f"{wanted.extract_parent.rstrip('/')}/"):
            yield "creates", "creates must be below extract_parent"
        if wanted.cleanup and (wanted.extract_parent is None or wanted.creates is None):
            yield "cleanup", "cleanup is only valid with extract_parent and creates"

    def _check_request(self, wanted: Archive) -> Iterator[tuple[str | None, str]]:
        if wanted.url is not None and not is_remote(wanted.url):
            for key in ("headers", "username", "password"):
                if getattr(wanted, key):
                    yield key, f"{key} is only valid with an https or http url"
        if wanted.password is not None and wanted.username is None:
            yield "password", "password is only valid with username"
        for key in ("username", "password"):
            problem = line_problem(str.__str__(getattr(wanted, key) or ""))
            if problem:
                yield key, f"{key} {problem}"
        if ":" in str.__str__(wanted.username or ""):
            yield "username", "username contains a colon, which HTTP basic authentication does not allow"
        for number, (name, value) in enumerate(wanted.headers.items(), 1):
            if not re.fullmatch(HEADER_NAME, name):
                yield "headers", f"headers: the name of header {number} is not a header name"
            problem = line_problem(str.__str__(value))
            if problem or not str.__str__(value).isascii():
                yield (
                    "headers",
                    f"headers: the value of header {number} {problem or 'contains characters beyond ASCII'}",
                )

    def warn(self, wanted: Archive) -> Iterator[tuple[str, str]]:
        if wanted.ensure == PRESENT and wanted.checksum is None:
            yield "url", WITHOUT_CHECKSUM

    def unknown_paths(self, wanted: Archive) -> tuple[str, ...]:
        return tuple(path for path in (wanted.name, wanted.extract_parent) if path and wanted.ensure == PRESENT)

    def local_source(self, wanted: Archive) -> tuple[str, str] | None:
        is_local = wanted.ensure == PRESENT and wanted.url is not None and not is_remote(wanted.url)
        return ("url", wanted.url or "") if is_local else None

    def written_path(self, wanted: Archive) -> str | None:
        return wanted.name

    def sets_content(self, wanted: Archive) -> bool:
        return wanted.ensure == PRESENT

    # ---- in a run ----
    def desired(self, wanted: Archive, actual: ArchiveState) -> tuple[bool, str]:
        if wanted.ensure == ABSENT:
            return actual.kind == ABSENT, "the archive is there, expected absent"
        if wanted.creates is not None:
            return bool(actual.creates_exists), f"{wanted.creates} does not exist"
        if actual.kind != PRESENT:
            return False, "the archive is absent" if actual.kind == ABSENT else f"the path is {actual.kind}"
        if wanted.checksum is not None and actual.checksum != wanted.checksum:
            return False, f"checksum is {actual.checksum}, expected {wanted.checksum}"
        return True, ""

    def decide(self, wanted: Archive, actual: ArchiveState, *, refresh: bool) -> tuple[Change, ...]:
        reached, reason = self.desired(wanted, actual)
        if reached:
            return ()
        self._refuse(wanted, actual)
        if wanted.ensure == ABSENT:
            return (Change(REMOVE, reason),)
        is_there = actual.kind == PRESENT and wanted.checksum is not None and actual.checksum == wanted.checksum
        return (Change(UNPACK if is_there else FETCH, reason),)

    def _refuse(self, wanted: Archive, actual: ArchiveState) -> None:
        path = wanted.name
        if actual.kind == DIRECTORY:
            raise Failure(f"{path} is a directory, expected a file; it is not removed")
        if actual.kind == LINK and wanted.ensure == PRESENT:
            raise Failure(f"{path} is a link; it is not replaced")
        if actual.kind == "other":
            raise Failure(f"{path} is {file_word(actual.stat.st_mode)}, not a regular file")

    def describe(self, wanted: Archive, actual: ArchiveState, changes: tuple[Change, ...]) -> str:
        verb = changes[0].verb
        if verb == REMOVE:
            return "Would have removed the archive"
        unpacked = f"unpacked it into {wanted.extract_parent}"
        if verb == UNPACK:
            return f"Would have {unpacked}"
        fetched = f"Would have {'downloaded' if is_remote(wanted.url or '') else 'copied'} the archive"
        return fetched if wanted.extract_parent is None else f"{fetched}, would have {unpacked}"

    def was_altered(self, wanted: Archive, before: ArchiveState, after: ArchiveState) -> bool:
        return was_rewritten(before, after) or super().was_altered(wanted, before, after)


WITHOUT_CHECKSUM = "without `checksum` the content of the archive is not verified"


def _url_problem(url: str) -> str | None:
    if not is_remote(url):
        return path_problem(url) or (None if url else "is empty")
    if not url.isascii() or not url.isprintable() or " " in url:
        return "contains a blank, a control character or a character beyond ASCII; write it percent-encoded"
    try:
        found = urlsplit(url)
        is_usable = bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        is_usable = False
    if url.partition("://")[0].lower() not in SCHEMES:
        return "must begin with https:// or http://, or be a local path"
    return None if is_usable else "has no valid host and port"


TYPE = ArchiveType()
