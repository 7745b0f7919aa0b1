"""Builds the program file: a zip archive that Python runs, from the packages that this process has installed.

It contains what runs on hosts, in source form, and PyYAML, Jinja2 and MarkupSafe without their compiled parts. The same
sources give the same bytes.
"""

from __future__ import annotations

import ast
import os
from importlib.metadata import distribution
from importlib.util import find_spec
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from mainstay.foundation.module_names import module_names
from mainstay.foundation.python_versions import HOST_COMMANDS, HOST_PYTHON, OTHER_COMMANDS
from mainstay.packaging.program_cache import START_FILES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SHEBANG = b"#!/usr/bin/env python3\n"
WHOLE_PACKAGES = ("foundation", "converge")
# The host's side of a push, and what `mainstay schema inventory` prints.
SINGLE_MODULES = (
    "push/__init__.py",
    "push/content_store.py",
    "push/delivery.py",
    "push/inventory_schema.py",
    "push/receiver.py",
)
# Packages to import, and the distributions that own them.
THIRD_PARTIES = {"yaml": "PyYAML", "jinja2": "Jinja2", "markupsafe": "MarkupSafe"}
COMMANDS = "mainstay.cli.commands."
# Commands reach these only for documents and names of a control plane, which the program file does not serve.
LEFT_OUT = ("mainstay.cli.remote", "mainstay.cli.plane")
# Runs in every Python, so that an old one gives one clear line.
MAIN = f"""\
import os
import sys

if sys.version_info < {HOST_PYTHON}:
    sys.exit("mainstay: Python {HOST_PYTHON[0]}.{HOST_PYTHON[1]} or newer is needed, and %s is Python %d.%d"
             % ((sys.executable,) + tuple(sys.version_info[:2])))
# Modules of PYTHONPATH and of the user's site directory must not be found instead of the ones that are meant.
if not sys.flags.isolated and (
    os.environ.get("PYTHONPATH") or getattr(sys.modules.get("site"), "USER_SITE", None) in sys.path
):
    os.execv(sys.executable, [sys.executable, "-I"] + sys.argv)
from {START_FILES[1][:-3]} import main

main(__loader__.archive)
"""


def build_program_file() -> bytes:
    """Returns the program file; `python3 FILE apply …` runs it."""
    main, cache = START_FILES
    entries = dict(_our_files())
    entries.update(_third_party_files())
    entries[main] = MAIN.encode()
    entries[cache] = program_cache_source().encode()
    buffer = BytesIO()
    buffer.write(SHEBANG)
    with ZipFile(buffer, "a", ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(entries):
            info = ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            archive.writestr(info, entries[name])
    return buffer.getvalue()


def program_cache_source() -> str:
    """The source of `program_cache`, for a Python process on a host that has nothing of ours yet."""
    return _read(os.path.join(os.path.dirname(__file__), "program_cache.py")).decode()


def _our_files() -> Iterator[tuple[str, bytes]]:
    root = _folder_of("mainstay")
    yield "mainstay/__init__.py", _read(os.path.join(root, "__init__.py"))
    # Packages put it beside the sources; a checkout has it at the top.
    places = (os.path.join(root, *above, "LICENSE") for above in ((), ("..", "..")))
    yield "licenses/mainstay/LICENSE", _read(next(place for place in places if os.path.exists(place)))
    commands = {name.replace("_", "-") for name in module_names([os.path.join(root, "cli", "commands")])}
    others = sorted(commands - HOST_COMMANDS)
    yield f"mainstay/cli/{OTHER_COMMANDS}", "".join(f"{name}\n" for name in others).encode()
    for package in WHOLE_PACKAGES:
        yield from _sources_below(os.path.join(root, package), f"mainstay/{package}")
    for path in (*SINGLE_MODULES, *(_path_of(root, name) for name in _command_line_modules(root))):
        yield f"mainstay/{path}", _read(os.path.join(root, path))


def _command_line_modules(root: str) -> set[str]:
    """The modules of `mainstay.cli` that the commands of hosts use, at any time."""
    wanted = ["mainstay.cli.main", *(COMMANDS + name for name in HOST_COMMANDS)]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in found or not name.startswith("mainstay.cli") or name.startswith(LEFT_OUT):
            continue
        if not os.path.exists(os.path.join(root, _path_of(root, name))):
            # A name in a module, not a module.
            continue
        if name.startswith(COMMANDS) and name[len(COMMANDS) :] not in HOST_COMMANDS:
            continue
        found.add(name)
        wanted.append(name.rpartition(".")[0])
        wanted += _imported(_read(os.path.join(root, _path_of(root, name))))
    return found


def _imported(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _path_of(root: str, name: str) -> str:
    inside = name.partition(".")[2].replace(".", "/")
    return f"{inside}/__init__.py" if os.path.isdir(os.path.join(root, inside)) else f"{inside}.py"


def _third_party_files() -> Iterator[tuple[str, bytes]]:
    for package, owner in THIRD_PARTIES.items():
        yield from _sources_below(_folder_of(package), package)
        for file in distribution(owner).files or ():
            # Their licenses require it.
            if ".dist-info/" in str(file) and file.name.upper().startswith(("LICEN", "COPYING")):
                yield f"licenses/{owner}/{file.name}", file.read_binary()


def _sources_below(folder: str, inside: str) -> Iterator[tuple[str, bytes]]:
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        relative = os.path.relpath(above, folder)
        prefix = inside if relative == "." else f"{inside}/{relative}"
        for name in sorted(files):
            if name.endswith(".py"):
                yield f"{prefix}/{name}", _read(os.path.join(above, name))


def _folder_of(package: str) -> str:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {package} is not installed, so the program file cannot be built")
    return os.path.dirname(spec.origin)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
