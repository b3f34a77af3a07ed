"""`dubito crowd`: from a file of labels to a page and four tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .._files import kind_of, make_folder
from ..errors import DubitoError, nearest
from ._files import check_kind, header, separated
from ._writing import safe_cell, write
from .aggregate import aggregate
from .labels import CrowdLabels
from .result import Aggregate
from .summary import Summary, summarise

__all__ = ["ANNOTATOR", "ITEM", "LABEL", "CrowdRun", "run", "safe_cell"]

# Names that people give to the three columns, tried in this order when none is told.
ITEM = ("task", "item", "task_id", "item_id", "example", "example_id", "image", "question")
ANNOTATOR = ("worker", "annotator", "worker_id", "annotator_id", "rater", "user", "user_id", "labeller")
LABEL = ("label", "answer", "class", "category", "response")

# More classes than both of these, the second a share of the items, are a column of numbers.
MOST_CLASSES, MOSTLY_OWN = 20, 0.5


@dataclass(frozen=True)
class CrowdRun:
    """What a run found and where it wrote it."""

    crowd: CrowdLabels
    aggregate: Aggregate
    summary: Summary
    columns: tuple[str, str, str]
    files: tuple[Path, ...]


def run(
    path: str | os.PathLike[str],
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    method: str = "auto",
    out: str | os.PathLike[str] | None = None,
    anonymise: bool = False,
    duplicates: str = "refuse",
    delimiter: str | None = None,
    missing: str | None = None,
    questions: int = 5,
) -> CrowdRun:
    """Read a table of labels, aggregate it, and write what follows for items, labels and annotators.

    Arguments:
        path: CSV or Parquet file, one row per label.
        item, annotator, label: names of the columns. Without them the usual names are looked up (task, worker,
            label and the like).
        method: as in `aggregate`.
        out: folder for consensus.csv, label_quality.csv, annotators.csv (skills with intervals and the most
            frequent confusion of each) and questions.csv, made if need be; nothing is written without it. Cells
            that a spreadsheet could take for a formula are preceded by an apostrophe.
        anonymise: replace annotators by numbers, in the summary and in the files.
        duplicates: as in `CrowdLabels`.
        missing: a label that means that there is none, as "-1": rows with it are left out.
        questions: how many questions to ask next, at most one for an item.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "labels.csv").write_text("task,worker,label\\n1,ann,cat\\n1,bob,cat\\n2,ann,dog\\n")
        >>> found = run(folder / "labels.csv", out=folder / "result")
        >>> [file.name for file in found.files]
        ['consensus.csv', 'label_quality.csv', 'annotators.csv', 'questions.csv']
    """
    if not isinstance(path, str | os.PathLike):
        raise DubitoError("not the path of a table", got=repr(path))
    source = Path(path)
    columns = _columns(source, (item, annotator, label), delimiter)
    target = None if out is None else _folder(Path(out))
    crowd = CrowdLabels.from_long(
        source,
        item=columns[0],
        annotator=columns[1],
        label=columns[2],
        delimiter=delimiter,
        missing=missing,
        text=True,
        duplicates=duplicates,
    ).spelled()
    if crowd.num_classes > max(MOST_CLASSES, MOSTLY_OWN * crowd.num_items):
        raise DubitoError(
            "nearly every item has a class of its own: these seem to be numbers, not classes",
            where=f"{source}, column {columns[2]!r}",
            got=f"{crowd.num_classes:,} classes of {crowd.num_items:,} items",
            remedy="name the column of classes with --label",
        )
    result = aggregate(crowd, method)
    summary = summarise(crowd, result, anonymise=anonymise, questions=questions)
    files = () if target is None else write(crowd, result, summary, target, columns, anonymise)
    return CrowdRun(crowd, result, summary, columns, files)


def _columns(path: Path, told: tuple[str | None, ...], delimiter: str | None) -> tuple[str, str, str]:
    check_kind(path)
    names = header(path, delimiter)
    if not names:
        raise DubitoError(
            "an empty file", where=str(path), expected="a first line with the names of the columns"
        )
    found, plain = [], [name.strip() for name in names]
    roles = (("item", ITEM), ("annotator", ANNOTATOR), ("label", LABEL))
    for given, (role, usual) in zip(told, roles):
        name = given or _usual(usual, names)
        if name is None or name not in (*names, *plain):
            raise DubitoError(
                f"no column for the {role}" if name is None else f"no column {name!r}",
                where=f"{path}, line 1",
                got=", ".join(names),
                remedy=separated(names) or (_named(role) if name is None else nearest(name, names)),
            )
        found.append(name)
    if len(set(found)) < 3:
        raise DubitoError("item, annotator and label must be three columns", got=", ".join(found))
    return found[0], found[1], found[2]


def _named(role: str) -> str:
    wide = "; a table with a column for each annotator must have a row for each label first"
    return f"pass --{role} NAME{wide if role == 'annotator' else ''}"


def _usual(usual: tuple[str, ...], names: list[str]) -> str | None:
    """The column with a usual name: as it is written here, else with capitals or white space around it."""
    lower = {name.strip().lower(): name.strip() for name in reversed(names)}
    return next((u for u in usual if u in names), next((lower[u] for u in usual if u in lower), None))


def _folder(path: Path) -> Path:
    if kind_of(path) not in ("nothing", "a folder"):
        raise DubitoError("the output is not a folder", where=str(path), remedy="give another --out")
    make_folder(path)
    return path
