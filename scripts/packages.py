"""Builds the packages: a wheel, the program file, and a Debian package with an environment of its own.

The Debian package takes the server's dependencies as they are installed in the environment that runs this script: pinned
and checked by their hashes. It therefore fits one version of Python and one architecture, and depends on that Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from compileall import compile_dir
from hashlib import md5
from importlib.metadata import distribution
from pathlib import Path
from py_compile import PycInvalidationMode

from mainstay import __version__
from mainstay.cli import agent_unit, server_unit
from mainstay.packaging.program_file import build_program_file

PROJECT = Path(__file__).parents[1]
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
ENVIRONMENT = "/usr/lib/mainstay"
PROGRAM = "/usr/bin/mainstay"
# A fixed time in all archives, so that the same sources give the same packages.
BUILD_TIME = 1_577_836_800
CONTROL = """\
Package: mainstay
Version: {version}
Architecture: {architecture}
Maintainer: The Mainstay developers <mainstay@example.org>
Installed-Size: {size}
Depends: {python}, libc6, libstdc++6
Recommends: systemd
Section: admin
Priority: optional
Description: bring hosts to what a manifest says, and offer services on them
 Mainstay applies manifests to this host (mainstay apply), runs the agent of a
 control plane (mainstay agent), and the control plane (mainstay server).
 .
 The units of agent and server are neither enabled nor started.
"""
LAUNCHER = f"""\
#!{ENVIRONMENT}/bin/python -IB
from mainstay.cli.main import program

program()
"""
COPYRIGHT = """\
Mainstay is licensed under the Apache License, version 2.0; on Debian systems its text is in
/usr/share/common-licenses/Apache-2.0. {environment} contains libraries with licenses of their own, which are beside them in
directories named *.dist-info.
"""
# Left out: 14 MB of test data in many languages, for examples in API descriptions that Litestar would write.
LEFT_OUT = ("faker",)
# Hundreds of modules of which at most one is imported, to show source code in colour.
NOT_COMPILED = re.compile(r"/site-packages/pygments/(lexers|styles)/")
# Debian 12, the oldest system of this Python, unpacks it. Against xz: a quarter of the time to build, 4 % larger.
COMPRESSION = ("-Zzstd", "-z9")
AGENT, SERVER = "mainstay-agent.service", "mainstay-server.service"
# The installed system may have no systemd, such as a container.
HAS_SYSTEMD = "[ -d /run/systemd/system ]"
# Calls `act TIMER SERVICE` for each schedule that runs this program, and not another installation of it.
EACH_SCHEDULE = f"""\
for timer in /etc/systemd/system/mainstay-apply-*.timer; do
  service=${{timer%.timer}}.service
  if grep -qs '^ExecStart={PROGRAM} ' "$service"; then act "$timer" "$service"; fi
done
"""
# After an upgrade; units that do not run stay as they are. A unit that does not start is no reason to leave the package half
# configured. The agent is not waited for: the job that it finishes first may be the one that runs this upgrade.
POSTINST = f"""\
#!/bin/sh
set -e
if [ "$1" = configure ] && {HAS_SYSTEMD}; then
  systemctl daemon-reload
  if [ -n "$2" ]; then
    systemctl try-restart {SERVER} || echo "The server does not start: journalctl -u {SERVER}" >&2
    systemctl try-restart --no-block {AGENT} || echo "The agent does not start: journalctl -u {AGENT}" >&2
  fi
fi
"""
PRERM = f"""\
#!/bin/sh
set -e
act() {{
  systemctl disable --now --quiet "${{1##*/}}"
  systemctl reset-failed "${{2##*/}}" 2>/dev/null || true
}}
if [ "$1" = remove ] && {HAS_SYSTEMD}; then
  systemctl disable --now --quiet {AGENT} {SERVER}
  {EACH_SCHEDULE.strip()}
fi
"""
POSTRM = f"""\
#!/bin/sh
set -e
act() {{
  rm -f "$1" "$2" "/var/lib/systemd/timers/stamp-${{1##*/}}"
}}
if [ "$1" = purge ]; then
  {EACH_SCHEDULE.strip()}
  for unit in /etc/systemd/system/{AGENT} /etc/systemd/system/{SERVER}; do
    # Written by `agent install` and `server install`.
    if grep -qs '^ExecStart={PROGRAM} ' "$unit"; then rm -f "$unit"; fi
  done
  rm -rf /var/cache/mainstay /var/lib/mainstay
  for kept in /var/lib/mainstay-server /var/lib/private/mainstay-server /etc/mainstay; do
    # Databases, keys and enrollments cannot be made again.
    [ ! -e "$kept" ] || [ -L "$kept" ] || echo "$kept is kept; remove it by hand if you do not need it."
  done
fi
if {HAS_SYSTEMD}; then
  systemctl daemon-reload
  # Otherwise a failed unit stays in `systemctl --failed`.
  case "$1" in remove | purge) systemctl reset-failed {AGENT} {SERVER} 2>/dev/null || true ;; esac
fi
"""


def main() -> None:
    """Arguments: the directory, and the kinds of packages (default: all)."""
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True, exist_ok=True)
    builders = {"whl": _build_wheel, "pyz": _build_program_file, "deb": _build_debian_package}
    for kind in sys.argv[2:] or builders:
        for old in target.glob(f"mainstay*.{kind}"):
            old.unlink()
        path = builders[kind](target)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def _build_wheel(target: Path) -> Path:
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(target)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, str(PROJECT)]
    subprocess.run(pip, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(BUILD_TIME)})
    (wheel,) = target.glob("mainstay_plane-*.whl")
    return wheel


def _build_program_file(target: Path) -> Path:
    path = target / "mainstay.pyz"
    path.write_bytes(build_program_file())
    path.chmod(0o755)
    return path


def _build_debian_package(target: Path) -> Path:
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    path = target / f"mainstay_{__version__}_{architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="mainstay-package-") as scratch:
        tree = Path(scratch) / "tree"
        _write_environment(tree)
        _write(tree, PROGRAM, LAUNCHER, mode=0o755)
        _write(tree, "/usr/lib/systemd/system/mainstay-agent.service", agent_unit.packaged_unit(PROGRAM))
        _write(tree, "/usr/lib/systemd/system/mainstay-server.service", server_unit.packaged_unit(PROGRAM))
        _write(tree, "/usr/share/doc/mainstay/copyright", COPYRIGHT.format(environment=ENVIRONMENT))
        _write_control(tree, architecture)
        _set_times(tree)
        build = ["dpkg-deb", "--root-owner-group", *COMPRESSION, "--build", str(tree), str(path)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(BUILD_TIME)}
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL, env=environment)
    return path


def _write_environment(tree: Path) -> None:
    """A virtual environment as `venv` lays it out, so that it is one wherever it is looked at."""
    _write(
        tree,
        f"{ENVIRONMENT}/pyvenv.cfg",
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {sys.version.split()[0]}\n",
    )
    (tree / ENVIRONMENT[1:] / "bin").mkdir()
    (tree / ENVIRONMENT[1:] / "bin" / "python").symlink_to(f"/usr/bin/{PYTHON}")
    packages = tree / ENVIRONMENT[1:] / "lib" / PYTHON / "site-packages"
    packages.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "src" / "mainstay", packages / "mainstay", ignore=ignored)
    for name in _pinned_names():
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                place = packages / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), place)
    for path in packages.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    # Never checked against the sources, which only dpkg replaces; and dpkg removes them too. Python itself writes none (-B).
    compile_dir(
        packages,
        rx=NOT_COMPILED,
        quiet=2,
        workers=2,
        stripdir=str(tree),
        prependdir="/",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def _pinned_names() -> list[str]:
    text = (PROJECT / "requirements" / "server.txt").read_text()
    pinned = re.findall(r"^([a-z0-9-]+)==\S+(?: ; (.*?))? \\$", text, re.MULTILINE)
    return [name for name, marker in pinned if "win32" not in marker and name not in LEFT_OUT]


def _write_control(tree: Path, architecture: str) -> None:
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in files) // 1024
    sums = "".join(
        f"{md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n" for path in files
    )
    _write(
        tree,
        "/DEBIAN/control",
        CONTROL.format(version=__version__, architecture=architecture, size=size, python=PYTHON),
    )
    _write(tree, "/DEBIAN/md5sums", sums)
    for name, text in (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)):
        _write(tree, f"/DEBIAN/{name}", text, mode=0o755)


def _write(tree: Path, path: str, text: str, *, mode: int = 0o644) -> None:
    place = tree / path[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(mode)


def _set_times(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (BUILD_TIME, BUILD_TIME), follow_symlinks=False)
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


if __name__ == "__main__":
    main()
