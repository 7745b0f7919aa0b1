"""Server settings. Precedence: flags, environment, file, defaults."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from mainstay.foundation.suggestions import did_you_mean

PREFIX = "MAINSTAY_"
# Part of a command for a shell, so only characters that a shell reads as plain text.
PUBLIC_URL = re.compile(r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._%/-]*)?")
Port = Annotated[int, Meta(ge=0, le=65535)]
Days = Annotated[int, Meta(ge=0, le=36_500)]


class BadSettings(Exception):
    """A setting is invalid; the message names it and its origin."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Annotated[str, Meta(description="address to listen on")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="port to listen on; 0 for a free one")] = 8420
    workers: Annotated[
        int,
        Meta(ge=1, le=64),
        Meta(
            description="processes that serve the port, with PostgreSQL only. Each has up to 11 connections to the"
            " database, and limits of its own for requests and long polls; background tasks run in the first"
        ),
    ] = 1
    data_dir: Annotated[
        str,
        Meta(
            description="directory of the database, the vault key and the admin token;"
            " default $XDG_DATA_HOME/mainstay or ~/.local/share/mainstay"
        ),
    ] = ""
    database_url: Annotated[
        str,
        Meta(
            description="postgresql://…, with a password only from the environment or --config;"
            " default: the embedded database in the data directory"
        ),
    ] = ""
    health_port: Annotated[
        Port, Meta(description="second port, only for /healthz, /ready and /metrics, without TLS; 0 for none")
    ] = 0
    health_host: Annotated[str, Meta(description="address of the second port; default: host")] = ""
    cors_origins: Annotated[
        str, Meta(description="origins whose pages may call the API from a browser, separated by commas")
    ] = ""
    vault: Annotated[
        Literal["on", "off"], Meta(description="off: secret properties are refused, and no key is needed")
    ] = "on"
    log_format: Annotated[
        Literal["lines", "json"], Meta(description="text for people, or one JSON object per line")
    ] = "lines"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="lowest severity that is logged")
    ] = "info"
    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**30), Meta(description="largest request body")] = 4 * 2**20
    request_seconds: Annotated[
        int,
        Meta(ge=1, le=3600),
        Meta(
            description="time limit for a client to send the headers, to send the body, or to read part of a response"
        ),
    ] = 30
    rate_limit: Annotated[
        int,
        Meta(ge=0),
        Meta(
            description="requests per second of one agent, or of one participant with all its tokens,"
            " with bursts of four times as many; 0 for no limit; admins are not limited. A body counts once more for every"
            " 16 kB, a batch once for each of its requests. All agents of a participant together have ten times as many"
        ),
    ] = 50
    trusted_proxies: Annotated[
        str,
        Meta(
            description="addresses and networks (10.0.0.0/8) of proxies whose X-Forwarded-For and X-Forwarded-Proto"
            " headers count, separated by commas; empty for none"
        ),
    ] = ""
    public_url: Annotated[
        str,
        Meta(
            description="address of this server in install commands, such as https://plane.example.org;"
            " default: scheme and Host header of the request"
        ),
    ] = ""
    tls_certificate: Annotated[
        str, Meta(description="certificate file, reloaded when it changes; empty for HTTP without TLS")
    ] = ""
    tls_key: Annotated[str, Meta(description="private key file; default: the key is in the certificate file")] = ""

    insecure: Annotated[
        Literal["on", "off"], Meta(description="on: browsers may sign in over HTTP without TLS from other hosts")
    ] = "off"

    metrics_access: Annotated[
        Literal["admin", "open"],
        Meta(
            description="who sees the metrics of the plane at /metrics, which name service types, pools and subscribers."
            " admin: requests with an admin token; open: everyone. The port of health_port shows them to everyone"
        ),
    ] = "admin"
    retention_events_days: Annotated[
        Days,
        Meta(
            description="days after which events are deleted; 0 for never. Events that a subscriber seen within 7 days"
            " has not acknowledged are kept"
        ),
    ] = 400
    retention_jobs_days: Annotated[
        Days,
        Meta(
            description="days after which ended jobs are deleted; 0 for never. The last job of a living service and the"
            " jobs that set its properties are kept"
        ),
    ] = 90
    retention_reports_days: Annotated[
        Days,
        Meta(
            description="days after which reports of ended jobs are deleted; 0 for never. The last report of a living"
            " service is kept"
        ),
    ] = 90
    retention_services_days: Annotated[
        Days,
        Meta(
            description="days after which services in a terminal state are deleted; 0 for never. Services with an open"
            " orphan are kept"
        ),
    ] = 90
    retention_metrics_days: Annotated[
        Days, Meta(description="days after which metric entries of services are deleted; 0 for never")
    ] = 30

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
    # Value and origin of each given setting.
    given: dict[str, tuple[object, str]] = {"data_dir": (_default_data_dir(environment), "")}
    if config_file is not None:
        given |= {name: (value, f"{name} in {config_file}") for name, value in _read_file(config_file).items()}
    for name in ServerSettings.__struct_fields__:
        variable = _variable_of(name)
        if environment.get(variable):
            given[name] = (environment[variable], variable)
        if flags.get(name) is not None:
            given[name] = (flags[name], _flag_of(name))
    kinds = get_type_hints(ServerSettings, include_extras=True)
    settings = ServerSettings(
        **{name: _checked(name, value, origin, kinds) for name, (value, origin) in given.items()}
    )
    if settings.trusted_proxies:
        _check_networks(settings.trusted_proxies, given["trusted_proxies"][1])
    if settings.public_url and not PUBLIC_URL.fullmatch(settings.public_url):
        raise BadSettings(
            f"{given['public_url'][1]}: must be an address such as https://plane.example.org or"
            f" https://example.org/plane, not {settings.public_url!r}"
        )
    return settings


def _check_networks(text: str, origin: str) -> None:
    for each in text.split(","):
        try:
            ipaddress.ip_network(each.strip())
        except ValueError as error:
            raise BadSettings(f"{origin}: must be addresses and networks separated by commas: {error}") from None


def _checked(name: str, value: object, origin: str, kinds: Mapping[str, Any]) -> Any:
    if name not in kinds:
        raise BadSettings(f"{origin}: there is no such setting{did_you_mean(name, kinds)}")
    try:
        return msgspec.convert(value, kinds[name], strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{origin}: must be {_in_words(kinds[name])}, not {str(value)!r}") from error


def _in_words(kind: Any) -> str:
    """The values that a setting accepts."""
    kind, *limits = get_args(kind)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    bounds = next((each for each in limits if each.ge is not None), None)
    if bounds is None:
        return "text"
    return f"an integer from {bounds.ge}" + ("" if bounds.le is None else f" to {bounds.le}")


@dataclass(frozen=True, slots=True)
class SettingDescription:
    name: str
    variable: str
    accepts: str
    default: object
    description: str

    @property
    def help(self) -> str:
        """The help text of its flag. An empty default is explained by the description."""
        return self.description + ("" if self.default == "" else f"; default {self.default}")


def describe_settings() -> dict[str, SettingDescription]:
    """By name, in the order of the declaration."""
    kinds = get_type_hints(ServerSettings, include_extras=True)
    fields = zip(ServerSettings.__struct_fields__, ServerSettings.__struct_defaults__, strict=True)
    return {
        name: SettingDescription(
            name,
            _variable_of(name),
            _in_words(kinds[name]),
            default,
            next(each.description for each in get_args(kinds[name])[1:] if each.description),
        )
        for name, default in fields
    }


def _flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable_of(name: str) -> str:
    return PREFIX + name.upper()


def _read_file(path: str) -> dict[str, object]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None
    return {key.replace("-", "_"): value for key, value in document.items()}
