"""Installs the control plane as a systemd unit with a user of its own and a sandbox, with the convergence engine."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.main import CommandRefused
from mainstay.cli.systemd_units import (
    HOMES,
    install_units,
    is_below,
    program_places,
    program_words,
    quoted_word,
    refuse_hidden_program,
    remove_units,
    unit_path,
)

NAME = "mainstay-server"
UNIT_FILE = f"{NAME}.service"
TITLE = "server install"
ENVIRONMENT_FILE = "/etc/mainstay/server.env"
DATA = f"/var/lib/{NAME}"
CERTIFICATE_SETTINGS = ("tls_certificate", "tls_key")
# DynamicUser: systemd makes a user for the unit and gives it the state directory; nothing else is writable.
# LoadCredential: the file of --config may hold a password, and only root can read it. So it is with the key of the
# certificate; a variable gives the server the place of the copy, and wins over the file.
# The watchdog ends a server whose event loop is blocked.
UNIT = """\
[Unit]
Description=Mainstay control plane
Wants=network-online.target
After=network-online.target postgresql.service

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
EnvironmentFile=-{environment_file}
{more}Restart=always
RestartSec=2
WatchdogSec=60
TimeoutStartSec=15min
TimeoutStopSec=40
LimitNOFILE=524288

DynamicUser=yes
User={name}
StateDirectory={name}
StateDirectoryMode=0700
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome={protect_home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}

[Install]
WantedBy=multi-user.target
"""


def packaged_unit(program: str) -> str:
    """The unit of a system package, with the defaults of `server install`."""
    return UNIT.format(
        command=f"{program} server --data-dir {DATA}",
        environment_file=ENVIRONMENT_FILE,
        more="",
        name=NAME,
        protect_home="yes",
        capabilities="",
    )


def install(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise CommandRefused("`mainstay server install` creates a systemd system unit: run it as root")
    if arguments.uninstall:
        code = remove_units(TITLE, UNIT_FILE, [UNIT_FILE], noop=arguments.noop)
    else:
        text = _unit_text(arguments)
        refuse_hidden_program(UNIT_FILE, text)
        code = install_units(TITLE, UNIT_FILE, {UNIT_FILE: text}, noop=arguments.noop)
    if code == 0 and not arguments.noop:
        print(
            f"The data is kept in {DATA}; remove it by hand if you do not need it."
            if arguments.uninstall
            else f"The admin token is in {DATA}/admin.token. Log: journalctl -u {NAME}"
        )
    return code


def _unit_text(arguments: argparse.Namespace) -> str:
    if arguments.data_dir:
        raise CommandRefused(f"the unit keeps its data in {DATA}; leave out --data-dir")
    if arguments.database_url:
        raise CommandRefused(
            f"every user can read the unit; write MAINSTAY_DATABASE_URL=… into {ENVIRONMENT_FILE} (mode 0600) instead of"
            " --database-url"
        )
    words = [*program_words(), "server", "--data-dir", DATA]
    for name in ("host", "port", "workers"):
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    command = " ".join(quoted_word(word) for word in words)
    more = ""
    if arguments.config:
        path = os.path.abspath(arguments.config)
        if not os.path.exists(path):
            raise CommandRefused(f"cannot read {path}: it does not exist")
        more = f"LoadCredential=server.toml:{_specified(path)}\n" + _certificate_lines(path)
        command += " --config %d/server.toml"
    _refuse_unreadable_certificate()
    needs_port = arguments.port is not None and 0 < arguments.port < 1024
    return UNIT.format(
        command=command,
        environment_file=ENVIRONMENT_FILE,
        more=more,
        name=NAME,
        protect_home=_protect_home(),
        capabilities="CAP_NET_BIND_SERVICE" if needs_port else "",
    )


def _specified(path: str) -> str:
    """The path in a directive that knows specifiers, such as %d."""
    return unit_path(path).replace("%", "%%")


def _certificate_lines(config: str) -> str:
    """systemd copies the files of the certificate for the user of the unit, which cannot read them itself."""
    from mainstay.control.settings import BadSettings, load_settings

    try:
        settings = load_settings({}, {}, config)
    except BadSettings as error:
        raise CommandRefused(str(error)) from None
    lines = []
    for name in CERTIFICATE_SETTINGS:
        path = str(getattr(settings, name))
        if not path:
            continue
        if not os.path.isabs(path):
            raise CommandRefused(f"{name} in {config}: the unit needs an absolute path, not {path}")
        if not os.path.isfile(path):
            raise CommandRefused(f"{name} in {config}: there is no file {path}")
        lines += [f"LoadCredential={name}:{_specified(path)}\n", f"Environment=MAINSTAY_{name.upper()}=%d/{name}\n"]
    return "".join(lines)


def _refuse_unreadable_certificate() -> None:
    """Variables of the environment file win over those of the unit."""
    try:
        with open(ENVIRONMENT_FILE, encoding="utf-8", errors="replace") as file:
            names = {line.strip().removeprefix("export ").partition("=")[0].strip() for line in file}
    except OSError:
        return
    found = sorted(f"MAINSTAY_{name.upper()}" for name in CERTIFICATE_SETTINGS if f"MAINSTAY_{name.upper()}" in names)
    if found:
        raise CommandRefused(
            f"{ENVIRONMENT_FILE} sets {' and '.join(found)}, but the user of the unit cannot read the key; set"
            " tls_certificate and tls_key in a TOML file instead, and give it with --config"
        )


def _protect_home() -> str:
    """Home directories are hidden, unless the program is in one. Raises if the user of the unit cannot reach it."""
    places = program_places()
    for place in places:
        closed = next((each for each in _parents(place) if not os.stat(each).st_mode & 0o001), None)
        if closed is not None:
            raise CommandRefused(
                f"the server runs as a user of its own, which cannot enter {closed} to run {place}; install mainstay where"
                " every user can read it, such as /opt"
            )
    return "read-only" if any(is_below(place, HOMES) for place in places) else "yes"


def _parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = os.path.dirname(path)
        found.append(path)
    return found
