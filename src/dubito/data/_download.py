"""Fetching published files: resumed where they broke off, checked against their checksum, then put in place."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .._files import exists, make_folder
from ..errors import DubitoError, nearest
from ._cache import cache_folder
from ._files import one_line

_log = logging.getLogger("dubito")
_CHUNK = 1 << 16
_ATTEMPTS = 5
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)

Progress = Callable[[str, int, int], None]  # file, bytes so far, bytes in all


@dataclass(frozen=True)
class Source:
    """A published file: its address, its size, the MD5 that its publishers give, and what to take out of it."""

    url: str
    size: int
    md5: str
    members: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_HOUSES = "http://ufldl.stanford.edu/housenumbers/"
SOURCES: dict[str, tuple[Source, ...]] = {
    "mnist": (
        Source(_MNIST + "train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        Source(_MNIST + "train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        Source(_MNIST + "t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        Source(_MNIST + "t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "cifar10": (
        Source(
            _TORONTO + "cifar-10-python.tar.gz",
            170_498_071,
            "c58f30108f718f92721af3b95e74349a",
            tuple(
                f"cifar-10-batches-py/{b}" for b in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
            ),
        ),
    ),
    "cifar100": (
        Source(
            _TORONTO + "cifar-100-python.tar.gz",
            169_001_437,
            "eb9058c3a382ffc7106e4002c42a8d85",
            ("cifar-100-python/train", "cifar-100-python/test"),
        ),
    ),
    "svhn": (
        Source(_HOUSES + "train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
        Source(_HOUSES + "test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
    ),
}


def download(
    name: str, root: str | os.PathLike[str] | None = None, *, progress: Progress | None = None
) -> Path:
    """Fetch a published set into `root/<name>` (by default the cache folder), where `load` finds it.

    A transfer that breaks off is taken up where it stopped, now or at the next call. A file whose checksum is
    not the published one is thrown away.

    Arguments:
        progress: called as progress(file, bytes so far, bytes in all).

    Example:
        >>> download("imagenet")
        Traceback (most recent call last):
        dubito.errors.DubitoError: no public address for this set: got 'imagenet'; choose from cifar10, ...
    """
    if name not in SOURCES:
        raise DubitoError("no public address for this set", got=repr(name), remedy=nearest(name, SOURCES))
    folder = (cache_folder() if root is None else Path(root)) / name
    for source in SOURCES[name]:
        if source.members and all((folder / member).is_file() for member in source.members):
            continue
        path = fetch(source, folder, progress=progress)
        if source.members:
            extract(path, folder, source.members)
            path.unlink()
    return folder


def fetch(source: Source, folder: Path, *, progress: Progress | None = None, wait: float = 1.0) -> Path:
    """One file into a folder; what is there already and has the right checksum is kept."""
    if urllib.parse.urlsplit(source.url).scheme not in ("http", "https"):
        raise DubitoError("only http and https are fetched", got=source.url)
    path, part = folder / source.file, folder / f"{source.file}.part"
    if exists(path) and _md5(path) == source.md5:
        return path
    make_folder(folder)
    for attempt in range(_ATTEMPTS):
        try:
            _transfer(source, part, progress)
            break
        except _BROKEN as error:
            have = part.stat().st_size if part.is_file() else 0
            _log.warning("%s broke off after %d bytes: %s", source.url, have, error)
            if attempt == _ATTEMPTS - 1 or (
                isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
            ):
                raise DubitoError(
                    "the download broke off",
                    where=source.url,
                    expected=f"{source.size} bytes",
                    got=f"{have} ({error})",
                    remedy=f"call again to go on, or put the file into {folder} by hand",
                ) from None
            time.sleep(wait * 2**attempt)
    found = _md5(part)
    if found != source.md5:
        part.unlink()
        raise DubitoError(
            "the downloaded file is not the published one",
            where=source.url,
            expected=f"MD5 {source.md5}",
            got=found,
        )
    os.replace(part, path)
    return path


def _transfer(source: Source, part: Path, progress: Progress | None) -> None:
    """Append to the part file until it is complete; start again if the server cannot go on in the middle."""
    have = part.stat().st_size if part.is_file() else 0
    if have >= source.size:
        return
    request = urllib.request.Request(source.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        if have and answer.status != 206:
            have = 0
        with part.open("ab" if have else "wb") as f:
            while piece := answer.read(_CHUNK):
                have += len(piece)
                if have > source.size:
                    f.truncate(0)
                    raise DubitoError(
                        "more bytes than published", where=source.url, expected=source.size, got=have
                    )
                f.write(piece)
                if progress is not None:
                    progress(source.file, have, source.size)
    if have < source.size:
        raise ConnectionError(f"{have} of {source.size} bytes")


def extract(archive: Path, folder: Path, members: tuple[str, ...], limit: int = 1 << 28) -> None:
    """Unpack the named regular files of a tar archive, and nothing else that it may hold."""
    try:
        with tarfile.open(archive, "r:*") as tar:
            for name in members:
                info = tar.getmember(name)
                content = tar.extractfile(info) if info.isreg() and info.size <= limit else None
                if content is None:
                    raise DubitoError(
                        "not a regular file of fair size", where=f"{archive}[{name}]", got=info.size
                    )
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = target.with_name(target.name + ".part")
                with partial.open("wb") as f:
                    while piece := content.read(1 << 20):
                        f.write(piece)
                os.replace(partial, target)
    except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
        raise DubitoError("damaged archive", where=str(archive), got=one_line(error)) from None


def _md5(path: Path) -> str:
    """The published checksum is an MD5: it finds damage; it does not withstand forgery."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
