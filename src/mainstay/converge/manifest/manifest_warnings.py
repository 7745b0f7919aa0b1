"""Warnings of `mainstay validate`: what a manifest most likely does not intend, found without a run. Pure.

Whether files exist is asked through `Surroundings`, which the caller provides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from mainstay.converge.contract import Resource
from mainstay.converge.manifest import Manifest
from mainstay.converge.manifest.expressions import Expression, Template, split
from mainstay.converge.manifest.faults import foreign_problem
from mainstay.converge.manifest.scope import BadExpression
from mainstay.converge.value_kinds import COMMAND
from mainstay.foundation import Any, Struct
from mainstay.foundation.faults import DocumentPath, Fault
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.document import locate, nearest_place, parse
from mainstay.foundation.yaml.scalars import Node, leaves, node_at

Finding = tuple[DocumentPath, str]


# Syntax that only a shell understands, outside quotes: pattern and how a warning names it.
SHELL_SYNTAX = (
    (r"&&|\|\||\|", "a pipe or condition"),
    (r"(?:^|\s)\d?(?:>>?|<)", "a redirection"),
    (r"\$\(|`", "a command substitution"),
    (r"\$\{?[A-Za-z_]", "a variable"),
    (r";(?:\s|$)", "a sequence of commands"),
    (r"\s&\s*$", "a command in the background"),
    (r"(?:^|\s)(?!-)(?=\S*[/.])[^\s=]*\*", "a file name pattern"),
)
ASSIGNMENT = re.compile(r"\s*[A-Za-z_]\w*=\S*\s+\S")
SHELL_BUILTINS = frozenset(("cd", "export", "source", ".", "if", "for", "while", "case", "set", "ulimit", "umask"))
# Text in quotes, escaped characters and expressions: no shell would read them as syntax either.
PROTECTED = re.compile(r"\{\{.*?\}\}|\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
# A file with a fixed name in an expression.
FILE_CALL = re.compile(r"\b(?:template|file)\(\s*(?:'[^']*'|\"[^\"]*\")\s*\)")
LONGEST_SHOWN = 200
# Endings of file names by which templates are known.
TEMPLATE_ENDINGS = (".j2", ".jinja", ".jinja2")


class Surroundings(Struct):
    """The files around a manifest. `read` returns the text of a file, None if it does not exist. `work_in` sets the
    directory of relative paths."""

    exists: Callable[[str], bool]
    read: Callable[[str], str | None]
    work_in: Callable[[str], None]


def find_warnings(manifest: Manifest, files: Surroundings) -> list[Fault]:
    """All warnings of a manifest that loads, in the order of the file; those without a place first.

    Those of the manifests that it applies follow, each once."""
    found: list[Finding] = [((), text) for text in (*manifest.warnings, *manifest.hierarchy.warnings())]
    found += [((), text) for text in shell_warnings(manifest)]
    homes = list(_homes(manifest))
    by_home = {id(home): (home, list(_foreign_expressions(_nodes_of(home)))) for home in homes}
    by_home[id(manifest)][1].extend(found)
    may_create_files = False
    managed: set[str] = set()
    for resource in manifest.resources:
        home, findings = by_home[id(resource.declared_in or manifest)]
        files.work_in(home.directory)
        for key, message in _of_resource(resource, manifest, files, managed, may_create_files=may_create_files):
            findings.append(((*resource.place, key), f"{shorten(resource.id, LONGEST_SHOWN)}: {key}: {message}"))
        managed.add(resource.name)
        may_create_files = may_create_files or manifest.types[resource.type].has_unknown_effects
    files.work_in(manifest.directory)
    placed = {str(warning): warning for home, findings in by_home.values() for warning in _placed(findings, home)}
    return list(placed.values())


def find_missing_files(manifest: Manifest, files: Surroundings) -> list[Fault]:
    """Files beside the manifest that it names and that do not exist. A path that depends on data may exist elsewhere."""
    by_home: dict[int, tuple[Manifest, list[Finding]]] = {}
    for resource in manifest.resources:
        home = resource.declared_in or manifest
        files.work_in(home.directory)
        for key, path in _missing_in(
            resource, manifest, lambda path: not path.startswith("/") and not files.exists(path)
        ):
            _, findings = by_home.setdefault(id(home), (home, []))
            message = f"{shorten(resource.id, LONGEST_SHOWN)}: {key}: {shorten(path)!r} does not exist"
            findings.append(((*resource.place, key), message))
    files.work_in(manifest.directory)
    found: list[Fault] = []
    for home, findings in by_home.values():
        nodes = _nodes_of(home)
        found += _placed([finding for finding in findings if _is_fixed(node_at(nodes, finding[0]))], home)
    return found


def _is_fixed(node: Node | None) -> bool:
    """Whether a text names the same files for all data."""
    return isinstance(node, str) and ("{{" not in node or bool(FILE_CALL.search(node)))


def _homes(manifest: Manifest) -> Iterator[Manifest]:
    """The manifest, and all manifests that it applies."""
    yield manifest
    for resource in manifest.resources:
        if resource.child is not None:
            yield resource.child


def _nodes_of(manifest: Manifest) -> Node:
    return parse(manifest.text, manifest.file) if manifest.text.strip() else []


def _placed(found: list[Finding], manifest: Manifest) -> list[Fault]:
    unique = list(dict.fromkeys(found))
    places = locate(manifest.text, [path for path, _ in unique if path])
    warnings = []
    for path, message in unique:
        line, column = nearest_place(places, path) if path else (None, None)
        warnings.append(Fault(manifest.file, line, column, message))
    return sorted(warnings, key=lambda each: (each.line or 0, each.column or 0))


# ---- texts of the document ----
def _foreign_expressions(node: Node) -> Iterator[Finding]:
    for path, leaf in leaves(node):
        if isinstance(leaf, str) and foreign_problem(leaf):
            yield path, "${ … } is text here; for an expression write {{ … }}"


# ---- resources ----
def _of_resource(
    resource: Resource, manifest: Manifest, files: Surroundings, managed: set[str], *, may_create_files: bool
) -> Iterator[tuple[str, str]]:
    def is_missing(path: str) -> bool:
        # An earlier resource may create files outside the directory of the manifest.
        is_created = path in managed or (may_create_files and path.startswith("/"))
        return not is_created and not files.exists(path)

    resource_type = manifest.types[resource.type]
    values = _written_values(resource)
    yield from resource_type.warn(resource)
    missing = list(_missing_in(resource, manifest, is_missing))
    yield from ((key, f"{shorten(path)!r} does not exist") for key, path in missing)
    source = values.get("source")
    if isinstance(source, str) and source.endswith(TEMPLATE_ENDINGS) and ("source", source) not in missing:
        yield (
            "source",
            f"it is copied as it is; to render it write content: \"{{{{ template('{shorten(source)}') }}}}\"",
        )
    content = values.get("content")
    text = content.text if isinstance(content, Template) else content
    if isinstance(text, str) and "{%" in text and "%}" in text:
        yield "content", "{% is text here; for statements use template('…') with a file"
    for key, value in values.items():
        if isinstance(value, Template):
            yield from ((key, message) for message in _template_problems(value, files))
    if resource_type.splits_commands(resource):
        for key in resource_type.properties:
            if resource_type.properties[key].kind is COMMAND:
                value = values.get(key)
                written = value.text if isinstance(value, Template) else value
                problem = shell_syntax(written) if isinstance(written, str) else None
                if problem is not None and not resource.sensitive:
                    yield key, f"{problem} needs a shell; use `provider: shell`"


def _written_values(resource: Resource) -> dict[str, Any]:
    return {**resource.__dict__, **(resource.deferred or {})}


def _missing_in(
    resource: Resource, manifest: Manifest, is_missing: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Properties of a resource with the paths that they name and that do not exist."""
    resource_type = manifest.types[resource.type]
    values = _written_values(resource)
    source = values.get("source")
    if isinstance(source, str) and "source" in resource_type.properties and is_missing(source):
        yield "source", source
    read = resource_type.local_source(resource)
    if read is not None and is_missing(read[1]):
        yield read
    for key, value in values.items():
        if isinstance(value, Template):
            yield from ((key, path) for path in _files_of(value) if is_missing(path))


def _files_of(template: Template) -> Iterator[str]:
    """Files that `template('…')` and `file('…')` name."""
    for part in template.computed():
        references = part.references()
        yield from (*references.templates, *references.files)


def _template_problems(template: Template, files: Surroundings) -> Iterator[str]:
    for part in template.computed():
        problems = (_template_problem(path, files) for path in part.references().templates)
        yield from (problem for problem in problems if problem is not None)


def _template_problem(path: str, files: Surroundings) -> str | None:
    from jinja2 import TemplateSyntaxError

    from mainstay.converge.manifest.evaluation import reword
    from mainstay.converge.manifest.sandbox import environment

    text = files.read(path)
    if text is None:
        return None
    try:
        environment().compile(text, name=path)
    except TemplateSyntaxError as error:
        return f"template {shorten(path)}, line {error.lineno}: {reword(error.message or '')}"
    except RecursionError:
        return f"template {shorten(path)}: it is nested too deeply"
    return None


def shell_syntax(command: str) -> str | None:
    """Names the first syntax of a shell in a command that runs without one."""
    bare = PROTECTED.sub("x", command)
    if ASSIGNMENT.match(bare):
        return "a variable before the command"
    words = bare.split()
    if words and words[0] in SHELL_BUILTINS:
        return f"`{words[0]}`"
    for pattern, name in SHELL_SYNTAX:
        if name == "a sequence of commands" and "-exec" in bare:
            # `find -exec … ;` ends in a semicolon.
            continue
        if re.search(pattern, bare):
            return name
    return None


# ---- --set ----
def unused_settings(manifest: Manifest, keys: Iterable[str], files: Surroundings) -> dict[str, str]:
    """Keys of `--set` that no expression looks up, each with the warning. Empty if that cannot be known."""
    used: set[str] = set()
    # `--set` reaches every manifest of the run.
    for home in {each.file: each for each in _homes(manifest)}.values():
        files.work_in(home.directory)
        paths = _paths_used_by(home, files)
        files.work_in(manifest.directory)
        if paths is None:
            return {}
        used |= paths
    unused = {}
    for key in keys:
        if not any(f"{key}.".startswith(f"{path}.") or f"{path}.".startswith(f"{key}.") for path in used):
            unused[key] = f"--set {shorten(key)}: nothing looks up data.{shorten(key)}{did_you_mean(key, used)}"
    return unused


def _paths_used_by(manifest: Manifest, files: Surroundings) -> set[str] | None:
    """The paths below `data` that a manifest reads; None if it may read any."""
    used: set[str] = set()
    for written in texts_in(_nodes_of(manifest)):
        paths = _data_paths(written.text, is_bare=written.is_bare, files=files)
        if paths is None:
            return None
        used |= paths
    return used


class Text(Struct):
    """A text with expressions in a manifest, and its path. `is_bare`: without braces, as in `control`."""

    path: DocumentPath
    text: str
    at_key: bool = False
    is_bare: bool = False


def texts_in(node: Node, path: DocumentPath = ()) -> Iterator[Text]:
    if isinstance(node, dict):
        for key, child in node.items():
            if "{{" in key:
                yield Text((*path, key), key, at_key=True)
            yield from texts_in(child, (*path, key))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from texts_in(child, (*path, index))
    elif isinstance(node, str):
        in_control = len(path) > 1 and path[-2] == "control" and path[-1] in ("if", "unless")
        if "{{" in node or in_control:
            yield Text(path, node, is_bare=in_control and "{{" not in node)


def _data_paths(text: str, *, is_bare: bool, files: Surroundings) -> set[str] | None:
    """The paths below `data` that a text reads; None if it may read any."""
    try:
        parts: list[str | Expression] = [Expression(text)] if is_bare else split(text)
    except BadExpression:
        return None
    found: set[str] = set()
    for part in parts:
        if isinstance(part, str):
            continue
        if part.constant is not None:
            root, _, rest = part.constant.partition(".")
            if root == "data":
                found.add(rest)
            continue
        references = part.references()
        for reference in references.found:
            if reference.name == "lookup" and reference.is_called:
                return None
            if reference.name.lower() == "data" and reference.function != "result":
                if not reference.steps:
                    return None
                found.add(".".join(map(str, reference.steps)))
        for path in references.templates:
            content = files.read(path)
            if content is None or "{%" in content:
                return None
            inner = _data_paths(content, is_bare=False, files=files)
            if inner is None:
                return None
            found |= inner
    return found


def shell_warnings(manifest: Manifest) -> list[str]:
    """Returns warnings about values that a shell would read as code."""
    found = []
    for resource in manifest.resources:
        if not manifest.types[resource.type].splits_commands(resource):
            found += list(_unquoted(resource, manifest))
    return found


def _unquoted(resource: Resource, manifest: Manifest) -> Iterator[str]:
    templates = {key: tree for key, tree in (resource.deferred or {}).items() if isinstance(tree, Template)}
    if resource.name_template:
        templates["name"] = Template(resource.name_template)
    properties = manifest.types[resource.type].properties
    for key, template in templates.items():
        if key != "name" and properties[key].kind is not COMMAND:
            continue
        for part in template.parts:
            if isinstance(part, str) or part.ends_in_quote():
                continue
            shown = "an expression" if resource.sensitive else f"{{{{ {shorten(part.source.strip())} }}}}"
            yield f"{shorten(resource.id)}: {key}: the shell reads the value of {shown} as code; end it with `| quote`"
