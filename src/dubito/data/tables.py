"""Users' own tables: a CSV, TSV or Parquet file, or a data frame, becomes `LabelledData`."""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._cells import numbers
from ._files import Array
from ._labelled import NONE_GIVEN, LabelledData, LazyInputs, Triplets
from ._rows import Chunk, chunks, folder_of
from .images import ImageFiles, Texts
from .labels import Coder

_log = logging.getLogger("dubito")
MOST_ROUNDING = 1e-2  # of a column's deviation


def read_table(
    source: str | os.PathLike[str] | Any,
    *,
    label: str = "label",
    image: str | None = None,
    features: Sequence[str] | None = None,
    clean: str | None = None,
    id: str | None = None,
    item: str | None = None,
    annotator: str | None = None,
    images: str | os.PathLike[str] | None = None,
    size: int | None = None,
    classes: Sequence[object] | None = None,
    missing: str = "refuse",
    encoding: str | None = None,
    delimiter: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> LabelledData:
    """A table with one row per example, or per given label, as `LabelledData`; read in chunks.

    One row per example: `label` names the column of the observed label. One row per given label (a crowd's
    table): `item` and `annotator` name their columns as well; an item's input is that of its first row.
    Labels follow the rules of `dubito.data.labels`. Nothing is guessed: columns are named here, the encoding is
    that of the byte order mark or UTF-8 unless it is named.

    Arguments:
        source: path of a .csv, .tsv or .parquet file, or a pandas data frame.
        image: column of image paths, relative to the folder `images` (by default the table's own folder);
            images are decoded when a batch needs them.
        features: columns of numbers.
        clean: column of true labels, for scoring only; empty cells are unknown (-1).
        id: column of names of the examples.
        size: side of the squares that images are scaled to.
        classes: class names in the order wanted; other labels are refused.
        missing: "refuse" rows without a label or "keep" them with label -1.
        dtype: of the features. float32 holds seven digits: a warning is logged where a column needs more, as
            timestamps and large ids do; centre and scale such a column in float64.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"width": [1.5, 2.0], "kind": ["007", "NA"]})
        >>> data = read_table(frame, label="kind", features=["width"])
        >>> data.classes, data.labels.tolist(), data.inputs.tolist()
        (('007', 'NA'), [0, 1], [[1.5], [2.0]])
    """
    if (item is None) != (annotator is None):
        raise DubitoError("a crowd's table needs both item= and annotator=")
    if image is not None and features is not None:
        raise DubitoError("inputs are images or features, not both", got=f"image={image!r} and features")
    if image is None and features is None and item is None:
        raise DubitoError(
            "no inputs named",
            remedy="name the column of image paths (image=) or the columns of numbers (features=)",
        )
    inputs = _Inputs(image, features, Path(images) if images is not None else folder_of(source), size, dtype)
    roles: dict[str, Any] = {"label": label, "clean": clean, "id": id, "item": item, "annotator": annotator}
    form: dict[str, Any] = {"encoding": encoding, "delimiter": delimiter}
    wanted = [name for name in (image, *(features or ())) if name is not None]
    return examples(source, inputs, wanted, **roles, classes=classes, missing=missing, **form)


class Collector(Protocol):
    """Makes inputs of rows that stream by."""

    def add(self, chunk: Chunk, rows: Sequence[int]) -> None:
        """Take in some rows."""

    def finish(self, n: int, name: str) -> Tensor | LazyInputs:
        """The inputs of all n rows."""


def examples(
    source: Any,
    inputs: Collector,
    wanted: Sequence[str],
    *,
    label: str,
    clean: str | None = None,
    id: str | None = None,
    item: str | None = None,
    annotator: str | None = None,
    classes: Sequence[object] | None = None,
    missing: str = "refuse",
    encoding: str | None = None,
    delimiter: str | None = None,
) -> LabelledData:
    """A table whose inputs are made of the `wanted` columns by a collector; the rest is as in `read_table`."""
    named = [c for c in (label, clean, id, item, annotator, *wanted) if c is not None]
    table = chunks(source, list(dict.fromkeys(named)), encoding=encoding, delimiter=delimiter)
    name = Path(source).name if isinstance(source, str | os.PathLike) else "data frame"
    if item is None or annotator is None:
        return _examples(table, inputs, name, label, clean, id, classes, missing)
    return _crowd(table, inputs, name, label, clean, item, annotator, classes)


def _examples(
    table: Iterator[Chunk],
    inputs: Collector,
    name: str,
    label: str,
    clean: str | None,
    id: str | None,
    classes: Sequence[object] | None,
    missing: str,
) -> LabelledData:
    observed = Coder("label", classes, missing)
    true = Coder("true label", missing="keep", like=observed)
    ids: list[str] = []
    for chunk in table:
        inputs.add(chunk, range(len(chunk.numbers)))
        observed.extend(chunk.cells[label], partial(chunk.where, column=label))
        if clean is not None:
            true.extend(chunk.cells[clean], partial(chunk.where, column=clean))
        if id is not None:
            ids += [str(v) for v in chunk.cells[id]]
    labels, names = observed.finish()
    made = inputs.finish(len(labels), name)
    return LabelledData(
        made,
        labels,
        clean=None if clean is None else true.finish()[0],
        classes=names,
        ids=Texts(ids) if id is not None else made.paths if isinstance(made, ImageFiles) else None,
        name=name,
    )


def _crowd(
    table: Iterator[Chunk],
    inputs: Collector,
    name: str,
    label: str,
    clean: str | None,
    item: str,
    annotator: str,
    classes: Sequence[object] | None,
) -> LabelledData:
    items: dict[str, int] = {}
    numbers = array("q")
    workers, given = Coder("annotator"), Coder("label", classes)
    true = Coder("true label", missing="keep", like=given)
    for chunk in table:
        first = []
        for row, value in enumerate(chunk.cells[item]):
            key = "" if value is None else str(value).strip()
            if not key:
                raise DubitoError("no item given", where=chunk.where(row, item))
            if key not in items:
                items[key] = len(items)
                first.append(row)
            numbers.append(items[key])
        inputs.add(chunk, first)
        workers.extend(chunk.cells[annotator], partial(chunk.where, column=annotator))
        given.extend(chunk.cells[label], partial(chunk.where, column=label))
        if clean is not None:
            true.extend((chunk.cells[clean][row] for row in first), partial(_where, chunk, first, clean))
    who, annotators = workers.finish()
    what, names = given.finish()
    return LabelledData(
        inputs.finish(len(items), name),
        torch.full((len(items),), NONE_GIVEN),
        clean=None if clean is None else true.finish()[0],
        classes=names,
        ids=Texts(items),
        crowd=Triplets(torch.tensor(numbers, dtype=torch.int64), who, what),
        annotators=annotators,
        name=name,
    )


def _where(chunk: Chunk, rows: Sequence[int], column: str, i: int) -> str:
    """The place of the i-th of some rows of a chunk."""
    return chunk.where(rows[i], column)


class _Inputs:
    """Collects image paths or numbers while a table streams by."""

    def __init__(
        self,
        image: str | None,
        features: Sequence[str] | None,
        root: Path,
        size: int | None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.image, self.features, self.root, self.size, self.dtype = image, features, root, size, dtype
        self.paths: list[str] = []
        self.blocks: list[Array] = []

    def add(self, chunk: Chunk, rows: Sequence[int]) -> None:
        if self.image is not None:
            self.paths += [_path(self.root, chunk, row, self.image) for row in rows]
        elif self.features is not None:
            block = np.empty((len(rows), len(self.features)))
            for j, column in enumerate(self.features):
                block[:, j] = numbers(chunk, rows, column)
            self.blocks.append(block)

    def finish(self, n: int, name: str) -> Tensor | LazyInputs:
        if n == 0:
            raise DubitoError("the table has no rows", where=name)
        if self.image is not None:
            return ImageFiles(self.root, Texts(self.paths), self.size)
        if self.features is not None:
            x = torch.from_numpy(np.concatenate(self.blocks))
            made = x.to(self.dtype)
            self._warn_of_digits(x, made, name)
            return made
        return torch.zeros(n, 0)

    def _warn_of_digits(self, x: Tensor, made: Tensor, name: str) -> None:
        """Log columns whose rounding is not small against what they vary by."""
        for j, column in enumerate(self.features or ()):
            deviation = float(x[:, j].std(correction=0))
            lost = float((x[:, j] - made[:, j].double()).abs().max())
            varies = deviation > 1e-14 * float(x[:, j].abs().max())
            if varies and lost > MOST_ROUNDING * deviation:
                _log.warning("%s, column %r: %s rounds what its numbers differ by", name, column, self.dtype)


def _path(root: Path, chunk: Chunk, row: int, column: str) -> str:
    """A path that stays inside the folder by its letters; links are checked again when it is opened."""
    path = str(chunk.cells[column][row]).strip()
    parts = path.replace("\\", "/").split("/")
    if not path or "\0" in path or ".." in parts or parts[0] == "" or parts[0].endswith(":"):
        raise DubitoError(
            "a path must lead into the image folder", where=chunk.where(row, column), got=repr(path[:200])
        )
    if not os.path.isfile(root / path):
        raise DubitoError(
            "no such image",
            where=chunk.where(row, column),
            got=repr(path[:200]),
            remedy=f"paths are relative to {root}",
        )
    return path
