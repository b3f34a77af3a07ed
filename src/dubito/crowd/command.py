"""`dubito crowd`: from a file of labels to a page and two tables."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import kind_of, make_folder, replacing
from ..errors import DubitoError, nearest
from ._files import check_kind, header, separated
from .aggregate import aggregate
from .labels import CrowdLabels
from .quality import label_quality
from .result import Aggregate
from .summary import Summary, annotator_names, summarise

# Names that people give to the three columns, tried in this order when none is told.
ITEM = ("task", "item", "task_id", "item_id", "example", "example_id", "image", "question")
ANNOTATOR = ("worker", "annotator", "worker_id", "annotator_id", "rater", "user", "user_id", "labeller")
LABEL = ("label", "answer", "class", "category", "response")

# More classes than both of these, the second a share of the items, are a column of numbers.
MOST_CLASSES, MOSTLY_OWN = 20, 0.5
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


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
    """Read a table of labels, aggregate it, and write the consensus and the quality of each label.

    Arguments:
        path: CSV or Parquet file, one row per label.
        item, annotator, label: names of the columns. Without them the usual names are looked up (task, worker,
            label and the like).
        method: as in `aggregate`.
        out: folder for consensus.csv and label_quality.csv, made if need be; nothing is written without it. Cells
            that a spreadsheet could take for a formula are preceded by an apostrophe.
        anonymise: replace annotators by numbers, in the summary and in the files.
        duplicates: as in `CrowdLabels`.
        missing: a label that means that there is none, as "-1": rows with it are left out.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "labels.csv").write_text("task,worker,label\\n1,ann,cat\\n1,bob,cat\\n2,ann,dog\\n")
        >>> found = run(folder / "labels.csv", out=folder / "result")
        >>> [file.name for file in found.files]
        ['consensus.csv', 'label_quality.csv']
    """
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
    files = () if target is None else write(crowd, result, target, columns, anonymise)
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


def write(
    crowd: CrowdLabels,
    result: Aggregate,
    folder: Path,
    columns: tuple[str, str, str] = ("task", "worker", "label"),
    anonymise: bool = False,
) -> tuple[Path, Path]:
    """Write consensus.csv (one line per item) and label_quality.csv (one line per label)."""
    item, annotator, label = columns
    items, classes = crowd.item_ids.tolist(), crowd.classes.tolist()
    consensus = zip(
        items,
        result.labels.tolist(),
        (f"{p:.6g}" for p in result.confidence.tolist()),
        crowd.labels_per_item().tolist(),
    )
    names = annotator_names(crowd, anonymise)
    codes = zip(
        crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist(), result.codes[crowd.item].tolist()
    )
    quality = label_quality(crowd, result).tolist()
    lines = (
        (items[n], names[r], classes[y], f"{p:.6g}", classes[c]) for (n, r, y, c), p in zip(codes, quality)
    )
    files = folder / "consensus.csv", folder / "label_quality.csv"
    _write(files[0], (item, label, "probability", "labels"), consensus)
    _write(files[1], (item, annotator, label, "probability_right", "consensus"), lines)
    return files


def _write(path: Path, names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> None:
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise DubitoError("the output is not a plain file", where=str(path), remedy="give another --out")
    with replacing(path) as temporary, temporary.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([safe_cell(n) for n in names])
        writer.writerows([safe_cell(c) for c in row] for row in rows)
        file.flush()
        os.fsync(file.fileno())


def safe_cell(value: Any) -> Any:
    """Text that a spreadsheet could run as a formula, made harmless by an apostrophe; numbers stay as they are.

    Example:
        >>> safe_cell("=1+1"), safe_cell("cat"), safe_cell("-1"), safe_cell(-1)
        ("'=1+1", 'cat', '-1', -1)
    """
    formula = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return "'" + value if formula and not _NUMBER.fullmatch(value) else value
