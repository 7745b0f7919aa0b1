"""What the server is told: flags win over the environment, the environment over the file, the file over what stands here."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from mainstay.foundation.suggestions import did_you_mean

PREFIX = "MAINSTAY_"
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class BadSettings(Exception):
    """The server cannot start as told; the text names the setting and where it came from."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


def _default_data_dir(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_DATA_HOME") or os.path.join(environment.get("HOME") or "/var/lib", ".local", "share")
    return os.path.join(base, "mainstay")


def load_settings(
    flags: Mapping[str, object], environment: Mapping[str, str], config_file: str | None = None
) -> ServerSettings:
    # Each setting that was given, with where it came from.
    given: dict[str, tuple[object, str]] = {"data_dir": (_default_data_dir(environment), "")}
    if config_file is not None:
        given |= {name: (value, f"{name} in {config_file}") for name, value in _read_file(config_file).items()}
    for name in ServerSettings.__struct_fields__:
        variable = PREFIX + name.upper()
        if environment.get(variable):
            given[name] = (environment[variable], variable)
        if flags.get(name) is not None:
            given[name] = (flags[name], f"--{name.replace('_', '-')}")
    kinds = get_type_hints(ServerSettings, include_extras=True)
    return ServerSettings(**{name: _checked(name, value, origin, kinds) for name, (value, origin) in given.items()})


def _checked(name: str, value: object, origin: str, kinds: Mapping[str, Any]) -> Any:
    if name not in kinds:
        raise BadSettings(f"{origin}: there is no such setting{did_you_mean(name, kinds)}")
    try:
        return msgspec.convert(value, kinds[name], strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{origin}: {_in_words(kinds[name])}, not {str(value)!r}") from error


def _in_words(kind: Any) -> str:
    """What a setting may be."""
    if get_origin(kind) is Literal:
        return f"must be one of {', '.join(get_args(kind))}"
    if get_origin(kind) is Annotated:
        _, bounds = get_args(kind)
        return f"must be an integer from {bounds.ge}" + ("" if bounds.le is None else f" to {bounds.le}")
    return "must be text"


def _read_file(path: str) -> dict[str, object]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None
    return {key.replace("-", "_"): value for key, value in document.items()}
