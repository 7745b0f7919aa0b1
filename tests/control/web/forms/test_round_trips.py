"""A form is rendered, posted by a browser and read back: the document is the one that was shown."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from documents import CANARY, POOL, STATES, members, properties_for
from form_browser import controls, render, successful
from mainstay.control.domain.faults import locate
from mainstay.control.domain.properties.contract import Actor, Operation
from mainstay.control.domain.properties.engine import Accepted
from mainstay.control.domain.values import canonical
from mainstay.control.web.forms.fields import build_form
from mainstay.control.web.forms.form_state import FormScope, entries_of, initial_entries
from mainstay.control.web.forms.posted import read_posted
from property_requests import StubLookups, evaluation_context, schema_of
from torture import count_of

SETTINGS = settings(
    max_examples=count_of(2_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def ask(
    schema: Any, document: Any, stored: Any, operation: Operation, state: str | None, lookups: StubLookups
) -> Any:
    context = evaluation_context(operation, Actor.USER, state=state)
    return lookups.ask(schema, document, context, stored)


def lookups() -> StubLookups:
    return StubLookups(pools={POOL: ("string", [f"10.0.0.{number}" for number in range(1, 40)])})


@SETTINGS
@given(document=members(), data=st.data())
def test_an_update_form_posted_as_shown_changes_nothing(document: dict[str, Any], data: st.DataObject) -> None:
    schema = schema_of(document)
    known = lookups()
    wanted = data.draw(properties_for(document))
    created = ask(schema, wanted, None, Operation.CREATE, None, known)
    if not isinstance(created, Accepted):
        return
    stored = known.keep(created)
    state = data.draw(st.sampled_from(STATES))
    scope = FormScope(schema, stored, state)
    page = render(build_form(scope, initial_entries(scope)))
    posted = read_posted(scope, successful(page))
    note(f"stored {stored!r}\nposted {posted.document!r}")
    assert posted.faults == ()
    outcome = ask(schema, posted.document, stored, Operation.UPDATE, state, known)
    assert isinstance(outcome, Accepted), outcome
    assert not outcome.changed
    assert CANARY not in page


def pruned(schema: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values without what a form cannot express for a new order: an empty text or an empty array that is optional."""
    found = {name: pruned_value(schema[name], value) for name, value in values.items() if value is not None}
    return {name: value for name, value in found.items() if value is not None}


def pruned_value(definition: dict[str, Any], value: Any) -> Any:
    if any(rule["type"] == "enum" for rule in definition["validators"]):
        return value
    if definition["type"] == "object" and "properties" in definition:
        return pruned(definition["properties"], value)
    if definition["type"] == "array" and "items" in definition:
        kept = pruned_items(definition["items"], value)
        return kept if kept or definition.get("required") else None
    return None if value == "" else value


def pruned_items(items: dict[str, Any], values: list[Any]) -> list[Any]:
    choice = any(rule["type"] == "enum" for rule in items["validators"])
    found = [value for value in values if value is not None and (value != "" or choice)]
    if not choice and items["type"] == "object" and "properties" in items:
        return [pruned(items["properties"], value) for value in found]
    if not choice and items["type"] == "array" and "items" in items:
        return [pruned_items(items["items"], value) for value in found]
    return found


def values_by_path(value: Any, path: str = "") -> dict[str, Any]:
    found = {path: value}
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found |= values_by_path(each, locate(path, key))
    return found


def type_secrets(posted: list[tuple[str, str]], form: Any, values: dict[str, Any]) -> list[tuple[str, str]]:
    by_path = values_by_path(values)
    typed = {each.name: by_path.get(each.path) for each in form.secrets}
    return [(name, text if typed.get(name) is None else typed_text(typed[name], text)) for name, text in posted]


def typed_text(value: Any, _shown: str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def texts_of_json_secrets(schema: dict[str, Any]) -> bool:
    """A text in a JSON secret must be typed with quotes; the generator below draws it without."""
    return any(
        ("secret" in each and each["type"] == "json")
        or texts_of_json_secrets(each.get("properties", {}))
        or ("items" in each and texts_of_json_secrets({"": each["items"]}))
        for each in schema.values()
    )


@SETTINGS
@given(document=members().filter(lambda drawn: not texts_of_json_secrets(drawn)), data=st.data())
def test_a_filled_in_order_is_read_back_as_it_was_filled_in(document: dict[str, Any], data: st.DataObject) -> None:
    schema = schema_of(document)
    wanted = data.draw(properties_for(document))
    if not isinstance(ask(schema, wanted, None, Operation.CREATE, None, lookups()), Accepted):
        return
    wanted = pruned(document, wanted)
    scope = FormScope(schema)
    form = build_form(scope, entries_of(scope, wanted))
    page = render(form)
    posted = read_posted(scope, type_secrets(successful(page), form, wanted))
    note(f"wanted {wanted!r}\nposted {posted.document!r}")
    assert canonical(without_extras(posted.document, wanted, document)) == canonical(wanted)
    assert CANARY not in page
    assert CANARY not in json.dumps(dict(posted.entries))
    again = render(build_form(scope, posted.entries, retype=posted.retype))
    assert CANARY not in again
    assert successful(again) == successful(page)
    numbered = read_posted(scope, list(posted.numbered_entries.items()))
    assert canonical(drop_secrets(numbered.document, document)) == canonical(drop_secrets(posted.document, document))


def drop_secrets(values: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(values)
    return {} if CANARY in text or any("secret" in each for each in schema.values()) else values


def without_extras(posted: dict[str, Any], wanted: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The form also sends what a checkbox and a required object show when they are left alone: false and {}."""
    kept = {}
    for name, value in posted.items():
        definition = schema[name]
        if name in wanted:
            kept[name] = extras_of_item(value, wanted[name], definition)
        elif not definition.get("required") or extras_of_item(value, {}, definition) not in (False, [], {}):
            kept[name] = value
    return kept


def extras_of_item(value: Any, wanted: Any, items: dict[str, Any]) -> Any:
    if isinstance(value, dict) and isinstance(wanted, dict) and "properties" in items:
        return without_extras(value, wanted, items["properties"])
    if isinstance(value, list) and value and "items" in items:
        return [extras_of_item(each, old, items["items"]) for each, old in zip(value, wanted, strict=True)]
    return value


@SETTINGS
@given(document=members(), data=st.data())
def test_labels_links_and_descriptions_lead_to_elements_of_the_page(
    document: dict[str, Any], data: st.DataObject
) -> None:
    schema = schema_of(document)
    wanted = data.draw(properties_for(document))
    scope = FormScope(schema)
    outcome = ask(schema, wanted, None, Operation.CREATE, None, lookups())
    faults = () if isinstance(outcome, Accepted) else outcome.faults
    shown = {name: value for name, value in wanted.items() if name in document}
    parsed = controls(render(build_form(scope, entries_of(scope, shown), faults=faults)))
    assert len(parsed.ids) == len(set(parsed.ids))
    assert set(parsed.references) <= set(parsed.ids)
