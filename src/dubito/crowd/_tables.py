"""Tables in and out with a row for each label: frames, CSV and Parquet files."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import replacing
from ..errors import DubitoError
from ._coding import RepeatedError
from ._files import need, place_of, read, tidy

if TYPE_CHECKING:
    from .labels import CrowdLabels


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
    missing: Any = None,
    text: bool = False,
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
        missing: a label that means that there is none, as -1 or "?": rows with it are left out.
        text: take labels as text, those of a data frame or a Parquet file too, as a CSV file has them.
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
    elif not (hasattr(source, "columns") or isinstance(source, Mapping)):
        raise DubitoError(
            "not a table of labels",
            expected="a data frame, a dict of columns or a path",
            got=type(source).__name__,
        )
    else:
        known = list(source.columns) if hasattr(source, "columns") else list(source)
        need(names, known, "the table")
        columns = {n: source[n] for n in names}
    if text:
        columns[label] = [v if isinstance(v, str) else str(v) for v in columns[label]]
    rows = None
    if missing is not None:
        rows = [i for i, v in enumerate(columns[label]) if v != missing and str(v) != str(missing)]
        columns = {n: [c[i] for i in rows] for n, c in ((n, list(c)) for n, c in columns.items())}
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
        there = error.rows if rows is None else [rows[i] for i in error.rows]
        raise error.at(source, place_of(there, Path(source), delimiter)) from None


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
