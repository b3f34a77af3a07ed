"""Tables in and out with an item for each row: arrays, frames and lists of different lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DubitoError
from ._coding import fixed_ids

if TYPE_CHECKING:
    from .labels import CrowdLabels


def from_dense(
    cls: type[CrowdLabels],
    /,
    table: Any,
    *,
    missing: Any = -1,
    classes: Any = None,
    item_ids: Any = None,
    annotator_ids: Any = None,
) -> CrowdLabels:
    """Labels from an items x annotators table with gaps.

    A row without labels is an item without labels, a column without labels an annotator without labels; both
    keep their place.

    Arguments:
        table: array, tensor, nested lists or data frame (index and columns become ids).
        missing: the value of a gap; NaN, None and pandas' NA are gaps as well.
        classes, item_ids, annotator_ids: as in `CrowdLabels`.

    Example:
        >>> import dubito.crowd as dc
        >>> dc.CrowdLabels.from_dense([[0, 1, -1], [1, -1, -1], [-1, -1, -1]])
        CrowdLabels(3 labels, 3 items, 3 annotators, 2 classes)
    """
    if item_ids is None and hasattr(table, "index") and hasattr(table, "columns"):
        item_ids, annotator_ids = list(table.index), list(table.columns)
    cells = cells_of(table)
    given = ~gaps_of(cells, missing)
    row, column = np.nonzero(given)
    labels = cells[row, column]
    if labels.dtype.kind == "f" and len(labels):
        bad = np.flatnonzero((labels != np.round(labels)) | np.isinf(labels))
        if len(bad):
            raise DubitoError(
                "labels must be whole numbers or text",
                where=f"row {row[bad[0]]}, column {column[bad[0]]}",
                got=labels[bad[0]],
            )
    _no_empty(labels, row, column)
    if classes is None and labels.dtype.kind in "if" and (labels < 0).any():
        place = int((labels < 0).argmax())
        raise DubitoError(
            "a negative label usually means that there is none",
            where=f"row {row[place]}, column {column[place]}",
            got=int(labels[place]),
            remedy="pass it as missing=, or list it in classes=[...] if it is a class",
        )
    rows = np.arange(cells.shape[0]) if item_ids is None else _exact(item_ids, cells.shape[0], "item_ids")
    names = (
        np.arange(cells.shape[1])
        if annotator_ids is None
        else _exact(annotator_ids, cells.shape[1], "annotator_ids")
    )
    return cls(rows[row], names[column], labels, classes=classes, item_ids=rows, annotator_ids=names)


def cells_of(table: Any) -> Any:
    if hasattr(table, "detach"):
        table = table.detach().cpu().numpy()
    if isinstance(table, np.ma.MaskedArray):
        hidden, table = np.ma.getmaskarray(table), np.asarray(table.data, dtype=object)
        table[hidden] = None
    cells = np.asarray(table, dtype=object if isinstance(table, (list, tuple)) else None)
    if cells.ndim != 2:
        raise DubitoError(
            "a dense table has items as rows and annotators as columns",
            got=f"shape {cells.shape}",
            remedy="lists of different lengths are read by CrowdLabels.from_lists",
        )
    return cells


def gaps_of(cells: Any, missing: Any) -> Any:
    if cells.dtype.kind == "f":
        return np.isnan(cells) | (cells == missing)
    if cells.dtype.kind in "iub":
        return cells == missing
    return np.array(
        [
            [
                v is None or type(v).__name__ == "NAType" or v != v or v == missing or v == str(missing)
                for v in line
            ]
            for line in cells
        ],
        dtype=bool,
    ).reshape(cells.shape)


def _no_empty(labels: Any, row: Any, column: Any) -> None:
    if labels.dtype.kind not in "OU":
        return
    bad = next((i for i, v in enumerate(labels) if isinstance(v, str) and not v.strip()), None)
    if bad is not None:
        raise DubitoError(
            "an empty label",
            where=f"row {row[bad]}, column {column[bad]}",
            got=repr(str(labels[bad])),
            remedy=f"fill it, or pass missing={str(labels[bad])!r} if it means that there is none",
        )


def _exact(values: Any, length: int, name: str) -> Any:
    ids = fixed_ids(values, name)
    if len(ids) != length:
        raise DubitoError(f"{name} must match the table", expected=length, got=len(ids))
    return ids


def from_lists(cls: type[CrowdLabels], /, lists: Any, **options: Any) -> CrowdLabels:
    """Labels from a list for each item of who said what, of any length.

    Arguments:
        lists: per item a dict ``{annotator: label}`` or pairs ``(annotator, label)``; or a dict of these by the id
            of the item. Items without labels keep their place.
        options: passed to `CrowdLabels` (classes, duplicates, annotator_ids).

    Example:
        >>> import dubito.crowd as dc
        >>> dc.CrowdLabels.from_lists([{"ann": "cat", "bob": "dog"}, [("bob", "cat")], []])
        CrowdLabels(3 labels, 3 items, 2 annotators, 2 classes)
    """
    if not isinstance(lists, dict | list | tuple):
        raise DubitoError("labels must be a list for each item", got=type(lists).__name__)
    names, rows = (list(lists), list(lists.values())) if isinstance(lists, dict) else (None, list(lists))
    found: list[tuple[int, Any, Any]] = []
    for place, said in enumerate(rows):
        pairs = list(said.items()) if isinstance(said, dict) else said
        if not isinstance(pairs, list | tuple) or any(
            not isinstance(p, list | tuple) or len(p) != 2 for p in pairs
        ):
            raise DubitoError(
                "the labels of an item must say who gave them",
                where=f"item {place}",
                expected="a dict {annotator: label} or pairs (annotator, label)",
                got=repr(said)[:80],
            )
        found += [(place, who, label) for who, label in pairs]
    ids = range(len(rows)) if names is None else names
    items, people, labels = ([f[k] for f in found] for k in range(3))
    return cls([ids[i] for i in items], people, labels, item_ids=list(ids), **options)


def to_dense(self: CrowdLabels, missing: int = -1) -> Any:
    """An int64 array items x annotators of class codes; with repeated labels the last one counts.

    Example:
        >>> import dubito.crowd as dc
        >>> dc.CrowdLabels([0, 1], [0, 1], [1, 0]).to_dense().tolist()
        [[1, -1], [-1, 0]]
    """
    table = np.full((self.num_items, self.num_annotators), missing, dtype=np.int64)
    table[self.item.cpu().numpy(), self.annotator.cpu().numpy()] = self.label.cpu().numpy()
    return table
