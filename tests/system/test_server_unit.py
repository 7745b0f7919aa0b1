"""`mainstay server install`: the control plane as a sandboxed unit of a real host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from certificates import make_certificate
from guide_commands import guide_commands
from system.conftest import PROGRAM, ManagedHost

pytestmark = pytest.mark.test_all

UNIT = "/etc/systemd/system/mainstay-server.service"
FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"
# Of 10; lower is better. systemd calls a unit below 2 OK.
WORST_EXPOSURE = 2.0


def test_the_server_is_installed_sandboxed_restarted_and_removed(new_host: ManagedHost) -> None:
    host = new_host
    # The interpreter of the tests may be below the home directory of root.
    host.shell("chmod o+x /root")
    program = f"{PROGRAM} server install --port 8433"
    python = PROGRAM.with_name("python")
    assert "Would have" in host.shell(f"{program} --noop")
    assert host.shell(f"test -e {UNIT} || echo absent") == "absent\n"

    # The sandbox would hide this program from the unit.
    for place in ("/tmp", "/var/tmp"):
        host.shell(f"ln -s {PROGRAM} {place}/mainstay")
        done = host.machine.run(f"{place}/mainstay", "server", "install")
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.startswith(
            f"mainstay: mainstay-server.service could not run {place}/mainstay: PrivateTmp=yes in mainstay-server.service"
            f" hides {place} from it; install mainstay where"
        )
    assert host.shell(f"test -e {UNIT} || echo absent") == "absent\n"

    output = host.shell(program)
    assert "/var/lib/mainstay-server/admin.token" in output
    # Type=notify: the start returns when the server answers.
    assert '"UP"' in host.shell(f"{python} -c '{FETCH}' http://127.0.0.1:8433/ready")
    assert host.shell("systemctl is-enabled mainstay-server") == "enabled\n"
    pid = host.shell("systemctl show --value -p MainPID mainstay-server").strip()
    host.shell(program)
    assert host.shell("systemctl show --value -p MainPID mainstay-server").strip() == pid
    status = host.shell(f"cat /proc/{pid}/status")
    assert re.search(r"^Uid:\t(?!0\t)", status, re.MULTILINE)
    assert "NoNewPrivs:\t1" in status
    assert "CapBnd:\t0000000000000000" in status
    # What the process gets may be less: the machine has a limit, too.
    assert host.shell("systemctl show --value -p LimitNOFILE mainstay-server") == "524288\n"
    assert host.shell("stat -c %a /var/lib/private/mainstay-server/admin.token") == "600\n"
    exposure = host.shell("systemd-analyze security mainstay-server --no-pager | tail -1")
    found = re.search(r"level for mainstay-server.service: ([0-9.]+)", exposure)
    assert found is not None, exposure
    assert float(found.group(1)) < WORST_EXPOSURE, exposure

    # A server whose event loop is blocked is restarted by the watchdog, a killed one at once.
    host.shell(f"kill -KILL {pid}")
    host.shell(
        f"for n in $(seq 100); do sleep 0.3; p=$(systemctl show --value -p MainPID mainstay-server);"
        f" [ $p != {pid} ] && [ $p != 0 ] && systemctl is-active -q mainstay-server && exit 0; done; exit 1"
    )
    assert '"UP"' in host.shell(f"{python} -c '{FETCH}' http://127.0.0.1:8433/ready")

    restore_as_the_guide_says(host)
    assert '"UP"' in host.shell(f"{python} -c '{FETCH}' http://127.0.0.1:8433/ready")

    assert "/var/lib/mainstay-server" in host.shell(f"{program} --uninstall")
    assert host.shell(f"test -e {UNIT} || echo absent") == "absent\n"
    assert host.shell("systemctl is-active mainstay-server || true") == "inactive\n"
    assert host.shell("test -e /var/lib/private/mainstay-server/mainstay.db && echo kept") == "kept\n"
    host.shell(f"{program} --uninstall")


def restore_as_the_guide_says(host: ManagedHost) -> None:
    """As root; the user of the unit gets the files, and the way in works beside it."""
    data = "/var/lib/mainstay-server"
    host.shell(f"cd /root && {PROGRAM} server backup --data-dir {data} last-night && cp {data}/vault.key vault.key")
    embedded, _ = guide_commands("operating/disaster-recovery.md", "### With the unit of `server install`")
    commands = [re.sub(r"^mainstay ", f"{PROGRAM} ", line) for line in embedded]
    output = host.shell(f"cd /root && {' && '.join(commands)}")
    assert "Nothing is stuck." in output
    owner = host.shell("systemctl show --value -p MainPID mainstay-server | xargs -I {} stat -c %u /proc/{}").strip()
    assert owner != "0"
    assert host.shell(f"stat -c %u {data}/mainstay.db {data}/vault.key {data}/lock").split() == [owner] * 3
    host.shell(f"{PROGRAM} server admin-token --data-dir {data}")
    host.shell("systemctl restart mainstay-server")


def test_secrets_are_kept_out_of_the_unit(new_host: ManagedHost, tmp_path: Path) -> None:
    host = new_host
    host.shell("chmod o+x /root")
    refused = host.shell(f"{PROGRAM} server install --database-url postgresql://u:secret@h/d 2>&1 || true")
    assert "/etc/mainstay/server.env" in refused
    host.shell(
        "mkdir -p /etc/mainstay; echo 'port = 8434' >/etc/mainstay/server.toml; chmod 600 /etc/mainstay/server.toml"
    )
    # A line break in the name of the file would begin a directive of its own.
    host.shell("cp /etc/mainstay/server.toml '/etc/mainstay/a\nExecStartPre=+b'")
    refused = host.shell(f"{PROGRAM} server install --config '/etc/mainstay/a\nExecStartPre=+b' 2>&1 || true")
    assert "contains control characters" in refused
    host.shell(f"{PROGRAM} server install --config /etc/mainstay/server.toml")
    python = PROGRAM.with_name("python")
    assert '"UP"' in host.shell(f"{python} -c '{FETCH}' http://127.0.0.1:8434/ready")

    # The key of a certificate that only root can read: systemd gives the server a copy.
    make_certificate(tmp_path)
    host.machine.write("/etc/mainstay/tls.pem", (tmp_path / "tls.pem").read_text(), mode=0o644)
    host.machine.write("/etc/mainstay/tls.key", (tmp_path / "tls.key").read_text(), mode=0o600)
    install = f"{PROGRAM} server install --config /etc/mainstay/server.toml"
    host.shell("echo 'tls_certificate = \"/etc/mainstay/tls.pem\"' >>/etc/mainstay/server.toml")
    host.shell("echo 'tls_key = \"/etc/mainstay/missing.key\"' >>/etc/mainstay/server.toml")
    assert "tls_key in /etc/mainstay/server.toml: there is no file" in host.shell(f"{install} 2>&1 || true")
    host.shell("sed -i s/missing.key/tls.key/ /etc/mainstay/server.toml")
    host.shell(install)
    fetch = f"SSL_CERT_FILE=/etc/mainstay/tls.pem {python} -c '{FETCH}' https://127.0.0.1:8434/ready"
    assert '"UP"' in host.shell(fetch)
    pid = host.shell("systemctl show --value -p MainPID mainstay-server").strip()
    host.shell(install)
    assert host.shell("systemctl show --value -p MainPID mainstay-server").strip() == pid
    # A renewed certificate is in use after a restart.
    make_certificate(tmp_path, "renewed")
    host.machine.write("/etc/mainstay/tls.pem", (tmp_path / "tls.pem").read_text(), mode=0o644)
    host.machine.write("/etc/mainstay/tls.key", (tmp_path / "tls.key").read_text(), mode=0o600)
    host.shell("systemctl try-restart mainstay-server")
    assert '"UP"' in host.shell(fetch)
    host.shell("echo MAINSTAY_TLS_KEY=/etc/mainstay/tls.key >/etc/mainstay/server.env")
    refused = host.shell(f"{install} 2>&1 || true")
    assert "/etc/mainstay/server.env sets MAINSTAY_TLS_KEY" in refused
