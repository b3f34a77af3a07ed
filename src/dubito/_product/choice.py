"""`--method auto`: a portfolio that the data suggests, a race over folds, the first of the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._decay import FEWEST, FOREST, LARGE, SMALL, last_near_best
from .._random import generator
from ..data import LabelledData
from ..metrics import bootstrap_interval
from .portfolio import BASELINE, Diagnosis, portfolio, told
from .training import Folds, for_forest

Array = np.ndarray[Any, Any]

RESAMPLES = 1000
NOISY = 0.1  # share of wrong labels above which the simplest of nearly equal methods is not to be trusted
# The network with the least room for wrong labels; of one layer, it needs larger steps to arrive in as many.
LINEAR = {"backbone": "linear", "weight_decay": 0.003, "learning_rate": 0.01}
ON_LINEAR = ("gce:q=0.7", "forward")  # what races on it: the logistic-normal losses want a wider network
HELD_BACK = {"weight_decay": 0.003}  # of `SMALL` items and more, which a linear network fits too little
WITH_DECAY = "gce:q=0.7"  # races so beside the winner
AS_SAID = {"linear": " on a linear network", "weight decay": " with weight decay", FOREST: " on a forest"}


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
    network: dict[str, Any] = field(default_factory=dict)  # what changes in the setting of the networks

    @property
    def named(self) -> str:
        """The method, and its network where that is not the usual one."""
        return self.method + AS_SAID.get(self.network.get("backbone", ""), "")


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
    in training that wrong labels are learned by heart. The baseline is never dropped, and of fewer than `SMALL`
    items nothing is, of which one fold says too little: all methods are judged on all folds.
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

    def run(
        self, candidates: Mapping[str, Mapping[str, Any]], *, best_wins: bool = False
    ) -> tuple[str, tuple[Entry, ...]]:
        """The winner, and how far every candidate came.

        The first within one standard error of the best wins, or with `best_wins` the best.
        """
        left, reached = list(candidates), dict.fromkeys(candidates, 0)
        small = len(self.data) < SMALL
        for folds, keep in [] if small else _rungs(len(candidates), self.folds.count):
            found = {name: self.judged(name, candidates[name], folds) for name in left}
            reached |= dict.fromkeys(left, folds)
            ranked = sorted((name for name in left if name != BASELINE), key=lambda name: -found[name].mean())
            left = [name for name in candidates if name in {*ranked[:keep], BASELINE}]
        finals = {name: self.judged(name, candidates[name], self.folds.count) for name in left}
        reached |= dict.fromkeys(left, self.folds.count)
        best = max(left, key=lambda name: finals[name].mean())
        entries = []
        for name in candidates:
            mine = self.judged(name, candidates[name], reached[name])
            entries.append(self.entry(name, finals[best][: len(mine)], mine, reached[name]))
        near = [e.method for e in entries if e.method in left and e.behind <= e.error]
        return near[0] if near and not best_wins else best, tuple(entries)

    def entry(self, name: str, best: Array, mine: Array, folds: int) -> Entry:
        """A line of the race."""
        found = self.interval(best - mine, name)
        return Entry(name, folds, float(mine.mean()), found[0], found[3])

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


@dataclass(frozen=True)
class Leader:
    """Who leads, on which network, and the scores of its predictions out of fold."""

    method: str
    scores: Array
    network: dict[str, Any] = field(default_factory=dict)
    word: str = ""


def choose(folds: Folds, seed: int, *, table: bool = False) -> Choice:
    """Diagnose, race, and take a winner: where labels are good the first within one standard error of the best.

    Among many wrong labels the best is taken. Of a `table` robust methods then race once more where there is less
    room for wrong labels, and the best of them wins if it is within one standard error: of fewer than `SMALL` items
    on a linear network, of fewer than `LARGE` with weight decay. Last comes a forest, which wins if it is better.
    """
    say = folds.say
    say("auto: cross-entropy out of fold, to see what noise there is")
    d = diagnose(folds.data, folds.all(BASELINE, {}))
    candidates, noisy = portfolio(d), d.rate > NOISY and not d.crowd
    say(f"auto: {d.kind} noise, about {100 * d.rate:.0f} % wrong labels; racing {', '.join(candidates)}")
    race = Race(folds, seed)
    winner, entries = race.run(candidates, best_wins=noisy)
    why = _why(d, winner, entries, folds, noisy=noisy)
    leader = Leader(winner, race.judged(winner, candidates[winner], folds.count))
    n, robust = len(folds.data), WITH_DECAY if WITH_DECAY in candidates else BASELINE
    again: list[tuple[str, dict[str, Any], tuple[str, ...]]] = []
    if table and noisy and n < LARGE:
        decayed = "weight decay", HELD_BACK, (winner, WITH_DECAY)
        again.append(("linear", LINEAR, ON_LINEAR) if n < SMALL else decayed)
    if table and not d.crowd and FEWEST <= n < LARGE:
        again.append((FOREST, for_forest(n), (robust,)))
    for word, changes, methods in again:
        say(f"auto: once more{AS_SAID[word]}")
        leader, more = _challenged(leader, word, changes, methods, candidates, folds, seed, why)
        entries += more
    gain = race.interval(leader.scores - race.judged(BASELINE, {}, folds.count), "gain")[:3]
    say(f"auto: {leader.method}{AS_SAID.get(leader.word, '')}")
    if leader.method != BASELINE or leader.network:
        why.append(_told_of_gain(leader.method, gain))
    params = dict(candidates[leader.method])
    return Choice(leader.method, params, entries, tuple(why), gain, dict(leader.network))


def _challenged(
    leader: Leader,
    word: str,
    changes: Mapping[str, Any],
    methods: tuple[str, ...],
    candidates: Mapping[str, Mapping[str, Any]],
    folds: Folds,
    seed: int,
    why: list[str],
) -> tuple[Leader, tuple[Entry, ...]]:
    """Who leads after some methods have raced on another network; what they did there, also in words."""
    race = Race(folds.on(**changes), seed)
    named, others = race.run({m: candidates[m] for m in methods if m in candidates}, best_wins=True)
    theirs, mine = race.judged(named, candidates[named], folds.count), leader.scores
    better = max(mine, theirs, key=np.mean)
    entries = tuple(
        race.entry(
            f"{e.method} ({word})", better, race.judged(e.method, candidates[e.method], e.folds), e.folds
        )
        for e in others
    )
    if word == FOREST:
        taken = bool(theirs.mean() > mine.mean())
    else:
        taken = last_near_best({"wide": mine, word: theirs}) == word
    why.append(_told_of_other(word, named, theirs, leader, taken=taken))
    return Leader(named, theirs, dict(changes), word) if taken else leader, entries


def _per_item(labels: float) -> str:
    return "one label per item" if labels == 1 else f"{labels:.2g} labels per item"


def _why(d: Diagnosis, winner: str, entries: tuple[Entry, ...], folds: Folds, *, noisy: bool) -> list[str]:
    n, K = len(folds.data), folds.setting.classes
    by = {e.method: e for e in entries}
    best = min((e for e in entries if e.folds == folds.count), key=lambda e: e.behind)
    halved = "all on one fold, the better half on twice as many, the last on all"
    lines = [
        f"{n:,} items, {K} classes, {_per_item(d.labels_per_item)}. Out-of-fold predictions of plain "
        f"cross-entropy put the share of wrong labels near {100 * d.rate:.0f} %, of the kind: {d.kind}. "
        f"So the candidates were {', '.join(by)}. {told(d, list(by))}".rstrip(),
        f"They raced over folds: {'all of so few items on all' if n < SMALL else halved} "
        f"{folds.count}. Each was judged by how many noisy labels of held-out items it predicts: "
        + "; ".join(
            f"{e.method} {100 * e.accuracy:.1f} % on {e.folds} fold{'s'[: e.folds > 1]}" for e in entries
        )
        + ".",
    ]
    if noisy:
        lines.append(
            f"{winner} was the best of them. Among more than {100 * NOISY:.0f} % wrong labels the best is taken, "
            "and not the first within one standard error: that would be plain cross-entropy too often."
        )
    elif winner == best.method:
        lines.append(f"{winner} was the best of them, and nothing before it came within one standard error.")
    else:
        e = by[winner]
        lines.append(
            f"{best.method} was the best; {winner} stands before it in the order and is only {100 * e.behind:.1f} "
            f"points behind, within one standard error ({100 * e.error:.1f}), so it was taken."
        )
    return lines


def _told_of_other(word: str, method: str, theirs: Array, before: Leader, *, taken: bool) -> str:
    what, rest = {
        "linear": ("On a linear network with some weight decay, which has", "on the wider one"),
        "weight decay": (f"With a weight decay of {HELD_BACK['weight_decay']}, a network has", "without it"),
        FOREST: (
            "On a forest of decision trees, which finds thresholds where networks find slopes",
            "before",
        ),
    }[word]
    found = (
        f"{what}{', ' if word == FOREST else ' less room for wrong labels: '}"
        f"{method} predicts {100 * theirs.mean():.1f} % of the held-out labels"
        f"{'' if word == FOREST else ' there'}, {before.method} {100 * before.scores.mean():.1f} % {rest}. "
    )
    if word == FOREST:
        return f"{found}The forest {'was better, so it was taken' if taken else 'was no better'}."
    end = (
        "no more than one standard error behind, so it was taken."
        if taken
        else "more than one standard error behind."
    )
    return f"{found}The former is {end}"


def _told_of_gain(winner: str, gain: tuple[float, ...]) -> str:
    return (
        f"Against plain cross-entropy {winner} predicts {100 * gain[0]:+.1f} points more noisy labels "
        f"(95 % interval {100 * gain[1]:+.1f} to {100 * gain[2]:+.1f})."
    )
