"""The controls that a property schema becomes, for a new order and for an update."""

from __future__ import annotations

from typing import Any

import pytest

from form_browser import render
from mainstay.control.domain.faults import PathFault
from mainstay.control.web.forms.choices import FormChoices, OfferedValue, ReferenceChoice, ReferenceChoices
from mainstay.control.web.forms.fields import ControlKind, FormField, PropertyForm, build_form
from mainstay.control.web.forms.form_state import FormScope, entries_of, initial_entries
from property_requests import schema_of

UUID = "11111111-1111-4111-8111-111111111111"


def rule(name: str, **config: Any) -> dict[str, Any]:
    return {"type": name, "config": config}


def form_of(
    document: dict[str, Any],
    stored: dict[str, Any] | None = None,
    *,
    state: str | None = None,
    choices: FormChoices | None = None,
    faults: tuple[PathFault, ...] = (),
    values: dict[str, Any] | None = None,
) -> PropertyForm:
    scope = FormScope(schema_of(document), stored, state, choices or FormChoices())
    entries = initial_entries(scope) if values is None else entries_of(scope, values)
    return build_form(scope, entries, faults=faults)


def field_at(form: PropertyForm, path: str) -> FormField:
    (found,) = [each for each in form.every() if each.path == path]
    return found


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ({"type": "string"}, ControlKind.TEXT),
        ({"type": "integer"}, ControlKind.NUMBER),
        ({"type": "number"}, ControlKind.NUMBER),
        ({"type": "uuid"}, ControlKind.TEXT),
        ({"type": "json"}, ControlKind.JSON),
        ({"type": "object"}, ControlKind.JSON),
        ({"type": "array"}, ControlKind.JSON),
        ({"type": "boolean", "default": True}, ControlKind.CHECK),
        ({"type": "boolean"}, ControlKind.SEGMENTS),
        ({"type": "object", "properties": {"b": {"type": "string"}}}, ControlKind.OBJECT),
        ({"type": "array", "items": {"type": "string"}}, ControlKind.ARRAY),
        ({"type": "string", "secret": {"type": "persistent"}}, ControlKind.MASKED),
        ({"type": "json", "secret": {"type": "persistent"}}, ControlKind.MASKED_LINES),
        (
            {"type": "string", "secret": {"type": "persistent"}, "validators": [rule("maxLength", value=4096)]},
            ControlKind.MASKED_LINES,
        ),
        ({"type": "integer", "validators": [rule("enum", values=[14, 15, 16])]}, ControlKind.SEGMENTS),
        ({"type": "integer", "validators": [rule("enum", values=[1, 2, 3, 4, 5])]}, ControlKind.SELECT),
        (
            {"type": "string", "generator": rule("uuid"), "authorizers": [rule("actor", actors=["system"])]},
            ControlKind.GIVEN,
        ),
        ({"type": "string", "authorizers": [rule("actor", actors=["agent"])]}, ControlKind.GIVEN),
    ],
)
def test_each_kind_of_property_has_its_control(definition: dict[str, Any], kind: ControlKind) -> None:
    assert field_at(form_of({"a": definition}), "a").kind is kind


def offered(count: int) -> FormChoices:
    return FormChoices(options={"tier": tuple(OfferedValue(n, f"Tier {n}") for n in range(count))})


def test_up_to_six_options_are_cards_and_more_are_a_list() -> None:
    document = {"a": {"type": "integer", "required": True, "validators": [rule("serviceOption", value="tier")]}}
    assert field_at(form_of(document, choices=offered(6)), "a").kind is ControlKind.CARDS
    assert field_at(form_of(document, choices=offered(7)), "a").kind is ControlKind.SELECT
    assert [each.label for each in field_at(form_of(document, choices=offered(2)), "a").choices] == [
        "Tier 0",
        "Tier 1",
    ]


def test_a_stored_option_that_is_no_longer_offered_stays_chosen() -> None:
    document = {"a": {"type": "integer", "required": True, "validators": [rule("serviceOption", value="tier")]}}
    shown = field_at(form_of(document, {"a": 9}, state="Started", choices=offered(2)), "a")
    assert [each.text for each in shown.choices] == ["0", "1", "9"]
    assert shown.text == "9"


def test_references_are_a_list_and_above_fifty_a_search_by_name() -> None:
    document = {"a": {"type": "reference"}}
    few = ReferenceChoices((ReferenceChoice(UUID, "checkout-db", "Started"),))
    listed = field_at(form_of(document, choices=FormChoices(references={"a": few})), "a")
    assert listed.kind is ControlKind.SELECT
    assert [(each.text, each.label) for each in listed.choices] == [("", "Not set"), (UUID, "checkout-db")]
    many = ReferenceChoices(few.listed, complete=False)
    searched = field_at(form_of(document, {"a": UUID}, choices=FormChoices(references={"a": many})), "a")
    assert (searched.kind, searched.text) == (ControlKind.SEARCH, "checkout-db")


def test_defaults_are_filled_in_and_ranges_are_at_the_end_of_the_control() -> None:
    document = {
        "a": {"type": "integer", "default": 50, "validators": [rule("min", value=10), rule("max", value=1000)]}
    }
    shown = field_at(form_of(document), "a")
    assert (shown.text, shown.unit, shown.hints) == ("50", "10 to 1000", ("Default 50",))


def test_what_others_set_says_where_the_value_will_come_from() -> None:
    system, agent = [rule("actor", actors=["system"])], [rule("actor", actors=["agent"])]
    form = form_of(
        {
            "port": {"type": "integer", "generator": rule("pool", poolType="ports"), "authorizers": system},
            "host": {"type": "string", "generator": rule("hostname", prefix="pg"), "authorizers": system},
            "url": {"type": "string", "authorizers": agent},
        }
    )
    assert [each.text for each in form.fields] == [
        "Next free of ports",
        "Made: pg- and the id of the service",
        "Reported by the agent",
    ]
    assert [section.title for section in form.sections] == ["Filled in for you"]


def test_a_generated_value_that_the_user_may_set_is_an_empty_field_with_a_hint() -> None:
    shown = field_at(form_of({"port": {"type": "integer", "generator": rule("pool", poolType="ports")}}), "port")
    assert (shown.kind, shown.hints) == (ControlKind.NUMBER, ("Leave it empty. Next free of ports",))


def test_an_update_shows_immutable_values_without_a_control_until_they_are_set() -> None:
    document = {"a": {"type": "string", "immutable": True}}
    fixed = field_at(form_of(document, {"a": "x"}, state="Started"), "a")
    assert (fixed.kind, fixed.text, fixed.hints) == (ControlKind.GIVEN, "x", ("Cannot be changed",))
    assert field_at(form_of(document, {}, state="Started"), "a").kind is ControlKind.TEXT


def test_an_update_respects_the_states_of_an_authorizer() -> None:
    document = {"a": {"type": "string", "authorizers": [rule("state", allowedStates=["Stopped"])]}}
    fixed = field_at(form_of(document, {"a": "x"}, state="Started"), "a")
    assert fixed.hints == ("Can be changed only in Stopped, not in Started",)
    assert field_at(form_of(document, {"a": "x"}, state="Stopped"), "a").kind is ControlKind.TEXT


def test_a_stored_secret_is_neither_shown_nor_named() -> None:
    document = {"a": {"type": "string", "secret": {"type": "persistent"}}}
    form = form_of(document, {"a": "vault://0001"}, state="Started")
    assert field_at(form, "a").placeholder == "Set, never shown; type to replace"
    fixed = form_of({"a": {**document["a"], "immutable": True}}, {"a": "vault://0001"}, state="Started")
    assert field_at(fixed, "a").text == "Set, never shown"
    assert "vault://" not in render(form) + render(fixed)


def test_faults_are_at_their_fields_and_those_without_a_field_only_on_top() -> None:
    faults = (
        PathFault("users[1].role", "required field is missing"),
        PathFault("extra[0].deep", "too deep"),
        PathFault("nowhere", "unknown property"),
        PathFault("", "and 3 more"),
    )
    user = {"type": "object", "properties": {"role": {"type": "string"}}}
    form = form_of(
        {"users": {"type": "array", "items": user}, "extra": {"type": "array"}},
        faults=faults,
        values={"users": [{}, {}], "extra": []},
    )
    assert field_at(form, "users[1].role").faults == ("required field is missing",)
    assert field_at(form, "extra").faults == ("extra[0].deep: too deep",)
    assert [each.field_name for each in form.faults] == ["p.users.1.role", "p.extra", None, None]
    page = render(form)
    assert 'href="#p.users.1.role"' in page
    assert 'aria-describedby="p.users.1.role-f"' in page


def test_rules_between_properties_are_hints() -> None:
    document = {
        "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}, "key": {"type": "string"}},
        "validators": [
            rule("compare", left="low", operator="<", right="high"),
            rule("requiredIf", property="low", value=3, required=["key"]),
        ],
    }
    form = form_of(document)
    assert field_at(form, "low").hints == ("Must be less than high",)
    assert field_at(form, "high").hints == ("Must be greater than low",)
    assert field_at(form, "key").hints == ("Required when low is 3",)


def test_properties_that_exclude_each_other_are_chosen_by_segments() -> None:
    document = {
        "properties": {"bucket": {"type": "string"}, "other": {"type": "string"}},
        "validators": [rule("exactlyOne", properties=["bucket", "other"])],
    }
    (group,) = form_of(document, {"other": "x"}, state="Started").fields
    assert (group.kind, group.text) == (ControlKind.ONE_OF, "other")
    assert [each.text for each in group.choices] == ["bucket", "other"]
    assert [(each.path, each.hints) for each in group.members] == [("bucket", ()), ("other", ())]


def test_names_become_words_and_labels_win() -> None:
    form = form_of(
        {"maxConnections": {"type": "integer"}, "b": {"type": "string", "label": "Big B"}, "-": {"type": "string"}}
    )
    assert [each.label for each in form.fields] == ["Max connections", "Big B", "-"]


def test_hostile_names_and_values_are_escaped() -> None:
    name = '"><script>alert(1)</script> .[0]'
    document = {
        name: {"type": "string", "label": "<b>label</b>", "default": "</textarea>\n<script>"},
        "choice": {"type": "string", "validators": [rule("enum", values=['"><script>', "b"])]},
    }
    page = render(form_of(document, faults=(PathFault(name, "<script>fault"),)))
    assert "<script>" not in page
    assert "<b>label" not in page


def test_a_text_with_line_breaks_has_a_field_of_several_lines() -> None:
    assert field_at(form_of({"a": {"type": "string"}}, {"a": "x\ny"}, state="Up"), "a").kind is ControlKind.LINES


def test_a_free_form_type_and_a_schema_beyond_the_limit_are_one_text() -> None:
    scope = FormScope(schema_of(None))
    assert [each.kind for each in build_form(scope, initial_entries(scope)).fields] == [ControlKind.JSON]
    large = form_of({f"p{number}": {"type": "string"} for number in range(1_600)})
    assert [each.kind for each in large.fields] == [ControlKind.JSON]
    secret = form_of({f"p{number}": {"type": "string", "secret": {"type": "persistent"}} for number in range(1_600)})
    assert [each.kind for each in secret.fields] == [ControlKind.MASKED_LINES]


def test_an_array_of_more_than_a_hundred_items_is_one_text() -> None:
    document = {"a": {"type": "array", "items": {"type": "integer"}}}
    assert field_at(form_of(document, {"a": list(range(101))}, state="Up"), "a").kind is ControlKind.JSON
    assert field_at(form_of(document, {"a": list(range(100))}, state="Up"), "a").kind is ControlKind.ARRAY


def test_three_hundred_properties_are_three_hundred_fields() -> None:
    form = form_of({f"p{number}": {"type": "string"} for number in range(300)})
    assert len(form.fields) == 300
    assert len(form.sections[0].blocks) == 1
