"""Manifests that apply other manifests: paths, bundles, owed refreshes, signals, depth and size."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from applying import Applied, apply_text, fill_in
from fork_server import PROGRAM
from loading import faults_of, load_text
from mainstay.converge.manifest.rendering import render_applied
from mainstay.converge.run import RunRequest, run

Apply = Callable[..., Applied]
Program = Callable[..., "subprocess.CompletedProcess[str]"]
FILE = '{ensure: present, owner: USER, group: GROUP, mode: "0644"'
SUBSCRIBER = """
- exec:
    - subscriber: {command: "COMMAND", refresh_only: true, subscribe: [apply#child.yaml]}
"""


def put(root: Path, name: str, text: str) -> None:
    path = root.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(fill_in(text, root))


def owed() -> list[object]:
    found = []
    for path in Path(os.environ["MAINSTAY_STATE_DIR"]).glob("manifests/*/owed"):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


# ---- paths ----
def test_relative_paths_are_relative_to_the_child(apply: Apply, root: Path) -> None:
    put(root, "inner/text", "from inner")
    put(root, "inner/page.j2", "{% include 'text' %}!")
    put(root, "text", "from outside")
    put(
        root,
        "inner/child.yaml",
        f"""
data: {{}}
resources:
  - file:
      - ROOT/source: {FILE}, source: text}}
      - ROOT/read: {FILE}, content: "{{{{ file('text') }}}}"}}
      - ROOT/rendered: {FILE}, content: "{{{{ template('page.j2') }}}}"}}
  - exec: [{{"echo {{{{ file('text') | replace(' ', '-') }}}}": {{creates: /}}}}]
""",
    )
    done = apply(f"- apply: [inner/child.yaml]\n- file: [{{ROOT/outer: {FILE}, source: text}}}}]\n")
    assert set(done.outcomes) <= {"changed", "stable"}, done.errors
    assert [(root / name).read_text() for name in ("source", "read", "rendered", "outer")] == [
        "from inner",
        "from inner",
        "from inner!",
        "from outside",
    ]
    assert done.report.events[3].resource.id == "exec#echo from-inner"


def test_a_child_may_be_named_by_an_absolute_path(apply: Apply, root: Path) -> None:
    put(root, "elsewhere/child.yaml", "- exec: [{x: {creates: /}}]\n")
    assert apply("- apply: [ROOT/../elsewhere/child.yaml]\n").outcomes == ["stable", "stable"]


@pytest.mark.parametrize(
    ("child", "message"),
    [
        ("- apply: [../../outside.yaml]\n", "is outside the bundle; a bundle contains all its manifests"),
        ("- apply: [/etc/hostname]\n", "is outside the bundle; a bundle contains all its manifests"),
        (
            "- file: [{ROOT/x: FILE, source: ../../../etc/hostname}}]\n",
            "is outside the bundle; a bundle contains all",
        ),
        ("- file: [{ROOT/x: FILE, content: \"{{ file('../../etc/hostname') }}\"}}]\n", "is outside the bundle"),
        ("- file: [{ROOT/x: FILE, content: \"{{ template('../../etc/hostname') }}\"}}]\n", "is outside the bundle"),
        ("- file: [{ROOT/x: FILE, source: ../root.txt}}]\n", ""),
        ("- file: [{ROOT/x: FILE, content: \"{{ file('../root.txt') }}\"}}]\n", ""),
    ],
)
def test_relative_paths_of_a_bundle_stay_inside_it(child: str, message: str, root: Path, mainstay: Program) -> None:
    bundle = root.parent / "site.tgz"
    files = {
        "manifest.yaml": "- apply: [inner/child.yaml]\n",
        "inner/child.yaml": fill_in(child.replace("FILE", FILE), root),
        "root.txt": "of the bundle",
    }
    with tarfile.open(bundle, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    put(root, "outside.yaml", "- exec: [x]\n")
    done = mainstay("apply", bundle)
    assert message in done.stdout + done.stderr
    assert bool(done.returncode) == bool(message), done.stdout + done.stderr
    assert (root / "x").exists() == (not message)


def test_data_and_set_reach_every_manifest(root: Path, mainstay: Program) -> None:
    put(
        root, "child.yaml", 'data: {n: 1, m: 1}\nresources: [{exec: [{"{{ data.n }} {{ data.m }}": {creates: /}}]}]\n'
    )
    put(root, "top.yaml", "- apply: [{child.yaml: {data: {n: 2, m: 2}}}]\n")
    put(root, "data.yaml", "n: 3\n")
    done = mainstay("apply", root.parent / "top.yaml", "--json", "--data", root.parent / "data.yaml", "--set", "m=4")
    assert [event["name"] for event in json.loads(done.stdout)["events"]] == ["3 4", "child.yaml"]


def test_a_manifest_on_standard_input_applies_others(root: Path, mainstay: Program) -> None:
    put(root, "root/child.yaml", "- exec: [{x: {creates: /}}]\n")
    assert mainstay("apply", "-", stdin="- apply: [child.yaml]\n").returncode == 0


# ---- depth and size ----
def test_manifests_may_be_ten_levels_deep(root: Path) -> None:
    for level in range(1, 12):
        put(root, f"{level}.yaml", f"- apply: [{level + 1}.yaml]\n")
    put(root, "11.yaml", "- exec: [x]\n")
    assert len(load_text("- apply: [2.yaml]\n", root).resources) == 11
    (fault,) = faults_of("- apply: [1.yaml]\n", root)
    assert "manifests can apply each other 10 levels deep" in fault


def test_nested_repetitions_do_not_grow_without_bound(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.converge.manifest.children.MOST_RESOURCES", 50)
    put(root, "inner.yaml", "- exec: [{'x{{ data.n }}-{{ each.key }}': {for_each: '{{ range(20) }}'}}]\n")
    entry = "{manifest: inner.yaml, for_each: '{{ range(COUNT) }}', data: {n: '{{ each.key }}'}}"
    text = f"- apply: [{{'c{{{{ each.key }}}}': {entry}}}]\n"
    assert len(load_text(text.replace("COUNT", "3"), root).resources) == 63
    (fault,) = faults_of(text.replace("COUNT", "4"), root)
    assert "apply#c3: the manifests before it have more than 50 resources, the most of a run" in fault


@pytest.mark.test_all
def test_applied_manifests_have_at_most_as_many_resources_as_a_repetition(root: Path) -> None:
    put(root, "inner.yaml", "- exec: [{'x{{ data.n }}-{{ each.key }}': {for_each: '{{ range(25000) }}'}}]\n")
    entries = "".join(f"    - c{n}: {{manifest: inner.yaml, data: {{n: {n}}}}}\n" for n in range(6))
    (fault,) = faults_of(f"- apply:\n{entries}", root)
    assert "apply#c5: the manifests before it have more than 100,000 resources, the most of a run" in fault


def test_a_child_that_is_applied_often_is_read_once_and_costs_little(root: Path) -> None:
    put(root, "child.yaml", "data: {n: 0}\nresources: [{exec: [{'x{{ data.n }}': {creates: /}}]}]\n")
    text = "- apply: [{'c{{ each.key }}': {manifest: child.yaml, for_each: '{{ range(COUNT) }}', data: {n: '{{ each.key }}'}}}]\n"
    spent = {}
    for count in (10, 200, 2000):
        started = time.process_time()
        assert len(load_text(text.replace("COUNT", str(count)), root).resources) == 2 * count
        spent[count] = time.process_time() - started
    assert spent[2000] < 25 * spent[200]


# ---- refreshes ----
def test_a_refresh_by_a_child_is_owed_until_it_works(apply: Apply, root: Path) -> None:
    put(root, "child.yaml", f"- file: [{{ROOT/a: {FILE}}}}}, {{ROOT/b: {FILE}, content: x}}}}]\n")
    text = "- apply: [child.yaml]\n" + SUBSCRIBER
    assert apply(text.replace("COMMAND", "false")).outcomes == ["changed", "changed", "changed", "failed"]
    assert owed() == [["owe", "apply#child.yaml", ["exec#subscriber"]]]
    forecast = apply(text.replace("COMMAND", "true"), noop=True)
    assert forecast.outcomes == ["stable", "stable", "stable", "refreshed"]
    # The file that changed is no longer in the child; the refresh is still due.
    put(root, "child.yaml", f"- file: [{{ROOT/a: {FILE}}}}}]\n")
    assert apply(text.replace("COMMAND", "true")).outcomes == ["stable", "stable", "refreshed"]
    assert owed() == []


def test_a_refresh_inside_a_child_is_owed_under_its_entry(apply: Apply, root: Path) -> None:
    put(
        root,
        "child.yaml",
        f"- file: [{{ROOT/a: {FILE}}}}}]\n- exec: [{{go: {{command: 'false', refresh_only: true, subscribe: [file#ROOT/a]}}}}]\n",
    )
    apply("- apply: [child.yaml]\n")
    within = "apply#child.yaml\0"
    assert owed() == [["owe", f"{within}file#{root}/a", [f"{within}exec#go"]]]
    assert apply("- apply: [child.yaml]\n").outcomes == ["stable", "failed", "failed"]
    # Under another entry it is another resource, and the debt of the first is dropped.
    assert apply("- apply: [{other: {manifest: child.yaml}}]\n").outcomes == ["stable", "stable", "stable"]
    assert owed() == []


def test_a_child_that_fails_without_a_change_owes_nothing(apply: Apply, root: Path) -> None:
    (root / "directory").mkdir()
    put(root, "child.yaml", f"- file: [{{ROOT/directory: {FILE}, content: x}}}}]\n")
    done = apply("- apply: [child.yaml]\n" + SUBSCRIBER.replace("COMMAND", "true"))
    assert done.outcomes == ["failed", "failed", "stable"]
    assert owed() == []


def test_a_change_before_a_failure_still_triggers(apply: Apply, root: Path) -> None:
    (root / "directory").mkdir()
    put(root, "child.yaml", f"- file: [{{ROOT/a: {FILE}}}}}, {{ROOT/directory/x/y: {FILE}}}}}]\n")
    text = "- apply: [child.yaml]\n" + SUBSCRIBER.replace("COMMAND", "true")
    assert apply(text).outcomes == ["changed", "failed", "failed", "refreshed"]
    assert apply(text).outcomes == ["stable", "failed", "failed", "stable"]


def test_a_stopped_run_leaves_the_rest_of_a_child_and_keeps_its_refresh(apply: Apply, root: Path) -> None:
    stop = "{command: \"kill -TERM {{ lookup('facts.pid') }}\"}"
    put(
        root,
        "child.yaml",
        f"- file: [{{ROOT/a: {FILE}}}}}]\n- exec: [{{stop: {stop}}}]\n- file: [{{ROOT/b: {FILE}}}}}]\n",
    )
    put(root, "top.yaml", "- apply: [child.yaml]\n" + SUBSCRIBER.replace("COMMAND", "true"))
    script = f"exec {shlex.quote(str(PROGRAM))} apply --json --fact pid=$$ {root.parent}/top.yaml"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 143
    outcomes = [event["outcome"] for event in json.loads(done.stdout)["events"]]
    assert outcomes[0] == "changed"
    assert outcomes[2:] == ["skipped", outcomes[3], "skipped"]
    put(root, "child.yaml", f"- file: [{{ROOT/a: {FILE}}}}}]\n")
    assert run(RunRequest(str(root.parent / "top.yaml")))[1].events[-1].outcome == "refreshed"


# ---- what is shown ----
def test_the_rendered_documents_are_those_of_each_manifest(root: Path) -> None:
    put(
        root,
        "child.yaml",
        "data: {n: 0}\nresources: [{exec: [{'x{{ data.n }}': {creates: /}}]}, {apply: [leaf.yaml]}]\n",
    )
    put(root, "leaf.yaml", "- exec: [leaf]\n")
    manifest = load_text("- apply: [{c: {manifest: child.yaml, data: {n: 7}}}]\n", root)
    documents = {resource.id: document for resource, document in render_applied(manifest)}
    assert list(documents) == ["apply#leaf.yaml", "apply#c"]
    assert documents["apply#c"]["data"] == {"n": 7}
    assert [list(entry) for entry in documents["apply#c"]["resources"]] == [["exec"], ["apply"]]


def test_lines_of_a_child_are_indented_also_in_the_history(root: Path, mainstay: Program) -> None:
    put(root, "child.yaml", "- exec: [{x: {command: 'true'}}]\n")
    put(root, "top.yaml", "- apply: [child.yaml]\n")
    shown = mainstay("apply", root.parent / "top.yaml").stdout
    assert "changed     exec#x  no guard: it runs every time\nchanged   apply#child.yaml  1 of 1 resource" in shown
    run_id = json.loads(mainstay("history", "--json").stdout)[0]["run_id"]
    assert (
        "changed     exec#x  no guard: it runs every time\nchanged   apply#child.yaml"
        in mainstay("history", "show", run_id).stdout
    )


def test_apply_is_not_offered_for_single_resources(mainstay: Program) -> None:
    assert "apply" not in mainstay("ensure", "--help").stdout.split("TYPE")[1]
    refused = mainstay("status", "apply", "x")
    assert refused.returncode == 1
    assert "apply has no state of its own" in refused.stderr


def test_a_sensitive_entry_hides_its_data_but_may_use_it_in_names(apply: Apply, root: Path) -> None:
    put(
        root,
        "child.yaml",
        f'data: {{name: x, word: y, n: 1}}\nresources: [{{file: [{{"ROOT/{{{{ data.name }}}}": {FILE}, content: "{{{{ data.word }}}} {{{{ data.n + 1 }}}}"}}}}]}}]\n',
    )
    text = "- apply: [{child.yaml: {sensitive: true, data: {name: shop, word: canary, n: 4}}}]\n"
    done = apply(text, differences=True)
    assert done.outcomes == ["changed", "changed"], done.errors
    assert (root / "shop").read_text() == "canary 5"
    assert "canary" not in json.dumps(done.as_json())
    assert done.report.events[0].resource.name == f"{root}/shop"


def test_a_dry_run_does_not_evaluate_outputs_of_changes(root: Path) -> None:
    put(root, "child.yaml", "outputs: {n: 1}\nresources: [{exec: [{x: {command: 'true', creates: ROOT/x}}]}]\n")
    text = "- apply: [child.yaml]\n- exec: [{go: {command: \"true {{ result('apply#child.yaml').outputs.n }}\", creates: /}}]\n"
    unknown = apply_text(text, root, noop=True)
    assert unknown.messages[-1] == "Unknown until applied: the result of apply#child.yaml is unknown before it runs"
    (root / "x").touch()
    assert apply_text(text, root, noop=True).outcomes == ["stable", "stable", "stable"]
