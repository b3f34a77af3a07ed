"""Files that are either whole or absent: write, flush to the disk, rename; and paths that are refused."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import DubitoError

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "file too large",
}


def sha256(data: bytes | bytearray | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_durable(path: Path, data: bytes) -> None:
    """Create `path` with these bytes and wait until they are on the disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view[: 1 << 26]) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Replace `path` by a new file at once: readers see the old one or the new one, never a part."""
    with replacing(path, len(data)) as temporary:
        write_durable(temporary, data)


@contextmanager
def replacing(path: Path, size: int = 0) -> Iterator[Path]:
    """The name of a file to be made beside `path`, which takes its place when the block has ended well.

    The name is different each time, so that two processes that write the same file do not collide.
    """
    refuse_special(path)
    temporary = path.with_name(f".{os.urandom(6).hex()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, size, error) from error
        raise


def refuse_special(path: Path) -> None:
    """Refuse a path that exists and is not a regular file: renaming onto it would replace it."""
    kind = kind_of(path)
    if kind not in ("nothing", "a file"):
        raise DubitoError(
            "refusing to write", where=str(path), expected="a regular file or nothing", got=kind
        )


def kind_of(path: Path) -> str:
    """What is at `path`, links not followed: 'nothing', 'a file', 'a folder', 'a symbolic link', 'a device', ..."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except (
        OSError,
        ValueError,
    ) as error:  # a name too long or with a zero byte, a folder that may not be read
        why = getattr(error, "strerror", None) or str(error)
        raise DubitoError("no such path", where=repr(str(path))[:200], got=why) from None
    names = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
    }
    return names.get(stat.S_IFMT(mode), "something unknown")


def exists(path: Path, kind: str = "file") -> bool:
    """Whether a file (or a folder) is there, links followed; a name that no system takes is none."""
    try:
        return path.is_dir() if kind == "folder" else path.is_file()
    except PermissionError as error:
        raise DubitoError("cannot read", where=str(path), got=error.strerror) from None
    except (OSError, ValueError):
        return False


def make_folder(path: Path) -> None:
    """A folder and those above it, unless they are there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, 0, error) from error
    except (ValueError, RecursionError) as error:  # a zero byte, a thousand folders in one another
        raise DubitoError("not a name for a folder", where=repr(str(path))[:200], got=str(error)) from None


def cannot_write(path: Path, size: int, error: OSError) -> DubitoError:
    """The sentence for a write that failed: where, how many bytes, why, and how much room there is."""
    why = _FULL.get(error.errno or 0, error.strerror or type(error).__name__)
    if not size:  # a folder, or a file that could not even be opened
        return DubitoError("cannot write", where=str(path), got=why, remedy="choose another folder")
    kept = "what was saved before is untouched"
    if error.errno not in _FULL:  # a read-only or failing disk, no permission: room is not what is missing
        expected, remedy = f"{size:,} bytes to be written", f"choose another folder; {kept}"
        return DubitoError("cannot write", where=str(path), expected=expected, got=why, remedy=remedy)
    try:
        got = f"{why} ({shutil.disk_usage(path.parent).free:,} bytes free)"
    except OSError:
        got = why
    expected, remedy = f"room for {size:,} bytes", f"make room or choose another folder; {kept}"
    return DubitoError("cannot write", where=str(path), expected=expected, got=got, remedy=remedy)


def check_delimiter(delimiter: str, where: Path) -> str:
    """One character that can stand between two cells; a tab may be spelled, as no shell types it easily."""
    delimiter = "\t" if delimiter.lower() in ("\\t", "tab") else delimiter
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise DubitoError(
            "this cannot separate the columns of a table",
            where=str(where),
            expected="a delimiter of one character",
            got=repr(delimiter[:40]),
        )
    return delimiter


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a regular file (links not followed) of at most `most` bytes."""
    kind = kind_of(path)
    if kind != "a file":
        raise DubitoError("cannot read", where=str(path), expected="a regular file", got=kind)
    try:
        data = _read(path, most)
    except OSError as error:
        raise DubitoError("cannot read", where=str(path), got=error.strerror) from error
    return data


def _read(path: Path, most: int) -> bytes:
    size = path.stat().st_size
    if size > most:
        raise DubitoError(
            "file too large", where=str(path), expected=f"at most {most:,} bytes", got=f"{size:,} bytes"
        )
    with path.open("rb") as file:
        data = file.read(size + 1)
    if len(data) != size:
        raise DubitoError("the file changed while it was read", where=str(path), expected=f"{size:,} bytes")
    return data
