"""The program cache: no code is run from a place that another user can have written to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import NoReturn
from zipfile import ZipFile

import pytest

from mainstay.packaging import program_cache
from mainstay.packaging.program_cache import CacheRefused, digest_of, find_program, run_program, store_program
from mainstay.packaging.program_file import program_cache_source
from required_parts import need_root
from torture import IS_TORTURE, count_of

OTHER_USER = 65534


def make_program(text: str = "1", names: tuple[str, ...] = ("mainstay/__init__.py", "mainstay/cli/main.py")) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, f"# {text}\n")
    return buffer.getvalue()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "above" / "mainstay"


def store(content: bytes, cache: Path) -> Path:
    return Path(store_program(content, digest_of(content), str(cache)))


def test_a_program_is_unpacked_once_for_its_user_only(cache: Path) -> None:
    content = make_program()
    assert find_program(digest_of(content), str(cache)) is None
    assert not cache.exists()
    directory = store(content, cache)
    assert directory == cache / digest_of(content)
    found = [path for path in [cache, *cache.rglob("*")] if path.stat().st_mode & 0o077]
    assert not found, "others can read or write"
    assert (directory / "mainstay/cli/main.py").read_text() == "# 1\n"
    before = directory.stat()
    assert store(content, cache) == directory
    assert find_program(digest_of(content), str(cache)) == str(directory)
    assert directory.stat() == before


def test_a_damaged_program_is_refused(cache: Path) -> None:
    with pytest.raises(CacheRefused, match=r"damaged: its SHA-256 is [0-9a-f]{64}, expected 0000; transfer it again"):
        store_program(make_program(), "0000", str(cache))
    assert not cache.exists()


@pytest.mark.parametrize("name", ["/x.py", "mainstay/../../x.py"])
def test_a_name_outside_of_the_program_is_refused(name: str, cache: Path) -> None:
    with pytest.raises(CacheRefused, match="unsafe name"):
        store(make_program(names=(name,)), cache)
    assert os.listdir(cache) == []


def link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(path.parent / "elsewhere")


def foreign(path: Path) -> None:
    path.mkdir(mode=0o700)
    give_away(path)


def give_away(path: Path) -> None:
    need_root()
    os.chown(path, OTHER_USER, OTHER_USER)


FOUND: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (link, "is a link; the program cache must be a directory"),
    "a link to nothing": (lambda path: path.symlink_to("nothing"), "is a link"),
    "a file": (lambda path: path.write_text(""), "is no directory"),
    "a directory of another user": (foreign, "belongs to uid 65534, not to you"),
    "a directory that its group can read": (lambda path: path.mkdir(mode=0o750), "has mode 0750"),
    "a directory that others can enter": (lambda path: path.mkdir(mode=0o701), "has mode 0701"),
}


@pytest.mark.parametrize("what", FOUND)
@pytest.mark.parametrize("place", ["cache", "version"])
def test_anything_else_in_its_place_is_refused(what: str, place: str, cache: Path) -> None:
    content = make_program()
    plant, message = FOUND[what]
    cache.parent.mkdir()
    if place == "version":
        cache.mkdir(mode=0o700)
    path = cache if place == "cache" else cache / digest_of(content)
    plant(path)
    for act in (lambda: store(content, cache), lambda: find_program(digest_of(content), str(cache))):
        with pytest.raises(CacheRefused, match=f"{path} {message}"):
            act()
    assert not list(cache.parent.rglob("*.py")), "something was unpacked"


ABOVE: dict[str, tuple[Callable[[Path], object], str]] = {
    "others can write": (lambda path: path.chmod(0o777), "other users can write to"),
    "a group can write": (lambda path: path.chmod(0o775), "other users can write to"),
    "another user owns it": (give_away, "belongs to uid 65534, who"),
}


@pytest.mark.parametrize("what", ABOVE)
@pytest.mark.parametrize("depth", [0, 1])
def test_a_cache_below_a_directory_that_others_can_change_is_refused(what: str, depth: int, cache: Path) -> None:
    content = make_program()
    store(content, cache)
    above = cache.parents[depth]
    spoil, message = ABOVE[what]
    spoil(above)
    for act in (lambda: store(content, cache), lambda: find_program(digest_of(content), str(cache))):
        with pytest.raises(CacheRefused, match=message):
            act()


def test_a_link_on_the_way_is_judged_by_its_target(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    cache.parent.symlink_to("open")
    with pytest.raises(CacheRefused, match=f"other users can write to {tmp_path}/open"):
        store(make_program(), cache)
    (tmp_path / "open").chmod(0o755)
    assert store(make_program(), cache).parent == tmp_path / "open" / "mainstay"


def test_a_cache_in_a_sticky_directory_is_used(cache: Path) -> None:
    cache.parent.mkdir()
    cache.parent.chmod(0o1777)
    assert store(make_program(), cache).is_dir()


def test_the_two_newest_versions_are_kept_and_those_in_use(cache: Path) -> None:
    in_use = store(make_program("0"), cache)
    os.utime(in_use, (0, 0))
    others = []
    for number in range(1, 5):
        others.append(store_in_another_process(make_program(str(number)), cache))
        os.utime(others[-1], (number, number))
    (cache / f"{program_cache.TEMP_PREFIX}left").mkdir(mode=0o700)
    newest = store_in_another_process(make_program("5"), cache)
    assert {cache / name for name in os.listdir(cache)} == {in_use, others[-1], newest}
    assert (in_use / "mainstay/__init__.py").read_text() == "# 0\n"


def test_processes_that_unpack_at_the_same_time_get_the_same_whole_version(cache: Path) -> None:
    content = make_program(names=tuple(f"mainstay/m{number}.py" for number in range(200)))
    processes = [start_stub(cache) for _ in range(8)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(content)
        process.stdin.flush()
    found = {process.communicate(timeout=60) for process in processes}
    assert found == {(os.fsencode(cache / digest_of(content)), b"")}
    assert os.listdir(cache) == [digest_of(content)]
    assert len(os.listdir(cache / digest_of(content) / "mainstay")) == 200


def test_an_unpacking_that_was_killed_is_repeated_and_cleaned_up(cache: Path) -> None:
    content = make_program(names=tuple(f"mainstay/m{number}.py" for number in range(300)))
    for delay_ms in range(count_of(200)):
        process = start_stub(cache)
        assert process.stdin is not None
        process.stdin.write(content)
        process.stdin.close()
        process.stdin = None
        time.sleep(delay_ms * 0.002 / (20 if IS_TORTURE else 1))
        process.kill()
        with process:
            process.wait()
        version = cache / digest_of(content)
        assert not version.exists() or len(os.listdir(version / "mainstay")) == 300, "half a version is in the cache"
    version = store(content, cache)
    store(make_program("2"), cache)
    assert len(os.listdir(cache)) == 2, os.listdir(cache)
    assert len(os.listdir(version / "mainstay")) == 300


def test_a_user_who_exchanges_directories_all_the_time_never_gets_code_run_by_root(tmp_path: Path) -> None:
    """The other user owns a directory above the cache of root, and offers everything that could pass for a cache."""
    need_root()
    content = make_program()
    digest = digest_of(content)
    above = tmp_path / "above"
    above.mkdir(mode=0o755)
    os.chown(above, OTHER_USER, OTHER_USER)
    # A directory of root with mode 0700, which the other user can move but not fill.
    (above / "own").mkdir(mode=0o700)
    child = os.fork()
    if child == 0:
        exchange_directories(above, digest)
    try:
        for _ in range(count_of(4000)):
            for act in (find_program, lambda digest, cache: store_program(content, digest, cache)):
                with pytest.raises(CacheRefused):
                    act(digest, str(above / "mainstay"))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def exchange_directories(above: Path, digest: str) -> NoReturn:
    try:
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        os.chdir(above)
        (above / "evil" / digest).mkdir(parents=True, mode=0o700)
        while True:
            for found in ("own", "evil"):
                with suppress(OSError):
                    os.rename(found, "mainstay")
                with suppress(OSError):
                    os.rename("mainstay", found)
                with suppress(OSError):
                    os.symlink(found, "mainstay")
                with suppress(OSError):
                    os.unlink("mainstay")
                for mode in (0o777, 0o755):
                    os.chmod(above, mode)
    finally:
        os._exit(1)


def test_the_source_of_the_cache_runs_a_program_over_standard_input(cache: Path) -> None:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.writestr("mainstay/__init__.py", "")
        archive.writestr(
            "mainstay/cli/main.py", "import sys\ndef program(): print(sys.argv, sys.path[0], __file__)\n"
        )
    stub = STUB.replace("sys.stdout.write(", f"{run_program.__name__}(").replace(
        "sys.argv[1]))", "sys.argv[1]), sys.argv[2:])"
    )
    done = subprocess.run(
        [sys.executable, "-Ic", program_cache_source() + stub, str(cache), "apply", "x y"],
        input=buffer.getvalue(),
        capture_output=True,
        timeout=60,
    )
    version = cache / digest_of(buffer.getvalue())
    assert done.stderr == b""
    assert done.stdout.decode() == f"['mainstay', 'apply', 'x y'] {version} {version}/mainstay/cli/main.py\n"
    assert (version / "mainstay/cli/__pycache__").is_dir(), "the next start would compile again"


STUB = """
content = sys.stdin.buffer.read()
sys.stdout.write(store_program(content, digest_of(content), sys.argv[1]))
"""


def start_stub(cache: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-Ic", program_cache_source() + STUB, str(cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def store_in_another_process(content: bytes, cache: Path) -> Path:
    output, errors = start_stub(cache).communicate(content, timeout=60)
    assert errors == b""
    return Path(os.fsdecode(output))
