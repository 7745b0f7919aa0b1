"""Bundles from a URL: applied over TLS by digest, and refused without any trace on the host."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from applying import GROUP, USER
from fork_server import PROGRAM
from mainstay.converge.host import bundles
from mainstay.converge.host.sources import BundleTrust
from mainstay.converge.run import RunRequest, run
from mainstay.foundation.faults import DoesNotLoad
from web_server import WebServer, web_server

Program = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "hunter2-correct-horse"


def packed(members: dict[str, str], *, top: str = "", kind: str = "tgz") -> bytes:
    written = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(written, "w") as archive:
            for name, text in members.items():
                archive.writestr(top + name, text)
        return written.getvalue()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(top + name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return written.getvalue()


@pytest.fixture
def members(root: Path) -> dict[str, str]:
    place = f"{{ensure: present, source: files/in.txt, owner: {USER}, group: {GROUP}, mode: '0644'}}"
    return {"manifest.yaml": f"- file:\n    - {root}/out: {place}\n", "files/in.txt": "from the bundle"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    with web_server(tmp_path / "tls") as server:
        yield server


def left_over(root: Path) -> list[Path]:
    folder = root.parent / "state" / "unpacked"
    return [*(folder.iterdir() if folder.exists() else ()), *root.iterdir()]


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_bundle_is_applied_by_its_digest(
    mainstay: Program, server: WebServer, root: Path, members: dict[str, str], tmp_path: Path
) -> None:
    host = server.url.removeprefix("https://")
    trust = ("--ca-file", str(tmp_path / "tls" / "tls.pem"))
    for number, content in enumerate(
        (
            packed(members),
            packed(members, top="site-1.2/"),
            packed(members, kind="zip"),
            packed(members, top="./"),
        )
    ):
        server.answers["/download"] = (302, {"Location": f"{server.url}/site"}, b"")
        server.answers["/site"] = (200, {}, content)
        url = f"https://user:{SECRET}@{host}/download?number={number}&token={SECRET}"
        digest = digest_of(content).upper() if number else f"sha256:{digest_of(content)}"
        done = mainstay("apply", url, "--sha256", digest, *trust, "--json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["manifest"] == f"{server.url}/download/manifest.yaml"
        assert document["events"][0]["outcome"] == ("stable" if number else "changed")
        assert (root / "out").read_text() == "from the bundle"
        assert SECRET not in done.stdout + done.stderr
        (root / "out").rename(root / "kept")
        assert left_over(root) == [root / "kept"]
        (root / "kept").rename(root / "out")
    # Credentials are sent to the host of the URL; the state has one identity for all four, and no secret.
    assert "Authorization" in server.requests[0][1]
    state = root.parent / "state"
    assert len(list((state / "manifests").iterdir())) == 1
    texts = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in text for text in texts)
    assert mainstay("validate", url, "--sha256", digest, *trust).stdout.endswith("valid, 1 resource\n")
    assert "from the bundle" not in mainstay("render", url, "--sha256", digest, *trust).stdout
    assert left_over(root) == [root / "out"]


def test_what_is_not_trusted_is_refused_and_leaves_nothing(
    server: WebServer, root: Path, members: dict[str, str], tmp_path: Path
) -> None:
    ca_file = str(tmp_path / "tls" / "tls.pem")
    content = packed(members)
    digest = digest_of(content)
    linked = io.BytesIO()
    with tarfile.open(fileobj=linked, mode="w:gz") as archive:
        info = tarfile.TarInfo("manifest.yaml")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    bad = {
        "/other.tgz": content + b"\0",
        "/linked.tgz": linked.getvalue(),
        "/outside.tgz": packed({"../manifest.yaml": "x"}),
        "/deep.tgz": packed(members, top="a/b/"),
        "/two.tgz": packed({f"a/{name}": text for name, text in members.items()} | {"b/x": ""}),
        "/text.tgz": b"<html>not found</html>",
        "/large.tgz": content,
    }
    for path, body in bad.items():
        server.answers[path] = (200, {}, body)
    server.answers["/site.tgz"] = (200, {}, content)
    server.answers["/large.tgz"] = (200, {"Content-Length": str(2 * bundles.LARGEST_BYTES)}, content)
    for name, target in [
        ("plain", server.url.replace("https", "http") + "/site.tgz"),
        ("file", "file:///etc/passwd"),
        ("else", "http://198.51.100.1/site.tgz"),
    ]:
        server.answers[f"/{name}"] = (302, {"Location": target}, b"")
    cases: list[tuple[str, str | None, str]] = [
        (f"{server.url}/site.tgz?{SECRET}", None, "--sha256 DIGEST; compute it from a copy that you trust"),
        (f"{server.url}/site.tgz", None, "`sha256sum site.tgz`"),
        (f"{server.url}/site.tgz", "abc", "64 hexadecimal digits"),
        (f"{server.url}/site.tgz", "0" * 64, f"its digest is {digest}, expected 000"),
        (f"{server.url}/other.tgz", digest, "nothing was unpacked"),
        (f"{server.url}/none.tgz?{SECRET}", digest, "404"),
        (f"{server.url}/linked.tgz", digest_of(bad["/linked.tgz"]), "neither a file nor a directory"),
        (f"{server.url}/outside.tgz", digest_of(bad["/outside.tgz"]), "would be outside the target"),
        (f"{server.url}/deep.tgz", digest_of(bad["/deep.tgz"]), "no manifest.yaml at its root or below its only"),
        (f"{server.url}/two.tgz", digest_of(bad["/two.tgz"]), "no manifest.yaml at its root or below its only"),
        (
            f"{server.url}/site.yaml",
            digest_of(b""),
            "a URL must name a bundle: a .tgz, .tar.gz or .zip with manifest.yaml",
        ),
        (f"{server.url}/text.tgz", digest_of(bad["/text.tgz"]), "a URL must name a bundle"),
        (f"{server.url}/large.tgz", digest, "larger than 1 GB"),
        (f"{server.url}/plain", digest, "not encrypted; refused"),
        (f"{server.url}/file", digest, "neither https nor http"),
        (f"{server.url}/else", digest, "not encrypted; refused"),
        (
            f"http://user:{SECRET}@198.51.100.1/site.tgz?{SECRET}",
            digest,
            "plain http is accepted only from this machine",
        ),
        ("http://127.evil.example/site.tgz", digest, "plain http is accepted only from this machine"),
        (f"ftp://{SECRET}@127.0.0.1/site.tgz", digest, "a bundle from an https URL"),
        (f"https://{SECRET}:port/x", digest, "the URL is not valid"),
        ("https://", digest, "the URL is not valid"),
        (f"{server.url}/a\r\nX: y", digest, "the URL is not valid"),
    ]
    for url, sha256, message in cases:
        with pytest.raises(DoesNotLoad) as refused:
            run(RunRequest(url, trust=BundleTrust(sha256, ca_file)))
        assert message in str(refused.value), (url, str(refused.value))
        assert SECRET not in str(refused.value)
        assert left_over(root) == []
    with pytest.raises(DoesNotLoad, match=r"is not trusted.*use --ca-file FILE"):
        run(RunRequest(f"{server.url}/site.tgz", trust=BundleTrust(digest)))
    with pytest.raises(DoesNotLoad, match="cannot load CA certificates from /nowhere"):
        run(RunRequest(f"{server.url}/site.tgz", trust=BundleTrust(digest, "/nowhere")))
    (tmp_path / "local.yaml").write_text(members["manifest.yaml"])
    with pytest.raises(DoesNotLoad, match="--sha256 is for a bundle from a URL"):
        run(RunRequest(str(tmp_path / "local.yaml"), trust=BundleTrust(digest)))
    # Plain HTTP from this machine may not lead to another one.
    with web_server() as plain:
        plain.answers["/site.tgz"] = (200, {}, content)
        plain.answers["/else"] = (302, {"Location": "http://198.51.100.1/site.tgz"}, b"")
        with pytest.raises(DoesNotLoad, match="not encrypted; refused"):
            run(RunRequest(f"{plain.url}/else", trust=BundleTrust(digest)))
        assert run(RunRequest(f"{plain.url}/site.tgz", trust=BundleTrust(digest)))[1].events[0].outcome == "changed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_leaves_nothing_after_the_next(
    server: WebServer, root: Path, members: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    """Ended while it downloads, and while it applies."""
    ca_file = str(tmp_path / "tls" / "tls.pem")
    waiting = threading.Event()
    answered = threading.Event()
    slow = packed({"manifest.yaml": f"- exec:\n    - /bin/touch {root.parent}/reached:\n    - /bin/sleep 60:\n"})

    def answer() -> tuple[int, dict[str, str], bytes]:
        waiting.set()
        answered.wait(20)
        return 200, {}, slow

    server.answers["/slow.tgz"] = answer
    command = [str(PROGRAM), "apply", f"{server.url}/slow.tgz", "--sha256", digest_of(slow), "--ca-file", ca_file]
    downloading = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    assert waiting.wait(20)
    downloading.send_signal(number)
    downloading.wait(20)
    answered.set()
    applying = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        if (root.parent / "reached").exists():
            break
        time.sleep(0.1)
    folder = root.parent / "state" / "unpacked"
    (unpacked,) = folder.iterdir()
    assert (unpacked.stat().st_mode & 0o777, os.listdir(unpacked)) == (0o700, ["manifest.yaml"])
    applying.send_signal(number)
    assert applying.wait(20) == (130 if number == signal.SIGINT else -9)
    assert len(list(folder.iterdir())) == (0 if number == signal.SIGINT else 1)
    content = packed(members)
    # The next run of the same URL also ends the command that the killed run left.
    server.answers["/slow.tgz"] = (200, {}, content)
    run(RunRequest(f"{server.url}/slow.tgz", trust=BundleTrust(digest_of(content), ca_file)))
    assert list(folder.iterdir()) == []
