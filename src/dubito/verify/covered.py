"""Which code a record speaks of: a digest for every part of the package, a part being what lies right below it.

A record of a long check keeps the digests of its day. A part whose digest is another one today was changed since,
and the card says so beside the figure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# The card itself is made of the records, so no record can hold its digest.
LEFT_OUT = ("recorded.json", "py.typed")


def digests(package: Path = PACKAGE) -> dict[str, str]:
    """The first 12 digits of a SHA-256 over the names and bytes of every part's files.

    Example:
        >>> {"losses", "train", "checkpoint"} <= digests().keys()
        True
    """
    found = {}
    for top in sorted(package.iterdir()):
        files = sorted(p for p in top.rglob("*") if p.is_file()) if top.is_dir() else [top]
        files = [p for p in files if "__pycache__" not in p.parts and p.name not in LEFT_OUT]
        if files and top.suffix in ("", ".py"):
            found[top.stem] = digest(files, package)
    return found


def digest(files: Iterable[Path], root: Path) -> str:
    """One digest over the names below `root` and the bytes of some files, in the order given.

    Example:
        >>> digest([], PACKAGE) == digest([], PACKAGE.parent)
        True
    """
    whole = hashlib.sha256()
    for path in files:
        content = path.read_bytes().replace(b"\r\n", b"\n")
        whole.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:12]


def changed(then: Mapping[str, str], now: Mapping[str, str], parts: Iterable[str]) -> list[str]:
    """Those of some parts that are not today what they were when a record was made, or were not there.

    Example:
        >>> changed({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}, ["a", "b", "c"])
        ['b', 'c']
    """
    return sorted(part for part in set(parts) if then.get(part) != now.get(part))
