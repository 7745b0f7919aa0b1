"""The packages of `make package`: they install on real systems, run there, and leave nothing behind.

`make test` installs on a copy of this machine that ends with the test, `make torture` on minimal Debian roots too."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from interpreters import need_python
from required_parts import need, need_part, need_program, need_root
from torture import IS_TORTURE

PROJECT = Path(__file__).parents[2]
SYSTEM_PYTHON = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
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
    return build(tmp_path_factory.mktemp("packages"), "deb", "pyz")


def build(folder: Path, *kinds: str) -> Path:
    subprocess.run([PROJECT / "scripts" / "package", folder, *kinds], check=True, timeout=600)
    return folder


@pytest.fixture(scope="module")
def minimal_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian with Python and nothing else."""
    need_root()
    folder = tmp_path_factory.mktemp("minimal")
    command = [need_program("mmdebstrap"), "--quiet", "--variant=minbase", "--include=python3", "bookworm"]
    subprocess.run([*command, folder / "root"], check=True, timeout=600)
    return folder / "root"


def run_in_copy(lower: Path, packages: Path, scratch: Path, script: str) -> str:
    need_root()
    scratch.mkdir()
    names = {"LOWER": str(lower), "SCRATCH": str(scratch), "PACKAGES": str(packages), "SCRIPT": script}
    done = subprocess.run(
        [need_program("unshare"), "--mount", "--propagation", "private", "sh", "-euc", IN_A_COPY],
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


def test_the_debian_package_installs_runs_and_goes_without_a_trace(packages: Path, tmp_path: Path) -> None:
    need(present=SYSTEM_PYTHON.exists(), what=f"{SYSTEM_PYTHON}, which the package depends on")
    check_debian_package(run_in_copy(Path("/"), packages, tmp_path / "copy", DEBIAN_PACKAGE))


def test_the_wheel_installs_on_the_oldest_python(tmp_path: Path) -> None:
    (wheel,) = build(tmp_path / "packages", "whl").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
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
    need_part(present=SYSTEM_PYTHON.name == "python3.11", what="the Python of Debian 12")
    check_debian_package(run_in_copy(minimal_root, packages, tmp_path / "first", DEBIAN_PACKAGE))
    output = run_in_copy(minimal_root, packages, tmp_path / "second", PROGRAM_FILE)
    assert "1 changed" in output
    assert "1 stable" in output
    assert "HELLO" in output
    assert "./var/cache/mainstay/" in output
    assert os.listdir(tmp_path / "second") == []
