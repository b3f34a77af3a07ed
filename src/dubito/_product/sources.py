"""What a path holds: a table, arrays or a folder of images; which column is what.

Columns that are not named are looked up by the usual names; what was taken is said before anything is trained.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..crowd._files import separated
from ..crowd.command import ANNOTATOR, ITEM
from ..data._rows import Chunk, chunks
from ..data.labels import Coder, label_text
from ..errors import DubitoError, nearest
from .classes import refuse_numbers
from .columns import NUMBER, Code, kind_of
from .features import found_features, why_nothing
from .names import CLEAN, IDS, IMAGES, INPUT_KEYS, LABELS, MASKS, SPLITS
from .tasks import FitJob

PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst")
TABLES = (".csv", ".tsv", ".txt", ".tab", ".parquet", ".pq")


@dataclass(frozen=True)
class Source:
    """Where inputs and labels are, in words that a configuration can hold."""

    kind: str  # "table", "arrays" or "folder"
    path: str
    label: str = ""
    clean: str | None = None
    id: str | None = None
    item: str | None = None
    annotator: str | None = None
    features: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    image: str | None = None
    images: str | None = None
    inputs: str | None = None
    delimiter: str | None = None
    size: int | None = None
    mode: str = "RGB"
    codes: tuple[Code, ...] = ()  # of the features, where one is more than a column of numbers without gaps
    groups: str | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON values; without codes and groups as it was before there were any, so that older runs go on."""
        return {k: v for k, v in asdict(self).items() if k not in ("codes", "groups") or v}


def from_plain(values: dict[str, Any]) -> Source:
    """A source as it was written to a configuration."""
    lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    codes = tuple(Code(**{**code, "values": tuple(code["values"])}) for code in values.get("codes", ()))
    return Source(**{**lists, "codes": codes})


def find(job: FitJob) -> Source:
    """What `job.data` is, with every role given to a column."""
    path = job.data
    if path.is_dir():
        if job.groups is not None:
            raise DubitoError(
                "a folder has no column of groups", where=str(path), got=f"--groups {job.groups}"
            )
        _not_masks(path)
        _not_splits(path)
        return Source("folder", str(path), size=job.size)
    if not path.exists():
        near = nearest(path.name, os.listdir(path.parent)) if path.parent.is_dir() else None
        near = near if near and near.startswith("did you mean") else None  # not a listing of the folder
        raise DubitoError("no such file or folder", where=str(path), remedy=near)
    if path.suffix.lower() == ".npz":
        return _arrays(job)
    if path.suffix.lower() not in TABLES:
        raise DubitoError(
            "unknown kind of data",
            where=str(path),
            expected="a .csv, .tsv, .parquet or .npz file, or a folder with one folder of images per class",
            got=path.suffix or "no suffix",
            remedy="unpack it first" if path.suffix.lower() in PACKED else None,
        )
    return _table(job)


def _not_masks(path: Path) -> None:
    """Refuse a folder of images and a folder of masks, which would pass for two classes."""
    inside = sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    masks = [name for name in inside if name.lower() in MASKS]
    if len(inside) == 2 and len(masks) == 1:
        (images,) = set(inside) - set(masks)
        raise DubitoError(
            "these folders look like images and their masks, not like two classes",
            where=str(path),
            got=", ".join(inside),
            remedy=f"dubito fit {path / images} --masks {path / masks[0]}",
        )


def _not_splits(path: Path) -> None:
    """Refuse a folder of train/ and test/, which would pass for classes."""
    inside = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(inside) < 2 or not all(p.name.lower() in SPLITS for p in inside):
        return
    if any(q.is_dir() for p in inside for q in p.iterdir()):
        first = max(inside, key=lambda p: p.name.lower().startswith("train"))
        raise DubitoError(
            "these folders look like parts of the data, not like classes",
            where=str(path),
            got=", ".join(p.name for p in inside),
            remedy=f"dubito fit {first}",
        )


def columns(path: Path, delimiter: str | None = None) -> list[str]:
    """The names of a table's columns."""
    from ..crowd._files import header

    names = [name.strip() for name in header(path, delimiter)]
    if not names:
        raise DubitoError("an empty file", where=str(path), expected="a first line with the column names")
    return names


def first_rows(path: Path, names: Sequence[str], delimiter: str | None) -> Chunk:
    """The first few thousand rows."""
    unique = [n for n in names if list(names).count(n) == 1]
    found = next(chunks(path, unique, delimiter=delimiter), None)
    if found is None:
        raise DubitoError("the table has no rows", where=str(path))
    return found


def role(
    given: str | None,
    usual: Sequence[str],
    names: Sequence[str],
    path: Path,
    what: str,
    taken: Sequence[str] = (),
) -> str | None:
    """The column of a role: as told, or by the usual names; None where there is none.

    Columns that are `taken` are not proposed in place of a missing one.
    """
    if given is not None:
        where = f"{path}, line 1"
        if given not in names:
            free = [n for n in names if n not in taken]
            remedy = separated(names) or (nearest(given, free) if free else None)
            raise DubitoError(f"no column {given!r}", where=where, remedy=remedy)
        if list(names).count(given) > 1:
            raise DubitoError(f"two columns are called {given!r}", where=where, remedy="rename one")
        return given
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[u] for u in usual if u in lower), None)


def needed(found: str | None, names: Sequence[str], path: Path, what: str) -> str:
    """A role that must be there."""
    if found is None:
        raise DubitoError(
            f"no column for the {what}",
            where=f"{path}, line 1",
            got=", ".join(names[:12]) + (", ..." if len(names) > 12 else ""),
            remedy=separated(names) or f"pass --{what} NAME",
        )
    return found


def _table(job: FitJob) -> Source:
    path, names = job.data, columns(job.data, job.options.get("delimiter"))
    delimiter = job.options.get("delimiter")
    label = needed(role(job.label, LABELS, names, path, "label"), names, path, "label")
    others = [n for n in names if n != label]
    annotator = role(job.annotator, ANNOTATOR, others, path, "annotator")
    item = role(job.item, ITEM, others, path, "item") if annotator or job.item else None
    clean = role(job.clean, CLEAN, others, path, "clean")
    groups = role(job.groups, (), others, path, "groups")
    head = first_rows(path, names, delimiter)
    # What is no label is told with its place, before others look at the labels.
    Coder(missing="keep").extend(head.cells[label], partial(head.where, column=label))
    image, images = _image(job, head, [n for n in others if n not in (annotator, clean)])
    identity = item if annotator is None else None  # an item column without annotators names the rows
    item = item if annotator is not None else None
    if item is None and identity is None:
        identity = image or role(None, IDS, others, path, "id")
    taken = {label, annotator, item, clean, image, identity, groups}
    free = [n for n in others if n not in taken]
    features: tuple[str, ...] = ()
    if image is None:
        _check_features(job, names, (label, clean, annotator, item))
        features = job.features or found_features(head, free, label, item)
        if not features:
            classes = {text for cell in head.cells[label] if (text := label_text(cell)) is not None}
            refuse_numbers(classes, len(head.numbers), f"{path}, {label}")
            raise DubitoError(
                "nothing to learn from",
                where=str(path),
                expected="columns of numbers or categories, or a column of image files with --images DIR",
                got=", ".join(names[:12]),
                remedy=why_nothing(names, annotator, head, label, item),
            )
    return Source(
        "table",
        str(path),
        label=label,
        clean=clean,
        id=identity,
        item=item,
        annotator=annotator,
        features=features,
        left_out=tuple(n for n in free if n not in features),
        codes=tuple(Code(n, kind_of(head.cells[n]) or NUMBER) for n in features),
        image=image,
        images=None if images is None else str(images),
        delimiter=delimiter,
        size=job.size,
        groups=groups,
    )


def _check_features(job: FitJob, names: Sequence[str], labels: Sequence[str | None]) -> None:
    for name in job.features:
        role(name, (), names, job.data, "features")
        if name in labels:
            where, remedy = f"{job.data}, line 1", "leave it out of --features"
            raise DubitoError("labels cannot be a feature too", where=where, got=repr(name), remedy=remedy)
    if job.size is not None:
        raise DubitoError("--size is for images", where=str(job.data), got="a table of numbers")


def _image(job: FitJob, head: Chunk, names: Sequence[str]) -> tuple[str | None, Path | None]:
    """The column whose first cells name files in the folder of images."""
    root = job.images if job.images is not None else job.data.parent
    if job.images is not None and not root.is_dir():
        raise DubitoError("no such folder of images", where=str(root))
    usual = [n for n in names if n.lower() in IMAGES]
    wanted = usual if job.images is None else [*usual, *(n for n in names if n not in usual)]
    for name in wanted:
        some = [str(c).strip() for c in head.cells.get(name, ())[:5]]
        if some and any(c and not os.path.isabs(c) and os.path.isfile(root / c) for c in some):
            return name, root
    if job.images is not None:
        shown = {n: str(head.cells[n][0]) for n in wanted[:4] if n in head.cells}
        raise DubitoError(
            "no column names files in the folder of images",
            where=f"{job.data} and {root}",
            got=", ".join(f"{n} = {v[:40]!r}" for n, v in shown.items()),
            remedy=f"paths must be relative to {root}",
        )
    return None, None


def _arrays(job: FitJob) -> Source:
    from ..data import read_npz

    arrays = read_npz(job.data)
    names = sorted(arrays)
    inputs = next((k for k in (*job.features, *INPUT_KEYS) if k in arrays), None)
    if inputs is None:
        raise DubitoError(
            "no array of inputs",
            where=str(job.data),
            expected="one of " + ", ".join(INPUT_KEYS),
            got=", ".join(names),
            remedy="name it with --features",
        )
    for told in (job.label, job.groups):
        if told is not None and told not in arrays:
            raise DubitoError(f"no array {told!r}", where=str(job.data), remedy=nearest(told, names))
    label = job.label or next((k for k in ("y", *LABELS, "Y", "y_train") if k in arrays), None)
    if label is None:
        raise DubitoError(
            "no array of labels", where=str(job.data), got=", ".join(names), remedy="pass --label NAME"
        )
    people = job.annotator or next((k for k in ANNOTATOR if k in arrays), None)
    items = job.item or next((k for k in ITEM if k in arrays), None)
    clean = job.clean or next((k for k in CLEAN if k in arrays), None)
    return Source(
        "arrays",
        str(job.data),
        label=label,
        inputs=inputs,
        clean=clean,
        item=items if people else None,
        annotator=people if items else None,
        id=next((k for k in ("id", "ids") if k in arrays), None),
        groups=job.groups,
    )
