"""Groups of items, as the images of a patient, that folds do not cut: `--groups`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from torch import Tensor

from ..data import LabelledData, read_npz
from ..data._rows import chunks
from ..data.labels import Coder
from ..data.tables import _where
from ..errors import DubitoError
from .sources import Source


def group_numbers(source: Source, data: LabelledData) -> Tensor:
    """A number for the group of each item ``(N,)``; of a crowd's item the first row counts, as for its input."""
    name, coder = str(source.groups), Coder("group")
    if source.kind == "arrays":
        place, cells = f"{Path(source.path).name}, {name}", read_npz(source.path)[name]
        if cells.shape != (len(data),):
            raise DubitoError(
                "groups have one entry per item", where=place, expected=f"({len(data)},)", got=cells.shape
            )
        coder.extend(cells.tolist(), lambda i: f"{place}[{i}]")
        return coder.finish()[0]
    seen: set[str] = set()
    columns = [name] if source.item is None else [name, source.item]
    for chunk in chunks(source.path, columns, delimiter=source.delimiter):
        rows = []
        for row in range(len(chunk.numbers)):
            item = None if source.item is None else str(chunk.cells[source.item][row]).strip()
            if item is None or item not in seen:
                rows.append(row)
            seen.add(item or "")
        coder.extend((chunk.cells[name][row] for row in rows), partial(_where, chunk, rows, name))
    return coder.finish()[0]
