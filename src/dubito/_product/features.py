"""Which columns of a table are learned from, and why the others are not.

A column that repeats the label, under another name or as a code, would make every label look right; so would the
true labels, and row numbers stand for the label where a table is sorted by it. Such columns are left out and said;
whoever means them names them with ``--features``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ..data._cells import is_gap, number_of
from ..data._rows import Chunk
from ..data.labels import label_text
from ..errors import DubitoError
from .columns import CATEGORY, COVERED, NUMBER, is_number, kind_of, text_of, usual
from .names import CHECKED, CLEAN, IDS, LABELS

YES_NO = ({"yes", "no"}, {"true", "false"}, {"y", "n"}, {"t", "f"})
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
    if (why := _says_nothing(cells, head.cells[label])) is not None:
        return why
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


def _says_nothing(cells: Sequence[Any], labels: Sequence[Any]) -> str | None:
    """Why the cells of a column make no feature, whatever it is called; None where they make one."""
    kind = kind_of(cells)
    if kind is None:
        return "empty"
    if kind != CATEGORY:
        return None
    if with_commas(cells):
        return "write decimal points, not commas, to use it"
    try:
        counts = Counter(map(text_of, cells))
    except DubitoError:
        return "neither text nor numbers"
    values, there = usual(counts), {text for text in counts if text}
    if sum(counts[v] for v in values) < COVERED * len(cells):
        return f"{_mixed(cells)}words that hardly repeat"
    if len(counts) == 1:
        return "always the same"
    classes = {text for cell in labels if (text := label_text(cell)) is not None}
    if there <= classes and {text.lower() for text in there} not in YES_NO:
        return f"its values are classes, as of another label; {NAMED}"
    return None


def with_commas(cells: Sequence[Any]) -> bool:
    """Whether a column holds numbers that are written with a decimal comma."""
    there = [cell for cell in cells if not is_gap(cell)]
    points = [cell.replace(",", ".", 1) if isinstance(cell, str) else cell for cell in there]
    return kind_of(points) == NUMBER != kind_of(there)


def _mixed(cells: Sequence[Any]) -> str:
    """How much of a column of words is numbers, if some is."""
    share = sum(map(is_number, cells)) / len(cells)
    return f"{percent(share)} numbers; the others are " if share else ""


def percent(share: float) -> str:
    """A share in per cent, with two digits where it is near 0 or 1."""
    return f"{100 * share:.0f} %" if 0.01 <= share <= 0.99 else f"{100 * share:.2g} %"


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
    if len(cells) < FEWEST_TO_TELL or number_of(cells[0]) not in (0, 1):
        return False
    return all(number_of(cell) == number_of(cells[0]) + row for row, cell in enumerate(cells))


def why_nothing(
    names: Sequence[str], annotator: str | None, head: Chunk, label: str, item: str | None
) -> str | None:
    """What to do about a table without features."""
    twice = next((n for n in names if list(names).count(n) > 1), None)
    if twice is not None:
        return f"columns that share a name are left out: rename one of those called {twice!r}"
    for name, cells in head.cells.items():
        if name != label and with_commas(cells):
            row = next(i for i, cell in enumerate(cells) if not is_gap(cell) and not is_number(cell))
            where = head.where(row, name).rpartition(", line")[2]
            return f"write decimal points, not commas, as in line{where}: {cells[row]!r}"
    if annotator:
        return "for labels alone use `dubito crowd`"
    left = next((n for n in head.cells if n != label and kind_of(head.cells[n])), None)
    return None if left is None else f"column {left!r} was left out: {reason(head, left, label, item)}"
