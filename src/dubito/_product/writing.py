"""The tables that a run leaves behind: UTF-8 CSV, whole or not at all, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._audit.result import WHY
from .._files import replace_file
from ..crowd.command import safe_cell
from ..data import LabelledData
from ..errors import DubitoError
from .findings import Findings, People

Array = np.ndarray[Any, Any]

MOST_RELABEL = 1000


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A table; an old file is replaced as a whole."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([safe_cell(name) for name in head])
    writer.writerows([_cell(c) for c in row] for row in rows)
    replace_file(path, buffer.getvalue().encode("utf-8", "backslashreplace"))
    return path


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    """An object of numbers and text."""
    replace_file(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    return path


def write_arrays(path: Path, **arrays: Array) -> Path:
    """An .npz file of plain arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    replace_file(path, buffer.getvalue())
    return path


def _cell(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return "" if value is None else safe_cell(value)


def predictions(path: Path, ids: Sequence[str], probs: Array, classes: Sequence[str]) -> Path:
    """id, predicted class, its probability, and the probabilities of all classes."""
    best = probs.argmax(1)
    head = ["id", "predicted", "probability", *(f"p_{c}" for c in classes)]
    rows = ([ids[i], classes[k], probs[i, k], *probs[i].tolist()] for i, k in enumerate(best.tolist()))
    return write_csv(path, head, rows)


def label_quality(path: Path, data: LabelledData, found: Findings) -> Path:
    """One line per label, in the order of the data: how likely it is wrong, and why."""
    a, classes = found.audit, list(data.classes)
    people = a.annotators is not None
    head = ["id", *(["annotator"] if people else []), "given", "suggested", "p_wrong", *WHY, "gold"]
    rows = []
    for row in range(len(a.given)):
        item = int(found.rows[row])
        who = [str(a.annotators[row])] if a.annotators is not None else []
        gold = "" if found.gold[item] < 0 else classes[found.gold[item]]
        rows.append(
            (
                item,
                [
                    str(a.ids[row]),
                    *who,
                    classes[a.given[row]],
                    classes[a.suggested[row]],
                    float(a.p_wrong[row]),
                    *a.why[row].tolist(),
                    gold,
                ],
            )
        )
    if data.crowd is None:  # the labels that gold has settled are not in the audit
        for item in np.flatnonzero(found.gold >= 0).tolist():
            was, now = int(data.labels[item]), int(found.gold[item])
            name = str(data.ids[item]) if data.ids is not None else str(item)
            known = [name, classes[was] if was >= 0 else "", classes[now], float(was != now), "", "", ""]
            rows.append((item, [*known, classes[now]]))
        rows.sort(key=lambda pair: pair[0])
    return write_csv(path, head, (row for _, row in rows))


def relabel(path: Path, data: LabelledData, found: Findings) -> Path:
    """The labels to check first, with whom to ask and an empty column for the answer."""
    a, classes = found.audit, list(data.classes)
    rows = []
    for rank, row in enumerate(found.to_check[:MOST_RELABEL], 1):
        who = "" if a.annotators is None else str(a.annotators[row])
        given, other = classes[a.given[row]], classes[a.suggested[row]]
        rows.append(
            [rank, str(a.ids[row]), who, given, other, float(a.p_wrong[row]), found.ask.get(row, ""), ""]
        )
    return write_csv(path, ["rank", "id", "annotator", "given", "suggested", "p_wrong", "ask", "gold"], rows)


def spot_check(path: Path, found: Findings) -> Path:
    """A sample that tells how far p_wrong can be trusted: no suggestion beside it that could sway who checks."""
    a = found.audit
    names = [str(c) for c in a.classes.tolist()]
    rows = ([str(a.ids[r]), names[a.given[r]], ""] for r in a.spot_check() if found.gold[found.rows[r]] < 0)
    return write_csv(path, ["id", "given", "gold"], rows)


def consensus(path: Path, data: LabelledData, found: Findings) -> Path:
    """One line per item of a crowd."""
    assert data.crowd is not None
    counts = np.bincount(data.crowd.item.numpy(), minlength=len(data))
    best = found.posterior.argmax(1)
    ids = data.ids if data.ids is not None else [str(i) for i in range(len(data))]
    rows = (
        [
            ids[i],
            data.classes[k],
            float(found.posterior[i, k]),
            int(counts[i]),
            "yes" if found.gold[i] >= 0 else "",
        ]
        for i, k in enumerate(best.tolist())
    )
    return write_csv(path, ["id", "label", "probability", "labels", "gold"], rows)


def transition(path: Path, found: Findings, classes: Sequence[str]) -> Path:
    """T[true, given] with intervals, one line per entry."""
    T, both = found.audit.transition, found.audit.transition_interval
    rows = (
        [classes[i], classes[j], float(T[i, j]), float(both[i, j, 0]), float(both[i, j, 1])]
        for i in range(len(classes))
        for j in range(len(classes))
    )
    return write_csv(path, ["true", "given", "probability", "low", "high"], rows)


def matrices(path: Path, people: People, classes: Sequence[str]) -> Path:
    """A[annotator, true, given] with intervals, one line per entry."""
    K = range(len(classes))
    rows = (
        [
            name,
            classes[i],
            classes[j],
            *(float(v[r, i, j]) for v in (people.matrices, people.low, people.high)),
        ]
        for r, name in enumerate(people.names)
        for i in K
        for j in K
    )
    return write_csv(path, ["annotator", "true", "given", "probability", "low", "high"], rows)


def annotators(path: Path, people: People) -> Path:
    """Annotators by skill, the best first."""
    order = np.argsort(-people.skills, kind="stable").tolist()
    rows = ([people.names[r], int(people.labels[r]), *(float(v[r]) for v in _skill(people))] for r in order)
    return write_csv(path, ["annotator", "labels", "skill", "low", "high"], rows)


def _skill(people: People) -> tuple[Array, Array, Array]:
    return people.skills, people.skill_low, people.skill_high


def read_json(path: Path) -> dict[str, Any]:
    """An object that `write_json` wrote."""
    from .._files import read_bounded
    from .._json import parse_json

    content = parse_json(read_bounded(path, 64 << 20), str(path))
    if not isinstance(content, dict):
        raise DubitoError("not a file of this run", where=str(path))
    return content
