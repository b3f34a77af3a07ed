"""How the columns of a table become numbers: numbers with gaps, dates, and words that repeat.

- Numbers stay as they are. In a gap stands the median of the column, and a second column says 1 there.
- Dates and times are days since 1970, written as ``2020-12-31`` or ``2020-12-31 23:59``.
- Words, and yes or no, are categories: each value that is not rare has a column of its own, with 1 in its rows and
  0 elsewhere. A gap is a value too. A value that has no column, as one that only new data has, is 0 in all of them.

What is no number in a column of numbers, apart from gaps, is refused with its line.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data._cells import is_gap, number_of, numbers
from ..data._rows import Chunk
from ..data.labels import label_text
from ..errors import DubitoError

Array = np.ndarray[Any, Any]

NUMBER, DATE, CATEGORY = "number", "date", "category"
MOSTLY = 0.9  # share of numbers, or of dates, that makes a column one of them, gaps apart
FEWEST = 5  # times that a value occurs, to have a column
MOST_VALUES = 50
COVERED = 0.5  # share of the rows that the values with a column have at least: other words are free text
_DAY = 86400.0
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T].*)?")


@dataclass(frozen=True)
class Code:
    """How one column becomes numbers.

    Fields:
        values: of a category, those with a column each.
        middle: of numbers or dates with gaps, their median.
        gaps: how many gaps there were.
    """

    name: str
    kind: str = NUMBER
    values: tuple[str, ...] = ()
    middle: float | None = None
    gaps: int = 0

    @property
    def width(self) -> int:
        """How many numbers a cell becomes."""
        return len(self.values) if self.kind == CATEGORY else 1 + (self.middle is not None)


def kind_of(cells: Sequence[Any]) -> str | None:
    """What a column holds, gaps apart; None for nothing.

    Example:
        >>> [kind_of(c) for c in (["1", "", "2.5"], ["2020-01-31", None], [True, False], ["x", "1"], ["", None])]
        ['number', 'date', 'category', 'category', None]
    """
    there = [cell for cell in cells if not is_gap(cell)]
    if not there:
        return None
    if sum(is_number(cell) for cell in there) >= MOSTLY * len(there):
        return NUMBER
    dates = sum(days(cell) == days(cell) for cell in there)
    return DATE if dates >= MOSTLY * len(there) else CATEGORY


def is_number(cell: Any) -> bool:
    """Whether a cell holds a number; True and False are none."""
    return number_of(cell) == number_of(cell) and not isinstance(cell, bool)


def days(cell: Any) -> float:
    """Days since 1970 of a date, or of a text like 2020-12-31; NaN of anything else.

    Example:
        >>> days("1970-01-02"), days("1970-01-01 12:00"), days("12/31/2020")
        (1.0, 0.5, nan)
    """
    if isinstance(cell, str):
        text = cell.strip()
        try:
            cell = datetime.fromisoformat(text) if _DATE.fullmatch(text) else None
        except ValueError:
            return float("nan")
    if isinstance(cell, date) and not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day)
    if not isinstance(cell, datetime) or cell != cell:  # pandas' NaT is a datetime that is not itself
        return float("nan")
    return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).timestamp() / _DAY


def usual(counts: Counter[str]) -> tuple[str, ...]:
    """The values that have a column: the commonest.

    Example:
        >>> usual(Counter({"Oslo": 5, "Rome": 6, "": 2}))
        ('Rome', 'Oslo')
    """
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    return tuple(value for value in ranked[:MOST_VALUES] if counts[value] >= FEWEST)


def text_of(cell: Any) -> str:
    """The value of a category, empty for a gap."""
    return label_text(cell) or ""


class Columns:
    """Collects columns while a table streams by, and makes numbers of them.

    Arguments:
        codes: the columns in order. With `fixed` they are as a run knows them; otherwise only their kinds count,
            and `finish` puts what it found into `codes`.
    """

    def __init__(self, codes: Sequence[Code], fixed: bool = False) -> None:
        self.codes, self.fixed = list(codes), fixed
        self.numbers: list[list[Array]] = [[] for _ in codes]
        self.words: list[dict[str, int]] = [{} for _ in codes]
        self.spelled = [array("q") for _ in codes]
        self.unknown: dict[str, Counter[str]] = {}

    def add(self, chunk: Chunk, rows: Sequence[int]) -> None:
        """Take in some rows."""
        for j, code in enumerate(self.codes):
            if code.kind == CATEGORY:
                known = self.words[j]
                self.spelled[j].extend(
                    known.setdefault(_word(chunk, row, code.name), len(known)) for row in rows
                )
            else:
                measures = _dates if code.kind == DATE else numbers
                gaps = not self.fixed or code.middle is not None
                self.numbers[j].append(measures(chunk, rows, code.name, gaps=gaps))

    def finish(self, n: int, name: str) -> Tensor:
        """All columns as numbers ``(n, sum of widths)``, in float64."""
        if n == 0:
            raise DubitoError("the table has no rows", where=name)
        parts = []
        for j, code in enumerate(self.codes):
            make = self._categories if code.kind == CATEGORY else self._measures
            parts.append(make(j, code, name))
            self.numbers[j] = []
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def _measures(self, j: int, code: Code, name: str) -> Array:
        x = np.concatenate(self.numbers[j])
        gap = np.isnan(x)
        if not self.fixed and gap.any():
            if gap.all():
                raise DubitoError("an empty column", where=f"{name}, column {code.name!r}")
            code = replace(code, middle=float(np.median(x[~gap])), gaps=int(gap.sum()))
            self.codes[j] = code
        if code.middle is None:
            return x[:, None]
        return np.stack([np.where(gap, code.middle, x), gap], axis=1)

    def _categories(self, j: int, code: Code, name: str) -> Array:
        values, place = list(self.words[j]), np.array(self.spelled[j], np.int64)
        counts = Counter(dict(zip(values, np.bincount(place, minlength=len(values)).tolist())))
        if not self.fixed:
            code = replace(code, values=usual(counts), gaps=counts[""])
            if not code.values:
                raise DubitoError(
                    "words that hardly repeat tell nothing",
                    where=f"{name}, column {code.name!r}",
                    got=f"{len(counts):,} different ones in {len(place):,} rows",
                    remedy="leave it out, with --features and the names of the others",
                )
            self.codes[j] = code
        elif strange := Counter({v: c for v, c in counts.items() if v not in code.values}):
            self.unknown[code.name] = strange
        column = {value: k for k, value in enumerate(code.values)}
        # One more column takes what has none, and is cut off.
        where = np.array([column.get(value, len(column)) for value in values], np.int64)
        out = np.zeros((len(place), len(column) + 1))
        out[np.arange(len(place)), where[place]] = 1
        return out[:, :-1]


def _word(chunk: Chunk, row: int, column: str) -> str:
    try:
        return text_of(chunk.cells[column][row])
    except DubitoError as error:
        got = type(chunk.cells[column][row]).__name__
        raise DubitoError("neither text nor a number", where=chunk.where(row, column), got=got) from error


def _dates(chunk: Chunk, rows: Sequence[int], column: str, *, gaps: bool) -> Array:
    """A column of dates as days, with `gaps` NaN where none is; on failure the first other cell is named."""
    cells = [chunk.cells[column][row] for row in rows]
    found = np.array([days(cell) for cell in cells])
    for i in np.flatnonzero(np.isnan(found)).tolist():
        if not (gaps and is_gap(cells[i])):
            raise DubitoError(
                "no date",
                where=chunk.where(rows[i], column),
                got=repr(cells[i])[:60],
                remedy="fill in or drop the row" if is_gap(cells[i]) else "write it as 2020-12-31",
            )
    return found
