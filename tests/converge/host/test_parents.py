"""The walk to a path, compared with a plain model: on generated trees in memory, and on the same trees on disk."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mainstay.converge.host.parents import MOST_KEPT, MOST_LINKS, LinkRefused, Parents, Place, Walk
from required_parts import need_program, need_root
from torture import count_of

# Not in use in the directories above a scratch folder, to which `..` leads.
NAMES = ("xa", "xb", "xc")
OWNERS = (0, 0, 0, 1001, 1002)
GROUPS = (0, 0, 1001)
DIRECTORY_MODES = (0o755, 0o755, 0o755, 0o711, 0o775, 0o777, 0o1777, 0o1775, 0o757, 0o2775)
CASES_PER_TREE = 50


class Node:
    """An entry of a generated tree, with the fields of a file status."""

    def __init__(self, kind: int, *, uid: int = 0, gid: int = 0, mode: int = 0o755, target: str = "") -> None:
        self.st_mode = kind | mode
        self.st_uid = uid
        self.st_gid = gid
        self.st_nlink = 1
        self.st_dev = 0
        self.target = target
        self.entries: dict[str, Node] = {}
        self.parent: Node = self

    def add(self, name: str, node: Node) -> None:
        self.entries[name] = node
        if stat.S_ISDIR(node.st_mode):
            node.parent = self
        elif any(node is other for key, other in self.entries.items() if key != name):
            node.st_nlink = 2


def random_path(chance: random.Random, *, absolute: bool) -> str:
    names = chance.choices((*NAMES, *NAMES, *NAMES, "..", "."), k=chance.randint(1, 4))
    end = "/" if chance.random() < 0.05 else ""
    return ("/" if absolute else "") + "/".join(names) + end


def random_tree(chance: random.Random) -> Node:
    top = Node(stat.S_IFDIR)
    directories = [top]
    for _ in range(chance.randint(4, 14)):
        parent = chance.choice(directories)
        name = chance.choice(NAMES)
        if name in parent.entries:
            continue
        uid, gid, kind = chance.choice(OWNERS), chance.choice(GROUPS), chance.random()
        if kind < 0.55:
            node = Node(stat.S_IFDIR, uid=uid, gid=gid, mode=chance.choice(DIRECTORY_MODES))
            directories.append(node)
        elif kind < 0.9:
            target = random_path(chance, absolute=chance.random() < 0.4)
            node = Node(stat.S_IFLNK, uid=uid, gid=gid, mode=0o777, target=target)
            node.st_nlink = 2 if chance.random() < 0.1 else 1
        else:
            node = Node(stat.S_IFREG, uid=uid, gid=gid, mode=0o644)
        parent.add(name, node)
    return top


# ---- the model ----
class Verdict(Exception):
    """The walk ends before the path does."""


def is_writable_by_others(directory: Node) -> bool:
    return bool(directory.st_mode & 0o002) or bool(directory.st_mode & 0o020 and directory.st_gid != 0)


def is_safe_in_words(directory: Node, user: int) -> bool:
    """Root or the user owns it, and neither others nor a group other than root's may write unless it is sticky."""
    owned = directory.st_uid == 0 or directory.st_uid == user
    return owned and (not is_writable_by_others(directory) or bool(directory.st_mode & 0o1000))


def may_follow_in_words(link: Node, directory: Node, visited: list[Node], user: int) -> bool:
    """Only in a safe directory, only if root or the user owns it, and never below an unsafe directory."""
    if not all(is_safe_in_words(each, user) for each in visited):
        return False
    if link.st_uid not in (0, user):
        return False
    # A second name in a place where others may create entries may be their doing.
    return link.st_nlink == 1 or not is_writable_by_others(directory)


def expected(top: Node, path: str, user: int, *, trusting: bool) -> str:
    """Resolves the path by recursion over the targets of links; the result is a word and a path."""
    visited = [top]
    links = 0

    def location(trail: list[tuple[str, Node]]) -> str:
        return "/" + "/".join(name for name, _ in trail[1:])

    def resolve(trail: list[tuple[str, Node]], path: str) -> list[tuple[str, Node]]:
        nonlocal links
        if path.startswith("/"):
            trail = trail[:1]
        parts = [part for part in path.split("/") if part] + (["."] if path.endswith("/") else [])
        for part in parts:
            here = trail[-1][1]
            if not stat.S_ISDIR(here.st_mode):
                raise Verdict("not a directory")
            if part == ".":
                continue
            if part == "..":
                trail = trail[:-1] or trail
                visited.append(trail[-1][1])
                continue
            node = here.entries.get(part)
            if node is None:
                raise Verdict("missing")
            if not stat.S_ISLNK(node.st_mode):
                trail = [*trail, (part, node)]
                if stat.S_ISDIR(node.st_mode):
                    visited.append(node)
                continue
            if not trusting and not may_follow_in_words(node, here, visited, user):
                raise Verdict(f"refused {location([*trail, (part, node)])}")
            links += 1
            if links > MOST_LINKS:
                raise Verdict("loop")
            trail = resolve(trail, node.target)
        return trail

    try:
        return f"found {location(resolve([('', top)], path))}"
    except Verdict as verdict:
        return str(verdict)


# ---- what is tested ----
class MemoryWalk(Walk):
    """The walk over a tree in memory."""

    def __init__(self, top: Node, user: int) -> None:
        super().__init__(user)
        self.top = top

    def open_root(self) -> Place:
        return Place(self.top, "", self.top, self.user, unsafe=None)

    def open(self, place: Place, name: str, *, is_last: bool) -> tuple[Node, Node]:
        node = place.handle.parent if name == ".." else place.handle.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "missing", name)
        return node, node

    def read_link(self, handle: Node) -> str:
        return handle.target

    def close(self, handle: Node) -> None:
        assert not stat.S_ISLNK(handle.st_mode)

    def enter(self, place: Place, path: str, handle: Node, status: Any) -> Place:
        return Place(handle, path, status, self.user, unsafe=place.unsafe)


def actual(walk: Walk, path: str, *, trusting: bool, exists: Any) -> str:
    try:
        place, name = walk.find(path, trusting=trusting)
    except LinkRefused as refused:
        return f"refused {str(refused).partition(' is a link')[0]}"
    except NotADirectoryError:
        return "not a directory"
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return "loop"
    return f"found {place.below(name)}" if name == "." or exists(place, name) else "missing"


def test_the_walk_agrees_with_the_model_on_generated_trees() -> None:
    chance = random.Random(60)
    seen: dict[str, int] = {}
    for _ in range(count_of(500_000) // CASES_PER_TREE):
        top = random_tree(chance)
        user = chance.choice((0, 1001))
        walk = MemoryWalk(top, user)
        for _ in range(CASES_PER_TREE):
            path = random_path(chance, absolute=True)
            trusting = chance.random() < 0.1
            wanted = expected(top, path, user, trusting=trusting)
            found = actual(walk, path, trusting=trusting, exists=lambda place, name: name in place.handle.entries)
            assert found == wanted, (path, user, trusting, describe(top))
            seen[wanted.partition(" ")[0]] = seen.get(wanted.partition(" ")[0], 0) + 1
    # Each verdict is common enough to mean something.
    assert set(seen) == {"found", "missing", "not", "refused", "loop"}
    assert min(seen.values()) >= 100, seen


def describe(node: Node, path: str = "") -> list[str]:
    line = f"{path or '/'} {node.st_mode:o} {node.st_uid}:{node.st_gid} {node.st_nlink} {node.target}"
    return [line, *(each for name, child in node.entries.items() for each in describe(child, f"{path}/{name}"))]


# ---- on disk ----
def build(node: Node, path: str, spare: str) -> None:
    if stat.S_ISDIR(node.st_mode):
        os.mkdir(path)
        for name, child in node.entries.items():
            build(child, f"{path}/{name}", spare)
    elif stat.S_ISLNK(node.st_mode):
        os.symlink(node.target, path)
        if node.st_nlink == 2:
            os.link(path, f"{spare}/{len(os.listdir(spare))}", follow_symlinks=False)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    os.chown(path, node.st_uid, node.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(node.st_mode):
        os.chmod(path, stat.S_IMODE(node.st_mode))


def with_directories_above(top: Node, place: Path) -> Node:
    """Returns the root of the host as a tree in which `top` is at `place` and no directory has other entries."""
    root = directory = Node(stat.S_IFDIR)
    for path in reversed((place, *place.parents[:-1])):
        found = path.parent.stat()
        directory.st_mode, directory.st_uid, directory.st_gid = found.st_mode, found.st_uid, found.st_gid
        inner = top if path == place else Node(stat.S_IFDIR)
        directory.add(path.name, inner)
        directory = inner
    return root


def with_full_targets(node: Node, place: Path) -> None:
    if node.target.startswith("/"):
        node.target = f"{place}{node.target}"
    for child in node.entries.values():
        with_full_targets(child, place)


def test_the_walk_by_descriptor_agrees_with_the_model(tmp_path: Path) -> None:
    """With one set of kept directories per tree, so that a kept one must give the answer of a fresh one."""
    need_root()
    chance = random.Random(61)
    place, spare = tmp_path / "tree", tmp_path / "spare"
    for _ in range(count_of(50_000) // CASES_PER_TREE):
        top = random_tree(chance)
        with_full_targets(top, place)
        root = with_directories_above(top, place)
        spare.mkdir()
        build(top, str(place), str(spare))
        parents = Parents(user := chance.choice((0, 1001)))
        for _ in range(CASES_PER_TREE):
            path = f"{place}{random_path(chance, absolute=True)}"
            wanted = expected(root, path, user, trusting=False)
            assert on_disk(parents, path) == wanted, (path, user, describe(top))
        shutil.rmtree(place)
        shutil.rmtree(spare)


def on_disk(parents: Parents, path: str) -> str:
    """The verdict of `find`, which must be that of `reach` for a directory."""
    found = actual(
        parents, path, trusting=False, exists=lambda place, name: name in os.listdir(f"/proc/self/fd/{place.handle}")
    )
    try:
        reached = f"found {parents.reach(path).below('.')}"
    except LinkRefused as refused:
        reached = f"refused {str(refused).partition(' is a link')[0]}"
    except NotADirectoryError:
        reached = "not a directory"
    except FileNotFoundError:
        reached = "missing"
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        reached = "loop"
    if found.startswith("found") and not os.path.isdir(found.removeprefix("found ")):
        assert reached == "not a directory"
    else:
        assert reached == found
    return found


# ---- single properties of the host ----
def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_at_most_256_directories_stay_open_and_all_are_closed(tmp_path: Path) -> None:
    before = open_descriptors()
    parents = Parents(os.geteuid())
    parents.most_kept = MOST_KEPT
    for number in range(2 * MOST_KEPT):
        (tmp_path / str(number)).mkdir()
        parents.reach(f"{tmp_path}/{number}")
        assert open_descriptors() <= before + MOST_KEPT + 1
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("missing")
    for name, error in (("file", NotADirectoryError), ("link", FileNotFoundError), ("none", FileNotFoundError)):
        with pytest.raises(error):
            parents.reach(f"{tmp_path}/{name}")
    parents.forget()
    assert open_descriptors() == before


def test_a_path_of_any_depth_is_reached(tmp_path: Path) -> None:
    """Deeper than Python recurses, and than directories stay open."""
    before = os.getcwd()
    depth = 1200
    try:
        os.chdir(tmp_path)
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
        Path("end").touch()
        place = Parents(os.geteuid()).reach(str(tmp_path) + "/d" * depth)
        assert os.lstat("end", dir_fd=place.handle)
    finally:
        os.chdir(before)
        # pytest cannot remove it.
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


def test_an_access_list_makes_a_directory_of_group_root_unsafe(tmp_path: Path) -> None:
    need_root()
    (tmp_path / "directory" / "real").mkdir(parents=True)
    (tmp_path / "directory").chmod(0o770)
    (tmp_path / "directory" / "link").symlink_to("real")
    Parents(0).reach(f"{tmp_path}/directory/link")
    subprocess.run([need_program("setfacl"), "-m", "u:1001:rwx", tmp_path / "directory"], check=True)
    with pytest.raises(LinkRefused, match=f"other users may change {tmp_path}/directory"):
        Parents(0).reach(f"{tmp_path}/directory/link")


def test_a_run_leaves_most_descriptors_of_a_small_limit_free(tmp_path: Path) -> None:
    """A service manager may allow few; parallel runs of an agent share them."""
    entries = []
    for number in range(100):
        (tmp_path / str(number)).mkdir()
        entries.append(f"    - {tmp_path}/{number}/f: {{content: x}}\n")
    defaults = f'{{ensure: present, owner: "{os.geteuid()}", group: "{os.getegid()}", mode: "0644"}}'
    (tmp_path / "m.yaml").write_text(f"- file:\n    - defaults: {defaults}\n{''.join(entries)}")
    program = Path(sys.executable).with_name("mainstay")
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -n 40; exec "$0" apply "$1"', program, tmp_path / "m.yaml"],
        env={**os.environ, "MAINSTAY_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "100 changed" in done.stdout, done.stdout + done.stderr
