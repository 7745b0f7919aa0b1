"""Files rendered by `template()`: full Jinja2, in the same sandbox as expressions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied
from mainstay.foundation.text import Tainted

MANIFEST = """
data: {port: 80, names: [a, b], map: {k: [1, true, null]}}
resources:
  - file:
      - ROOT/out:
          ensure: present
          owner: USER
          group: GROUP
          mode: "0600"
          content: "{{ template('page.j2') }}"
"""


def rendered(apply: Callable[..., Applied], root: Path, template: str) -> str:
    (root.parent / "page.j2").write_bytes(template.encode())
    done = apply(MANIFEST)
    assert done.errors == []
    return (root / "out").read_bytes().decode()


def refused(apply: Callable[..., Applied], root: Path, template: str) -> str:
    (root.parent / "page.j2").write_bytes(template.encode())
    done = apply(MANIFEST)
    assert done.outcomes == ["failed"]
    assert not (root / "out").exists()
    return done.errors[0]


def test_statements_comments_and_loops_are_rendered(apply: Callable[..., Applied], root: Path) -> None:
    template = "{# note #}{% for name in Data.names %}{{ loop.index }}{{ name }}{% if not loop.last %},{% endif %}{% endfor %}\n"
    assert rendered(apply, root, template) == "1a,2b\n"


def test_maps_are_json_and_nothing_is_escaped_for_html(apply: Callable[..., Applied], root: Path) -> None:
    assert rendered(apply, root, "{{ Data.map }} {{ none }} {{ '<&>' }}") == '{"k": [1, true, null]}  <&>'


@pytest.mark.parametrize(
    "template",
    [
        *(
            "{{ lookup }}",
            "{{ lookup ~ '' }}",
            "{{ self }}",
            "{{ namespace() }}",
            "{{ Data.names | map('upper') | string }}",
        ),
        *(
            "{% macro f() %}{% endmacro %}{{ f }}",
            "{% for x in Data.names %}{{ loop }}{% endfor %}",
            "{{ 'a'.upper }}",
        ),
        *("{{ cycler('a') }}", "{{ joiner() | string }}", "{{ [template] | string }}", "{{ {'a': result} ~ '' }}"),
    ],
)
def test_an_object_without_a_value_is_not_written_as_text(
    apply: Callable[..., Applied], root: Path, template: str
) -> None:
    assert " at 0x" not in refused(apply, root, template)


def test_functions_loops_and_macros_work_in_a_template(apply: Callable[..., Applied], root: Path) -> None:
    template = (
        "{% set ns = namespace(n=0) %}{% macro m(x) %}<{{ x }}>{% endmacro %}{% set j = joiner(',') %}"
        "{% for x in Data.names | map('upper') %}{% set ns.n = ns.n + 1 %}{{ j() }}{{ m(x) }}{{ loop.cycle('p', 'q') }}"
        "{% endfor %} {{ ns.n }} {{ Data.map.keys() | list }} {{ dict(a=1) }} {{ range(2) | list }} {{ 'a b' | quote }}"
    )
    assert rendered(apply, root, template) == """<A>p,<B>q 2 ["k"] {"a": 1} [0, 1] 'a b'"""


@pytest.mark.parametrize(
    "template", ["a\n", "a", "a\n\n", "a\r\nb\r\n", "{{ 'x' }}\r\n", "é\r\n{% if true %}\r\n{% endif %}"]
)
def test_line_ends_are_kept(apply: Callable[..., Applied], root: Path, template: str) -> None:
    expected = template.replace("{{ 'x' }}", "x").replace("{% if true %}", "").replace("{% endif %}", "")
    assert rendered(apply, root, template) == expected


def test_includes_and_macros_are_found_in_the_working_directory(apply: Callable[..., Applied], root: Path) -> None:
    (root.parent / "parts").mkdir()
    (root.parent / "parts" / "head.j2").write_text("head {{ Data.port }}")
    (root.parent / "macros.j2").write_text("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}")
    template = "{% import 'macros.j2' as m %}{% include 'parts/head.j2' %} {{ m.twice('z') }}"
    assert rendered(apply, root, template) == "head 80 zz"


def test_lookup_file_and_result_are_available(apply: Callable[..., Applied], root: Path) -> None:
    (root.parent / "page.j2").write_text(
        "{{ lookup('data.port') }} {{ file('page.j2') | length }} {{ result('exec#say').stdout }}"
    )
    done = apply(
        "resources:\n  - exec: [{say: {command: echo hi}}]\n"
        + MANIFEST.partition("resources:\n")[2]
        + MANIFEST.partition("resources:")[0]
    )
    assert done.errors == []
    assert (root / "out").read_text() == f"80 {len((root.parent / 'page.j2').read_text())} hi\n"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ Data.prot }}", "template page.j2, line 1: data.prot is not defined (did you mean data.port?)"),
        ("a\n{% if %}", "template page.j2, line 2: Expected an expression, got 'end of statement block'"),
        ("a\n\n{{ 'a' | uper }}", "template page.j2, line 3: unknown filter 'uper' (did you mean 'upper'?)"),
        ("{{ ''.__class__ }}", "template page.j2, line 1: access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ 'x' * 999999999 }}", "template page.j2, line 1: the repetition is too long"),
        (
            "{% for i in range(999999999) %}{% endfor %}",
            "template page.j2, line 1: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)",
        ),
        ("{{ 1 / 0 }}", "template page.j2, line 1: division by zero"),
        ("{% include 'nope.j2' %}", "file('nope.j2'): ROOT/nope.j2 does not exist"),
        ("{% include 'page.j2' %}", "template page.j2, line 1: maximum recursion depth exceeded"),
        ("{{ [1, 2] | sort(attribute='x') }}", "template page.j2, line 1: 'x' is not defined"),
        (
            "{% set ns = 1 %}{% set ns.a = 2 %}",
            "template page.j2, line 1: cannot assign attribute on non-namespace object",
        ),
    ],
)
def test_an_error_in_a_template_file_fails_the_resource_and_names_the_line(
    apply: Callable[..., Applied], root: Path, template: str, message: str
) -> None:
    assert message.replace("ROOT", str(root.parent)) in refused(apply, root, template)


def test_a_fault_in_an_included_file_names_that_file(apply: Callable[..., Applied], root: Path) -> None:
    (root.parent / "part.j2").write_text("\n\n{{ nope }}")
    (root.parent / "broken.j2").write_text("\n{% nope %}")
    assert "template part.j2, line 3: unknown name 'nope'" in refused(apply, root, "{% include 'part.j2' %}")
    assert "template broken.j2, line 2: Encountered unknown tag 'nope'" in refused(
        apply, root, "{% include 'broken.j2' %}"
    )


def test_a_missing_file_fails_the_resource(apply: Callable[..., Applied], root: Path) -> None:
    assert apply(MANIFEST).errors == [f"file('page.j2'): {root.parent}/page.j2 does not exist"]


def test_a_secret_in_a_file_makes_the_resource_sensitive(apply: Callable[..., Applied], root: Path) -> None:
    (root.parent / "page.j2").write_text("{% for key, value in Vault.items() %}{{ value | upper }}{% endfor %}")
    done = apply(MANIFEST, differences=True, roots={"vault": {"token": Tainted("s3cret-token")}})
    assert (root / "out").read_text() == "S3CRET-TOKEN"
    assert done.report.events[0].resource.sensitive is True
    assert done.report.events[0].diff == "[redacted]"
