"""Labels that were checked: read from the corrected file, laid over the data, kept with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .._files import sha256
from ..crowd._files import separator
from ..crowd.command import ITEM
from ..data import LabelledData, Triplets
from ..data._rows import chunks
from ..data.labels import label_text
from ..errors import DubitoError, nearest
from .names import CHECKED, IDS
from .sources import columns, needed, role
from .training import GOLD
from .writing import write_csv

ANNOTATOR = "gold"  # checked labels of a crowd are those of an annotator of their own
FILE = "gold.csv"


class Named(Protocol):
    """What checked labels refer to."""

    @property
    def ids(self) -> Any: ...
    @property
    def classes(self) -> Any: ...


def read_gold(
    path: Path,
    data: Named,
    item: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
) -> dict[str, str]:
    """Item -> class, of the lines that have one; an unknown item or class is refused with its line.

    Columns are `id` (or another usual name of items) and `gold` (or correct, truth), unless they are named. A
    spreadsheet may have written the file with another separator than the data has.
    """
    names = columns(path, delimiter)
    if len(names) == 1 and (other := separator(names[0])):
        delimiter = other
        names = columns(path, delimiter)
    key = needed(role(item, (*IDS[:-1], *ITEM), names, path, "item"), names, path, "item")
    value = needed(role(label, CHECKED, names, path, "label"), names, path, "label")
    ids, classes = set(data.ids or ()), set(data.classes)
    found: dict[str, str] = {}
    for chunk in chunks(path, [key, value], delimiter=delimiter):
        for row, (name, given) in enumerate(zip(chunk.cells[key], chunk.cells[value])):
            text = label_text(given)
            if text is None:
                continue
            name, text = _as_known(str(name).strip(), ids), _as_known(text, classes)
            if name not in ids:
                some = nearest(name, ids) if len(ids) < 100_000 else "ids are those of label_quality.csv"
                raise DubitoError("no such item", where=chunk.where(row, key), got=repr(name), remedy=some)
            if text not in classes:
                where = chunk.where(row, value)
                raise DubitoError("no such class", where=where, got=repr(text), remedy=nearest(text, classes))
            if found.setdefault(name, text) != text:
                where = chunk.where(row, value)
                raise DubitoError(
                    "an item has two gold classes", where=where, got=f"{found[name]} and {text}"
                )
    if not found:
        raise DubitoError(
            "no checked labels",
            where=f"{path}, column {value!r}",
            remedy="fill in the right class of some lines",
        )
    return found


def _as_known(text: str, known: set[str]) -> str:
    """Without the apostrophe that guards a cell against spreadsheets."""
    return text[1:] if text not in known and text[:1] == "'" and text[1:] in known else text


def codes_of(gold: Mapping[str, str], data: Named) -> Tensor:
    """Class numbers of the known items, -1 elsewhere ``(N,)``."""
    place = {name: k for k, name in enumerate(data.classes)}
    return torch.tensor([place[gold[i]] if i in gold else -1 for i in data.ids or ()], dtype=torch.int64)


def lay_over(data: LabelledData, known: Tensor) -> LabelledData:
    """The data to learn from: gold in the place of labels, or as those of one more annotator.

    A crowd has the annotator's place from the start, so that a model trained before the first check fits.
    """
    extra = {**data.extra, GOLD: known} if bool((known >= 0).any()) else dict(data.extra)
    if data.crowd is None:
        return replace(data, labels=torch.where(known >= 0, known, data.labels), extra=extra)
    rows = (known >= 0).nonzero().flatten()
    who = torch.full_like(rows, len(data.annotators))
    parts = zip(data.crowd, (rows, who, known[rows]))
    return replace(
        data,
        crowd=Triplets(*(torch.cat(pair) for pair in parts)),
        annotators=(*data.annotators, ANNOTATOR),
        extra=extra,
    )


def fingerprint(gold: Mapping[str, str]) -> str:
    """A short name for a set of checked labels."""
    return sha256(repr(sorted(gold.items())).encode())[:12]


def keep(folder: Path, gold: Mapping[str, str]) -> None:
    """Write what is known so far into the run."""
    write_csv(folder / FILE, ["id", "gold"], sorted(gold.items()))


def kept(folder: Path, data: LabelledData) -> dict[str, str]:
    """What earlier checks left in the run."""
    path = folder / FILE
    return read_gold(path, data) if path.is_file() else {}


def count(folder: Path) -> int:
    """How many checked labels the run holds, by its file alone."""
    path = folder / FILE
    if not path.is_file():
        return 0
    return sum(len(chunk.numbers) for chunk in chunks(path, ["id", "gold"]))
