"""Loads the installed rules: built-in rules from their folders, rules of other packages by entry points."""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from types import ModuleType
from typing import TypeVar

from mainstay.control.domain.properties import generators
from mainstay.control.domain.properties.contract import Authorizer, Generator, Rulebook, SchemaValidator, Validator
from mainstay.control.domain.properties.rules import authorizers, schema_validators, validators
from mainstay.control.domain.refusals import NotARule, RuleNotLoaded, RuleTaken
from mainstay.foundation.module_names import module_names, registered

Rule = TypeVar("Rule", Authorizer, Validator, SchemaValidator, Generator)


@cache
def installed_rulebook() -> Rulebook:
    return Rulebook(
        authorizers=_collect(authorizers, "mainstay.authorizers", Authorizer),
        validators=_collect(validators, "mainstay.validators", Validator),
        schema_validators=_collect(schema_validators, "mainstay.schema_validators", SchemaValidator),
        generators=_collect(generators, "mainstay.generators", Generator),
    )


def _collect(folder: ModuleType, group: str, kind: type[Rule]) -> dict[str, Rule]:
    found = [registered(module, "RULE") for module in _modules(folder)]
    found += [_load(entry_point) for entry_point in metadata.entry_points(group=group)]
    rules: dict[str, Rule] = {}
    for rule in found:
        if not isinstance(rule, kind):
            raise NotARule(group, kind.__name__, type(rule).__name__)
        if rule.name in rules:
            raise RuleTaken(kind.__name__, rule.name)
        rules[rule.name] = rule
    return rules


def _load(entry_point: metadata.EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:
        # Code of another package may raise anything; the operator needs the name of the entry point.
        reason = f"{type(error).__name__}: {error}"
        raise RuleNotLoaded(entry_point.group, entry_point.name, reason) from error


def rule_descriptions(rulebook: Rulebook) -> list[tuple[str, str, str]]:
    """Kind, name and first docstring line of each built-in rule, for the reference."""
    kinds = (
        ("authorizer", authorizers, rulebook.authorizers),
        ("validator", validators, rulebook.validators),
        ("schema validator", schema_validators, rulebook.schema_validators),
        ("generator", generators, rulebook.generators),
    )
    return [
        (kind, module.RULE.name, (module.__doc__ or "").splitlines()[0])
        for kind, folder, known in kinds
        for module in _modules(folder)
        if module.RULE.name in known
    ]


def _modules(folder: ModuleType) -> list[ModuleType]:
    return [import_module(f"{folder.__name__}.{name}") for name in module_names(folder.__path__)]
