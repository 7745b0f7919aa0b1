"""`archive` in runs: downloads over TLS, secrets, dry runs, hostile users, killed runs and the command line."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from fork_server import PROGRAM
from hostile_user import USER_ID, Scene, hostile_scene
from mainstay.converge.failures import StopFlag, Stopped
from mainstay.converge.host.downloads import Download
from required_parts import need_program
from scratch import fingerprint, names_below, temps_below
from torture import count_of
from web_server import Answer, WebServer, web_server

Apply = Callable[..., Applied]
Program = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "hunter2-correct-horse"


def app() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, content in (("app/run", b"run"), ("app/lib/a", b"a"), ("data", b"d")):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
    return written.getvalue()


APP = app()
DIGEST = hashlib.sha256(APP).hexdigest()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """With a certificate that runs of this test trust."""
    with web_server(tmp_path / "tls") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "tls.pem"))
        server.answers["/app.tgz"] = (200, {}, APP)
        yield server


@pytest.fixture
def plain_server() -> Iterator[WebServer]:
    with web_server() as server:
        server.answers["/app.tgz"] = (200, {}, APP)
        yield server


def manifest(url: str, **properties: Any) -> str:
    return json.dumps([{"archive": [{"ROOT/a.tgz": {"url": url, "checksum": DIGEST, **properties}}]}])


# ---- downloads ----
def test_an_archive_is_downloaded_over_tls_and_unpacked(apply: Apply, root: Path, server: WebServer) -> None:
    (root / "opt").mkdir()
    text = manifest(f"{server.url}/app.tgz", extract_parent="ROOT/opt", creates="ROOT/opt/app/run", cleanup=True)
    done = apply(text)
    assert done.outcomes == ["changed"], done.errors
    assert sorted(names_below(root)) == ["opt", "opt/app", "opt/app/lib", "opt/app/lib/a", "opt/app/run", "opt/data"]
    assert apply(text).outcomes == ["stable"]
    assert len(server.requests) == 1


def test_a_dry_run_downloads_nothing(apply: Apply, root: Path, server: WebServer) -> None:
    before = fingerprint(root)
    forecast = apply(manifest(f"{server.url}/app.tgz"), noop=True)
    assert forecast.messages == ["Would have downloaded the archive"]
    assert server.requests == []
    assert fingerprint(root) == before


def test_a_certificate_of_an_unknown_authority_is_refused(
    apply: Apply, root: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    done = apply(manifest(f"{server.url}/app.tgz"))
    assert "the certificate is not trusted: " in done.errors[0]
    assert done.errors[0].endswith("for an own authority set SSL_CERT_FILE")
    assert server.requests == []
    assert names_below(root) == []


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_server_error_is_tried_three_times(failures: int, apply: Apply, root: Path, server: WebServer) -> None:
    answers: Iterator[Answer] = iter([(503, {}, b"busy")] * failures + [(200, {}, APP)])
    server.answers["/app.tgz"] = lambda: next(answers)
    done = apply(manifest(f"{server.url}/app.tgz"))
    if failures < 3:
        assert done.outcomes == ["changed"]
    else:
        assert done.errors == [f"{server.url}/app.tgz: 503 Service Unavailable (3 attempts)"]
        assert not done.report.events[0].changed
    assert len(server.requests) == min(failures + 1, 3)
    assert temps_below(root) == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_refusal_is_not_tried_again(status: int, apply: Apply, server: WebServer) -> None:
    server.answers["/app.tgz"] = (status, {}, b"no")
    done = apply(manifest(f"{server.url}/app.tgz"))
    assert f"{server.url}/app.tgz: {status} " in done.errors[0]
    assert len(server.requests) == 1


def test_a_body_that_ends_too_early_is_tried_again(apply: Apply, root: Path, server: WebServer) -> None:
    answers = iter([(200, {"Content-Length": str(len(APP) + 5)}, APP), (200, {}, APP)])
    server.answers["/app.tgz"] = lambda: next(answers)
    assert apply(manifest(f"{server.url}/app.tgz")).outcomes == ["changed"]
    assert (root / "a.tgz").read_bytes() == APP


def test_a_file_that_cannot_be_stored_is_not_downloaded_again(root: Path, plain_server: WebServer) -> None:
    """As on a full disk."""
    plain_server.answers["/app.tgz"] = (200, {}, bytes(2_000_000))
    (root / "m.yaml").write_text(manifest(f"{plain_server.url}/app.tgz").replace("ROOT", str(root)))
    done = subprocess.run(
        [PROGRAM, "apply", root / "m.yaml"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"error: File too large: {root}/a.tgz" in done.stdout
    assert len(plain_server.requests) == 1
    assert names_below(root) == ["m.yaml"]


def test_a_server_that_sends_slowly_does_not_hold_a_run_that_is_stopped(tmp_path: Path) -> None:
    stop = StopFlag()
    with socket.create_server(("127.0.0.1", 0)) as listening, (tmp_path / "file").open("wb") as file:

        def trickle() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                for _ in range(600):
                    connection.sendall(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        threading.Timer(0.3, lambda: stop.request("test", at_once=True)).start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        began = time.monotonic()
        with pytest.raises(Stopped):
            Download(address, headers={}, username=None, password=None, environ={}, stop=stop).fetch(file.fileno())
        assert time.monotonic() - began < 15


def test_a_length_of_many_digits_is_no_bug(apply: Apply, root: Path, plain_server: WebServer) -> None:
    plain_server.answers["/app.tgz"] = (200, {"Content-Length": "9" * 5000, "Connection": "close"}, APP)
    done = apply(manifest(f"{plain_server.url}/app.tgz"))
    assert (done.outcomes, done.report.events[0].error_kind) == (["changed"], None)


def test_a_server_that_is_not_there_is_a_failure(apply: Apply, root: Path) -> None:
    done = apply(manifest("http://127.0.0.1:1/app.tgz"))
    assert done.errors == ["http://127.0.0.1:1/app.tgz: Connection refused (3 attempts)"]


def test_a_wrong_checksum_leaves_nothing(apply: Apply, root: Path, server: WebServer) -> None:
    (root / "opt").mkdir()
    server.answers["/app.tgz"] = (200, {}, APP + b"evil")
    done = apply(manifest(f"{server.url}/app.tgz", extract_parent="ROOT/opt"))
    assert "checksum is " in done.errors[0]
    assert not done.report.events[0].changed
    assert names_below(root) == ["opt"]


# ---- redirects ----
def test_redirects_are_followed_and_credentials_stay_with_their_host(
    apply: Apply, root: Path, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server(tmp_path / "other") as other:
        both = tmp_path / "both.pem"
        both.write_text((tmp_path / "tls/tls.pem").read_text() + (tmp_path / "other/tls.pem").read_text())
        monkeypatch.setenv("SSL_CERT_FILE", str(both))
        other.answers["/app.tgz"] = (200, {}, APP)
        server.answers["/start"] = (302, {"Location": "/next"}, b"")
        server.answers["/next"] = (301, {"Location": f"{other.url}/app.tgz?token=x"}, b"")
        text = manifest(f"{server.url}/start", username="me", password=SECRET, headers={"X-Token": SECRET})
        done = apply(text)
        assert done.outcomes == ["changed"], done.errors
        for _, headers in server.requests:
            assert headers["X-Token"] == SECRET
            assert headers["Authorization"].startswith("Basic ")
        [(path, headers)] = other.requests
        assert path == "/app.tgz?token=x"
        assert not {"X-Token", "Authorization", "X-token"} & headers.keys()


def test_a_redirect_from_https_to_http_is_refused(apply: Apply, server: WebServer, plain_server: WebServer) -> None:
    server.answers["/app.tgz"] = (302, {"Location": f"{plain_server.url}/app.tgz?token={SECRET}"}, b"")
    done = apply(manifest(f"{server.url}/app.tgz"))
    assert "which is not encrypted; refused" in done.errors[0]
    assert SECRET not in done.errors[0]
    assert plain_server.requests == []


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/app.tgz", "https://", "http://a\x1b[2J/x"]
)
def test_a_redirect_to_elsewhere_or_in_a_circle_is_a_failure(location: str, apply: Apply, server: WebServer) -> None:
    server.answers["/app.tgz"] = (302, {"Location": location}, b"")
    done = apply(manifest(f"{server.url}/app.tgz"))
    assert done.outcomes == ["failed"]
    assert re.search("redirects (in a circle, too often, or )?to what is neither https nor http", done.errors[0])
    assert len(server.requests) <= 12


# ---- secrets ----
def test_secrets_of_a_request_appear_nowhere(
    mainstay: Program, root: Path, server: WebServer, tmp_path: Path
) -> None:
    host = server.url.removeprefix("https://")
    server.answers["/none"] = (500, {}, SECRET.encode())
    entries = {
        f"{root}/a.tgz": {"url": f"https://user:{SECRET}@{host}/app.tgz?token={SECRET}", "checksum": DIGEST},
        f"{root}/b.tgz": {
            "url": f"{server.url}/app.tgz",
            "headers": {"X-Token": SECRET},
            "username": "user-name-x",
            "password": SECRET,
        },
        f"{root}/c.tgz": {"url": f"https://{SECRET}@{host}/none?a={SECRET}#x", "checksum": DIGEST},
        f"{root}/d.tgz": {"url": f"https://{SECRET}@{host}/app.tgz?a={SECRET}", "checksum": "0" * 64},
    }
    path = tmp_path / "manifest.yaml"
    path.write_text(json.dumps([{"archive": [{name: each} for name, each in entries.items()]}]))
    shown = ""
    for words in (("render",), ("validate",), ("apply", "--noop", "-v"), ("apply", "--json", "-v", "--diff")):
        done = mainstay(*words, path)
        shown += done.stdout + done.stderr
    assert "[redacted]" in shown
    kept = "".join(each.read_text() for each in (tmp_path / "state").rglob("*") if each.is_file())
    assert SECRET not in shown + kept
    assert "user-name-x" not in shown + kept
    sent = [headers["Authorization"] for target, headers in server.requests if target.startswith("/app.tgz")]
    assert len(sent) == 3
    assert (root / "a.tgz").read_bytes() == (root / "b.tgz").read_bytes() == APP


def test_credentials_without_encryption_are_a_warning(apply: Apply, plain_server: WebServer) -> None:
    done = apply(manifest(f"{plain_server.url}/app.tgz", username="a", password="b"))
    assert done.report.events[0].warnings == ("credentials are sent without encryption; use https",)


def test_no_checksum_is_a_warning(mainstay: Program, apply: Apply, root: Path, plain_server: WebServer) -> None:
    text = json.dumps([{"archive": [{"ROOT/a.tgz": {"url": f"{plain_server.url}/app.tgz"}}]}])
    for noop in (True, False):
        [event] = apply(text, noop=noop).report.events
        assert event.warnings == ("without `checksum` the content of the archive is not verified",)
    assert "is not verified" in mainstay("validate", root.parent / "manifest.yaml").stdout


# ---- dry runs ----
def test_what_an_archive_may_bring_is_unknown_and_nothing_else(apply: Apply, root: Path, server: WebServer) -> None:
    (root / "opt").mkdir()
    given = {"owner": "USER", "group": "GROUP", "mode": "0600", "ensure": "present"}
    text = json.dumps(
        [
            *json.loads(manifest(f"{server.url}/app.tgz", extract_parent="ROOT/opt")),
            {
                "file": [
                    {"ROOT/x": {**given, "source": "ROOT/opt/app/run"}},
                    {"ROOT/opt/app/new": {**given, "content": "x"}},
                ]
            },
            {"line": [{"l": {"path": "ROOT/opt/data", "line": "x"}}]},
            {"file": [{"ROOT/y": {**given, "source": "ROOT/elsewhere"}}, {"ROOT/none/z": {**given, "content": "x"}}]},
            {"exec": [{"go": {"command": "ROOT/opt/app/run"}}]},
        ]
    )
    forecast = apply(text, noop=True)
    assert forecast.outcomes == ["changed", "changed", "changed", "changed", "failed", "failed", "changed"]
    unknown = [str(message).partition(":")[0] for message in (*forecast.messages[1:4], forecast.messages[6])]
    assert unknown == ["Unknown until applied"] * 4


def test_what_an_archive_may_bring_decides_about_later_commands_and_archives(apply: Apply, root: Path) -> None:
    (root / "opt").mkdir()
    (root / "app.tgz").write_bytes(APP)
    unpacked = "extract_parent: ROOT/opt, creates: ROOT/opt/app/run"
    text = f"""
- archive:
    - defaults: {{url: ROOT/app.tgz, checksum: {DIGEST}}}
    - ROOT/a.tgz: {{{unpacked}}}
    - ROOT/b.tgz: {{{unpacked}}}
- exec:
    - "true": {{creates: ROOT/opt/app/run}}
"""
    forecast = apply(text, noop=True)
    assert forecast.outcomes == ["changed"] * 3
    missing = f"Unknown until applied: {root}/opt/app/run does not exist, and an earlier archive may bring it"
    assert forecast.messages[1:] == [missing] * 2
    assert apply(text).outcomes == ["changed", "stable", "stable"]


# ---- reuse ----
def test_a_kept_archive_is_unpacked_again_without_a_download(apply: Apply, root: Path, server: WebServer) -> None:
    (root / "opt").mkdir()
    text = manifest(f"{server.url}/app.tgz", extract_parent="ROOT/opt", creates="ROOT/opt/app")
    apply(text)
    shutil.rmtree(root / "opt" / "app")
    assert apply(text, noop=True).messages == [f"Would have unpacked it into {root}/opt"]
    assert apply(text).outcomes == ["changed"]
    assert (root / "opt/app/run").exists()
    assert len(server.requests) == 1


def test_an_archive_without_what_creates_names_changes_nothing(apply: Apply, root: Path, server: WebServer) -> None:
    (root / "opt").mkdir()
    done = apply(manifest(f"{server.url}/app.tgz", extract_parent="ROOT/opt", creates="ROOT/opt/app/none"))
    assert done.errors == ["the archive does not contain app/none, which `creates` names; nothing is unpacked"]
    assert not done.report.events[0].changed
    assert names_below(root) == ["opt"]


def test_owner_and_group_apply_to_the_archive_and_what_is_unpacked(scene: Scene) -> None:
    (scene.work / "app.tgz").write_bytes(APP)
    text = "- archive: [WORK/a.tgz: {url: app.tgz, extract_parent: OUTSIDE, owner: '65534', group: '65534'}]\n"
    assert scene.apply(text).outcomes == ["changed"]
    for path in (scene.work / "a.tgz", *(scene.outside / name for name in ("app", "app/run", "app/lib", "data"))):
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


# ---- hostile users ----
@pytest.fixture
def scene() -> Iterator[Scene]:
    with hostile_scene() as scene:
        yield scene


@pytest.mark.parametrize(
    "entry",
    [
        "HOME/dir/a.tgz: {url: app.tgz}",
        "WORK/a.tgz: {url: app.tgz, extract_parent: HOME/dir}",
        "OUTSIDE/a.tgz: {url: HOME/dir/victim}",
        "HOME/dir/victim: {ensure: absent}",
    ],
)
def test_a_planted_link_is_not_followed(entry: str, scene: Scene) -> None:
    (scene.work / "app.tgz").write_bytes(APP)
    scene.plant(lambda: os.symlink(scene.outside, scene.home / "dir"))
    before = fingerprint(scene.outside)
    for noop in (True, False):
        done = scene.apply(f"- archive: [{entry}]\n", noop=noop)
        assert "is a link" in done.errors[0]
    assert fingerprint(scene.outside) == before


def test_an_existing_link_of_a_user_is_replaced_and_not_followed(scene: Scene) -> None:
    (scene.work / "app.tgz").write_bytes(APP)
    scene.plant(lambda: os.symlink(scene.outside / "tree", scene.home / "app"))
    scene.plant(lambda: os.symlink(scene.outside / "victim", scene.home / "data"))
    before = fingerprint(scene.outside)
    done = scene.apply("- archive: [WORK/a.tgz: {url: app.tgz, extract_parent: HOME, creates: HOME/app/run}]\n")
    assert done.outcomes == ["changed"], done.errors
    assert fingerprint(scene.outside) == before
    assert (scene.home / "app").is_dir()
    assert not (scene.home / "app").is_symlink()
    assert (scene.home / "data").read_text() == "d"
    assert (scene.home / "app").stat().st_uid != USER_ID


def test_a_kept_archive_that_its_owner_changes_during_the_run_is_not_unpacked(scene: Scene) -> None:
    content = b"g" * 2_000_000
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        info = tarfile.TarInfo("big")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    good, place = written.getvalue(), 512 + len(content) - 1
    (scene.work / "a.tar").write_bytes(good)
    kept, target = scene.home / "a.tar", scene.outside / "tree" / "big"
    entry = (
        f"url: a.tar, checksum: {hashlib.sha256(good).hexdigest()}, extract_parent: OUTSIDE/tree, creates: {target}"
    )
    is_over = threading.Event()

    def alternate() -> None:
        """The last byte of the content is that of the manifest half of the time."""
        while not is_over.is_set():
            with suppress(FileNotFoundError), kept.open("r+b") as file:
                for byte in (b"e", b"g"):
                    os.pwrite(file.fileno(), byte, place)
                    is_over.wait(0.003)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        for _ in range(count_of(600)):
            kept.unlink(missing_ok=True)
            kept.write_bytes(good)
            os.chown(kept, USER_ID, USER_ID)
            target.unlink(missing_ok=True)
            if scene.apply(f"- archive: [HOME/a.tar: {{{entry}}}]\n").outcomes == ["changed"]:
                assert target.read_bytes() == content
    finally:
        is_over.set()
        thread.join()


# ---- killed runs ----
@pytest.mark.parametrize("call", ["rename", "mkdir", "unlink", "chmod", "fsync", "symlink", "write", "syncfs"])
def test_a_kill_at_any_system_call_is_repaired_by_the_next_run(call: str, root: Path) -> None:
    strace = need_program("strace")
    path = root.parent / "manifest.yaml"
    (root.parent / "app.tgz").write_bytes(APP)
    properties = f"url: app.tgz, checksum: {DIGEST}, extract_parent: {root}/opt, creates: {root}/opt/app/run"
    path.write_text(f"- archive:\n    - {root}/a.tgz: {{{properties}}}\n")
    deaths = 0
    for _ in range(200):
        shutil.rmtree(root)
        (root / "opt/app").mkdir(parents=True)
        (root / "opt/app/old").write_text("old")
        (root / "opt/data").write_text("old")
        shutil.rmtree(os.environ["MAINSTAY_STATE_DIR"], ignore_errors=True)
        kill = f"inject=/^{call}(at2?|64)?$:signal=SIGKILL:when={deaths + 1}"
        done = subprocess.run(
            [strace, "-qq", "-o", "/dev/null", "-e", kill, PROGRAM, "apply", path], capture_output=True
        )
        whole = (root / "opt/app/run").exists()
        assert (root / "opt/app/old").exists() != whole, "the old or the new directory, whole"
        if whole:
            assert (root / "opt/data").read_text() == "d", "the entry with `creates` comes last"
        again = subprocess.run([PROGRAM, "apply", path], capture_output=True, text=True)
        assert again.returncode == 0, again.stdout
        assert temps_below(root) == []
        assert {"opt/app", "opt/app/lib", "opt/app/lib/a", "opt/app/run", "opt/data"} <= set(names_below(root))
        assert not (root / "opt/app/old").exists()
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        deaths += 1
    else:
        pytest.fail("the run never ended")
    assert deaths > 0 or call in ("symlink", "unlink")


# ---- the command line ----
def test_an_archive_from_the_command_line(mainstay: Program, root: Path, server: WebServer) -> None:
    (root / "opt").mkdir()
    words = ("--url", f"{server.url}/app.tgz", "--checksum", DIGEST, "--extract-parent", root / "opt", "--strip", "1")
    done = mainstay("ensure", "archive", root / "a.tgz", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "opt/run").exists()
    state = json.loads(mainstay("status", "archive", root / "a.tgz", "--json").stdout)
    assert (state["ensure"], state["checksum"]) == ("present", DIGEST)
    assert mainstay("ensure", "archive", root / "a.tgz", "--ensure", "absent").returncode == 0
    assert not (root / "a.tgz").exists()


def test_the_command_line_takes_no_secrets_as_arguments(mainstay: Program) -> None:
    """Every user of the host can read the arguments of a process."""
    shown = mainstay("ensure", "archive", "--help").stdout
    assert "--checksum" in shown
    for option in ("--password", "--username", "--headers"):
        assert f"{option}-file FILE" in shown
        assert f"{option} " not in shown


def test_the_command_line_reads_headers_from_a_file(mainstay: Program, root: Path, server: WebServer) -> None:
    (root / "headers").write_text("X-Tenant: shop\nAuthorization: Bearer s3cr3t\n")
    words = ("--url", f"{server.url}/app.tgz", "--checksum", DIGEST, "--headers-file", root / "headers")
    done = mainstay("ensure", "archive", root / "a.tgz", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (root / "headers").write_text("no header")
    done = mainstay("ensure", "archive", root / "b.tgz", *words)
    assert (done.returncode, "every line must be `name: value`" in done.stderr) == (2, True)


@pytest.mark.parametrize("key", ["url", "extract_parent", "creates", "owner", "group", "checksum", "strip"])
@pytest.mark.parametrize("value", ["$(touch ROOT/evil)", "; touch ROOT/evil", "-rf", "../../evil", "%00"])
def test_an_injected_value_is_only_text(key: str, value: str, apply: Apply, root: Path) -> None:
    from mainstay.foundation.faults import DoesNotLoad

    (root.parent / "app.tgz").write_bytes(APP)
    given = {"url": "app.tgz", "extract_parent": "ROOT", key: "{{ data.value }}"}
    text = json.dumps([{"archive": [{"ROOT/a.tgz": given}]}])
    try:
        done = apply(text, data_layers=[{"value": value.replace("ROOT", str(root))}])
        assert done.outcomes == ["failed"]
    except DoesNotLoad:
        pass
    assert names_below(root) == []
