"""Which columns of a table are learned from, and why the others are not.

A column that repeats the label, under another name or as a code, would make every label look right; so would the
true labels, and row numbers stand for the label where a table is sorted by it. Such columns are left out and said;
whoever means them names them with ``--features``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..data._rows import Chunk
from ..data.labels import label_text
from ..data.tables import _number
from .names import CHECKED, CLEAN, IDS, LABELS

MOSTLY = (
    0.9  # share of numbers that makes a column a feature; what is no number in it is then refused by line
)
GAPS = ("", "none", "nan", "nat")
FEWEST_TO_TELL = 10  # rows, below which a column may count, or match the labels, by chance
NAMED = "--features names it all the same"
_UNNAMED = re.compile(r"unnamed:_\d+(_level_\d+)?")


def found_features(head: Chunk, names: Iterable[str], label: str, item: str | None) -> tuple[str, ...]:
    """The columns that are learned from where none is named, by the first rows."""
    there = [n for n in names if n in head.cells]
    return tuple(n for n in there if reason(head, n, label, item) is None)


def reason(head: Chunk, name: str, label: str, item: str | None) -> str | None:
    """Why a column is no feature; None where it is one."""
    cells = head.cells[name]
    if (why := _by_name(name, head.cells)) is not None:
        return why
    if not numeric(cells):
        return _no_numbers(cells)
    if item is not None and not of_items(head, item, name):
        return "not the same for all labels of an item"
    if copies(cells, head.cells[label]):
        return f"one to one with the labels; {NAMED}"
    if counts_up([cells[i] for i in _first_of(head.cells[item])] if item is not None else cells):
        return f"it counts the rows; {NAMED}"
    return None


def _by_name(name: str, names: Iterable[str]) -> str | None:
    """Why a column is no feature by its name alone."""
    plain = _plain(name)
    # Beside x a column y is a coordinate.
    if plain in LABELS and not (plain == "y" and "x" in map(_plain, names)):
        return f"by its name a label; {NAMED}"
    if plain in CLEAN or plain in CHECKED:
        return f"by its name the true labels; {NAMED}"
    if plain in IDS or _UNNAMED.fullmatch(plain):
        return f"by its name a row number or an id; {NAMED}"
    return None


def _plain(name: str) -> str:
    """A name without case, with one underscore for white space."""
    return "_".join(name.casefold().split())


def _no_numbers(cells: Sequence[Any]) -> str:
    numbers = sum(_is_number(c) for c in cells) / max(1, len(cells))
    gaps = sum(str(c).strip().lower() in GAPS for c in cells) / max(1, len(cells))
    if numbers == 0:
        return "no numbers; write it as numbers, as 0 and 1 for no and yes, to use it"
    parts = ("gaps", gaps), ("text", 1 - numbers - gaps)
    rest = ", ".join(f"{what} in {_percent(share)}" for what, share in parts if share > 1e-9)
    return f"{_percent(numbers)} numbers, {rest}: fill in numbers, or drop those rows, to use it"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if 0.01 <= share <= 0.99 else f"{100 * share:.2g} %"


def _is_number(cell: Any) -> bool:
    return _number(cell) == _number(cell) and not isinstance(cell, bool)


def numeric(cells: Sequence[Any]) -> bool:
    """Whether a column holds numbers, a few slips apart."""
    return len(cells) > 0 and sum(map(_is_number, cells)) >= MOSTLY * len(cells)


def of_items(head: Chunk, item: str, name: str) -> bool:
    """Whether a column is the same in all rows of an item; otherwise it tells of a label, as its time does."""
    first: dict[str, Any] = {}
    return all(first.setdefault(i, cell) == cell for i, cell in zip(head.cells[item], head.cells[name]))


def _first_of(items: Sequence[Any]) -> list[int]:
    """The row in which each item first occurs."""
    first: dict[Any, int] = {}
    for row, item in enumerate(items):
        first.setdefault(item, row)
    return list(first.values())


def copies(cells: Sequence[Any], labels: Sequence[Any]) -> bool:
    """Whether a column says what the labels say, as their code does; rows without a label do not count.

    Example:
        >>> copies([0, 1] * 6, ["no", "yes"] * 6), copies([0, 1] * 6, ["no", "yes"] * 5 + ["no", "no"])
        (True, False)
    """
    pairs = [(str(c).strip(), label) for c, v in zip(cells, labels) if (label := label_text(v)) is not None]
    both, values, classes = (len(set(some)) for some in (pairs, *zip(*pairs))) if pairs else (0, 0, 0)
    return len(pairs) - classes >= FEWEST_TO_TELL and both == values == classes > 1


def counts_up(cells: Sequence[Any]) -> bool:
    """Whether a column is 0, 1, 2, ... or 1, 2, 3, ...

    Example:
        >>> counts_up([*range(1, 11)]), counts_up([*range(11), 7])
        (True, False)
    """
    if len(cells) < FEWEST_TO_TELL or _number(cells[0]) not in (0, 1):
        return False
    return all(_number(cell) == _number(cells[0]) + row for row, cell in enumerate(cells))


def why_nothing(
    names: Sequence[str], annotator: str | None, head: Chunk, label: str, item: str | None
) -> str | None:
    """What to do about a table without features."""
    twice = next((n for n in names if list(names).count(n) > 1), None)
    if twice is not None:
        return f"columns that share a name are left out: rename one of those called {twice!r}"
    for name, cells in head.cells.items():
        if numeric([c.replace(",", ".", 1) if isinstance(c, str) else c for c in cells]) and not numeric(
            cells
        ):
            where = head.where(0, name).rpartition(", line")[2]
            return f"write decimal points, not commas, as in line{where}: {cells[0]!r}"
        if numeric([c for c in cells if c is not None and str(c).strip()]) and not numeric(cells):
            return f"fill the gaps in column {name!r}, or drop those rows"
    if annotator:
        return "for labels alone use `dubito crowd`"
    left = next((n for n in head.cells if n != label and numeric(head.cells[n])), None)
    return None if left is None else f"column {left!r} was left out: {reason(head, left, label, item)}"
