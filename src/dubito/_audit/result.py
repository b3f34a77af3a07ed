"""What an audit returns."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._files import cannot_write, replace_file
from ..crowd.command import safe_cell
from ..errors import DubitoError
from .checked import SPOT, spot_check
from .kinds import Kind
from .likelihood import Array

WHY = ("model", "annotators", "prior")
HIDDEN = 0.02  # wrong labels beyond the interval of the noise rate that are worth a note
FEW_WRONG = 0.02  # share of wrong labels up to which a set counts as clean
MUCH = 1.25  # times the upper end of that interval, and HIDDEN: worth a word wherever the rate is shown


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval (the number itself where no interval was asked for)."""

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Step:
    """One line of a relabel plan: after so many checks, so many errors found, and the error rate that is left."""

    checked: int
    found: Estimate
    left: Estimate


@dataclass(frozen=True)
class Suspect:
    """One label in doubt.

    Fields:
        row, id, annotator: which label.
        given, suggested: classes.
        p_wrong: probability that the given label is wrong.
        why: log-odds of the suggested against the given class, split into what the model says of the input
            ("model"), how such labels come about ("annotators") and how frequent the classes are ("prior").
        neighbours: ids and given labels of the nearest items, where features were given.
    """

    row: int
    id: Any
    annotator: Any
    given: Any
    suggested: Any
    p_wrong: float
    why: dict[str, float]
    neighbours: tuple[tuple[Any, Any], ...] = ()


@dataclass(frozen=True)
class Audit:
    """What is known about a set of labels.

    Fields:
        ids, annotators, classes: names; `annotators` is None where none were told.
        given, suggested: ``(N,)`` codes of the given label and of the likeliest *other* class.
        p_wrong: ``(N,)`` probability that the given label is wrong.
        probabilities: ``(N, K)`` of the true class, given the label and the model's probabilities.
        why: ``(N, 3)`` log-odds of suggested against given: model, annotators, prior.
        order: ``(N,)`` rows, the most suspicious first.
        noise_rate: share of wrong labels, with an interval.
        transition: ``T[true, given]`` (K, K); `transition_interval` (K, K, 2).
        class_prior: ``(K,)`` share of each true class.
        kind: kind of noise, with the evidence.
        plan: what checking the most suspicious labels brings.
        notes: what to keep in mind when reading the numbers.
        checked: ``(N,)`` true classes of labels that were checked, -1 elsewhere; None where none were told.
        unseen: share of labels that could be wrong where people err on the very items that are hard, which the
            interval of `noise_rate` does not cover. None where checked labels or several labels per item do.
        informed: probability that the model tells labels apart at all; below a half it is of no use.
    """

    ids: Array
    annotators: Array | None
    classes: Array
    given: Array
    suggested: Array
    p_wrong: Array
    probabilities: Array
    why: Array
    order: Array
    noise_rate: Estimate
    transition: Array
    transition_interval: Array
    class_prior: Array
    kind: Kind
    plan: tuple[Step, ...]
    notes: tuple[str, ...]
    nearby: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False)
    checked: Array | None = None
    unseen: float | None = None
    informed: float = 1.0

    @property
    def beyond(self) -> float | None:
        """`unseen` where that is much more than the interval of the noise rate says, None elsewhere."""
        much = self.unseen is not None and self.unseen > MUCH * self.noise_rate.high + HIDDEN
        return self.unseen if much else None

    @property
    def unchecked(self) -> int:
        """How many labels were not checked."""
        return len(self.given) if self.checked is None else int((self.checked < 0).sum())

    def part(self, rows: Any) -> Audit:
        """The verdicts on some labels (rows in the order wanted); what is said about all of them stays."""
        kept = np.asarray(rows, dtype=np.int64)
        place = np.full(len(self.given), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        order = place[self.order]
        near = {
            int(place[row]): tuple(int(place[i]) for i in others if place[i] >= 0)
            for row, others in self.nearby.items()
            if place[row] >= 0
        }
        names = ("ids", "given", "suggested", "p_wrong", "probabilities", "why")
        some: dict[str, Any] = {n: getattr(self, n)[kept] for n in names}
        for name in ("annotators", "checked"):
            some[name] = None if getattr(self, name) is None else getattr(self, name)[kept]
        return replace(self, order=order[order >= 0], nearby=near, **some)

    def spot_check(self, n: int | None = None) -> list[int]:
        """Rows whose check tells most about all labels: n of them, evenly along the ranking, unchecked so far.

        By default a hundred, or a quarter of few labels.
        """
        n = min(SPOT, -(-len(self.order) // 4)) if n is None else n
        _count(n)
        todo = self.order if self.checked is None else self.order[self.checked[self.order] < 0]
        return [int(row) for row in spot_check(todo, n)]

    def __repr__(self) -> str:
        rate = self.noise_rate
        more = "" if self.beyond is None else f"; up to {100 * self.beyond:.0f} if people err on hard items"
        span = f"({100 * rate.low:.1f} to {100 * rate.high:.1f}{more})"
        if self.informed < 0.5:
            return f"Audit({len(self.given)} labels, the model cannot tell which are wrong {span})"
        return f"Audit({len(self.given)} labels, {100 * rate.value:.1f} % wrong {span}, {self.noise} noise)"

    @property
    def noise(self) -> str:
        """The kind of noise by name, "unclear" where there may be noise whose kind so few labels do not tell."""
        return (
            "unclear" if self.kind.name == "none" and self.noise_rate.value >= FEW_WRONG else self.kind.name
        )

    def suspicious(self, n: int = 20) -> list[Suspect]:
        """The n labels most likely to be wrong, first things first."""
        _count(n)
        return [self._suspect(int(row)) for row in self.order[:n]]

    def _suspect(self, row: int) -> Suspect:
        names, ids = self.classes.tolist(), self.ids
        near = tuple((ids[i : i + 1].tolist()[0], names[self.given[i]]) for i in self.nearby.get(row, ()))
        return Suspect(
            row=row,
            id=ids[row : row + 1].tolist()[0],
            annotator=None if self.annotators is None else self.annotators[row : row + 1].tolist()[0],
            given=names[self.given[row]],
            suggested=names[self.suggested[row]],
            p_wrong=float(self.p_wrong[row]),
            why={w: float(v) for w, v in zip(WHY, self.why[row])},
            neighbours=near,
        )

    def to_csv(self, path: str | os.PathLike[str], n: int | None = None) -> Path:
        """Write the ranked labels (the first n of them) as UTF-8 CSV; an old file is replaced as a whole.

        Text that a spreadsheet could take for a formula is preceded by an apostrophe.
        """
        head = ["rank", "row", "id", "annotator", "given", "suggested", "p_wrong", *WHY]
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(head)
        for rank, s in enumerate(self.suspicious(len(self.given) if n is None else n), 1):
            facts = [s.id, "" if s.annotator is None else s.annotator, s.given, s.suggested]
            numbers = [f"{v:.6g}" for v in (s.p_wrong, *s.why.values())]
            writer.writerow([rank, s.row, *map(safe_cell, facts), *numbers])
        target, data = Path(path), buffer.getvalue().encode("utf-8", "backslashreplace")
        try:
            replace_file(target, data)
        except OSError as error:
            raise cannot_write(target, len(data), error) from None
        return target


def _count(n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise DubitoError("n must be a count", expected="0 or more", got=n)
