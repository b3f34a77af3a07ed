"""Ids as people write them, turned into small integers and a lookup table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..errors import DubitoError, nearest

Codes = npt.NDArray[np.int32]
Ids = npt.NDArray[Any]
NAMES = ("items", "annotators", "labels")


def as_column(values: Any, name: str) -> Ids:
    """Any one-dimensional column as an int64 array, or as an object array of str / int / bool.

    Whole floats become integers (a table with gaps turns 1 into 1.0); missing values, empty text, other
    floats and other types are refused with their row.
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if not isinstance(values, np.ndarray) and hasattr(values, "__array__"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise DubitoError(f"{name} must be a flat column", expected="1 axis", got=f"shape {values.shape}")
        if values.dtype.kind in "iu":
            return _int64(values, name)
        if values.dtype.kind == "f":
            return _whole(values, name)
    elif isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DubitoError(f"{name} must be a column of ids", got=type(values).__name__)
    return _objects(list(values), name)


def _int64(values: Ids, name: str) -> Ids:
    if values.dtype == np.uint64 and len(values) and values.max() > np.iinfo(np.int64).max:
        raise DubitoError(f"{name} does not fit 64 bits", got=int(values.max()), remedy="pass it as text")
    return values.astype(np.int64, copy=False)


def _whole(values: Ids, name: str) -> Ids:
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~np.isfinite(values) | (values != np.round(values)))
    if len(bad):
        raise DubitoError(
            f"{name} must be integers or text",
            where=f"row {bad[0]}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else ""),
            got=values[bad[0]],
            remedy="drop rows without a value, write other numbers as text",
        )
    far = np.flatnonzero(np.abs(values) > 2.0 ** (np.finfo(values.dtype).nmant + 1))
    if len(far):
        raise too_long(float(values[far[0]]), name, int(far[0]))
    return values.astype(np.int64)


def too_long(value: float, name: str, row: int) -> DubitoError:
    """About a whole number beyond which floats skip some: different ids may have become one."""
    return DubitoError(
        f"{name} have more digits than a decimal number holds",
        where=f"row {row}",
        got=f"{value:.17g}",
        remedy="read the column as text or as integers",
    )


def _objects(values: list[Any], name: str) -> Ids:
    if all(type(v) is int for v in values):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            pass
    out = np.empty(len(values), dtype=object)
    out[:] = [v if type(v) is str and v.strip() else _plain(v, name, row) for row, v in enumerate(values)]
    return out


def _plain(value: Any, name: str, row: int) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, str):
        if not value.strip():
            raise DubitoError(
                f"empty text among the {name}",
                where=f"row {row}",
                got=repr(value),
                remedy="drop the row or fill it",
            )
        return str(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        if abs(float(value)) > 2.0**53:
            raise too_long(float(value), name, row)
        return int(value)
    raise DubitoError(
        f"{name} must be integers or text",
        where=f"row {row}",
        got=repr(value),
        remedy="drop rows without a value, write other values as text",
    )


class RepeatedError(DubitoError):
    """An annotator labelled an item more than once; `rows` are the labels of the first such pair."""

    def __init__(self, key: Ids, ordered: Ids, items: Ids, annotators: Ids) -> None:
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        item, annotator = divmod(int(repeated[0]), len(annotators))
        self.rows: list[int] = np.flatnonzero(key == repeated[0])[:5].tolist()
        self.pair = f"item {items.tolist()[item]!r}, annotator {annotators.tolist()[annotator]!r}"
        self.more = f" and {len(repeated) - 1} more pairs" if len(repeated) > 1 else ""
        super().__init__(
            "an annotator labelled an item more than once",
            where=f"{self.pair}, rows {self.rows}{self.more}",
            remedy="pass duplicates='first', 'last' or 'keep'",
        )

    def at(self, path: object, rows: str) -> DubitoError:
        """The same about a file, with its own words for the rows."""
        # The command line has the same option: one remedy for both.
        remedy = (
            "drop all but one, or pass --duplicates first, last or keep (in Python the argument duplicates)"
        )
        return DubitoError(self.what, where=f"{path}, {self.pair}, {rows}{self.more}", remedy=remedy)


def encode(column: Ids) -> tuple[Codes, Ids]:
    """(codes, ids) with ``ids[codes] == column``; ids sorted, so that the order of rows does not matter."""
    if column.dtype != object:
        if len(column) == 0:
            return np.zeros(0, np.int32), column
        low, high = int(column.min()), int(column.max())
        if low >= 0 and high < 8 * len(column) + 1024:  # small integers: a table instead of a sort
            seen = np.zeros(high + 1, dtype=bool)
            seen[column] = True
            place = np.cumsum(seen, dtype=np.int32) - np.int32(1)
            return place[column], np.flatnonzero(seen)
        ids, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.int32), ids
    table: dict[Any, int] = {}
    first = np.fromiter((table.setdefault(_key(v), len(table)) for v in column), np.int32, len(column))
    order = sorted(range(len(table)), key=list(table).__getitem__)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    keys = list(table)
    return rank[first], as_ids([keys[i][1] for i in order])


def _key(value: Any) -> tuple[str, Any]:
    """Keeps 1, True and "1" apart and lets them be sorted together."""
    return type(value).__name__, value


def as_ids(values: Sequence[Any]) -> Ids:
    """A lookup table: int64 where all are plain integers, objects otherwise."""
    if all(type(v) is int and abs(v) < 2**63 for v in values):
        return np.array(values, dtype=np.int64)
    out = np.empty(len(values), dtype=object)
    out[:] = list(values)
    return out


def lookup(ids: Ids) -> dict[tuple[str, Any], int]:
    """From an id to its code."""
    return {_key(v): i for i, v in enumerate(ids.tolist())}


def encode_with(column: Ids, ids: Ids, name: str, remedy: str) -> Codes:
    """Codes of a column in a fixed table; an id outside it is refused with its row and nearest neighbour."""
    codes = find(column, lookup(ids))
    bad = np.flatnonzero(codes < 0)
    if len(bad):
        culprit = column[bad[:1]].tolist()[0]
        raise DubitoError(
            f"unknown {name} {culprit!r}",
            where=f"row {bad[0]}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else ""),
            remedy=remedy + "; " + nearest(str(culprit), ids.tolist()[:1000]),
        )
    return codes


def find(column: Ids, table: dict[tuple[str, Any], int]) -> Codes:
    """Codes of a column, -1 where an id is not in the table."""
    return np.fromiter((table.get(_key(v), -1) for v in column.tolist()), np.int32, len(column))


def fixed_ids(values: Any, name: str) -> Ids:
    """A lookup table given by the user: kept in order, refused with repetitions."""
    if isinstance(values, (int, np.integer)) and not isinstance(values, bool):
        return np.arange(int(values))
    ids = as_ids(as_column(values, name).tolist())
    if len(lookup(ids)) != len(ids):
        firsts = {_key(v): i for i, v in reversed(list(enumerate(ids.tolist())))}
        twice = next(v for i, v in enumerate(ids.tolist()) if firsts[_key(v)] != i)
        raise DubitoError(f"{name} has a repeated entry", got=repr(twice))
    return ids


def same_length(columns: list[Ids]) -> None:
    lengths = [len(c) for c in columns]
    if len(set(lengths)) > 1:
        raise DubitoError(
            "items, annotators and labels must be of one length",
            got=", ".join(f"{n} {length}" for n, length in zip(NAMES, lengths)),
        )


def no_negative(column: Ids) -> None:
    if column.dtype == object or not len(column) or int(column.min()) >= 0:
        return
    bad = np.flatnonzero(column < 0)
    raise DubitoError(
        "a negative label usually means that there is none",
        where=f"row {bad[0]}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else ""),
        got=int(column[bad[0]]),
        remedy="drop these rows, or list it in classes=[...] if it is a class",
    )


def numbers(values: Any, name: str, length: int) -> Any:
    if values is None:
        return None
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DubitoError(f"{name} must be numbers", got=type(values).__name__) from None
    if numbers.shape != (length,):
        raise DubitoError(f"{name} must give one number per label", expected=length, got=numbers.shape)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DubitoError(f"{name} must be finite", where=f"row {bad[0]}", got=numbers[bad[0]])
    return numbers
