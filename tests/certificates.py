"""Self-signed certificates for servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"


def make_certificate(folder: Path, name: str = "plane") -> None:
    """Writes `tls.pem` and `tls.key` for 127.0.0.1, or replaces them by rename, as certbot does."""
    subprocess.run(
        [
            *OPENSSL.split(),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", folder / "new.key", "-out", folder / "new.pem"),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "new.key").rename(folder / "tls.key")
    (folder / "new.pem").rename(folder / "tls.pem")
