"""Downloads against a server that breaks off, ignores ranges, lies, or is missing."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import tarfile
import threading
from pathlib import Path

import pytest

from dubito import DubitoError
from dubito.data import _download, download, load
from dubito.data._download import Source, extract, fetch

CONTENT = bytes(range(256)) * 2000
SIZE = len(CONTENT)


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT; `cuts` is after how many bytes each of the next answers breaks off."""

    ranges, cuts, asked, content = True, [], [], CONTENT

    def handle_error(self, request, client_address):
        """A client that hangs up is part of the test."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.path.endswith("missing"):
            return self.send_error(404)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])
        return None

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    made = Server(("127.0.0.1", 0), Handler)
    made.cuts, made.asked = [], []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def source(server, path="x.bin", md5=None, size=SIZE, **more):
    url = f"http://127.0.0.1:{server.server_address[1]}/{path}"
    return Source(url, size, md5 or hashlib.md5(CONTENT).hexdigest(), **more)


def test_whole_file_with_progress_and_no_second_transfer(server, tmp_path):
    seen = []
    path = fetch(source(server), tmp_path, progress=lambda *a: seen.append(a))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("x.bin", len(CONTENT), len(CONTENT))
    fetch(source(server), tmp_path)
    assert server.asked == [None]
    assert os.listdir(tmp_path) == ["x.bin"]


def test_broken_transfer_goes_on_where_it_stopped(server, tmp_path):
    server.cuts = [100_000, 50_000]
    assert fetch(source(server), tmp_path, wait=0).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges, server.cuts = False, [100_000]
    assert fetch(source(server), tmp_path, wait=0).read_bytes() == CONTENT


def test_an_interrupted_call_is_resumed_by_the_next(server, tmp_path):
    server.cuts = [50_000] + [0] * 4
    with pytest.raises(DubitoError, match=r"broke off at .*x.bin: expected 512000 bytes, got 50000"):
        fetch(source(server), tmp_path, wait=0)
    assert not (tmp_path / "x.bin").exists()
    assert fetch(source(server), tmp_path, wait=0).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=50000-"


@pytest.mark.rel
def test_a_wrong_checksum_is_thrown_away(server, tmp_path):
    """Scorecard 28: a file that is not the published one is never put in place."""
    with pytest.raises(DubitoError, match="not the published one"):
        fetch(source(server, md5="0" * 32), tmp_path)
    assert os.listdir(tmp_path) == []
    (tmp_path / "x.bin.part").write_bytes(b"spoilt" * 100)
    with pytest.raises(DubitoError, match="not the published one"):
        fetch(source(server), tmp_path)
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT


@pytest.mark.rel
def test_more_bytes_than_published_are_not_stored(server, tmp_path):
    """Scorecard 28: a server cannot fill the disk."""
    server.content = CONTENT * 20
    with pytest.raises(DubitoError, match="more bytes than published"):
        fetch(source(server), tmp_path)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= len(CONTENT)


def test_what_cannot_be_fetched(server, tmp_path):
    with pytest.raises(DubitoError, match="404"):
        fetch(source(server, "missing"), tmp_path, wait=0)
    assert len(server.asked) == 1
    with pytest.raises(DubitoError, match="only http and https"):
        fetch(Source("file:///etc/passwd", 1, "0"), tmp_path)
    nowhere = Source("http://127.0.0.1:9/x.bin", 1, "0" * 32)
    with pytest.raises(DubitoError, match="broke off"):
        fetch(nowhere, tmp_path, wait=0)


def test_a_set_is_fetched_unpacked_and_found(server, tmp_path, published, monkeypatch):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(published / "py100" / "cifar-100-python", "cifar-100-python")
    server.content = packed.getvalue()
    members = ("cifar-100-python/train", "cifar-100-python/test")
    md5 = hashlib.md5(server.content).hexdigest()
    entry = source(server, "c.tar.gz", md5, len(server.content), members=members)
    monkeypatch.setitem(_download.SOURCES, "cifar100", (entry,))
    folder = download("cifar100", tmp_path)
    assert sorted(p.name for p in folder.rglob("*") if p.is_file()) == ["test", "train"]
    assert len(load("cifar100", root=tmp_path)) == 12
    download("cifar100", tmp_path)
    assert len(server.asked) == 1


@pytest.mark.rel
def test_hostile_archives(tmp_path):
    """Scorecard 28: only the named regular files come out of an archive."""
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            info = tarfile.TarInfo("wanted")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        with pytest.raises(DubitoError):
            extract(tmp_path / "a.tar", tmp_path / "out", ("wanted",))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("../escaped", "/absolute", "wanted"):
            tar.addfile(tarfile.TarInfo(name))
    extract(tmp_path / "a.tar", tmp_path / "out", ("wanted",))
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["wanted"]
    assert not Path(tmp_path / "escaped").exists()
    for raw in (b"", b"no archive at all" * 100):
        (tmp_path / "a.tar").write_bytes(raw)
        with pytest.raises(DubitoError, match="damaged archive"):
            extract(tmp_path / "a.tar", tmp_path / "out", ("wanted",))


def test_every_public_address_has_a_size_and_a_checksum():
    for sources in _download.SOURCES.values():
        for entry in sources:
            assert entry.size > 0
            assert len(bytes.fromhex(entry.md5)) == 16
            assert entry.url.startswith("http")
