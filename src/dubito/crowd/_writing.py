"""The tables that `dubito crowd` writes."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .._files import replacing
from ..errors import DubitoError
from .labels import CrowdLabels
from .quality import label_quality
from .result import Aggregate
from .summary import Summary, annotator_names

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def write(
    crowd: CrowdLabels,
    result: Aggregate,
    summary: Summary,
    folder: Path,
    columns: tuple[str, str, str] = ("task", "worker", "label"),
    anonymise: bool = False,
) -> tuple[Path, ...]:
    """Write consensus.csv, label_quality.csv, annotators.csv and questions.csv, a line for each of these."""
    item, annotator, label = columns
    names = annotator_names(crowd, anonymise)
    people = (
        annotator,
        "labels",
        "skill",
        "low",
        "high",
        "agreement",
        "true",
        "called",
        "how_often",
        "times",
    )
    tables: dict[str, tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]] = {
        "consensus.csv": ((item, label, "probability", "labels"), _consensus(crowd, result)),
        "label_quality.csv": (
            (item, annotator, label, "probability_right", "consensus"),
            _quality(crowd, result, names),
        ),
        "annotators.csv": (people, _people(summary)),
        "questions.csv": (
            (item, annotator, "bits"),
            ((what, who, f"{gain / math.log(2):.6g}") for what, who, gain in summary.questions),
        ),
    }
    for name, (header, rows) in tables.items():
        _write(folder / name, header, rows)
    return tuple(folder / name for name in tables)


def _consensus(crowd: CrowdLabels, result: Aggregate) -> Iterator[tuple[Any, ...]]:
    return zip(
        crowd.item_ids.tolist(),
        result.labels.tolist(),
        (f"{p:.6g}" for p in result.confidence.tolist()),
        crowd.labels_per_item().tolist(),
    )


def _quality(crowd: CrowdLabels, result: Aggregate, names: list[str]) -> Iterator[tuple[Any, ...]]:
    items, classes = crowd.item_ids.tolist(), crowd.classes.tolist()
    codes = zip(
        crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist(), result.codes[crowd.item].tolist()
    )
    quality = label_quality(crowd, result).tolist()
    return (
        (items[n], names[r], classes[y], f"{p:.6g}", classes[c]) for (n, r, y, c), p in zip(codes, quality)
    )


def _people(summary: Summary) -> Iterator[tuple[Any, ...]]:
    """Best first; what is not defined is left empty."""
    for a in summary.skills:
        c = a.confusion
        worst = ("", "", "", "") if c is None else (c.true, c.given, f"{c.rate:.4f}", f"{c.labels:.1f}")
        agreement = "" if math.isnan(a.agreement) else f"{a.agreement:.4f}"
        yield a.name, a.labels, f"{a.skill:.4f}", f"{a.low:.4f}", f"{a.high:.4f}", agreement, *worst


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
