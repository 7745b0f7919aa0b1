"""Reads the values of a manifest as their kind, and renders their templates now or keeps them for later."""

from __future__ import annotations

from mainstay.converge.command_words import CommandKind
from mainstay.converge.contract import NO_SECRET, Resource
from mainstay.converge.failures import Failure, TemplateFailed
from mainstay.converge.manifest.expressions import Expression, Template
from mainstay.converge.manifest.scope import NOT_RENDERED, BadExpression, FollowUp, TemplateScope, Unresolved
from mainstay.converge.value_kinds import COMMAND, TEXTS, Unfit, ValueKind, as_secret
from mainstay.foundation import Struct
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.scalars import TOO_MANY_DIGITS, Node, PlainScalar, leaves, to_value, with_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mainstay.converge.manifest import Manifest
    from mainstay.converge.manifest.faults import Faults
    from mainstay.converge.manifest.static_checks import Problem, StaticCheck
    from mainstay.foundation.faults import DocumentPath


TEMPLATE_FAILS = "the template fails"


class ValueReader(Struct):
    """Reads values and adds their faults to `faults`."""

    faults: Faults
    # Whether the values must stay hidden, in faults too.
    private: bool = False
    # Whether the resource is sensitive, so that faults must not show computed values.
    sensitive: bool = False
    # The templates that all items of a repeated resource share; None: it is not repeated.
    templates: dict[str, Template] | None = None

    def typed(self, kind: ValueKind, node: Node, path: DocumentPath, prefix: str, scope: TemplateScope) -> Any:
        """Returns a value of `kind` with its templates rendered; None if it is not given or wrong."""
        try:
            if not holds_template(node):
                return kind.read(node)
            check_shape(kind, node)
            tree = self.compiled(node)
            if self._report_problems(tree, path, prefix, scope):
                return None
            if isinstance(kind, CommandKind):
                value: Any = _render_command(tree, scope, kind)
            elif kind.escape is not None:
                value = tree.render_escaped(scope, kind.escape)
            else:
                value = render_tree(tree, scope)
            if scope.tainted:
                return _accept_secret(kind, value)
            return kind.accept(value)
        except Unfit as error:
            self.faults.add((*path, *error.where), _join(prefix, self.unfit(kind, error)))
            return None
        except FollowUp:
            self.faults.add_follow_up()
            return None
        except (BadExpression, Unresolved, Failure) as error:
            self.faults.add(path, f"{prefix}{self.shown(error)}")
            return None

    def unfit(self, kind: ValueKind, error: Unfit) -> str:
        return f"expected {kind.name}, got a hidden value" if self.private else str(error)

    def shown(self, error: Exception) -> str:
        return TEMPLATE_FAILS if self.private else _message_of(error, sensitive=self.sensitive)

    def tree(self, node: Node, path: DocumentPath, prefix: str, check: StaticCheck) -> Any:
        """Returns a value whose templates are rendered later; checks them as far as that is possible now."""
        if isinstance(node, dict):
            return {key: self.tree(child, (*path, key), prefix, check) for key, child in node.items()}
        if isinstance(node, list):
            return [self.tree(child, (*path, index), prefix, check) for index, child in enumerate(node)]
        if isinstance(node, str) and "{{" in node:
            is_known = self.templates is not None and node in self.templates
            try:
                template = self._template(node)
            except BadExpression as error:
                self.faults.add(path, f"{prefix}{self.shown(error)}")
                return node
            self.add_problems(check.problems(template, items_only=is_known), path, prefix)
            return template
        return to_value(node)

    def add_problems(self, problems: Iterable[Problem], path: DocumentPath, prefix: str, **where: bool) -> None:
        for problem in problems:
            hidden = self.private and problem.shows_source
            self.faults.add(path, f"{prefix}{TEMPLATE_FAILS if hidden else problem.message}", **where)

    def _report_problems(
        self, tree: Any, path: DocumentPath, prefix: str, scope: TemplateScope, **where: bool
    ) -> bool:
        """Reports what can never work in templates that are rendered now; a plain look-up fails when it is rendered."""
        templates = [leaf for _, leaf in leaves(tree) if isinstance(leaf, Template) and leaf.computed()]
        if not templates:
            return False
        from mainstay.converge.manifest.static_checks import StaticCheck

        check = StaticCheck(scope)
        problems = [problem for template in templates for problem in check.problems(template)]
        self.add_problems(problems, path, prefix, **where)
        return bool(problems)

    def render_values(self, node: Node, path: DocumentPath, name: str, scope: TemplateScope) -> Any:
        """Renders free-form values; their templates see everything but `data` itself."""
        if isinstance(node, dict):
            return {key: self.render_values(child, (*path, key), name, scope) for key, child in node.items()}
        if isinstance(node, list):
            return [self.render_values(child, (*path, index), name, scope) for index, child in enumerate(node)]
        if isinstance(node, str) and "{{" in node:
            before = self.faults.seen
            value = self.rendered(node, path, f"{name}: ", scope)
            return value if self.faults.seen == before else NOT_RENDERED
        if node.__class__ is PlainScalar and isinstance(node.value, str):
            self.faults.add(path, f"{name}: {TOO_MANY_DIGITS}")
            return NOT_RENDERED
        return to_value(node)

    def rendered(
        self, text: str, path: DocumentPath, prefix: str, scope: TemplateScope, *, at_key: bool = False
    ) -> Any:
        try:
            template = self._template(text)
            if self._report_problems(template, path, prefix, scope, at_key=at_key):
                return None
            return template.render(scope)
        except FollowUp:
            self.faults.add_follow_up()
            return None
        except (BadExpression, Unresolved, Failure) as error:
            self.faults.add(path, f"{prefix}{error}", at_key=at_key)
            return None

    def compiled(self, node: Node) -> Any:
        """Returns a value with its templates compiled."""

        def compiled(leaf: Any) -> Any:
            return self._template(leaf) if isinstance(leaf, str) and "{{" in leaf else to_value(leaf)

        return with_leaves(node, compiled)

    def _template(self, text: str) -> Template:
        if self.templates is None:
            return Template(text)
        template = self.templates.get(text)
        if template is None:
            template = self.templates[text] = Template(text)
        return template


def _message_of(error: Exception, *, sensitive: bool) -> str:
    """The message of a failed template; that of a sensitive resource must not contain a computed value."""
    is_computed = getattr(error, "is_computed", not isinstance(error, (BadExpression, Unfit)))
    return TEMPLATE_FAILS if sensitive and is_computed else str(error)


def check_shape(kind: ValueKind, node: Node) -> None:
    """Refuses a map or a list where text is expected, whatever its templates give."""
    if (kind.is_text or kind is TEXTS) and not isinstance(node, str):
        kind.read(node)


def _accept_secret(kind: ValueKind, value: Any) -> Any:
    """Like `accept`, but an unfit value is not shown."""
    try:
        return kind.accept(value)
    except Unfit:
        raise Unfit(f"expected {kind.name}, got a secret value") from None


def _join(prefix: str, message: str) -> str:
    """Joins `file#/x: mode: ` and `mode "9z" is not …` without repeating the name of the property."""
    before, _, key = prefix.removesuffix(": ").rpartition(": ")
    return f"{before}: {message}" if before and message.startswith(f"{key} ") else f"{prefix}{message}"


def holds_template(node: Node) -> bool:
    if isinstance(node, str):
        return "{{" in node
    if isinstance(node, dict):
        return any(holds_template(child) for child in node.values())
    if isinstance(node, list):
        return any(holds_template(child) for child in node)
    return False


def evaluate_condition(expression: Expression, name: str, scope: TemplateScope, *, sensitive: bool) -> bool:
    """An expression of `control`; raises `Failure` where it does not give a boolean."""
    scope.tainted = NO_SECRET
    try:
        value = expression.evaluate(scope)
    except Unresolved as error:
        raise TemplateFailed(f"{name}: {_message_of(error, sensitive=sensitive)}") from None
    except Failure as error:
        raise error.__class__(f"{name}: {_message_of(error, sensitive=sensitive)}") from None
    if not isinstance(value, bool):
        shown = "what it makes of a secret" if scope.tainted or sensitive else shorten(repr(value))
        raise TemplateFailed(f"{name} must give true or false, not {shown}")
    return value


def render_deferred(resource: Resource, manifest: Manifest) -> Resource:
    """The resource with its deferred templates rendered; raises `Failure` with the place of the template."""
    scope, resource_type = manifest.scope, manifest.types[resource.type]
    rendered: dict[str, Any] = {**resource.__dict__, "deferred": None}
    for key, tree in (resource.deferred or {}).items():
        scope.tainted = NO_SECRET
        try:
            entry = resource_type.properties[key]
            if entry.kind is COMMAND and isinstance(tree, Template) and resource_type.splits_commands(resource):
                value: Any = _render_command(tree, scope, entry.kind)
            else:
                value = render_tree(tree, scope)
            hidden = scope.tainted or resource.sensitive or entry.secret
            value = _accept_secret(entry.kind, value) if hidden else entry.kind.accept(value)
            if value is None and entry.refuses_null:
                raise Unfit("the template gives null; for an empty text write ''")
        except (Unresolved, Unfit) as error:
            text = _message_of(error, sensitive=resource.sensitive)
            raise TemplateFailed(f"{key}: {text} ({manifest.position((*resource.place, key))})") from None
        except Failure as error:
            if not resource.sensitive:
                raise
            raise error.__class__(f"{key}: {_message_of(error, sensitive=True)}") from None
        if scope.tainted:
            rendered["sensitive"] = True
            rendered["secrets"] = {**rendered.get("secrets", {}), key: scope.tainted}
        if value is not None:
            rendered[key] = as_secret(value) if entry.secret else value
    return resource_type.resource(rendered)


def _render_command(template: Template, scope: TemplateScope, kind: ValueKind) -> tuple[str, ...]:
    from mainstay.converge.manifest.command_templates import render_words

    return render_words(template, scope, kind.escape if isinstance(kind, CommandKind) else None)


def render_tree(tree: Any, scope: TemplateScope) -> Any:
    """Renders a tree of values and templates."""
    return with_leaves(tree, lambda leaf: leaf.render(scope) if isinstance(leaf, Template) else leaf)
