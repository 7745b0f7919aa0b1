"""Templates: the values of text with expressions, and which expressions are refused."""

from __future__ import annotations

from typing import Any

import pytest

from loading import cases
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.scope import BadExpression, TemplateScope, Unresolved
from mainstay.foundation.text import Tainted

DATA: dict[str, Any] = {
    "text": "some text",
    "map": {"a": 1, "b": ["x", None]},
    "list": ["one", "two"],
    "methods": {"items": "mine", "keys": ["k"], "get": "got", "pop": "popped"},
    "values": "top",
}
FACTS = {"os": {"family": "debian"}}
ENVIRON = {"HOME": "/home/ada"}


def scope() -> TemplateScope:
    return TemplateScope({"data": lambda: DATA, "facts": lambda: FACTS, "environ": lambda: ENVIRON})


@pytest.mark.parametrize("case", cases("manifest/templates"), ids=lambda case: repr(case["text"]))
def test_a_template_gives_the_expected_value(case: dict[str, Any]) -> None:
    value = Template(case["text"]).render(scope())
    assert value == case["gives"]
    assert type(value) is type(case["gives"])


@pytest.mark.parametrize("case", cases("manifest/refused_expressions"), ids=lambda case: case["expression"])
def test_an_expression_is_refused(case: dict[str, Any]) -> None:
    template = Template("{{ " + case["expression"] + " }}")
    with pytest.raises(Unresolved) as refusal:
        template.render(scope())
    assert str(refusal.value) == f"{case['message']} in {{{{ {case['expression']} }}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ }}", "the expression between {{ and }} is empty"),
        ("{{}}", "the expression between {{ and }} is empty"),
        ("a {{ b", "{{ is never closed: '{{ b'; for a literal {{ write {{ '{{' }}"),
        ("a {{ b } }", "{{ is never closed: '{{ b } }'; for a literal {{ write {{ '{{' }}"),
        ("a {{ (b }}", "{{ is never closed: '{{ (b }}'; for a literal {{ write {{ '{{' }}"),
        ('a {{ "b }}', "{{ is never closed: '{{ \"b }}'; for a literal {{ write {{ '{{' }}"),
        ("{{- 1 }}", "{{- and -}} do not trim here: text is kept as written; write {{ … }}"),
        ("{{ 1 2 }}", "unexpected text after the expression in {{ 1 2 }}"),
        ("{{ 1 + }}", "the expression ends too early in {{ 1 + }}"),
        ("{{ a && b }}", "&& is not supported; write `and` in {{ a && b }}"),
        ("{{ a || b }}", "|| is not supported; write `or` in {{ a || b }}"),
        ("{{ a ? b : c }}", "?: is not supported; write `a if condition else b` in {{ a ? b : c }}"),
        ("{{ a ?? b }}", "?? is not supported; write `value | default(other)` in {{ a ?? b }}"),
        ("{{ !a }}", "! is not supported; write `not` in {{ !a }}"),
        ("{{ a === b }}", "=== is not supported; write `==` in {{ a === b }}"),
        ("{{ '?' '!' 1 }}", "unexpected text after the expression in {{ '?' '!' 1 }}"),
        ("{{ ${a} }}", "${ is not supported; write `{{ … }}` in {{ ${a} }}"),
        ("{{ a | uper }}", "unknown filter 'uper' (did you mean 'upper'?) in {{ a | uper }}"),
        ("{{ a is evn }}", "unknown test 'evn' (did you mean 'even'?) in {{ a is evn }}"),
        ("{{ a = 1 }}", "= is not supported; write `==` in {{ a = 1 }}"),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "the expression is too large: {{ " + "(" * 59 + "… }}"),
    ],
)
def test_bad_syntax_is_refused_before_evaluation(text: str, message: str) -> None:
    with pytest.raises(BadExpression) as refusal:
        Template(text)
    assert str(refusal.value) == message


def test_a_root_is_read_once_on_first_use() -> None:
    reads = []

    def read() -> dict[str, Any]:
        reads.append("facts")
        return {"a": 1}

    watched = TemplateScope({"data": lambda: {"x": 1}, "facts": read})
    assert Template("{{ lookup('data.x') }} {{ Data.x }} {{ 1 + 1 }}").render(watched) == "1 1 2"
    assert reads == []
    assert Template("{{ Facts.a }}{{ facts.a }}{{ lookup('facts.a') }}").render(watched) == "111"
    assert reads == ["facts"]


def test_a_failed_look_up_names_the_path_and_suggests_a_name() -> None:
    for path, message in (
        ("data.txt", "data.txt is not defined (did you mean data.text?)"),
        ("data.map.aa", "data.map.aa is not defined (did you mean data.map.a?)"),
        ("data.list.2", "data.list.2 is not defined"),
        ("data.text.x", "data.text.x is not defined"),
        ("nope.x", "lookup('nope.x'): there is no root 'nope'; known roots: data, environ, facts"),
        ("", "lookup(''): there is no root ''; known roots: data, environ, facts"),
    ):
        with pytest.raises(Unresolved) as refusal:
            Template("{{ lookup('" + path + "') }}").render(scope())
        assert str(refusal.value) == message


def test_additional_roots_can_be_of_any_type() -> None:
    wide = TemplateScope({"token": lambda: "abc", "many": lambda: [1, 2], "tree": lambda: {"a": {"b": 1}}})
    assert Template("{{ lookup('token') }}").render(wide) == "abc"
    assert Template("{{ token }}").render(wide) == "abc"
    assert Template("<{{ Token }}>").render(wide) == "<abc>"
    assert Template("{{ many }}").render(wide) == [1, 2]
    assert Template("{{ lookup('many.1') }}").render(wide) == 2
    assert Template("{{ Tree.a.b }}").render(wide) == 1


@pytest.mark.parametrize(
    "expression",
    [
        "lookup('vault.token')",
        "Vault.token",
        "vault['token']",
        "vault.get('token')",
        "vault.token | upper",
        "vault.values() | first",
        "vault.items() | list | tojson",
        "vault | tojson",
        "vault.nested.list | map('upper') | first",
        "lookup('vault') | tojson",
        "lookup('vault').token[1:]",
        "'x' ~ vault.token",
        "[vault.token] | join",
        "vault.token | length",
        "vault.nested.list[0]",
    ],
)
def test_a_value_derived_from_a_secret_is_a_secret(expression: str) -> None:
    vault = {"token": Tainted("s3cret-token"), "nested": {"list": [Tainted("other-secret")]}, "plain": "open"}
    for text in ("{{ " + expression + " }}", "a {{ " + expression + " }} b"):
        watched = TemplateScope({"vault": lambda: vault})
        value = Template(text).render(watched)
        assert watched.tainted
        assert isinstance(value, Tainted)
        assert repr(value) == "[redacted]"


def test_a_plain_value_beside_a_secret_is_not_a_secret() -> None:
    vault = {"token": Tainted("s3cret-token"), "plain": "open"}
    watched = TemplateScope({"vault": lambda: vault})
    value = Template("{{ vault.plain | upper }} {{ lookup('vault.plain') }} {{ 'token' in vault }}").render(watched)
    assert value == "OPEN open true"
    assert not isinstance(value, Tainted)
    assert not watched.tainted


def test_an_error_about_a_secret_does_not_show_it() -> None:
    vault = {"token": Tainted("s3cret-token")}
    for expression in (
        "{}[vault.token]",
        "vault.token + 1",
        "vault.token | upper | nope2(1)",
        "1 / (vault.token | int)",
    ):
        watched = TemplateScope({"vault": lambda: vault})
        with pytest.raises((Unresolved, BadExpression)) as refusal:
            Template("{{ " + expression + " }}").render(watched)
        assert "s3cret" not in str(refusal.value).lower().replace(expression, "")
