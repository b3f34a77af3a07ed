"""Labels and someone else's predicted probabilities, from files, brought into one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._audit.border import MOST_SUM_ERROR
from ..crowd.command import ANNOTATOR, ITEM
from ..data import image_folder, read_npy, read_npz
from ..data._cells import number_of
from ..data._rows import Chunk, chunks
from ..data.labels import Coder, in_order, label_text
from ..errors import DubitoError, nearest
from .arrays import labels_of
from .names import IDS, LABELS
from .sources import columns, needed, role
from .tasks import FitJob

Array = np.ndarray[Any, Any]
PROBS = ("probs", "pred_probs", "probabilities", "p")


@dataclass(frozen=True)
class Labels:
    """One entry per given label: class, name of the item, annotator where one is told.

    Fields:
        named: whether the file names its items; otherwise they are called by their row.
    """

    path: str
    label: list[str]
    item: list[str]
    annotator: list[str] | None = None
    named: bool = False

    @property
    def items(self) -> list[str]:
        """Each item once, in the order in which they first occur."""
        return list(dict.fromkeys(self.item))


def read_labels(job: FitJob) -> Labels:
    """The labels of a table, an npz file or a folder of images; inputs are not looked at."""
    path = job.data
    if path.is_dir():
        data = image_folder(path)
        given = [data.classes[k] for k in data.labels.tolist()]
        return Labels(str(path), given, list(data.ids or ()), named=True)
    if path.suffix.lower() == ".npz":
        return _from_arrays(job)
    names = columns(path, job.options.get("delimiter"))
    label = needed(role(job.label, LABELS, names, path, "label"), names, path, "label")
    others = [n for n in names if n != label]
    annotator = role(job.annotator, ANNOTATOR, others, path, "annotator")
    usual = (*ITEM, *IDS) if annotator else IDS
    item = role(job.item, usual, [n for n in others if n != annotator], path, "item")
    coders = Coder("label"), Coder("annotator")
    ids: list[str] = []
    wanted = [n for n in (label, annotator, item) if n is not None]
    for chunk in chunks(path, wanted, delimiter=job.options.get("delimiter")):
        coders[0].extend(chunk.cells[label], partial(chunk.where, column=label))
        if annotator is not None:
            coders[1].extend(chunk.cells[annotator], partial(chunk.where, column=annotator))
        rows = range(len(chunk.numbers))
        ids += [_id(chunk, item, row, len(ids) + row + 1) for row in rows]
    codes, classes = coders[0].finish()
    who, people = coders[1].finish()
    named = None if annotator is None else [people[r] for r in who.tolist()]
    return Labels(str(path), [classes[k] for k in codes.tolist()], ids, named, item is not None)


def _id(chunk: Chunk, column: str | None, row: int, number: int) -> str:
    return str(number) if column is None else str(chunk.cells[column][row]).strip()


def _from_arrays(job: FitJob) -> Labels:
    arrays = read_npz(job.data)
    key = job.label or next((k for k in ("y", *LABELS) if k in arrays), None)
    if key is None or key not in arrays:
        remedy = nearest(key, arrays) if key else "pass --label NAME"
        raise DubitoError("no array of labels", where=str(job.data), got=", ".join(arrays), remedy=remedy)
    y, coder = arrays[key], Coder("label")
    if y.ndim != 1:
        raise DubitoError("labels must be one per item", where=f"{job.data}, {key}", got=f"shape {y.shape}")
    coder.extend(labels_of(y), lambda i: f"{job.data}, {key}[{i}]")
    codes, classes = coder.finish()
    return Labels(str(job.data), [classes[k] for k in codes.tolist()], [str(i + 1) for i in range(len(y))])


def read_probs(path: Path, labels: Labels) -> tuple[Array, list[str]]:
    """Probabilities ``(items, classes)`` in the order of `labels.items`, and the names of their columns.

    A table has a column per class, called like it or ``p_`` and its name; with a column of ids its rows may be in
    any order. An .npy or .npz file (array `probs`) has the rows of the labels and the sorted classes.
    """
    if not path.is_file():
        raise DubitoError("no such file", where=str(path))
    if path.name == "predictions.csv" and (path.parent / "out_of_fold.npz").is_file():
        raise DubitoError(
            "these are predictions of a network that was trained on the labels, and hardly doubt them",
            where=str(path),
            expected="probabilities by models that did not see the item",
            remedy=f"dubito audit {path.parent} judges the run by its own",
        )
    classes = in_order(sorted(set(labels.label)))
    if path.suffix.lower() in (".npy", ".npz"):
        return _array(path, labels, classes)
    names = columns(path)
    found = _class_columns(names, classes, path)
    key = role(None, (*IDS[:-1], *ITEM), [n for n in names if n not in found.values()], path, "id")
    prefixed = all(column != name for name, column in found.items())
    rows: dict[str, list[float]] = {}
    wanted = [*found.values(), *([key] if key else [])]
    for chunk in chunks(path, wanted):
        cells = [chunk.cells[c] for c in found.values()]
        for row in range(len(chunk.numbers)):
            numbers = [number_of(column[row]) for column in cells]
            if not np.isfinite(numbers).all():
                bad = next(c for c, v in zip(found.values(), numbers) if not np.isfinite(v))
                raise DubitoError("not a probability", where=chunk.where(row, bad), got=chunk.cells[bad][row])
            if min(numbers) < 0 or abs(sum(numbers) - 1) > MOST_SUM_ERROR:
                left = (
                    ""
                    if prefixed
                    else ", or, if classes without a label have columns too, call them all p_CLASS"
                )
                raise DubitoError(
                    "not the probabilities of all classes",
                    where=chunk.where(row, next(iter(found.values()))).rpartition(", column")[0],
                    expected="numbers from 0 that sum to 1",
                    got=", ".join(f"{c} {v:.4g}" for c, v in list(zip(found.values(), numbers))[:8]),
                    remedy=f"pass softmax(logits){left}",
                )
            name = _id(chunk, key, row, len(rows) + 1)
            if name in rows:
                where = chunk.where(row, str(key))
                raise DubitoError("an item has two rows of probabilities", where=where, got=repr(name))
            rows[name] = numbers
    return _ordered(rows, labels, key, path), list(found)


def _class_columns(names: Sequence[str], classes: Sequence[str], path: Path) -> dict[str, str]:
    """Class -> column; classes that no label names may have columns as well."""
    prefixed = {n[2:]: n for n in names if n.startswith("p_")}
    known = prefixed if prefixed and all(c in prefixed for c in classes) else {n: n for n in names}
    missing = [c for c in classes if c not in known]
    if missing:
        raise DubitoError(
            f"no column with the probabilities of class {missing[0]!r}",
            where=f"{path}, line 1",
            got=", ".join(names[:12]),
            remedy=nearest(missing[0], names),
        )
    every = in_order(list(known)) if known is prefixed else list(classes)
    return {c: known[c] for c in every}


def _ordered(rows: dict[str, list[float]], labels: Labels, key: str | None, path: Path) -> Array:
    items = labels.items
    shared = key is not None and bool(set(items) & set(rows))
    if key is not None and labels.named and items and rows and not shared:
        raise DubitoError(
            "no id of the labels is one of the probabilities",
            where=f"{path}, column {key!r}",
            expected=f"ids as in {labels.path}, {items[0]!r}",
            got=repr(next(iter(rows))),
            remedy="write the same ids into both files, or leave them out where the rows have one order",
        )
    if not shared:
        if len(rows) != len(items):
            raise DubitoError(
                "probabilities and items differ in number",
                where=str(path),
                expected=len(items),
                got=len(rows),
                remedy="give both files a column of ids",
            )
        return np.array(list(rows.values()))
    absent = next((i for i in items if i not in rows), None)
    if absent is not None:
        raise DubitoError("an item has no probabilities", where=f"{path}, column {key!r}", got=repr(absent))
    return np.array([rows[i] for i in items])


def _array(path: Path, labels: Labels, classes: list[str]) -> tuple[Array, list[str]]:
    if path.suffix.lower() == ".npy":
        return _fits(read_npy(path), labels, classes, path)
    arrays = read_npz(path)
    key = next((k for k in PROBS if k in arrays), None)
    if key is None:
        raise DubitoError(
            "no array of probabilities", where=str(path), expected="probs", got=", ".join(arrays)
        )
    if "classes" in arrays:
        classes = [str(label_text(v)) for v in arrays["classes"].tolist()]
    return _fits(arrays[key], labels, classes, path)


def _fits(probs: Array, labels: Labels, classes: list[str], path: Path) -> tuple[Array, list[str]]:
    expected = (len(labels.items), len(classes))
    if probs.shape != expected:
        raise DubitoError(
            "probabilities do not fit the labels", where=str(path), expected=expected, got=probs.shape
        )
    return probs, classes
