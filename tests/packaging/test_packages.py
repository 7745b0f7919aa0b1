"""The packages of `make package`: they install on real systems, run there, and leave nothing behind.

`make test` installs on a throw-away host with the programs of this machine, `make torture` on minimal Debian systems too,
with and without systemd."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from hashlib import md5
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from bridge import write_blueprint
from interpreters import need_python
from mainstay.converge.host.throw_away_host import SystemdHost, why_unavailable
from required_parts import need, need_program, need_root
from torture import IS_TORTURE

pytestmark = pytest.mark.test_all

PROJECT = Path(__file__).parents[2]
# Versions of Python that the Debian package promises to work with.
PYTHONS = ("3.11", "3.12", "3.13")
# Exit code of scripts/packages.py if it finds no Pythons or libraries.
MISSING_PARTS = 75
# Mounts and processes of a copy end with it.
UNSHARE = ("--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
# Gives $ROOT, a copy of $LOWER whose changes are kept in memory, and runs the script in it.
IN_A_COPY = """
mount -t tmpfs tmpfs "$SCRATCH"
mkdir "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/root"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" "$SCRATCH/root"
mount -t proc proc "$SCRATCH/root/proc"
mount --rbind /dev "$SCRATCH/root/dev"
mkdir "$SCRATCH/root/packages"
cp "$PACKAGES"/* "$SCRATCH/root/packages"
printf '%s' "$SCRIPT" >"$SCRATCH/root/packages/script"
chroot "$SCRATCH/root" sh -eu /packages/script
rm -r "$SCRATCH/root/packages"
echo "== left"
cd "$SCRATCH/upper"
find . \\( -type f -o -type l \\) | sort
"""
MANIFEST = """\
- file:
    - /srv/greeting:
        ensure: present
        content: "{{ 'hello' | upper }}"
        owner: root
        group: root
        mode: "0644"
"""
WRITE_MANIFEST = f"cat >/packages/manifest.yaml <<'END'\n{MANIFEST}END\n"
DEBIAN_PACKAGE = f"""
{WRITE_MANIFEST}
dpkg --install /packages/*.deb >/dev/null
cd /
echo "== run"
mainstay --version
mainstay apply /packages/manifest.yaml
cat /srv/greeting; echo
rm /srv/greeting
/usr/lib/mainstay/bin/python -I -c 'import mainstay.control.serve, mainstay.agent.loop, sys; print(sys.prefix)'
echo "== units"
cat /usr/lib/systemd/system/mainstay-*.service | grep ExecStart
find /etc/systemd -name 'mainstay*'
echo "== changed"
dpkg --verify mainstay
find /usr/lib/mainstay -type f >/packages/found
grep -vxFf /var/lib/dpkg/info/mainstay.list /packages/found || true
mkdir -p /var/lib/mainstay-server /var/cache/mainstay
dpkg --remove mainstay >/dev/null
echo "== removed"
ls -d /usr/bin/mainstay* /usr/lib/mainstay* /usr/lib/systemd/system/mainstay* /usr/share/doc/mainstay* \
  /var/lib/mainstay* /var/cache/mainstay* 2>/dev/null || true
echo "== purged"
dpkg --purge mainstay | grep kept
ls -d /var/lib/mainstay* /var/cache/mainstay* 2>/dev/null || true
rmdir /var/lib/mainstay-server
"""
IMPORT_ALL = """\
import os, pkgutil, sys
from importlib import import_module
import mainstay

modules = [import_module(each.name) for each in pkgutil.walk_packages(mainstay.__path__, "mainstay.")]
print("%d.%d" % sys.version_info[:2], sys.prefix, *(each.__name__ for each in modules if not os.path.exists(each.__cached__)))
"""
# $python becomes the Python of the system. The server has a network of its own, so that its port is free.
ON_ANOTHER_PYTHON = f"""
{WRITE_MANIFEST}
ln -sf "$python" /usr/bin/python3
dpkg --install /packages/*.deb >/dev/null
cd /
mainstay apply /packages/manifest.yaml
echo "== imported"
/usr/lib/mainstay/bin/python -IBc '{IMPORT_ALL}'
echo "== served"
unshare --net sh -eu <<'END'
ip link set lo up
mainstay server --data-dir /srv/plane >/srv/log 2>&1 &
server=$!
export MAINSTAY_URL=http://127.0.0.1:8420
until [ -s /srv/plane/admin.token ] && export MAINSTAY_TOKEN=$(cat /srv/plane/admin.token) && mainstay participants 2>/srv/refusal; do
  kill -0 $server || {{ cat /srv/log; exit 1; }}
  sleep 0.1
done
kill $server
wait $server
END
"""
REFUSED = """
ln -sf "$python" /usr/bin/python3
dpkg --install /packages/*.deb >/dev/null
mainstay --version 2>&1 || true
dpkg --purge mainstay >/dev/null
sed -i '/^Package: python3$/,/^$/s/^Version: .*/Version: 3.14.0-1/' /var/lib/dpkg/status
dpkg --install /packages/*.deb 2>&1 || true
"""
# ---- the life of the Debian package on a host ----
NEWER = "9.1.0"
PRESENT = """\
- file:
    - /srv/ordered:
        ensure: present
        content: "{{ lookup('properties.text') }}"
        owner: root
        group: root
        mode: "0640"
"""
ABSENT = "- file:\n    - /srv/ordered: {ensure: absent}\n"
MACHINE_STATE = (
    "/etc/mainstay /var/lib/mainstay /var/lib/mainstay-server /var/lib/private/mainstay-server /var/cache/mainstay"
)
STATES = "systemctl show --value -p ActiveState,UnitFileState mainstay-agent mainstay-server | xargs echo"
PIDS = "systemctl show --value -p MainPID mainstay-agent mainstay-server | xargs echo"
AS_ADMIN = "export MAINSTAY_URL=http://127.0.0.1:8420 MAINSTAY_TOKEN=$(cat /var/lib/mainstay-server/admin.token)\n"
AS_CUSTOMER = "export MAINSTAY_URL=http://127.0.0.1:8420 MAINSTAY_TOKEN=$(cat /root/shop-team.token)\n"
API_DESCRIPTION = (
    "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8420/openapi.json', timeout=20).read().decode())"
)
FILES_OF_NO_PACKAGE = """
dpkg --verify mainstay
find /usr/lib/mainstay -type f >/tmp/found
grep -vxFf /var/lib/dpkg/info/mainstay.list /tmp/found || true
"""
START = f"""
systemctl enable --now --quiet mainstay-server
{AS_ADMIN}
mainstay blueprint push "$1" >/dev/null
code=$(mainstay agents add this-host --serves package-life --quiet)
mainstay agent enroll $MAINSTAY_URL "$code" >/dev/null
systemctl enable --now --quiet mainstay-agent
mainstay participants add shop-team --token-file /root/shop-team.token >/dev/null
"""
# One minute at most.
UNTIL_RESTARTED = """
for n in $(seq 300); do
  pid=$(systemctl show --value -p MainPID mainstay-agent)
  [ $pid = "$1" ] || [ $pid = 0 ] || exit 0
  sleep 0.2
done
exit 1
"""
WHAT_IS_KEPT = ["/etc/mainstay", "/etc/mainstay/agent.json", "/var/lib/mainstay-server"]
OF_DPKG = ("/var/lib/dpkg", "/var/log/dpkg.log", "/var/cache/ldconfig", "/etc/ld.so.cache")
# Of systemd and of the commands above.
OF_OTHERS = ("/var/lib/systemd", "/var/log/journal", "/var/lib/private", "/root/shop-team.token")
PROGRAM_FILE = f"""
{WRITE_MANIFEST}
cd /
/usr/bin/python3 /packages/mainstay.pyz apply /packages/manifest.yaml
/usr/bin/python3 /packages/mainstay.pyz apply /packages/manifest.yaml
cat /srv/greeting
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_program("dpkg-deb")
    return build(tmp_path_factory.mktemp("packages"), "deb", "pyz", "cdx.json")


def build(folder: Path, *kinds: str) -> Path:
    done = subprocess.run(
        [PROJECT / "scripts" / "package", folder, *kinds], stderr=subprocess.PIPE, text=True, timeout=600
    )
    need(present=done.returncode != MISSING_PARTS, what=f"all parts of a package: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def minimal_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian with Python and nothing else."""
    need_root()
    return install_debian(tmp_path_factory.mktemp("minimal") / "root", "python3")


def install_debian(folder: Path, packages: str) -> Path:
    command = [need_program("mmdebstrap"), "--quiet", "--variant=minbase", f"--include={packages}", "bookworm"]
    subprocess.run([*command, folder], check=True, timeout=600)
    return folder


def run_in_copy(lower: Path, packages: Path, scratch: Path, script: str) -> str:
    need_root()
    scratch.mkdir()
    names = {"LOWER": str(lower), "SCRATCH": str(scratch), "PACKAGES": str(packages), "SCRIPT": script}
    done = subprocess.run(
        [need_program("unshare"), *UNSHARE, "sh", "-euc", IN_A_COPY],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **names},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_debian_package(output: str) -> None:
    parts = dict(part.partition("\n")[::2] for part in output.split("== ")[1:])
    assert parts["run"].startswith("mainstay ")
    assert "1 changed" in parts["run"]
    assert parts["run"].endswith("HELLO\n/usr/lib/mainstay\n")
    assert parts["units"] == (
        "ExecStart=/usr/bin/mainstay agent run\nExecStart=/usr/bin/mainstay server --data-dir /var/lib/mainstay-server\n"
    )
    assert parts["changed"] == "", "files differ from the package, or are not part of it"
    # What runs wrote stays until the purge, and the data of a server even then.
    state, data = "/var/lib/mainstay", "/var/lib/mainstay-server"
    assert parts["removed"].split() == ["/var/cache/mainstay", state, data]
    assert parts["purged"] == f"{data} is kept; remove it by hand if you do not need it.\n{data}\n"
    of_dpkg = ("./var/lib/dpkg/", "./var/log/dpkg.log", "./var/cache/ldconfig/", "./etc/ld.so.cache")
    assert [path for path in parts["left"].splitlines() if not path.startswith(of_dpkg)] == []


def newer_package(packages: Path, scratch: Path) -> Path:
    """The same package with a higher version number, in the package and in the program."""
    (package,) = packages.glob("*.deb")
    subprocess.run(["dpkg-deb", "--raw-extract", package, scratch / "tree"], check=True, timeout=120)
    source = scratch / "tree" / "usr/lib/mainstay/lib/python3.11/site-packages/mainstay/__init__.py"
    old = md5(source.read_bytes()).hexdigest()
    source.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{NEWER}"', source.read_text()))
    compiled = list(source.parent.glob("__pycache__/__init__.*"))
    assert len(compiled) == len(PYTHONS)
    for path in compiled:
        path.unlink()
    control, sums = (scratch / "tree" / "DEBIAN" / name for name in ("control", "md5sums"))
    control.write_text(re.sub(r"^Version: .*", f"Version: {NEWER}", control.read_text(), flags=re.MULTILINE))
    kept = [
        line for line in sums.read_text().splitlines(keepends=True) if "/mainstay/__pycache__/__init__." not in line
    ]
    sums.write_text("".join(kept).replace(old, md5(source.read_bytes()).hexdigest()))
    place = scratch / "newer" / f"mainstay_{NEWER}.deb"
    place.parent.mkdir()
    build_words = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(scratch / "tree"), str(place)]
    subprocess.run(build_words, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return place


def entries_below(folder: str) -> set[str]:
    found = (Path(top, name) for top, folders, files in os.walk(folder) for name in (*folders, *files))
    return {f"/{path.relative_to(folder)}" for path in found}


@pytest.fixture(scope="module", params=["this machine", "minimal"] if IS_TORTURE else ["this machine"])
def lower(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The system that the host has below its own writes."""
    reason = why_unavailable()
    need(present=reason is None, what=f"a host with a real systemd ({reason})")
    if request.param == "this machine":
        found = subprocess.run(["/usr/bin/python3", "-IV"], capture_output=True, text=True).stdout
        need(present=found.startswith(tuple(f"Python {version}." for version in PYTHONS)), what="a supported Python")
        return Path("/")
    return install_debian(tmp_path_factory.mktemp("systemd") / "root", "python3,systemd,dbus")


def test_the_debian_package_serves_an_order_is_upgraded_and_goes_without_a_trace(
    packages: Path, lower: Path, tmp_path: Path
) -> None:
    blueprint = write_blueprint(
        tmp_path / "blueprint",
        type_name="package-life",
        manifests={**dict.fromkeys(("create", "update", "start", "stop"), PRESENT), "delete": ABSENT},
        property_schema={"text": {"type": "string"}},
    )
    newer = newer_package(packages, tmp_path)
    (older,) = packages.glob("*.deb")
    binds = [packages, newer.parent, blueprint]
    with SystemdHost("package", lower=lower, read_only_binds=binds) as host:
        host.shell(f"rm -rf {MACHINE_STATE}")
        before = entries_below(host.upper_layer)
        host.shell(f"dpkg --install {older}")
        assert host.shell(STATES) == "inactive disabled inactive disabled\n"
        host.shell(START, str(blueprint))
        host.shell(f"{AS_CUSTOMER} mainstay order package-life shop -p text=first")
        assert host.shell("stat -c %a:%U /srv/ordered; cat /srv/ordered") == "640:root\nfirst"
        host.write("/etc/mainstay/site.yaml", MANIFEST)
        host.shell("mainstay schedule /etc/mainstay/site.yaml --every 1h; systemctl start mainstay-apply-site")
        assert host.read("/srv/greeting") == "HELLO"
        assert host.shell("/usr/lib/mainstay/bin/python -Ic 'import sys; print(sys.prefix)'") == "/usr/lib/mainstay\n"

        # The upgrade restarts both units with the new code; data, enrollment, services and schedules stay.
        agent, server = host.shell(PIDS).split()
        host.shell(f"dpkg --install {newer}")
        host.shell(UNTIL_RESTARTED, agent)
        assert set(host.shell(PIDS).split()).isdisjoint({agent, server, "0"})
        assert host.shell(STATES) == "active enabled active enabled\n"
        assert f'"version":"{NEWER}"' in host.shell(f'/usr/lib/mainstay/bin/python -Ic "{API_DESCRIPTION}"')
        assert host.shell("mainstay --version") == f"mainstay {NEWER}\n"
        host.shell(f"{AS_CUSTOMER} mainstay do shop update -p text=second")
        assert host.read("/srv/ordered") == "second"
        host.shell(f"{AS_CUSTOMER} mainstay do shop delete")
        assert host.shell("mainstay schedule | tail -1").startswith("site ")
        assert host.shell(FILES_OF_NO_PACKAGE) == "", "files differ from the package, or are not part of it"

        # What runs wrote stays until the purge, and the data of a server and the enrollment even then.
        host.shell("dpkg --remove mainstay")
        assert host.shell("systemctl list-units --all --plain --no-legend 'mainstay-*'") == ""
        shown = "systemctl list-unit-files --no-legend 'mainstay-*' | awk '{print $1, $2}'"
        assert set(host.shell(shown).splitlines()) == {
            "mainstay-apply-site.service static",
            "mainstay-apply-site.timer disabled",
        }
        assert host.shell("ls -d /usr/bin/mainstay /usr/lib/mainstay /var/lib/mainstay 2>/dev/null || true") == (
            "/var/lib/mainstay\n"
        )
        host.shell("rm /srv/greeting /etc/mainstay/site.yaml")
        purged = host.shell("dpkg --purge mainstay | grep kept")
        assert purged.splitlines() == [
            f"{path} is kept; remove it by hand if you do not need it."
            for path in ("/var/lib/private/mainstay-server", "/etc/mainstay")
        ]
        assert host.run("systemctl", "list-unit-files", "--no-legend", "mainstay-*").stdout == ""
        assert host.shell("test -s /var/lib/mainstay-server/mainstay.db && echo kept") == "kept\n"
        assert host.run("getent", "passwd", "mainstay-server").stdout == ""
        left = entries_below(host.upper_layer) - before
        # The layer repeats directories of the lower one in which something was written.
        left = {
            path for path in left if not path.startswith((*OF_DPKG, *OF_OTHERS)) and not (lower / path[1:]).is_dir()
        }
        assert sorted(left) == WHAT_IS_KEPT


@pytest.mark.parametrize("version", PYTHONS)
def test_the_debian_package_works_with_every_supported_python(packages: Path, version: str, tmp_path: Path) -> None:
    # Another Python of the system's own version would find the system's standard library, which does not fit it.
    system = Path(f"/usr/bin/python{version}")
    script = f"python={system if system.exists() else need_python(version)}\n{ON_ANOTHER_PYTHON}"
    applied, imported, served, _ = run_in_copy(Path("/"), packages, tmp_path / "copy", script).split("== ")
    assert "1 changed" in applied
    assert imported == f"imported\n{version} /usr/lib/mainstay\n", "modules are not compiled for this Python"
    assert served.startswith("served\nThere is no participant yet")


def test_the_debian_package_refuses_another_python(packages: Path, tmp_path: Path) -> None:
    script = f"python={need_python('3.9')}\n{REFUSED}"
    output, _ = run_in_copy(Path("/"), packages, tmp_path / "copy", script).split("== ")
    sentence, *by_dpkg = output.splitlines()
    assert sentence == (
        "mainstay: this package works with Python 3.11, 3.12, 3.13, and /usr/bin/python3 is Python 3.9"
    )
    assert " mainstay depends on python3 (<< 3.14); however:" in by_dpkg


def test_the_bill_of_materials_names_what_the_debian_package_contains(packages: Path) -> None:
    (path,) = packages.glob("*.cdx.json")
    text = path.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    named = {f"{part['name'].replace('-', '_')}-{part['version']}" for part in json.loads(text)["components"]}
    (package,) = packages.glob("*.deb")
    listed = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
    assert named == set(re.findall(r"/site-packages/(\S+)\.dist-info/METADATA", listed))
    assert all(part["hashes"] for part in json.loads(text)["components"])


def test_every_file_beside_the_packages_has_its_checksum(packages: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=packages, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    named = {line.removesuffix(": OK") for line in done.stdout.splitlines()}
    assert named == {path.name for path in packages.iterdir()} - {"SHA256SUMS"}


def test_every_package_contains_the_license(packages: Path, tmp_path: Path) -> None:
    text = (PROJECT / "LICENSE").read_text()
    (wheel,) = build(tmp_path, "whl").glob("*.whl")
    for archive, suffix in (
        (wheel, ".dist-info/licenses/LICENSE"),
        (packages / "mainstay.pyz", "licenses/mainstay/LICENSE"),
    ):
        with zipfile.ZipFile(archive) as opened:
            (name,) = (name for name in opened.namelist() if name.endswith(suffix))
            assert opened.read(name).decode() == text
    (package,) = packages.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "tree"], check=True, timeout=120)
    assert text in (tmp_path / "tree" / "usr/share/doc/mainstay/copyright").read_text()


def test_the_wheel_installs_on_the_oldest_python(tmp_path: Path) -> None:
    (wheel,) = build(tmp_path / "packages", "whl").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
        assert archive.read(name.replace("METADATA", "licenses/LICENSE")) == (PROJECT / "LICENSE").read_bytes()
    assert "Requires-Python: >=3.9\n" in metadata
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert [line.split()[1] for line in needed if ";" not in line] == ["jinja2>=3.1.5", "pyyaml>=6.0.2"]
    python = need_python("3.9")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "installed", wheel], check=True, timeout=120)
    done = subprocess.run(
        [python, tmp_path / "installed" / "bin" / "mainstay", "--help"],
        env={"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not IS_TORTURE, reason="a minimal root takes a minute; `make torture` builds it")
def test_the_packages_run_on_a_minimal_debian(packages: Path, minimal_root: Path, tmp_path: Path) -> None:
    check_debian_package(run_in_copy(minimal_root, packages, tmp_path / "first", DEBIAN_PACKAGE))
    output = run_in_copy(minimal_root, packages, tmp_path / "second", PROGRAM_FILE)
    assert "1 changed" in output
    assert "1 stable" in output
    assert "HELLO" in output
    assert "./var/cache/mainstay/" in output
    assert os.listdir(tmp_path / "second") == []
