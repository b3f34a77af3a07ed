"""One process per run folder: a flock, which the system releases however the process ends."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket
from pathlib import Path

from .errors import DubitoError

NAME = ".lock"

_held: set[int] = set()


def _close_in_child() -> None:
    """A forked worker would keep the lock of a killed parent alive: it closes its copy."""
    for fd in _held:
        with contextlib.suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


def acquire(folder: Path) -> int:
    """Lock a folder and write who holds it; refuse, naming the holder, if another process does."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DubitoError("cannot lock the run folder", where=str(path), got=error.strerror) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(_me()).encode(), 0)
    except OSError as error:
        holder = os.pread(fd, 4096, 0)
        os.close(fd)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise _taken(folder, holder) from None
        raise DubitoError("cannot lock the run folder", where=str(path), got=error.strerror) from error
    _held.add(fd)
    return fd


def release(fd: int) -> None:
    """Give the lock back. The file stays: removing it would let two processes lock two files of one name."""
    if fd in _held:  # not in a forked child, where it was closed
        _held.discard(fd)
        os.close(fd)


def _me() -> dict[str, object]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _taken(folder: Path, holder: bytes) -> DubitoError:
    try:
        who = json.loads(holder)
        name = f"process {who['pid']} on {who['host']} since {who['since']}"
    except (ValueError, KeyError, TypeError):
        name = "a process that has just started"
    return DubitoError(
        "another process is using this run folder",
        where=str(folder),
        got=name,
        remedy="wait for it, stop it, or choose another folder",
    )
