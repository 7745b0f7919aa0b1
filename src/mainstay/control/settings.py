"""What the server is told: flags win over the environment, the environment over the file, the file over what stands here."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

PREFIX = "MAINSTAY_"
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class BadSettings(Exception):
    """The server cannot start as told; the text names the setting and where it came from."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: Port = 8420
    data_dir: str = ""
    # Empty is the embedded database in the data directory.
    database_url: str = ""
    # A second port for /healthz, /ready and /metrics alone; 0 is none.
    health_port: Port = 0
    cors_origins: str = ""
    vault: Literal["on", "off"] = "on"
    log_format: Literal["lines", "json"] = "lines"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=2**30)] = 4 * 2**20
    # How long a caller may take to send the headers, and then the body; or read nothing of an answer.
    request_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 30
    # Requests of one token per second, with bursts of ten times as many; 0 is no limit.
    rate_limit: Annotated[int, msgspec.Meta(ge=0)] = 0
    tls_certificate: str = ""
    tls_key: str = ""

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir)

    @property
    def is_embedded(self) -> bool:
        return not self.database_url or self.database_url.startswith("sqlite:")

    @property
    def store_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_path.absolute()}/mainstay.db".replace("////", "///")


def default_data_dir(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_DATA_HOME") or os.path.join(environment.get("HOME") or "/var/lib", ".local", "share")
    return os.path.join(base, "mainstay")


def load_settings(
    flags: Mapping[str, object], environment: Mapping[str, str], config_file: str | None = None
) -> Settings:
    values: dict[str, object] = {"data_dir": default_data_dir(environment)}
    if config_file is not None:
        values |= _read_file(config_file)
    for name in Settings.__struct_fields__:
        text = environment.get(PREFIX + name.upper())
        if text:
            values[name] = text
    values |= {name: value for name, value in flags.items() if value is not None}
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(f"bad setting: {error}") from None


def _read_file(path: str) -> dict[str, object]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None
    return {key.replace("-", "_"): value for key, value in document.items()}
