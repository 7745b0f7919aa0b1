"""The `line` type: one line or one marked block inside a file that is managed elsewhere. Only decides."""

from __future__ import annotations

from mainstay.converge.contract import Change, Property, Resource, ResourceType, State
from mainstay.converge.failures import Failure, Missing, file_word
from mainstay.converge.line_edits import LinePlan, LineRule
from mainstay.converge.patterns import PATTERN
from mainstay.converge.resources.file import ABSENT, DIRECTORY, LINK, LINKS, PRESENT, REFUSE, VALIDATE
from mainstay.converge.value_kinds import BOOLEAN, TEXT, managed_path_problems, text_problem
from mainstay.foundation.text import line_problem, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.converge.linear_search import LinearSearch

EDIT = "edit"
DEFAULT_COMMENT = "#"
NOT_COMPARED = "assumed to differ, because the line or the file holds a secret"


class Line(Resource):
    path: str | None = None
    line: str | None = None
    block: str | None = None
    match: str | None = None
    after: str | None = None
    before: str | None = None
    comment: str = DEFAULT_COMMENT
    links: str = REFUSE
    validate: tuple[str, ...] | None = None
    backup: bool = False


class LineState(State):
    """The file, and what the resource means for it."""

    # PRESENT, ABSENT, DIRECTORY, LINK, or "other", for example for a fifo.
    kind: str = ABSENT
    stat: Any = None
    link_target: str | None = None
    plan: LinePlan = LinePlan()
    # Whether the line counts as different without a comparison.
    assumed_different: bool = False

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        # The target of a followed link; otherwise the path.
        self.real_path = path

    def as_json(self) -> dict[str, Any]:
        return {"ensure": self.ensure, "name": self.name, "path": self.path, "provider": "posix"}


class LineType(ResourceType):
    """One line, or one block between markers, in a file whose other content is managed elsewhere."""

    name = "line"
    resource = Line
    ensures = (PRESENT, ABSENT)
    from_command_line = False
    edits_files = True
    example = """- line:
    - ssh port:
        path: /etc/ssh/sshd_config
        match: ^#?Port\\b
        line: Port 2222
        after: ^# Network
        before: ^Match
        validate: sshd -t -f %
    - hosts of the shop:
        path: /etc/hosts
        block: |
          10.0.0.5 db
          10.0.0.6 cache
        comment: "#"
        links: follow
        backup: true
    - no password logins:
        path: /etc/ssh/sshd_config
        ensure: absent
        match: ^PasswordAuthentication yes$
"""
    properties = {
        "path": Property(TEXT, "the file, which must exist; required"),
        "line": Property(TEXT, "the line, without its ending", private=True),
        "block": Property(
            TEXT, "lines that are kept between `# BEGIN mainstay NAME` and `# END mainstay NAME`", private=True
        ),
        "match": Property(
            PATTERN,
            "a regular expression without back-references and look-around: the one line it matches becomes `line`; values are escaped",
            private=True,
        ),
        "after": Property(PATTERN, "insert after the last line that matches", private=True),
        "before": Property(PATTERN, "insert before the last line that matches", private=True),
        "comment": Property(TEXT, "with block: the sign before the markers; default `#`"),
        "links": LINKS,
        "validate": VALIDATE,
        "backup": Property(BOOLEAN, "keep the file as it was before the change for `mainstay restore`"),
    }

    # ---- at load ----
    def check_name(self, name: str) -> Iterator[str]:
        problem = line_problem(name)
        if problem:
            yield f"the name {problem}"

    def check(self, wanted: Line) -> Iterator[tuple[str | None, str]]:
        if wanted.path is None:
            named = f"; write `path: {shorten(wanted.name)}`" if wanted.name.startswith("/") else ""
            yield None, f"path is required{named}"
        else:
            yield from (("path", f"path: the path {problem}") for problem in managed_path_problems(wanted.path))
        yield from self._check_content(wanted)
        for key, fits, where in (
            ("match", wanted.block is None, "line; the markers find a block"),
            ("after", wanted.ensure == PRESENT, "ensure: present"),
            ("before", wanted.ensure == PRESENT, "ensure: present"),
            ("comment", wanted.block is not None or wanted.comment == DEFAULT_COMMENT, "block"),
        ):
            if not fits and getattr(wanted, key) is not None:
                yield key, f"{key} is only valid with {where}"
        if wanted.backup and wanted.sensitive:
            yield "backup", "a sensitive file is not backed up: nothing secret is kept in the state directory"

    def _check_content(self, wanted: Line) -> Iterator[tuple[str | None, str]]:
        if wanted.line is not None and wanted.block is not None:
            yield "block", "line and block exclude each other; give one of them"
        elif wanted.line is None and wanted.block is None and (wanted.ensure == PRESENT or wanted.match is None):
            more = "" if wanted.ensure == PRESENT else ", or match"
            yield None, f"one of line and block{more} is required"
        for key in ("line", "block"):
            problem = text_problem(getattr(wanted, key) or "")
            if problem:
                yield key, f"{key} {problem}"
        if wanted.line is not None and ("\n" in wanted.line or "\r" in wanted.line):
            yield "line", "line contains a line break; use `block` for several lines"
        problem = line_problem(wanted.comment) or ("" if wanted.comment.strip() else "is empty")
        if problem:
            yield "comment", f"comment {problem}"
        if wanted.ensure == PRESENT and any(_is_marker(each, wanted.comment) for each in _lines_of(wanted)):
            key = "line" if wanted.block is None else "block"
            yield key, f"{key} contains a marker, such as `{wanted.comment} BEGIN mainstay …`; remove it"

    # ---- in a run ----
    def written_path(self, wanted: Line) -> str | None:
        return wanted.path

    def compares(self, wanted: Line, names: frozenset[str]) -> bool:
        # The provider assumes that lines differ.
        return not names <= {"line", "block", "match", "after", "before"}

    def desired(self, wanted: Line, actual: LineState) -> tuple[bool, str]:
        if actual.kind != PRESENT:
            return False, f"path is {actual.kind}, expected a file"
        if actual.assumed_different:
            return False, NOT_COMPARED
        problem = actual.plan.problem or actual.plan.reason
        return not problem, problem

    def decide(self, wanted: Line, actual: LineState, *, refresh: bool) -> tuple[Change, ...]:
        self._refuse(wanted, actual)
        reached, reason = self.desired(wanted, actual)
        return () if reached else (Change(EDIT, reason),)

    def _refuse(self, wanted: Line, actual: LineState) -> None:
        path = wanted.path
        if actual.kind == ABSENT:
            link = "" if actual.link_target is None else f" (a link to {actual.link_target})"
            raise Missing(
                f"{path} does not exist{link}; `line` changes an existing file, a `file` resource creates it",
                path=path,
            )
        if actual.kind == "other":
            raise Failure(f"{path} is {file_word(actual.stat.st_mode)}, not a regular file")
        if actual.kind == DIRECTORY:
            raise Failure(f"{path} is a directory, expected a file")
        if actual.kind == LINK and wanted.links == REFUSE:
            raise Failure(
                f"{path} is a link to {actual.link_target}; `links: follow` manages its target, `links: replace` the link itself"
            )
        if actual.plan.problem and not actual.assumed_different:
            raise Failure(f"{path}: {actual.plan.problem}")

    def describe(self, wanted: Line, actual: LineState, changes: tuple[Change, ...]) -> str:
        return "Would have updated the file"

    def was_altered(self, wanted: Line, before: LineState, after: LineState) -> bool:
        return before.kind != after.kind or before.plan.reason != after.plan.reason


def rule_of(wanted: Line) -> LineRule:
    """The rule for the lines of the file."""
    patterns = {
        key: None if text is None else _compiled(text)
        for key, text in (("match", wanted.match), ("after", wanted.after), ("before", wanted.before))
    }
    begin, end = (_encoded(f"{wanted.comment} {word} mainstay {wanted.name}") for word in ("BEGIN", "END"))
    return LineRule(
        is_present=wanted.ensure == PRESENT,
        line=None if wanted.line is None else _encoded(wanted.line),
        block=None if wanted.block is None else tuple(_encoded(each) for each in _lines_of(wanted)),
        begin=begin,
        end=end,
        **patterns,
    )


def _compiled(pattern: str) -> LinearSearch:
    # Loaded only by a manifest that has a pattern.
    from mainstay.converge.linear_search import compile_pattern

    return compile_pattern(pattern)


def _lines_of(wanted: Line) -> list[str]:
    if wanted.block is None:
        return [] if wanted.line is None else [wanted.line]
    lines = [line.removesuffix("\r") for line in wanted.block.split("\n")]
    return lines[:-1] if not lines[-1] else lines


def _is_marker(line: str, comment: str) -> bool:
    return line.startswith((f"{comment} BEGIN mainstay ", f"{comment} END mainstay "))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


TYPE = LineType()
