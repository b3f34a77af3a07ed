"""Tables in and out: dense arrays, long frames, CSV and Parquet files."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._files import replacing
from ..errors import DubitoError
from ._coding import RepeatedError
from ._files import need, place_of, read, tidy

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
    cells = _cells(table)
    given = ~_gaps(cells, missing)
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
    rows = np.arange(cells.shape[0]) if item_ids is None else _exact(item_ids, cells.shape[0], "item_ids")
    names = (
        np.arange(cells.shape[1])
        if annotator_ids is None
        else _exact(annotator_ids, cells.shape[1], "annotator_ids")
    )
    return cls(rows[row], names[column], labels, classes=classes, item_ids=rows, annotator_ids=names)


def _cells(table: Any) -> Any:
    if hasattr(table, "detach"):
        table = table.detach().cpu().numpy()
    cells = np.asarray(table, dtype=object if isinstance(table, (list, tuple)) else None)
    if cells.ndim != 2:
        raise DubitoError("a dense table has items as rows and annotators as columns", got=f"{cells.shape}")
    return cells


def _gaps(cells: Any, missing: Any) -> Any:
    if cells.dtype.kind == "f":
        return np.isnan(cells) | (cells == missing)
    if cells.dtype.kind in "iub":
        return cells == missing
    return np.array(
        [
            [v is None or type(v).__name__ == "NAType" or v != v or v == missing for v in line]
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
    from ._coding import fixed_ids

    ids = fixed_ids(values, name)
    if len(ids) != length:
        raise DubitoError(f"{name} must match the table", expected=length, got=len(ids))
    return ids


def from_long(
    cls: type[CrowdLabels],
    /,
    source: Any,
    *,
    item: str = "task",
    annotator: str = "worker",
    label: str = "label",
    confidence: str | None = None,
    time: str | None = None,
    delimiter: str | None = None,
    **options: Any,
) -> CrowdLabels:
    """Labels from a table with one row per label: a data frame, or a CSV or Parquet file.

    Text in a CSV file stays the text that was written: ``01``, ``1`` and ``1.0`` are three classes, ``NA``
    and ``None`` are names. Only ids of items and annotators in a file lose the white space around them and have
    their Unicode composed: "bob " is bob. An empty cell is refused with its line.

    Arguments:
        source: pandas data frame, dict of columns, or a path ending in .csv, .tsv, .txt, .parquet or .pq.
        item, annotator, label: names of the columns; `confidence` and `time` where there are such.
        delimiter: of a text file; a comma, and a tab in .tsv, unless given.
        options: passed to `CrowdLabels` (classes, duplicates, item_ids, annotator_ids).

    Example:
        >>> import dubito.crowd as dc
        >>> dc.CrowdLabels.from_long({"task": [1, 1], "worker": ["a", "b"], "label": ["yes", "no"]})
        CrowdLabels(2 labels, 1 items, 2 annotators, 2 classes)
    """
    names = [n for n in (item, annotator, label, confidence, time) if n is not None]
    if isinstance(source, (str, os.PathLike)):
        columns = read(Path(source), names, delimiter)
        if len(columns[label]) == 0 and options.get("classes") is None:
            raise DubitoError(
                "a table without rows", where=str(source), expected="a line for each label below the names"
            )
        columns[item], columns[annotator] = tidy(columns[item]), tidy(columns[annotator])
    else:
        known = list(source.columns) if hasattr(source, "columns") else list(source)
        need(names, known, "the table")
        columns = {n: source[n] for n in names}
    try:
        return cls(
            columns[item],
            columns[annotator],
            columns[label],
            confidence=None if confidence is None else columns[confidence],
            time=None if time is None else columns[time],
            **options,
        )
    except RepeatedError as error:
        if not isinstance(source, (str, os.PathLike)):
            raise
        raise error.at(source, place_of(error.rows, Path(source), delimiter)) from None


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


def columns_of(self: CrowdLabels, item: str, annotator: str, label: str) -> dict[str, Any]:
    """The columns of the long table, ids and classes as they came."""
    out: dict[str, Any] = {
        item: self.item_ids[self.item.cpu().numpy()],
        annotator: self.annotator_ids[self.annotator.cpu().numpy()],
        label: self.classes[self.label.cpu().numpy()],
    }
    for name in ("confidence", "time"):
        if getattr(self, name) is not None:
            out[name] = getattr(self, name).cpu().numpy()
    return out


def to_long(self: CrowdLabels, item: str = "task", annotator: str = "worker", label: str = "label") -> Any:
    """A pandas data frame with one row per label, in the order given.

    Example:
        >>> import dubito.crowd as dc
        >>> dc.CrowdLabels([7], ["a"], ["yes"]).to_long().values.tolist()
        [[7, 'a', 'yes']]
    """
    try:
        import pandas as pd
    except ImportError:
        raise DubitoError("data frames need pandas", remedy="pip install 'dubito[tables]'") from None
    return pd.DataFrame(columns_of(self, item, annotator, label))


def to_csv(
    self: CrowdLabels,
    path: str | os.PathLike[str],
    item: str = "task",
    annotator: str = "worker",
    label: str = "label",
) -> None:
    """Write the long table as CSV, which `from_long` reads back (ids without white space around them).

    Text is written as it is. For a file to be opened in a spreadsheet see `dubito.crowd.run`, which guards
    cells that look like formulas.
    """
    columns = columns_of(self, item, annotator, label)
    with replacing(Path(path)) as temporary, temporary.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(c.tolist() for c in columns.values())))


def to_parquet(
    self: CrowdLabels,
    path: str | os.PathLike[str],
    item: str = "task",
    annotator: str = "worker",
    label: str = "label",
) -> None:
    """Write the long table as Parquet; numbers stay numbers, and `from_long` reads it back."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise DubitoError("Parquet needs pyarrow", remedy="pip install 'dubito[tables]'") from None
    columns = columns_of(self, item, annotator, label)
    with replacing(Path(path)) as temporary:
        parquet.write_table(pa.table({name: pa.array(c.tolist()) for name, c in columns.items()}), temporary)
