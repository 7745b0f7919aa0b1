"""Downloads by HTTP: bounded, with few attempts, and credentials only for the host that they were given for."""

from __future__ import annotations

import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from mainstay.converge.failures import Failure, Missing, StopFlag, Stopped, TimedOut
from mainstay.foundation import Any
from mainstay.foundation.addresses import is_loopback_host
from mainstay.foundation.private_files import write_all

MOST_ATTEMPTS = 3
PAUSES_SECONDS = (0.5, 1.0)
MOST_REDIRECTS = 10
LARGEST_BYTES = 16 * 1024 * 1024 * 1024
LONGEST_SECONDS = 3600.0
# Time limit of one connection attempt, and of one wait for data.
SOCKET_SECONDS = 60.0
CHUNK_BYTES = 256 * 1024
LONGEST_NUMBER = 18


class _TryAgain(Exception):
    """An attempt failed in a way that may not last."""


class _NotStored(Exception):
    """The file cannot be written; no other attempt helps."""

    def __init__(self, reason: OSError) -> None:
        super().__init__()
        self.reason = reason


class Download:
    """One file to fetch. `headers`, `username` and `password` are sent only to the host of the URL."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        username: str | None,
        password: str | None,
        environ: Mapping[str, str],
        stop: StopFlag,
        ca_file: str | None = None,
        largest_bytes: int = LARGEST_BYTES,
        must_be_encrypted: bool = False,
    ) -> None:
        found = urlsplit(str.__str__(url))
        self._url = found
        self._stop = stop
        self._headers = {name: str.__str__(value) for name, value in headers.items()}
        if username is None and found.username is not None:
            username, password = unquote(found.username), unquote(found.password or "")
        if username is not None:
            pair = f"{str.__str__(username)}:{str.__str__(password or '')}".encode()
            self._headers.setdefault("Authorization", f"Basic {b64encode(pair).decode()}")
        self._largest_bytes = largest_bytes
        # Whether plain HTTP is accepted only from this machine, also after a redirect.
        self.must_be_encrypted = must_be_encrypted
        self._way_out = "use --ca-file FILE" if must_be_encrypted else "set SSL_CERT_FILE"
        if ca_file is not None:
            self._context = ssl.create_default_context(cafile=ca_file)
            return
        self._context = ssl.create_default_context(
            cafile=environ.get("SSL_CERT_FILE") or None, capath=environ.get("SSL_CERT_DIR") or None
        )

    def fetch(self, descriptor: int) -> None:
        """Writes the file to an empty file; raises `Failure` without any secret."""
        deadline = time.monotonic() + LONGEST_SECONDS
        for attempt in range(MOST_ATTEMPTS):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            try:
                self._try_once(descriptor, deadline)
                return
            except _TryAgain as error:
                if attempt + 1 == MOST_ATTEMPTS:
                    raise Failure(f"{_shown_url(self._url)}: {error} ({MOST_ATTEMPTS} attempts)") from None
            self._pause(PAUSES_SECONDS[attempt])

    def _try_once(self, descriptor: int, deadline: float) -> None:
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=self._context),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
            _Redirects(self),
        ):
            opener.add_handler(handler)
        try:
            with opener.open(self.request(self._url), timeout=SOCKET_SECONDS) as response:
                self._receive(response, descriptor, deadline)
        except urllib.error.HTTPError as error:
            error.close()
            self._refuse_status(error.code)
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                reason = error.reason.verify_message or "certificate verify failed"
                raise Failure(
                    f"{_shown_url(self._url)}: the certificate is not trusted: {reason}; for an own authority {self._way_out}"
                ) from None
            raise _TryAgain(_describe(error.reason)) from None
        except _NotStored as error:
            raise OSError(error.reason.errno, error.reason.strerror) from None
        except (http.client.HTTPException, OSError) as error:
            raise _TryAgain(_describe(error)) from None

    def request(self, url: SplitResult) -> urllib.request.Request:
        host = url.netloc.rpartition("@")[2]
        plain = urlunsplit((url.scheme, host, url.path or "/", url.query, ""))
        request = urllib.request.Request(plain, headers={"User-Agent": "mainstay", "Accept-Encoding": "identity"})  # noqa: S310  # the caller checked the scheme
        if _origin(url) == _origin(self._url):
            for name, value in self._headers.items():
                request.add_unredirected_header(name, value)
        return request

    def _receive(self, response: Any, descriptor: int, deadline: float) -> None:
        length = response.headers.get("Content-Length")
        is_number = length is not None and length.isascii() and length.isdigit() and len(length) <= LONGEST_NUMBER
        expected = int(length) if is_number else None
        received = 0
        # Returns what is there: a server that sends slowly must not delay the checks below.
        while chunk := response.read1(CHUNK_BYTES):
            received += len(chunk)
            if max(received, expected or 0) > self._largest_bytes:
                raise Failure(f"{_shown_url(self._url)}: larger than {self._largest_bytes // 1024**3} GB")
            if time.monotonic() > deadline:
                raise TimedOut(f"{_shown_url(self._url)}: not complete after {LONGEST_SECONDS:g} s")
            if self._stop.at_once:
                raise Stopped
            try:
                write_all(descriptor, chunk)
            except OSError as error:
                raise _NotStored(error) from None
        if expected is not None and received != expected:
            raise _TryAgain(f"the connection ended after {received} of {expected} bytes")

    def _refuse_status(self, status: int) -> None:
        text = f"{status} {http.client.responses.get(status, '')}".rstrip()
        if status >= 500:
            raise _TryAgain(text)
        if 300 <= status < 400:
            text = "redirects in a circle, too often, or to what is neither https nor http"
        kind = Missing if status in (404, 410) else Failure
        raise kind(f"{_shown_url(self._url)}: {text}")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._stop.at_once:
                raise Stopped
            time.sleep(0.05)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = MOST_REDIRECTS

    def __init__(self, download: Download) -> None:
        self._download = download

    def http_error_302(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise Failure(
                f"{_shown_url(urlsplit(req.full_url))}: redirects to what is neither https nor http"
            ) from None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        fp.close()
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or not new.hostname:
            raise Failure(f"{_shown_url(old)}: redirects to what is neither https nor http")
        if old.scheme == "https" and new.scheme != "https":
            raise Failure(
                f"{_shown_url(old)}: redirects from https to {_shown_url(new)}, which is not encrypted; refused"
            )
        if self._download.must_be_encrypted and not is_private(new):
            raise Failure(f"{_shown_url(old)}: redirects to {_shown_url(new)}, which is not encrypted; refused")
        return self._download.request(new)


def is_private(url: SplitResult) -> bool:
    """Whether no other machine can change what the URL gives."""
    return url.scheme == "https" or is_loopback_host(url.hostname or "")


def _shown_url(url: SplitResult) -> str:
    """Returns the parts of a URL that are no secret."""
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or {"https": 443, "http": 80}.get(url.scheme)


def _describe(error: Any) -> str:
    """Names a network error. Texts of the library may contain the URL, so only those of the system are shown."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return str(error.__class__.__name__)
