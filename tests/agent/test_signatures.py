"""Blueprint signatures: an agent with --trust runs exactly what a trusted key signed, and nothing else."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge, new_type_name, wait_until, write_blueprint
from fault_lab import NAME, ROOT, FaultLab, file
from fork_server import run_program
from mainstay.agent.blueprint_cache import BlueprintCache, NoBlueprint
from mainstay.agent.client import Client
from mainstay.agent.log import Log
from mainstay.agent.signatures import NOT_SIGNED, read_trusted_keys, version_order
from mainstay.converge.host.state import StateDirectory
from mainstay.foundation.faults import DoesNotLoad


def mainstay(*words: object) -> subprocess.CompletedProcess[str]:
    return run_program([*(str(word) for word in words)])


def sign(directory: Path, key: Path) -> None:
    done = mainstay("blueprint", "sign", directory, "--key", key)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "author"
    done = mainstay("blueprint", "keygen", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def trust(tmp_path: Path, key: Path) -> Path:
    path = tmp_path / "trusted"
    path.write_text(f"# authors\n\n  {key.with_name('author.pub').read_text().strip()}  # the first\n")
    return path


@pytest.fixture
def blueprint(tmp_path: Path, key: Path) -> Path:
    folder = write_blueprint(tmp_path / "blueprint", type_name="signed", manifests={"create": "[]"})
    (folder / "files").mkdir()
    (folder / "files" / "tool").write_text("#!/bin/sh\n")
    (folder / "files" / "tool").chmod(0o755)
    (folder / "files" / "readme").write_text("text\n")
    sign(folder, key)
    return folder


@pytest.fixture
def cache(tmp_path: Path, blueprint: Path, trust: Path) -> BlueprintCache:
    state = StateDirectory(str(tmp_path / "agent"))
    return BlueprintCache(state, Client("http://127.0.0.1:9", "token"), Log(), [str(blueprint)], str(trust))


def refusal(cache: BlueprintCache) -> str:
    with pytest.raises(NoBlueprint) as refused:
        cache.find("signed", None)
    return str(refused.value)


def test_a_key_is_private_and_never_replaced(tmp_path: Path, key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    public = key.with_name("author.pub").read_text()
    assert len(base64.b64decode(public, validate=False)) == 32
    assert public.strip() not in key.read_text()
    before = key.read_text()
    done = mainstay("blueprint", "keygen", key)
    assert (done.returncode, key.read_text()) == (2, before)
    assert "exists" in done.stderr


def test_a_public_key_does_not_sign(blueprint: Path, key: Path) -> None:
    done = mainstay("blueprint", "sign", blueprint, "--key", key.with_name("author.pub"))
    assert done.returncode == 2
    assert "not a private key" in done.stderr


def test_a_signed_blueprint_is_found_and_runs_from_a_copy(cache: BlueprintCache, blueprint: Path) -> None:
    found = cache.find("signed", None)
    assert Path(found.directory) != blueprint
    assert os.access(f"{found.directory}/files/tool", os.X_OK)
    # Only the agent's user can change what was verified.
    (blueprint / "files" / "tool").write_text("#!/bin/sh\nevil\n")
    assert (Path(found.directory) / "files" / "tool").read_text() == "#!/bin/sh\n"
    assert refusal(cache).startswith(f"{NOT_SIGNED}\n")


def set_version(folder: Path, version: str) -> None:
    definition = json.loads((folder / "blueprint.yaml").read_text())
    (folder / "blueprint.yaml").write_text(json.dumps({**definition, "version": version}))


CHANGES: dict[str, Callable[[Path], object]] = {
    "changed content": lambda folder: (folder / "files/readme").write_text("test\n"),
    "added file": lambda folder: (folder / "files/more").write_text(""),
    "added manifest": lambda folder: (folder / "manifests/other.yaml").write_text("[]"),
    "removed file": lambda folder: (folder / "files/readme").unlink(),
    "renamed file": lambda folder: (folder / "files/readme").rename(folder / "files/README"),
    "executable": lambda folder: (folder / "files/readme").chmod(0o755),
    "not executable": lambda folder: (folder / "files/tool").chmod(0o644),
    "link": lambda folder: (folder / "files/link").symlink_to("readme"),
    "linked directory": lambda folder: (folder / "linked").symlink_to("files"),
    "fifo": lambda folder: os.mkfifo(folder / "files/fifo"),
    "other version": lambda folder: set_version(folder, "1.0.1"),
    "no signature": lambda folder: (folder / "blueprint.sig").unlink(),
    "empty signature": lambda folder: (folder / "blueprint.sig").write_text(""),
    "damaged signature": lambda folder: (folder / "blueprint.sig").write_text("AAAA BBBB\n"),
    "signature of zeros": lambda folder: (folder / "blueprint.sig").write_text(
        f"{(folder / 'blueprint.sig').read_text().split()[0]} {base64.b64encode(bytes(64)).decode()}\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_blueprint_that_was_changed_after_it_was_signed_is_refused(
    cache: BlueprintCache, blueprint: Path, change: Callable[[Path], object]
) -> None:
    cache.find("signed", None)
    change(blueprint)
    assert refusal(cache).splitlines()[0] == NOT_SIGNED


@pytest.mark.parametrize("change", [*CHANGES.values(), lambda folder: (folder / ".DS_Store").write_text("")])
def test_the_unpacked_files_are_verified_at_each_use(cache: BlueprintCache, change: Callable[[Path], object]) -> None:
    change(Path(cache.find("signed", None).directory))
    assert refusal(cache).splitlines()[0] == NOT_SIGNED


def test_files_that_bundles_leave_out_are_neither_signed_nor_used(cache: BlueprintCache, blueprint: Path) -> None:
    (blueprint / ".git").mkdir()
    (blueprint / ".git" / "config").write_text("x")
    assert not (Path(cache.find("signed", None).directory) / ".git").exists()


def test_another_key_is_refused(cache: BlueprintCache, blueprint: Path, tmp_path: Path) -> None:
    mainstay("blueprint", "keygen", tmp_path / "other")
    sign(blueprint, tmp_path / "other")
    assert "does not contain its key" in refusal(cache)


def test_the_keys_are_read_anew_at_each_use(cache: BlueprintCache, trust: Path) -> None:
    cache.find("signed", None)
    keys = trust.read_text()
    trust.unlink()
    assert refusal(cache).splitlines()[0] == NOT_SIGNED
    trust.write_text("# none\n")
    assert refusal(cache).splitlines()[0] == NOT_SIGNED
    trust.write_text(f"{keys}\nno key\n")
    assert refusal(cache).splitlines()[0] == NOT_SIGNED
    trust.write_text(keys)
    cache.find("signed", None)


def test_a_version_below_the_minimum_is_refused(cache: BlueprintCache, trust: Path) -> None:
    keys = trust.read_text()
    for line in ("min signed 1.0.0", "min other 9.0.0", "min signed 1.0.0-rc.1"):
        trust.write_text(f"{keys}\n{line}\n")
        cache.find("signed", None)
    trust.write_text(f"{keys}\nmin signed 1.0.1\nmin signed 0.1.0\n")
    assert refusal(cache) == "blueprint signed 1.0.0 is older than 1.0.1, the oldest version that this agent runs"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.9.0", "1.10.0"),
        ("1.0.0-rc.1", "1.0.0"),
        ("1.0.0-rc.9", "1.0.0-rc.10"),
        ("1.0.0-1", "1.0.0-alpha"),
        ("1.0.0-alpha", "1.0.0-alpha.1"),
        ("0.99.99", "1.0.0-alpha+build"),
    ],
)
def test_versions_have_an_order(older: str, newer: str) -> None:
    assert version_order(older) < version_order(newer)
    assert version_order(newer) == version_order(f"{newer.partition('+')[0]}+other")


@pytest.mark.parametrize(
    "line",
    ["no key", "AAAA", "=" * 44, "A" * 45, "min", "min signed", "min signed one", "min signed 1.0.0 x", "Ä", "\0"],
)
def test_a_malformed_line_is_refused_with_its_number(trust: Path, line: str) -> None:
    trust.write_text(f"{trust.read_text()}{line}\n")
    with pytest.raises(DoesNotLoad) as refused:
        read_trusted_keys(str(trust))
    assert [fault.line for fault in refused.value.faults] == [4]


def test_an_agent_refuses_to_start_with_a_malformed_or_missing_file_of_keys(bridge: Bridge, tmp_path: Path) -> None:
    bridge.enrol()
    keys = tmp_path / "keys"
    for wanted in ("cannot be read", "contains no public key", "expected a public key"):
        agent = bridge.start_agent("--trust", str(keys), wait=False)
        assert agent.process.wait(20) == 2
        assert wanted in agent.text()
        keys.write_text("# none\n" if "cannot" in wanted else "no key\n")


def test_push_refuses_an_outdated_signature(bridge: Bridge, key: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(bridge.admin.token or "")
    folder, connection = tmp_path / "greeter", ("--server", bridge.server.url, "--token-file", tmp_path / "token")
    mainstay("blueprint", "new", new_type_name(), "--dir", folder)
    sign(folder, key)
    definition = (folder / "blueprint.yaml").read_text()
    (folder / "blueprint.yaml").write_text(f"{definition}# edited\n")
    done = mainstay("blueprint", "push", folder, *connection)
    assert done.returncode == 2
    assert "sign` again" in done.stderr
    sign(folder, key)
    assert mainstay("blueprint", "push", folder, *connection).returncode == 0


def test_jobs_plans_and_drift_checks_run_only_signed_blueprints(
    bridge: Bridge, root: Path, key: Path, trust: Path, tmp_path: Path
) -> None:
    lab = FaultLab(bridge, root)
    folder = tmp_path / "pushed"
    resources = json.dumps([file(f"{ROOT}/{NAME}.conf", "x\n")])

    def push(*, signed: bool, version: str) -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        manifests = dict.fromkeys(("create", "update", "delete"), resources)
        write_blueprint(
            folder,
            type_name=kind,
            manifests=manifests,
            version=version,
            keeps={"Stopped": "manifests/create.yaml"},
        )
        if signed:
            sign(folder, key)
        return bridge.push(folder)["serviceType"]

    kind = new_type_name()
    lab.kind = push(signed=True, version="1.0.0")
    bridge.start_agent("--root", str(root), "--drift-interval", "300ms", "--trust", str(trust))
    service = lab.order()
    bridge.wait_for(service, "Stopped")
    assert (root / f"{service['name']}.conf").exists()

    # The server, or an attacker on it, now offers a blueprint without a signature.
    push(signed=False, version="1.0.1")
    refused = lab.order()
    bridge.wait_for(refused, "Broken")
    assert lab.job(refused)["errorMessage"] == NOT_SIGNED
    assert not (root / f"{refused['name']}.conf").exists()
    body = {"serviceTypeId": lab.kind["id"], "name": "plan", "groupId": bridge.scenario.group_id}
    body["agentId"] = bridge.scenario.agent_id
    plan = bridge.admin.call("POST", "/api/v1/services?plan=true", body)
    assert (plan.status, plan.body["code"]) == (409, "plan_failed")
    assert NOT_SIGNED in plan.body["error"]

    # Keys are read anew: without them nothing runs, drift checks included.
    keys = trust.read_text()
    trust.unlink()

    def condition() -> Any:
        found = bridge.scenario.service(service["id"])["conditions"]
        return [(each["reason"], each["message"]) for each in found]

    wait_until(lambda: condition() == [("Unknown", NOT_SIGNED)], "drift is unknown", bridge.logs)
    trust.write_text(keys)
    wait_until(lambda: condition() == [("InSync", "")], "drift is checked", bridge.logs)
