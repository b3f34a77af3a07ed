"""The user's cache folder: decoded arrays, keyed by the SHA-256 of their bytes, written atomically."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..errors import DubitoError
from ._files import Array, read_npy

_log = logging.getLogger("dubito")


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/dubito`, or `~/.cache/dubito`; not created here."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "dubito"


def cached_array(sha256: str, make: Callable[[], Array]) -> Array:
    """The array whose bytes have this SHA-256: from the cache if it verifies there, else made and kept.

    A cache that cannot be written costs time, never the result.
    """
    path = cache_folder() / "decoded" / f"{sha256}.npy"
    if path.is_file():
        try:
            kept = read_npy(path)
            if _digest(kept) == sha256:
                return kept
            _log.warning("%s does not match its name; it is made again", path)
        except (DubitoError, OSError) as error:
            _log.warning("%s cannot be read (%s); it is made again", path, error)
    array = make()
    if _digest(array) != sha256:
        raise DubitoError("the decoded array is not the recorded one", expected=sha256, got=_digest(array))
    try:
        write_atomically(path, array)
    except OSError as error:
        _log.warning("cannot keep the decoded array in %s (%s); it will be decoded again", path, error)
    return array


def write_atomically(path: Path, array: Array) -> None:
    """Write an .npy file so that other processes see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:16]}-")
    try:
        with os.fdopen(handle, "wb") as f:
            np.save(f, array, allow_pickle=False)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
