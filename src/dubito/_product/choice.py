"""`--method auto`: a portfolio that the data suggests, a race over folds, the first of the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._random import generator
from ..data import LabelledData
from ..metrics import bootstrap_interval
from .portfolio import BASELINE, Diagnosis, portfolio, told
from .training import Folds

Array = np.ndarray[Any, Any]

RESAMPLES = 1000


@dataclass(frozen=True)
class Entry:
    """One method of the race: how far it came, and its accuracy on noisy labels that it did not see."""

    method: str
    folds: int
    accuracy: float
    behind: float  # the best of the race, on the examples that both were judged on
    error: float  # bootstrap standard error of `behind`


@dataclass(frozen=True)
class Choice:
    """The chosen method, with the parameters that the diagnosis gave it, and why."""

    method: str
    params: dict[str, Any]
    race: tuple[Entry, ...] = ()
    why: tuple[str, ...] = ()
    gain: tuple[float, float, float] | None = field(default=None)  # over the baseline, with a 95 % interval


def diagnose(data: LabelledData, log_p: Tensor) -> Diagnosis:
    """The noise as an audit sees it by out-of-fold predictions of the baseline."""
    from .._audit import audit
    from .findings import crowd_of

    probs = log_p.softmax(-1).numpy()
    if data.crowd is not None:
        found = audit(crowd_of(data), probs)
        per_item = len(data.crowd.item) / max(1, len(data))
    else:
        found = audit(data.labels.numpy(), probs, bootstrap=0)
        per_item = 1.0
    T = torch.from_numpy(found.transition)
    return Diagnosis(found.kind.name, found.noise_rate.value, T, per_item, data.crowd is not None)


def scores(data: LabelledData, log_p: Tensor, rows: Tensor) -> Array:
    """How many of an example's noisy labels are the predicted class, as a share, ``(rows,)``."""
    predicted = log_p.argmax(-1)
    if data.crowd is None:
        return (predicted == data.labels[rows]).double().numpy()
    place = torch.full((len(data),), -1)
    place[rows] = torch.arange(len(rows))
    item = place[data.crowd.item]
    kept = item >= 0
    hit = (predicted[item[kept]] == data.crowd.label[kept]).double()
    total = torch.zeros(len(rows), dtype=torch.float64).index_add_(0, item[kept], hit)
    count = torch.bincount(item[kept], minlength=len(rows))
    return (total / count.clamp(min=1)).numpy()


class Race:
    """Successive halving whose resource is the number of folds, and so of noisy labels to be judged by.

    Every network is trained at its full length: shortened training would favour what learns fast, and it is late
    in training that wrong labels are learned by heart. The baseline is never dropped.
    """

    def __init__(self, folds: Folds, seed: int) -> None:
        self.folds, self.data, self.seed = folds, folds.data, seed

    def judged(self, method: str, params: Mapping[str, Any], folds: int) -> Array:
        """Scores on the first folds, in the order of the folds."""
        parts = []
        for fold in range(folds):
            rows = (self.folds.number == fold).nonzero().flatten()
            parts.append(scores(self.data, self.folds.log_p(method, params, fold), rows))
        return np.concatenate(parts)

    def run(self, candidates: Mapping[str, Mapping[str, Any]]) -> tuple[str, tuple[Entry, ...]]:
        """The winner, and how far every candidate came."""
        left, reached = list(candidates), dict.fromkeys(candidates, 0)
        for folds, keep in _rungs(len(candidates), self.folds.count):
            found = {name: self.judged(name, candidates[name], folds) for name in left}
            reached |= dict.fromkeys(left, folds)
            ranked = sorted(left, key=lambda name: -found[name].mean())
            left = [name for name in candidates if name in {*ranked[:keep], BASELINE}]
        finals = {name: self.judged(name, candidates[name], self.folds.count) for name in left}
        reached |= dict.fromkeys(left, self.folds.count)
        best = max(left, key=lambda name: finals[name].mean())
        entries = []
        for name in candidates:
            mine = self.judged(name, candidates[name], reached[name])
            gap, error = self._gap(finals[best][: len(mine)], mine, name)
            entries.append(Entry(name, reached[name], float(mine.mean()), gap, error))
        near = [e.method for e in entries if e.method in left and e.behind <= e.error]
        return near[0] if near else best, tuple(entries)

    def _gap(self, best: Array, mine: Array, name: str) -> tuple[float, float]:
        found = self.interval(best - mine, name)
        return found[0], found[3]

    def interval(self, values: Array, name: str) -> tuple[float, float, float, float]:
        """Mean, 95 % bootstrap interval and standard error."""
        return tuple(  # type: ignore[return-value]
            bootstrap_interval(values, np.mean, generator(self.seed, 0, f"race {name}"), resamples=RESAMPLES)
        )


def _rungs(candidates: int, folds: int) -> list[tuple[int, int]]:
    """(folds, how many stay) of each rung before the last, which has all folds.

    Example:
        >>> _rungs(8, 5)
        [(1, 4), (2, 2)]
    """
    out, used, keep = [], 1, candidates
    while used < folds and keep > 2:
        keep = max(2, -(-keep // 2))
        out.append((used, keep))
        used = min(folds, 2 * used)
    return out


def choose(folds: Folds, seed: int) -> Choice:
    """Diagnose, race, and take the first method within one standard error of the best."""
    say = folds.say
    say("auto: cross-entropy out of fold, to see what noise there is")
    base = folds.all(BASELINE, {})
    d = diagnose(folds.data, base)
    candidates = portfolio(d)
    say(f"auto: {d.kind} noise, about {100 * d.rate:.0f} % wrong labels; racing {', '.join(candidates)}")
    race = Race(folds, seed)
    winner, entries = race.run(candidates)
    mine = race.judged(winner, candidates[winner], folds.count)
    gain = race.interval(mine - race.judged(BASELINE, {}, folds.count), "gain")[:3]
    say(f"auto: {winner}")
    return Choice(winner, dict(candidates[winner]), entries, _why(d, winner, entries, gain, folds), gain)


def _per_item(labels: float) -> str:
    return "one label per item" if labels == 1 else f"{labels:.2g} labels per item"


def _why(
    d: Diagnosis, winner: str, entries: tuple[Entry, ...], gain: tuple[float, ...], folds: Folds
) -> tuple[str, ...]:
    n, K = len(folds.data), folds.setting.classes
    by = {e.method: e for e in entries}
    best = min((e for e in entries if e.folds == folds.count), key=lambda e: e.behind)
    lines = [
        f"{n:,} items, {K} classes, {_per_item(d.labels_per_item)}. Out-of-fold predictions of plain "
        f"cross-entropy put the share of wrong labels near {100 * d.rate:.0f} %, of the kind: {d.kind}. "
        f"So the candidates were {', '.join(by)}. {told(d, list(by))}".rstrip(),
        "They raced over folds: all on one fold, the better half on twice as many, the last on all "
        f"{folds.count}. Each was judged by how many noisy labels of held-out items it predicts: "
        + "; ".join(
            f"{e.method} {100 * e.accuracy:.1f} % on {e.folds} fold{'s'[: e.folds > 1]}" for e in entries
        )
        + ".",
    ]
    if winner == best.method:
        lines.append(f"{winner} was the best of them, and nothing before it came within one standard error.")
    else:
        e = by[winner]
        lines.append(
            f"{best.method} was the best; {winner} stands before it in the order and is only {100 * e.behind:.1f} "
            f"points behind, within one standard error ({100 * e.error:.1f}), so it was taken."
        )
    if winner != BASELINE:
        lines.append(
            f"Against plain cross-entropy it predicts {100 * gain[0]:+.1f} points more noisy labels "
            f"(95 % interval {100 * gain[1]:+.1f} to {100 * gain[2]:+.1f})."
        )
    return tuple(lines)
