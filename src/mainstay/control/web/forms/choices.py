"""Choices of a form: values of an enumeration, options of providers, and services that a reference may name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.values import equal, is_uuid

# Above this number a reference is a search field instead of a list.
MAX_LISTED_REFERENCES = 50
TEXT_TYPES = frozenset({PropertyType.STRING, PropertyType.REFERENCE, PropertyType.UUID})


@dataclass(frozen=True, slots=True)
class ValueChoice:
    """A choice in a form: the form posts `text` and means `value`."""

    value: object
    text: str
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OfferedValue:
    """An enabled option of a provider."""

    value: object
    name: str


@dataclass(frozen=True, slots=True)
class ReferenceChoice:
    service_id: str
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReferenceChoices:
    """`complete` False: more services exist than are listed, so the user searches by name."""

    listed: tuple[ReferenceChoice, ...] = ()
    complete: bool = True

    @property
    def is_search(self) -> bool:
        return not self.complete or len(self.listed) > MAX_LISTED_REFERENCES


@dataclass(frozen=True, slots=True)
class FormChoices:
    """Options by option type, references by the schema path of the property."""

    options: Mapping[str, tuple[OfferedValue, ...]] = field(default_factory=dict)
    references: Mapping[str, ReferenceChoices] = field(default_factory=dict)


NO_CHOICES = FormChoices()
NO_REFERENCES = ReferenceChoices()


def enumerated(declared: PropertyDeclaration) -> list[object] | None:
    values = declared.keywords.get("enum")
    return values if isinstance(values, list) else None


def option_type(declared: PropertyDeclaration) -> str | None:
    named = (rule.config.get("value") for rule in declared.validators if rule.name == "serviceOption")
    return next((name for name in named if isinstance(name, str)), None)


def reference_types(declared: PropertyDeclaration) -> frozenset[str] | None:
    """Names of the service types that a reference may name. None: all."""
    allowed: frozenset[str] | None = None
    for rule in declared.validators:
        key = {"serviceType": "value", "serviceReference": "types"}.get(rule.name)
        written = None if key is None else rule.config.get(key)
        if written is None:
            continue
        names = frozenset(written if isinstance(written, list) else [str(written)])
        allowed = names if allowed is None else allowed & names
    return allowed


def text_of(declared: PropertyDeclaration, value: object) -> str:
    """A value as the text of a field. Text is shown as it is, unless it would read as another value."""
    if declared.type in TEXT_TYPES and isinstance(value, str):
        return json.dumps(value) if _is_choice(declared) and (not value or value.startswith('"')) else value
    indent = 2 if isinstance(value, dict | list) and not _is_choice(declared) else None
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _is_choice(declared: PropertyDeclaration) -> bool:
    return enumerated(declared) is not None or option_type(declared) is not None


def value_choices(
    declared: PropertyDeclaration, choices: FormChoices, current: object | None
) -> tuple[ValueChoice, ...]:
    """The values of an enumeration or the offered options, and the current value if it is no longer among them."""
    values = enumerated(declared)
    if values is not None:
        found = [ValueChoice(value, text_of(declared, value), _label(value)) for value in values]
    else:
        offered = choices.options.get(option_type(declared) or "", ())
        found = [ValueChoice(each.value, text_of(declared, each.value), each.name, _detail(each)) for each in offered]
    if current is not None and not any(equal(each.value, current) for each in found):
        found.append(ValueChoice(current, text_of(declared, current), _label(current), "current, no longer offered"))
    return tuple({each.text: each for each in reversed(found)}.values())[::-1]


def _label(value: object) -> str:
    if isinstance(value, str):
        return value or "empty text"
    return json.dumps(value, ensure_ascii=False)


def _detail(offered: OfferedValue) -> str:
    shown = _label(offered.value)
    return "" if shown.casefold() == offered.name.casefold() else shown


def service_choices(references: ReferenceChoices, current: object | None) -> tuple[ValueChoice, ...]:
    """The text of a list is the id; that of a search is the name if it is the only service of this name."""
    names: dict[str, int] = {}
    for each in references.listed:
        names[each.name] = names.get(each.name, 0) + 1
    found = []
    for each in references.listed:
        by_name = references.is_search and names[each.name] == 1 and each.name.strip() and not is_uuid(each.name)
        found.append(ValueChoice(each.service_id, each.name if by_name else each.service_id, each.name, each.detail))
    if isinstance(current, str) and all(each.value != current for each in found):
        found.append(ValueChoice(current, current, current, "current"))
    return tuple(found)
