"""Cells of a table that are read as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DubitoError
from ._files import Array
from ._rows import Chunk
from .labels import _MISSING_TYPES

LARGEST = float(np.finfo(np.float32).max)  # larger numbers leave no room for their squares
GAPS = ("", "na", "n/a", "#n/a", "<na>", "nan", "none", "null", "nat", "?")  # what stands where no number is


def numbers(chunk: Chunk, rows: Sequence[int], column: str, *, gaps: bool = False) -> Array:
    """A column of finite numbers, with `gaps` NaN where none is; on failure the first other cell is named."""
    cells = chunk.cells[column]
    values = np.array([number_of(cells[row]) for row in rows])
    bad = np.flatnonzero(~(np.abs(values) <= LARGEST))
    if gaps:
        bad = np.array([i for i in bad.tolist() if not is_gap(cells[rows[i]])], np.int64)
    if len(bad):
        cell = cells[rows[bad[0]]]
        raise DubitoError(
            "not a finite number",
            where=chunk.where(rows[bad[0]], column),
            got=repr(cell)[:60],
            remedy=_remedy(cell, column),
        )
    return values


def _remedy(cell: Any, column: str) -> str:
    """What to do about a cell that is no number."""
    text = str(cell).strip() if isinstance(cell, str) else ""
    if number_of(text.replace(",", ".", 1)) == number_of(text.replace(",", ".", 1)) and "," in text:
        return "write a decimal point, not a comma"
    if text.lower() in (*GAPS, "inf", "-inf"):
        return "fill in or drop the row"
    return f"write column {column!r} as numbers, as 0 and 1 for no and yes"


def is_gap(cell: Any) -> bool:
    """Whether a cell stands for no number: empty, None, NaN, or a usual word for it.

    Example:
        >>> [is_gap(c) for c in (None, float("nan"), " ", "N/A", 0, "0", "no")]
        [True, True, True, True, False, False, False]
    """
    if isinstance(cell, str):
        return cell.strip().lower() in GAPS
    return (
        cell is None
        or type(cell).__name__ in _MISSING_TYPES
        or (isinstance(cell, float) and math.isnan(cell))
    )


def number_of(cell: Any) -> float:
    """The number that a cell holds, NaN where it holds none."""
    if isinstance(cell, str) and "_" in cell:
        return math.nan  # Python would read the code 1_2 as 12
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
