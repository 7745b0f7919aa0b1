"""What a push keeps on a host, by digest, and what it must not keep. No host is needed."""

from __future__ import annotations

import io
import os
import zlib
from hashlib import sha256
from pathlib import Path

import pytest

from mainstay.push.content_store import KEPT_BYTES, KEPT_SECONDS, ContentStore, TransferRefused
from mainstay.push.contents import ContentIndex, Shipment, SourceChanged
from mainstay.push.delivery import Delivery


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    (tmp_path / "contents").mkdir(mode=0o700)
    return ContentStore(str(tmp_path / "contents"))


def write_site(folder: Path) -> ContentIndex:
    for name, text in {"site/a": "same", "site/b": "same", "site/run": "#!/bin/sh\n", "site/key": "secret"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "site/run").chmod(0o755)
    (folder / "packed").mkdir()
    index = ContentIndex("a", str(folder / "packed"))
    names = [str(folder / "site" / name) for name in ("a", "b", "run", "key")]
    index.add(str(folder), names, {names[3]})
    index.add_directory("site/empty")
    return index


def packed(index: ContentIndex, numbers: list[int]) -> io.BytesIO:
    stream = b""
    for number in numbers:
        size = index.contents[number].pack()
        stream += b"%d\n" % size + b"".join(index.contents[number].packed_pieces())
    return io.BytesIO(stream + b"stop\n")


def test_the_host_asks_for_each_content_once_and_keeps_no_secret(store: ContentStore, tmp_path: Path) -> None:
    index = write_site(tmp_path)
    shipment = Shipment(index.document(), is_packed=False)
    needs = []
    for attempt in ("first", "second"):
        delivery = Delivery(ContentStore(store.folder), shipment.digest, None, shipment.travelling)
        needs.append(needed := delivery.needed())
        (tmp_path / attempt).mkdir()
        stream = packed(index, needed)
        delivery.receive(stream, needed, str(tmp_path / attempt))
        files = tmp_path / attempt / "files" / "site"
        assert {path.name: path.read_text() for path in files.iterdir() if path.is_file()} == {
            "a": "same",
            "b": "same",
            "run": "#!/bin/sh\n",
            "key": "secret",
        }
        assert {path.name for path in files.iterdir() if path.stat().st_mode & 0o777 == 0o700} == {"run", "empty"}
        # What follows belongs to the run.
        assert stream.read() == b"stop\n"
        assert list((tmp_path / attempt / "private").iterdir()) == []
    key = [content.digest for content in index.contents].index(digest_of(b"secret"))
    assert needs == [[0, 1, 2], [key]]
    assert sorted(os.listdir(store.folder)) == sorted([digest_of(b"same"), digest_of(b"#!/bin/sh\n")])


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"", "the connection ended early"),
        (b"x\n", "the connection ended early"),
        (b"9" * 100, "the connection ended early"),
        (b"30\n" + zlib.compress(b"same")[:5], "ended early"),
        (b"%d\n" % len(zlib.compress(b"even")) + zlib.compress(b"even"), "its digest differs"),
        (b"%d\n" % len(zlib.compress(b"same" * 10**6)) + zlib.compress(b"same" * 10**6), "its digest differs"),
        (b"4\nsame", "cannot be unpacked"),
    ],
)
def test_a_damaged_transfer_is_refused_and_leaves_nothing(
    store: ContentStore, tmp_path: Path, stream: bytes, message: str
) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "a").write_text("same")
    index = ContentIndex("a", str(tmp_path / "packed"))
    index.add(str(tmp_path), [str(tmp_path / "a")], ())
    shipment = Shipment(index.document(), is_packed=False)
    delivery = Delivery(store, shipment.digest, None, shipment.travelling)
    (tmp_path / "target").mkdir()
    with pytest.raises(TransferRefused, match=message):
        delivery.receive(io.BytesIO(stream), delivery.needed(), str(tmp_path / "target"))
    assert os.listdir(store.folder) == [shipment.digest]
    with pytest.raises(TransferRefused, match="the list of files arrived damaged"):
        Delivery(store, digest_of(b"other"), None, shipment.travelling)


def test_a_content_is_used_only_if_this_user_alone_can_have_written_it(store: ContentStore, tmp_path: Path) -> None:
    content = b"content"
    digest = digest_of(content)
    path = Path(store.path_of(digest))

    def put() -> None:
        store.store(digest, len(content), iter((zlib.compress(content),)))

    put()
    assert store.has(digest, len(content))
    path.chmod(0o640)
    assert not store.has(digest, len(content))
    put()
    os.link(path, tmp_path / "second-name")
    assert not store.has(digest, len(content))
    put()
    assert store.has(digest, len(content))
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        assert not store.has(digest, len(content))
        put()
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(content)
    path.symlink_to(tmp_path / "elsewhere")
    assert not store.has(digest, len(content))
    put()
    assert not path.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == content


def test_old_contents_are_removed_but_not_while_another_push_needs_them(tmp_path: Path) -> None:
    folder = tmp_path / "contents"
    folder.mkdir(mode=0o700)
    sizes = {"old": 1, "used": 1, "large": KEPT_BYTES, "recent": 1}
    digests = {name: digest_of(name.encode()) for name in sizes}
    for age, (name, size) in enumerate(reversed(sizes.items())):
        path = folder / digests[name]
        path.touch(0o600)
        os.truncate(path, size)
        os.utime(path, (path.stat().st_mtime - age * KEPT_SECONDS / 2 - 60,) * 2)
    (folder / "new-1-abcd").touch()
    first = ContentStore(str(folder))
    # Left by a killed push.
    assert not (folder / "new-1-abcd").exists()
    second = ContentStore(str(folder))
    first.close({digests["used"]})
    assert set(os.listdir(folder)) == set(digests.values())
    second.close({digests["used"]})
    assert set(os.listdir(folder)) == {digests["used"], digests["recent"]}


def test_a_file_that_changes_during_the_push_is_not_sent(tmp_path: Path) -> None:
    index = write_site(tmp_path)
    (tmp_path / "site/a").write_text("other")
    with pytest.raises(SourceChanged, match="site/a was changed during the push; push again"):
        index.contents[0].pack()
    assert index.contents[1].pack() > 0
