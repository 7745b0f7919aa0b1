"""The TLS certificate of the server. Replaced files are loaded without a restart; open connections stay open."""

from __future__ import annotations

import asyncio
import os
import ssl

import structlog

from mainstay.control.settings import BadSettings, ServerSettings

CHECK_SECONDS = 5.0

log = structlog.get_logger("mainstay.certificates")


class ReloadingCertificate:
    """`context` is the TLS context to listen with; each handshake uses the newest certificate that loaded."""

    def __init__(self, certificate: str, key: str) -> None:
        self._files = (certificate, key or certificate)
        self._signature = self._read_signature()
        self._newest = self.context = self._load()
        self.context.sni_callback = self._use_newest

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.reload()

    def reload(self) -> None:
        """Keeps the loaded certificate if the files do not fit together: an administrator may be replacing them."""
        signature = self._read_signature()
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._newest = self._load()
        except (OSError, ValueError) as error:
            log.warning("the replaced certificate does not load; the old one stays in use", reason=str(error))
        else:
            log.info("certificate reloaded", file=self._files[0])

    def _use_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A password prompt would block the server.
        context.load_cert_chain(*self._files, password=lambda: "")
        return context

    def _read_signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Changes when a file is replaced or rewritten."""
        return tuple(_file_signature(path) for path in self._files)


def _file_signature(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def load_certificate(settings: ServerSettings) -> ReloadingCertificate | None:
    """None: HTTP without TLS."""
    if not settings.tls_certificate:
        if settings.tls_key:
            raise BadSettings("tls_key is set without tls_certificate")
        return None
    try:
        return ReloadingCertificate(settings.tls_certificate, settings.tls_key)
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"cannot load the certificate {settings.tls_certificate} with the key"
            f" {settings.tls_key or settings.tls_certificate}: {error}"
        ) from None
