"""What a posted form means: values by type, rows, choices, secrets, and input that no browser sends."""

from __future__ import annotations

from typing import Any

import pytest

from form_browser import render, successful
from mainstay.control.domain.faults import PathFault
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.web.forms.choices import FormChoices, ReferenceChoice, ReferenceChoices
from mainstay.control.web.forms.fields import build_form
from mainstay.control.web.forms.form_state import MAX_ENTRIES, FormScope, add_row, initial_entries, remove_row
from mainstay.control.web.forms.posted import PostedForm, read_posted
from property_requests import schema_of

SECRET = {"type": "string", "secret": {"type": "persistent"}}
UUIDS = [f"{number}1111111-1111-4111-8111-111111111111" for number in range(3)]


def scope_of(document: Any, stored: dict[str, Any] | None = None, choices: FormChoices | None = None) -> FormScope:
    return FormScope(schema_of(document), stored, None if stored is None else "Started", choices or FormChoices())


def post(scope: FormScope, **typed: str | None) -> PostedForm:
    """The form as shown, with other texts in some fields; None: the field is not posted."""
    entries = dict(successful(render(build_form(scope, initial_entries(scope)))))
    entries |= {name.replace("__", "."): text for name, text in typed.items() if text is not None}
    for name in typed:
        if typed[name] is None:
            entries.pop(name.replace("__", "."))
    return read_posted(scope, list(entries.items()))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "  a ", "  a "),
        ("integer", " 42 ", 42),
        ("integer", "4.0", 4.0),
        ("integer", "42 GB", "42 GB"),
        ("integer", "0x10", "0x10"),
        ("integer", "٤٢", "٤٢"),
        ("number", "-1.5e3", -1500.0),
        ("number", "1e999", "1e999"),
        ("number", "NaN", "NaN"),
        ("number", "9" * 500, "9" * 500),
        ("json", '{"a": [1, null]}', {"a": [1, None]}),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("boolean", "maybe", "maybe"),
    ],
)
def test_a_text_becomes_a_value_of_its_type_or_goes_to_the_server_as_it_is(kind: str, text: str, value: Any) -> None:
    posted = post(scope_of({"a": {"type": kind}}), p__a=text)
    assert posted.document == {"a": value}
    assert type(posted.document["a"]) is type(value)
    assert posted.entries["p.a"] == text


@pytest.mark.parametrize("kind", ["string", "integer", "json", "boolean", "object", "array"])
def test_an_empty_optional_field_is_not_given(kind: str) -> None:
    assert post(scope_of({"a": {"type": kind}}), p__a="").document == {}


@pytest.mark.parametrize("text", ["{", '{"a": 1, "a": 2}', "NaN", "[" * 100_000, "1 2", '"\\ud800"', "9" * 5000])
def test_text_that_is_not_json_is_a_fault_at_its_field_and_is_kept(text: str) -> None:
    posted = post(scope_of({"a": {"type": "json"}}), p__a=text)
    assert [fault.path for fault in posted.faults] == ["a"]
    assert posted.faults[0].message.startswith("not JSON: ")
    assert posted.entries["p.a"] == text


def test_an_unticked_checkbox_is_false() -> None:
    scope = scope_of({"a": {"type": "boolean", "default": True}})
    assert post(scope).document == {"a": True}
    assert post(scope, p__a=None).document == {"a": False}
    assert read_posted(scope, []).document == {}


def test_an_emptied_field_clears_the_stored_value() -> None:
    scope = scope_of({"a": {"type": "string"}, "b": {"type": "integer"}}, {"a": "x", "b": 1})
    assert post(scope, p__a="").document == {"a": None, "b": 1}


def test_a_field_that_is_not_posted_changes_nothing() -> None:
    scope = scope_of(
        {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "string"}}}},
        {"a": "x", "b": {"c": "y"}},
    )
    assert read_posted(scope, []).document == {}


def test_a_secret_is_read_and_never_kept() -> None:
    posted = post(scope_of({"a": SECRET, "b": {"type": "string"}}), p__a="hunter2", p__b="x")
    assert posted.document == {"a": "hunter2", "b": "x"}
    assert posted.entries == posted.numbered_entries == {"p.b": "x"}
    assert posted.retype == {"p.a"}
    assert "hunter2" not in repr(dict(posted.entries))


def test_a_stored_secret_is_cleared_by_its_checkbox_unless_another_is_typed() -> None:
    scope = scope_of({"a": SECRET, "b": {**SECRET, "required": True}}, {"a": "vault://1", "b": "vault://2"})
    page = render(build_form(scope, initial_entries(scope)))
    assert 'name="x.a"' in page
    assert 'name="x.b"' not in page
    assert post(scope).document == {}
    cleared = post(scope, x__a="true", x__b="true")
    assert cleared.document == {"a": None}
    assert 'name="x.a" value="true" checked' in render(build_form(scope, cleared.entries))
    assert post(scope, x__a="true", p__a="typed").document == {"a": "typed"}
    new = scope_of({"a": SECRET})
    assert 'name="x.a"' not in render(build_form(new, initial_entries(new)))


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"b": {"type": "string"}}, "p.a"),
        ({"a": {**SECRET, "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]}}, "p.a"),
        ({"a": {"type": "object", "properties": {"c": {"type": "string"}}}}, "p.a.b"),
        ({"a": {"type": "array", "items": {"type": "object", "properties": {"b": SECRET}}}}, "p.a.0.b"),
    ],
)
def test_a_secret_of_a_field_that_the_type_no_longer_has_is_not_kept(document: Any, name: str) -> None:
    scope = scope_of(document)
    posted = read_posted(scope, [(name, "hunter2"), (f"m{name[1:]}", "hunter2"), ("p.b", "kept")])
    assert "hunter2" not in str(posted)


def test_an_empty_secret_keeps_the_stored_one_also_in_rows_that_moved_up() -> None:
    users = {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "password": SECRET}},
    }
    stored = {"users": [{"name": "a", "password": "vault://1"}, {"name": "b", "password": "vault://2"}]}
    scope = scope_of({"users": users}, stored)
    entries = remove_row(initial_entries(scope), "p.users.0")
    page = render(build_form(scope, entries))
    assert read_posted(scope, successful(page)).document == {"users": [{"name": "b", "password": "vault://2"}]}


def test_an_optional_object_is_given_once_it_is_ticked_or_changed() -> None:
    backup = {"type": "object", "properties": {"keep": {"type": "integer", "default": 14}, "at": {"type": "string"}}}
    scope = scope_of({"backup": backup})
    assert post(scope).document == {}
    assert post(scope, p__backup="true").document == {"backup": {"keep": 14}}
    assert post(scope, p__backup__at="3:00").document == {"backup": {"keep": 14, "at": "3:00"}}


def test_an_unticked_object_is_cleared() -> None:
    scope = scope_of(
        {"backup": {"type": "object", "properties": {"keep": {"type": "integer"}}}}, {"backup": {"keep": 3}}
    )
    assert post(scope, p__backup=None).document == {"backup": None}


GROUP = {
    "properties": {"bucket": {"type": "string"}, "other": {"type": "string"}},
    "validators": [{"type": "atMostOne", "config": {"properties": ["bucket", "other"]}}],
}


def test_the_chosen_property_excludes_the_others_but_what_was_typed_is_kept() -> None:
    posted = post(scope_of(GROUP), p__bucket="b", p__other="o", c__bucket="other")
    assert posted.document == {"other": "o"}
    assert posted.entries["p.bucket"] == "b"


def test_a_property_filled_in_without_choosing_it_counts() -> None:
    assert post(scope_of(GROUP), p__other="o").document == {"other": "o"}
    assert post(scope_of(GROUP), p__other="o", c__bucket="bucket").document == {"other": "o"}


def test_choosing_none_clears_the_stored_property() -> None:
    assert post(scope_of(GROUP, {"bucket": "b"}), c__bucket="").document == {"bucket": None}


LIST = {"a": {"type": "array", "items": {"type": "string"}, "validators": [{"type": "maxItems", "value": 2}]}}


def test_a_row_is_added_up_to_the_limit_without_losing_what_was_typed() -> None:
    scope = scope_of({**LIST, "n": {"type": "integer"}})
    entries = add_row(scope, initial_entries(scope), "p.a")
    entries |= {"p.a.0": "x", "p.n": "not a number"}
    entries = add_row(scope, entries, "p.a")
    assert add_row(scope, entries, "p.a") == entries
    posted = read_posted(scope, successful(render(build_form(scope, entries))))
    assert posted.document == {"a": ["x"], "n": "not a number"}
    assert posted.entries["p.a.1"] == ""
    assert "p.a.1" not in posted.numbered_entries


def test_a_removed_row_closes_the_gap_and_leaves_other_arrays_alone() -> None:
    nested = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    scope = scope_of({"a": nested, "aa": nested}, {"a": [[1, 2], [3], [4]], "aa": [[5]]})
    entries = remove_row(remove_row(initial_entries(scope), "p.a.1"), "p.a.0.0")
    assert read_posted(scope, list(entries.items())).document == {"a": [[2], [4]], "aa": [[5]]}


@pytest.mark.parametrize(
    "name",
    ["", "p", "p.", "p.b", "p.a.0", "p.a.-1", "p.a.x", "r.a", "p.a.0.0.0", "p.a.999999999999", "csrf", "p.a.²"],
)
def test_hostile_names_of_rows_are_ignored(name: str) -> None:
    scope = scope_of(LIST)
    entries = initial_entries(scope)
    assert add_row(scope, entries, name) == entries
    assert remove_row(entries, name) == entries


def test_unknown_names_reach_neither_the_document_nor_the_page() -> None:
    scope = scope_of(LIST)
    posted = read_posted(scope, [("p.b", "1"), ("p.a.0", "x"), ("p.a.7", "y"), ("r.a.7", ""), ("__proto__", "z")])
    assert posted.document == {}
    assert 'value="y"' not in render(build_form(scope, posted.entries))


def test_a_form_has_a_bound() -> None:
    with pytest.raises(BadInput, match="at most 2000 are allowed"):
        read_posted(scope_of(LIST), [(f"x{number}", "") for number in range(MAX_ENTRIES + 1)])
    rows = [(f"{kind}.a.{number}", "v") for number in range(900) for kind in "rp"]
    assert len(read_posted(scope_of(LIST), rows).document["a"]) == 100  # type: ignore[arg-type]


def reference_scope(*names: str) -> FormScope:
    listed = tuple(ReferenceChoice(uuid, name) for uuid, name in zip(UUIDS, names, strict=False))
    choices = FormChoices(references={"a": ReferenceChoices(listed, complete=False)})
    return scope_of({"a": {"type": "reference"}}, choices=choices)


def test_a_searched_service_is_named_or_given_by_its_id() -> None:
    scope = reference_scope("db", "web")
    assert post(scope, p__a="web").document == {"a": UUIDS[1]}
    assert post(scope, p__a=UUIDS[0]).document == {"a": UUIDS[0]}
    unknown = post(scope, p__a="nothing")
    assert (unknown.document, unknown.unknown_references) == ({"a": "nothing"}, (("a", "nothing"),))


def test_a_name_of_several_services_is_a_fault() -> None:
    posted = post(reference_scope("db", "db"), p__a="db")
    assert posted.faults == (PathFault("a", "2 services are named db; enter the id of one"),)


def test_line_breaks_of_a_browser_do_not_change_a_stored_text() -> None:
    for text in ("a\nb", "a\r\nb", "\n\na", "a\r"):
        scope = scope_of({"a": {"type": "string"}}, {"a": text})
        assert read_posted(scope, successful(render(build_form(scope, initial_entries(scope))))).document == {
            "a": text
        }


def test_a_property_may_have_any_name() -> None:
    document = {name: {"type": "string"} for name in ("a.b", "", "0", "a b", "ä", "%41", "x[0]", "m", '"')}
    scope = scope_of(document, {name: f"value of {name}" for name in document})
    posted = read_posted(scope, successful(render(build_form(scope, initial_entries(scope)))))
    assert posted.document == scope.stored


def test_a_free_form_document_is_read_as_json() -> None:
    scope = scope_of(None, {"a": 1, "b": 2})
    assert post(scope, p='{"a": 3}').document == {"a": 3, "b": None}
    assert post(scope_of(None), p="").document == {}
    assert post(scope_of(None), p="[1]").faults[0].message.startswith("the properties must be a JSON object")
