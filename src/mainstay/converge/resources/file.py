"""The `file` type: files, directories and links. Only decides; providers act."""

from __future__ import annotations

from mainstay.converge.command_words import WORDS_WITH_PATH
from mainstay.converge.contract import Change, Property, Resource, ResourceType, State
from mainstay.converge.failures import Failure, TemplateFailed, file_word
from mainstay.converge.value_kinds import (
    BOOLEAN,
    MODE_BITS,
    TEXT,
    managed_path_problems,
    mode_problem,
    path_problem,
    text_problem,
)
from mainstay.foundation.digests import sha256_of
from mainstay.foundation.text import REDACTED
from mainstay.foundation.timestamps import format_timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.converge.host.files import Files

PRESENT, ABSENT, DIRECTORY, LINK = "present", "absent", "directory", "link"
REFUSE, FOLLOW, REPLACE = "refuse", "follow", "replace"
STORE, ATTRIBUTES, MAKE_DIRECTORY, REMOVE, REMOVE_TREE, MAKE_LINK, COPY_TREE = (
    "store",
    "attributes",
    "make directory",
    "remove",
    "remove tree",
    "make link",
    "copy tree",
)
LARGEST_FILE_MODE, LARGEST_DIRECTORY_MODE = 0o777, 0o3777
# Properties that a file with `ensure: present` may have in any combination.
ALWAYS_FIT = frozenset(
    ("type", "name", "id", "place", "ensure", "owner", "group", "mode", "content", "alias", "tags")
)

# What `mainstay status --yaml` writes as content.
LARGEST_TEXT_BYTES = 64 * 1024
# Properties of every type that replaces a file.
LINKS = Property(TEXT, "what to do when the path is a link", choices=(REFUSE, FOLLOW, REPLACE))
VALIDATE = Property(
    WORDS_WITH_PATH,
    "a command that must accept the new file (% is its path) before it is put in place",
    private=True,
)


class File(Resource):
    content: str | None = None
    source: str | None = None
    owner: str | None = None
    group: str | None = None
    mode: int | None = None
    target: str | None = None
    recurse: bool = False
    purge: bool = False
    links: str = REFUSE
    force: bool = False
    validate: tuple[str, ...] | None = None
    backup: bool = False


class FileState(State):
    """The actual state of the path. `same_content` is None if content is not managed."""

    # A value of `ensure`, or "other", for example for a fifo.
    kind: str = ABSENT
    stat: Any = None
    uid: int = -1
    gid: int = -1
    mode: int = 0
    # Names; None if the path does not exist.
    owner: str | None = None
    group: str | None = None
    same_content: bool | None = None
    # The content that the manifest gives, if the file has exactly this content.
    matched_content: str | None = None
    # Set at once for a small file that is about to change or has just changed; otherwise by `complete`.
    checksum: str | None = None
    link_target: str | None = None
    is_empty_directory: bool = True
    # Whether the content counts as different without a comparison.
    assumed_different: bool = False
    # Entries of a directory tree that differ from the source, each with the action it needs.
    tree: tuple[Any, ...] = ()

    def __init__(self, name: str, wanted_uid: int, wanted_gid: int, *, sensitive: bool) -> None:
        self.name = name
        # The target of a followed link; otherwise the resource's own path.
        self.real_path = name
        # -1 if not managed.
        self.wanted_uid = wanted_uid
        self.wanted_gid = wanted_gid
        self.sensitive = sensitive

    def complete(self, files: Files) -> None:
        """Adds the checksum of a file whose content the manifest does not give."""
        if self.kind == PRESENT and self.checksum is None and self.matched_content is None:
            self.checksum = files.checksum_of(self.real_path, self.stat)

    def text(self, files: Files) -> str | None:
        if self.kind != PRESENT:
            return None
        content = files.content(self.real_path, LARGEST_TEXT_BYTES)
        try:
            text = None if content is None else content.decode()
        except UnicodeDecodeError:
            return None
        return None if text is None or not text.replace("\n", "").replace("\t", "").isprintable() else text

    def known_checksum(self) -> str | None:
        """None if the path is not a file, cannot be read, or was not read by `complete` yet."""
        if self.checksum is None and self.matched_content is not None:
            self.checksum = sha256_of(self.matched_content.encode("utf-8", "surrogateescape"))
        return self.checksum

    def as_json(self) -> dict[str, Any]:
        stat = self.stat
        found: dict[str, Any] = {
            "ensure": self.ensure,
            "name": self.name,
            "checksum": None,
            "owner": self.owner,
            "group": self.group,
            "mode": None if stat is None else f"{self.mode:04o}",
            "provider": "posix",
            "mtime": None if stat is None else format_timestamp(stat.st_mtime),
            "size": None if stat is None else stat.st_size,
            "type": None if stat is None else "file" if self.kind == PRESENT else self.kind,
        }
        if self.kind == PRESENT:
            found["checksum"] = REDACTED if self.sensitive else self.known_checksum()
        if self.link_target is not None:
            found["target"] = REDACTED if self.sensitive else self.link_target
        return found


class FileType(ResourceType):
    name = "file"
    resource = File
    ensures = (PRESENT, ABSENT, DIRECTORY, LINK)
    ensure_required = True
    altered_by = ("kind", "uid", "gid", "mode", "same_content", "link_target", "tree")
    properties = {
        "content": Property(
            TEXT, 'the file\'s content; "" is an empty file', deferred=True, private=True, refuses_null=True
        ),
        "contents": Property(TEXT, "another name of content", deferred=True, private=True, alias_of="content"),
        "source": Property(TEXT, "a local file (with recurse: a directory) to copy", deferred=True),
        "owner": Property(TEXT, "user name or number; required for present and directory"),
        "group": Property(TEXT, "group name or number; required for present and directory"),
        "mode": Property(
            MODE_BITS,
            "permissions in octal, at most 0777, of directories 3777 (setgid, sticky); required for present and directory",
        ),
        "target": Property(TEXT, "where a link leads; required for link"),
        "recurse": Property(BOOLEAN, "with a directory and source: copy the tree below it"),
        "purge": Property(BOOLEAN, "with recurse: remove what the source does not have"),
        "links": LINKS,
        "force": Property(BOOLEAN, "with absent: remove a directory that is not empty"),
        "validate": VALIDATE,
        "backup": Property(BOOLEAN, "keep the replaced or removed file for `mainstay restore`"),
    }

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        return (f"file path {problem}" for problem in managed_path_problems(name))

    def check(self, wanted: File) -> Iterator[tuple[str | None, str]]:
        if wanted.ensure in (PRESENT, DIRECTORY) and None in (wanted.owner, wanted.group, wanted.mode):
            missing = [key for key in ("owner", "group", "mode") if getattr(wanted, key) is None]
            yield None, f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} required"
        if wanted.mode is not None and wanted.mode > LARGEST_FILE_MODE:
            largest = LARGEST_DIRECTORY_MODE if wanted.ensure == DIRECTORY else LARGEST_FILE_MODE
            problem = mode_problem(wanted.mode, largest)
            if problem:
                yield "mode", problem
        # Most resources have only properties that fit together.
        if wanted.ensure != PRESENT or not wanted.__dict__.keys() <= ALWAYS_FIT:
            yield from self._check_combinations(wanted)

    def _check_combinations(self, wanted: File) -> Iterator[tuple[str | None, str]]:
        deferred = wanted.deferred or {}
        has_content = wanted.content is not None or "content" in deferred
        has_source = wanted.source is not None or "source" in deferred
        if has_content and has_source:
            yield "source", "content and source exclude each other; give one of them"
        if wanted.ensure == LINK and not wanted.target:
            yield None, "a link needs `target`"
        for key in ("source", "target"):
            # The target of a link need not exist, nor be able to.
            problem = path_problem(getattr(wanted, key) or "", may_be_nowhere=key == "target")
            if problem:
                yield key, f"{key}: the path {problem}"
        for key, fits, where in (
            ("content", wanted.ensure == PRESENT, "ensure: present"),
            ("source", wanted.ensure == PRESENT or wanted.recurse, "ensure: present, or a directory with recurse"),
            ("target", wanted.ensure == LINK, "ensure: link"),
            ("recurse", wanted.ensure == DIRECTORY and has_source, "ensure: directory with source"),
            ("purge", wanted.recurse, "recurse"),
            ("force", wanted.ensure == ABSENT, "ensure: absent"),
            ("validate", wanted.ensure == PRESENT, "ensure: present"),
            ("backup", wanted.ensure in (PRESENT, ABSENT), "ensure: present or absent"),
        ):
            if not fits and (getattr(wanted, key) not in (None, False) or key in deferred):
                yield key, f"{key} is only valid with {where}"
        if wanted.backup and wanted.sensitive:
            yield "backup", "a sensitive file is not backed up: nothing secret is kept in the state directory"

    def check_rendered(self, wanted: File) -> None:
        for key, problem in (
            ("source", path_problem(wanted.source or "")),
            ("content", text_problem((wanted.content or "").replace("\0", ""))),
        ):
            if problem:
                raise TemplateFailed(f"{key}: the rendered value {problem}")

    def written_path(self, wanted: File) -> str | None:
        return wanted.name

    def sets_content(self, wanted: File) -> bool:
        given = {**wanted.__dict__, **(wanted.deferred or {})}
        return wanted.ensure == PRESENT and ("content" in given or "source" in given)

    # ---- in a run ----
    def manifest_entry(self, actual: FileState) -> dict[str, Any]:
        if actual.kind == ABSENT:
            return {"ensure": ABSENT}
        if actual.kind == LINK:
            return {"ensure": LINK, "target": actual.link_target}
        if actual.kind not in (PRESENT, DIRECTORY):
            raise Failure(f"{actual.name} is {file_word(actual.stat.st_mode)}, which no manifest describes")
        if actual.mode > (LARGEST_FILE_MODE if actual.kind == PRESENT else LARGEST_DIRECTORY_MODE):
            raise Failure(f"{actual.name} has mode {actual.mode:04o}, which no manifest can give")
        return {"ensure": actual.kind, "owner": actual.owner, "group": actual.group, "mode": f"{actual.mode:04o}"}

    def compares(self, wanted: File, names: frozenset[str]) -> bool:
        # The provider assumes that the content differs.
        return not names <= {"content"}

    def desired(self, wanted: File, actual: FileState) -> tuple[bool, str]:
        ensure = wanted.ensure
        if actual.kind != ensure:
            return False, f"path is {actual.kind if actual.kind != PRESENT else 'a file'}, expected {ensure}"
        if ensure == ABSENT:
            return True, ""
        if ensure == LINK:
            if actual.link_target != wanted.target:
                return False, f"link leads to {actual.link_target}, expected {wanted.target}"
            if wanted.owner is None and wanted.group is None:
                return True, ""
            return self._same_owner(wanted, actual)
        if actual.same_content is False:
            return False, "content differs"
        if actual.uid != actual.wanted_uid or actual.gid != actual.wanted_gid:
            same, reason = self._same_owner(wanted, actual)
            if not same:
                return False, reason
        if actual.mode != wanted.mode:
            return False, f"mode is {actual.mode:04o}, expected {wanted.mode:04o}"
        if actual.tree:
            return False, f"{len(actual.tree)} entries below differ from the source: {_describe_tree(actual.tree)}"
        return True, ""

    def _same_owner(self, wanted: File, actual: FileState) -> tuple[bool, str]:
        if actual.uid != actual.wanted_uid and wanted.owner is not None:
            return False, f"owner is {actual.owner}, expected {wanted.owner}"
        if actual.gid != actual.wanted_gid and wanted.group is not None:
            return False, f"group is {actual.group}, expected {wanted.group}"
        return True, ""

    def decide(self, wanted: File, actual: FileState, *, refresh: bool) -> tuple[Change, ...]:
        reached, reason = self.desired(wanted, actual)
        if reached:
            return ()
        self._refuse(wanted, actual)
        return (Change(self._verb(wanted, actual), reason),)

    def _verb(self, wanted: File, actual: FileState) -> str:
        if wanted.ensure == ABSENT:
            return REMOVE if actual.kind != DIRECTORY or actual.is_empty_directory else REMOVE_TREE
        if wanted.ensure == LINK:
            return MAKE_LINK
        if wanted.ensure == DIRECTORY:
            if actual.kind != DIRECTORY:
                return MAKE_DIRECTORY
            return COPY_TREE if actual.tree else ATTRIBUTES
        if actual.kind == PRESENT and actual.same_content is not False:
            return ATTRIBUTES
        return STORE

    def _refuse(self, wanted: File, actual: FileState) -> None:
        """Raises `Failure` for a change that would destroy more than the manifest asks for."""
        path, kind = wanted.name, actual.kind
        if kind == ABSENT:
            return
        if kind == "other":
            raise Failure(f"{path} is {file_word(actual.stat.st_mode)}, not a regular file")
        if wanted.ensure == ABSENT:
            if kind == DIRECTORY and not actual.is_empty_directory and wanted.backup:
                raise Failure(f"directory {path} is not removed: `backup` keeps files, not trees; remove `backup`")
            if kind == DIRECTORY and not actual.is_empty_directory and not wanted.force:
                raise Failure(f"directory {path} is not empty; `force: true` removes it with its content")
            return
        if kind == LINK and wanted.ensure != LINK and wanted.links == REFUSE:
            raise Failure(
                f"{path} is a link to {actual.link_target}; `links: follow` manages its target, `links: replace` the link itself"
            )
        if kind in (LINK, wanted.ensure):
            return
        word = "a directory" if kind == DIRECTORY else "a file"
        expected = {PRESENT: "a file", DIRECTORY: "a directory", LINK: "a link"}[wanted.ensure]
        raise Failure(
            f"{path} is {word}, expected {expected}; it is not removed, add a resource with `ensure: absent` before"
        )

    def describe(self, wanted: File, actual: FileState, changes: tuple[Change, ...]) -> str:
        verb = changes[0].verb
        if verb == STORE:
            return "Would have created the file" if actual.kind == ABSENT else "Would have updated the file"
        if verb == REMOVE:
            return "Would have removed the directory" if actual.kind == DIRECTORY else "Would have removed the file"
        return {
            ATTRIBUTES: "Would have updated attributes",
            MAKE_DIRECTORY: "Would have created directory",
            COPY_TREE: f"Would have updated {len(actual.tree)} entries below the directory",
            REMOVE_TREE: "Would have removed the directory",
            MAKE_LINK: "Would have created the link",
        }[verb]

    def was_altered(self, wanted: File, before: FileState, after: FileState) -> bool:
        return was_rewritten(before, after) or super().was_altered(wanted, before, after)


def was_rewritten(before: Any, after: Any) -> bool:
    """Whether a path was a file before and after a change, and has another time."""
    return before.kind == PRESENT == after.kind and bool(before.stat.st_mtime != after.stat.st_mtime)


def _describe_tree(tree: tuple[Any, ...]) -> str:
    shown = ", ".join(str(entry) for entry in tree[:5])
    return shown + (", …" if len(tree) > 5 else "")


TYPE = FileType()
