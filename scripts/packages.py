"""Builds the packages: a wheel, the program file, and a Debian package with an environment of its own. Beside them: a bill of
materials (CycloneDX) with the libraries that they contain, and the SHA-256 of each file.

The Debian package contains the server's dependencies, pinned and checked by their hashes, for one architecture and for
several versions of Python: names of compiled files carry the version, so that they fit into one directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from hashlib import md5, sha256
from importlib.metadata import metadata
from json import dumps
from pathlib import Path

from interpreters import find_python
from mainstay import __version__
from mainstay.cli import server_unit
from mainstay.cli.commands import agent
from mainstay.packaging.program_file import build_program_file

PROJECT = Path(__file__).parents[1]
# Versions that the Debian package supports. Its files are in the directory of the first, and the others are links to it: dpkg
# replaces no directory by a link, and older packages have that directory.
PYTHONS = ("3.11", "3.12", "3.13")
FIRST_UNSUPPORTED = "3.14"
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
Depends: python3 (>= {oldest}), python3 (<< {unsupported}), libc6, libstdc++6
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
import sys

if "%d.%d" % sys.version_info[:2] not in {PYTHONS}:
    sys.exit("mainstay: this package works with Python {", ".join(PYTHONS)}, and /usr/bin/python3 is Python %d.%d"
             % sys.version_info[:2])
from mainstay.cli.main import program

program()
"""
COPYRIGHT = """\
{environment} contains libraries with licenses of their own, which are beside them in directories named *.dist-info.
Mainstay itself is licensed under the following terms.

{license}"""
# Exit code if libraries or Pythons cannot be found.
EXIT_MISSING_PARTS = 75
# Debian 12, the oldest system with such a Python, unpacks it. Against xz: a quarter of the time to build, 4 % larger.
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
    builders = {
        "whl": _build_wheel,
        "pyz": _build_program_file,
        "deb": _build_debian_package,
        "cdx.json": _write_bill_of_materials,
    }
    for kind in sys.argv[2:] or builders:
        for old in target.glob(f"mainstay*.{kind}"):
            old.unlink()
        path = builders[kind](target)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    sums = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(target.glob("mainstay*"))]
    (target / "SHA256SUMS").write_text("".join(sums))


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
        _write(tree, "/usr/lib/systemd/system/mainstay-agent.service", agent.packaged_unit(PROGRAM))
        _write(tree, "/usr/lib/systemd/system/mainstay-server.service", server_unit.packaged_unit(PROGRAM))
        _write(tree, "/usr/share/doc/mainstay/copyright", _copyright())
        _write_control(tree, architecture)
        _set_times(tree)
        build = ["dpkg-deb", "--root-owner-group", *COMPRESSION, "--build", str(tree), str(path)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(BUILD_TIME)}
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL, env=environment)
    return path


def _copyright() -> str:
    return COPYRIGHT.format(environment=ENVIRONMENT, license=(PROJECT / "LICENSE").read_text())


def _write_bill_of_materials(target: Path) -> Path:
    """The libraries of the Debian package; the program file contains some of them."""
    text = (PROJECT / "requirements" / "server.txt").read_text()
    components = []
    for pin in re.finditer(r"^([a-z0-9-]+)==(\S+)(?: ; (.*?))? \\\n((?: +--hash=.*\n)+)", text, re.MULTILINE):
        name, version, marker, hashes = pin.groups(default="")
        if "win32" in marker:
            continue
        component: dict[str, object] = {"type": "library", "name": name, "version": version}
        component["bom-ref"] = component["purl"] = f"pkg:pypi/{name}@{version}"
        # One for each file of this version on the package index: source archive, and wheels for all systems.
        component["hashes"] = [
            {"alg": "SHA-256", "content": each} for each in re.findall("sha256:([0-9a-f]+)", hashes)
        ]
        # Older libraries have their license as free text, which is no expression.
        component["licenses"] = [{"expression": each} for each in metadata(name).get_all("License-Expression", [])]
        components.append(component)
    reference = f"pkg:pypi/mainstay-plane@{__version__}"
    ours = {"type": "application", "name": "mainstay-plane", "version": __version__, "bom-ref": reference}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**ours, "purl": reference, "licenses": [{"expression": "Apache-2.0"}]}},
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": [component["bom-ref"] for component in components]}],
    }
    path = target / f"mainstay-{__version__}.cdx.json"
    path.write_text(dumps(document, indent=1) + "\n")
    return path


def _write_environment(tree: Path) -> None:
    """A virtual environment as `venv` lays it out, so that it is one wherever it is looked at."""
    pythons = _find_pythons()
    _write(tree, f"{ENVIRONMENT}/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    (tree / ENVIRONMENT[1:] / "bin").mkdir()
    # The default Python of the system, so that an upgrade of the system from one version to the next breaks nothing.
    (tree / ENVIRONMENT[1:] / "bin" / "python").symlink_to("/usr/bin/python3")
    first, *others = (tree / ENVIRONMENT[1:] / "lib" / f"python{version}" for version in PYTHONS)
    packages = first / "site-packages"
    packages.mkdir(parents=True)
    for link in others:
        link.symlink_to(first.name)
    shutil.copytree(PROJECT / "src" / "mainstay", packages / "mainstay", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "LICENSE", packages / "mainstay")
    for version in PYTHONS:
        with tempfile.TemporaryDirectory(prefix="mainstay-libraries-") as scratch:
            _install_libraries(version, scratch)
            _merge(Path(scratch), packages)
    for path in packages.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for version, python in pythons.items():
        _compile(python, packages, f"{ENVIRONMENT}/lib/python{version}/site-packages")


def _find_pythons() -> dict[str, str]:
    """Version → interpreter. Each compiles the modules of its version."""
    found = {version: find_python(version) for version in PYTHONS}
    missing = [f"Python {version}" for version, path in found.items() if path is None]
    if missing:
        print(
            f"The Debian package needs {' and '.join(missing)}; `scripts/install-test-parts pythons` installs them.",
            file=sys.stderr,
        )
        sys.exit(EXIT_MISSING_PARTS)
    return {version: path for version, path in found.items() if path is not None}


def _install_libraries(version: str, folder: str) -> None:
    words = ["uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    words += ["--link-mode", "copy", "--python", sys.executable, "--python-version", version, "--target", folder]
    words += ["--requirements", str(PROJECT / "requirements" / "server.txt")]
    # The cache first: hashes decide what is installed, so that the index has nothing to add.
    cached = subprocess.run([sys.executable, "-m", *words, "--offline"], check=False, capture_output=True)
    if cached.returncode and subprocess.run([sys.executable, "-m", *words], check=False).returncode:
        print(f"The libraries for Python {version} cannot be downloaded.", file=sys.stderr)
        sys.exit(EXIT_MISSING_PARTS)


def _merge(libraries: Path, packages: Path) -> None:
    """Adds the libraries of one Python. Refuses a file that another Python needs with another content."""
    for file in sorted(path for path in libraries.rglob("*") if path.is_file()):
        name = file.relative_to(libraries)
        if name.parts[0] in ("bin", ".lock"):
            continue
        place = packages / name
        if place.exists():
            # RECORD and WHEEL name the one wheel that they came with.
            if place.name not in ("RECORD", "WHEEL") and place.read_bytes() != file.read_bytes():
                sys.exit(f"{name} differs between versions of Python, so that one package cannot contain both.")
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)


def _compile(python: str, packages: Path, installed: str) -> None:
    # Never checked against the sources, which only dpkg replaces; and dpkg removes them too. Python itself writes none (-B).
    words = ["-m", "compileall", "-qq", "-j", "2", "--invalidation-mode", "unchecked-hash"]
    # Fails for templates of libraries that are no valid Python.
    subprocess.run([python, "-I", *words, "-s", str(packages), "-p", installed, str(packages)], check=False)


def _write_control(tree: Path, architecture: str) -> None:
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in files) // 1024
    sums = "".join(
        f"{md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n" for path in files
    )
    _write(
        tree,
        "/DEBIAN/control",
        CONTROL.format(
            version=__version__,
            architecture=architecture,
            size=size,
            oldest=PYTHONS[0],
            unsupported=FIRST_UNSUPPORTED,
        ),
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
