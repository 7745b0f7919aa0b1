"""The lean import of libyaml's parser: what it does not load, what it completes later, and when it is not used.

Each test runs a program of its own, because an import cannot be undone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

LEAN = "from mainstay.foundation.yaml import libyaml\nimport sys\n"


def run_program(text: str, *folders: Path) -> None:
    path = "\n".join(f"import sys; sys.path.insert(0, {str(folder)!r})" for folder in folders)
    done = subprocess.run([sys.executable, "-c", f"{path}\n{text}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_heavy_parts_of_pyyaml_are_not_loaded() -> None:
    run_program(
        LEAN
        + "heavy = {'yaml.reader', 'yaml.constructor', 'yaml.resolver', 'yaml.representer', 'datetime', 'base64'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )


def test_the_parser_gives_the_events_of_pyyaml() -> None:
    run_program(
        LEAN + "take = libyaml.CParser(b'a: [1, *x]').get_event\n"
        "seen = [take() for _ in range(6)]\n"
        "import yaml\n"
        "plain = list(yaml.parse('a: [1, *x]', Loader=yaml.CSafeLoader))[:6]\n"
        "assert list(map(repr, seen)) == list(map(repr, plain))\n"
        "assert [type(event) for event in seen] == [type(event) for event in plain]"
    )


def test_errors_are_those_of_pyyaml() -> None:
    run_program(
        LEAN + "def provoke(content):\n"
        "    parser = libyaml.CParser(content)\n"
        "    try:\n"
        "        while parser.get_event(): pass\n"
        "    except libyaml.YAMLError as error: return error\n"
        "before = [provoke(b'a: @b'), provoke(b'a: [b'), provoke(b'\\x01')]\n"
        "import yaml\n"
        "wanted = [yaml.scanner.ScannerError, yaml.parser.ParserError, yaml.reader.ReaderError]\n"
        "assert [type(error) for error in before] == wanted, before\n"
        "after = [provoke(b'a: @b'), provoke(b'a: [b'), provoke(b'\\x01')]\n"
        "assert [str(error) for error in after] == [str(error) for error in before]"
    )


@pytest.mark.parametrize(
    "use",
    [
        "import yaml; assert yaml.safe_load('a: 1') == {'a': 1}",
        "import yaml; assert yaml.load('a: 1', Loader=yaml.CSafeLoader) == {'a': 1}",
        "from yaml import safe_dump; assert safe_dump({'a': 1}) == 'a: 1\\n'",
        "from yaml import *; assert safe_load('a: 1') == {'a': 1}",
        "import yaml.constructor; assert yaml.constructor.ConstructorError is yaml._yaml.ConstructorError",
        "from yaml.cyaml import CSafeLoader; assert CSafeLoader('a').get_data() == 'a'",
        "import yaml; assert yaml.__with_libyaml__ and yaml.__version__ and yaml.__spec__.name == 'yaml'",
        "import yaml, importlib; assert importlib.reload(yaml).safe_load('a') == 'a'",
        "import yaml; assert not hasattr(yaml, 'nothing') and yaml.safe_load('a') == 'a'",
    ],
)
def test_a_later_import_gets_all_of_pyyaml(use: str) -> None:
    run_program(LEAN + use)


def test_the_completed_package_equals_a_plain_import() -> None:
    names = sorted(name for name in vars(yaml) if name != "__builtins__")
    run_program(
        LEAN + "import yaml; yaml.safe_load\n"
        f"missing = set({names!r}) - set(vars(yaml))\n"
        "assert not missing, missing\n"
        "assert type(yaml) is type(sys)\n"
        "assert yaml._yaml.ReaderError is yaml.reader.ReaderError"
    )


def test_many_threads_may_complete_the_package_at_once() -> None:
    run_program(
        LEAN + "import threading, yaml\n"
        "found = []\n"
        "threads = [threading.Thread(target=lambda: found.append(yaml.safe_load('a: 1'))) for _ in range(20)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "assert found == [{'a': 1}] * 20"
    )


def test_an_already_imported_pyyaml_is_used() -> None:
    run_program("import yaml\n" + LEAN + "assert libyaml.CParser is yaml.cyaml.CParser and type(yaml) is type(sys)")


def test_a_pyyaml_that_cannot_be_loaded_in_parts_is_imported_plainly(tmp_path: Path) -> None:
    shutil.copytree(Path(yaml.__file__).parent, tmp_path / "yaml")
    nodes = tmp_path / "yaml" / "nodes.py"
    guard = "import sys\nif not hasattr(sys.modules['yaml'], 'MappingStartEvent'): raise ImportError('not alone')\n"
    nodes.write_text(guard + nodes.read_text(encoding="utf-8"), encoding="utf-8")
    run_program(LEAN + "import yaml\nassert type(yaml) is type(sys) and yaml.safe_load('a') == 'a'", tmp_path)


def test_a_c_module_with_unknown_imports_is_imported_plainly(tmp_path: Path) -> None:
    shutil.copytree(Path(yaml.__file__).parent, tmp_path / "yaml")
    nodes = tmp_path / "yaml" / "nodes.py"
    # The C module imports this name from its package.
    text = (
        nodes.read_text(encoding="utf-8") + "\nif 'yaml.reader' not in __import__('sys').modules: del MappingNode\n"
    )
    nodes.write_text(text, encoding="utf-8")
    package = tmp_path / "yaml" / "__init__.py"
    package.write_text("from . import reader\n" + package.read_text(encoding="utf-8"), encoding="utf-8")
    run_program(
        LEAN + "import yaml\nassert type(yaml) is type(sys) and yaml.load('a: 1', yaml.CSafeLoader) == {'a': 1}",
        tmp_path,
    )
