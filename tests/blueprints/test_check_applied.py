"""`blueprint check` follows `apply` and `for_each`: what reaches a shell or a file is found in every manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from blueprint_findings import findings_of, make

PRESENT, TYPE = "manifests/present.yaml", "service-type.yaml"
ENTRY = """
  - apply:
      - child.yaml:
          data: {word: "WORD"}
"""
CHILD = """
data: {word: none}
resources:
  - exec:
      - {run: {provider: shell, command: "COMMAND", creates: /tmp/done}}
"""


def with_child(folder: Path, command: str, word: str = "{{ lookup('properties.greeting') }}") -> Path:
    entry = ENTRY.replace("WORD", word)
    folder = make(folder, (PRESENT, "\n# Values that", f"{entry}\n# Values that"))
    child = CHILD.replace("- {run: {", "- run: {").replace("/tmp/done}}", "/tmp/done}").replace("COMMAND", command)
    (folder / "manifests" / "child.yaml").write_text(child)
    return folder


def test_a_child_without_mistakes_has_no_findings(tmp_path: Path) -> None:
    assert findings_of(with_child(tmp_path, "echo {{ lookup('data.word') | quote }}")) == ([], [])


def test_free_text_reaches_the_shell_of_a_child_through_its_entry(tmp_path: Path) -> None:
    (fault,), _ = findings_of(with_child(tmp_path, "echo {{ lookup('data.word') }}"))
    assert fault.startswith("manifests/child.yaml:5:")
    assert "data.word is free text of the order, and a shell would run it here" in fault


def test_free_text_reaches_the_shell_of_a_child_through_data_of_both(tmp_path: Path) -> None:
    folder = with_child(tmp_path, "echo {{ lookup('data.word') }}", "{{ lookup('data.said') }}")
    text = (folder / PRESENT).read_text()
    (folder / PRESENT).write_text(
        text.replace("data:\n", "data:\n  said: \"{{ lookup('properties.greeting') }}\"\n", 1)
    )
    (fault,), _ = findings_of(folder)
    assert "data.word is free text" in fault


def test_constant_data_of_an_entry_is_no_free_text(tmp_path: Path) -> None:
    assert findings_of(with_child(tmp_path, "echo {{ lookup('data.word') }}", "constant"))[0] == []


def test_a_look_up_in_a_child_is_checked_against_the_schema(tmp_path: Path) -> None:
    (fault,), _ = findings_of(with_child(tmp_path, "echo {{ lookup('properties.greting') | quote }}"))
    assert fault.startswith("manifests/child.yaml:5:")
    assert "properties.greting is not defined" in fault


def test_a_secret_through_the_entry_is_still_a_secret(tmp_path: Path) -> None:
    _, (warning,) = findings_of(
        with_child(tmp_path, "echo {{ lookup('data.word') | quote }}", "{{ lookup('properties.key') }}")
    )
    assert "manifests/child.yaml" in warning
    assert "command carries a secret" in warning


def test_a_child_must_be_in_the_blueprint(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text("- exec: ['true']\n")
    folder = with_child(tmp_path / "demo", "true")
    text = (folder / PRESENT).read_text()
    (folder / PRESENT).write_text(text.replace("child.yaml:", "../../outside.yaml:"))
    (fault,), _ = findings_of(folder)
    assert "is outside the bundle; a bundle contains all its manifests" in fault


@pytest.mark.parametrize(
    ("items", "value", "is_free"),
    [
        ("\"{{ lookup('properties.names') }}\"", "{{ lookup('each.value') }}", True),
        ("\"{{ lookup('properties.names') }}\"", "{{ each.value }}", True),
        ("\"{{ lookup('properties.names') }}\"", "{{ each.value | quote }}", False),
        ("[\"{{ lookup('properties.greeting') }}\"]", "{{ lookup('each.value') }}", True),
        ("[{word: \"{{ lookup('properties.greeting') }}\", other: x}]", "{{ lookup('each.value.word') }}", True),
        ("[{word: \"{{ lookup('properties.greeting') }}\", other: x}]", "{{ lookup('each.value.other') }}", False),
        ("{a: \"{{ lookup('properties.greeting') }}\"}", "{{ lookup('each.key') }}", False),
        ("[a, b]", "{{ lookup('each.value') }}", False),
    ],
)
def test_free_text_reaches_a_shell_through_items(items: str, value: str, is_free: bool, tmp_path: Path) -> None:
    names = "  names:\n    type: array\n    required: true\n    default: []\n    items: {type: string}\n"
    exec_ = f"""
  - exec:
      - "run {{{{ lookup('each.key') }}}}":
          for_each: {items}
          provider: shell
          command: "echo {value}"
          creates: /tmp/done
"""
    folder = make(
        tmp_path, (TYPE, "  path:\n", f"{names}  path:\n"), (PRESENT, "\n# Values that", f"{exec_}\n# Values that")
    )
    faults, _ = findings_of(folder)
    assert bool(faults) is is_free, faults
    if is_free:
        assert "is free text of the order, and a shell would run it here" in faults[0]
