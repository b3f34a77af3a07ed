"""What a run found out about its labels: an audit, a consensus, annotators, whom to ask."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._audit import Audit, Estimate, _nearby, audit
from .._audit.border import feature_table
from .._audit.plan import Z, around
from .._crowd_posteriors import CANDIDATES, Judged
from ..crowd import CrowdLabels, aggregate, expected_gain, with_model
from ..crowd.ask import _already
from ..crowd.intervals import beta_interval, jeffreys
from ..data import LabelledData, Triplets
from ..procedures.posterior import count_matrices, log_evidence, posterior, weigh_model
from .training import GOLD

Array = np.ndarray[Any, Any]

ROUNDS = 20
RARE = 2e-3  # share of an annotator's labels that may be anything
MOST_FEATURES, MOST_ITEMS = 4096, 20_000  # larger inputs are not searched for neighbours
MOST_ASKED = 500
MOST_NEIGHBOURS, NEIGHBOURS = 200, 5


@dataclass(frozen=True)
class People:
    """Annotators as the joint posterior sees them: matrices ``A[r, true, given]`` and skills, with intervals."""

    names: tuple[str, ...]
    labels: Array
    matrices: Array
    low: Array
    high: Array
    skills: Array
    skill_low: Array
    skill_high: Array


@dataclass(frozen=True)
class Findings:
    """All that is told about the labelled items of a run, in their order.

    Fields:
        audit: of the labels that gold does not settle (for a crowd: of all labels).
        rows: which labelled item each row of the audit is about.
        probs: out-of-fold probabilities ``(N, K)``.
        posterior: of the true classes, given labels and model ``(N, K)``.
        gold: known classes, -1 elsewhere ``(N,)``.
        people: of a crowd.
        ask: row of the audit -> the annotator who should look at it next.
    """

    audit: Audit
    rows: Array
    probs: Array
    posterior: Array
    gold: Array
    people: People | None = None
    ask: dict[int, str] = field(default_factory=dict)

    @property
    def spot(self) -> bool:
        """Whether a sample of checks would help: not where several people judged the same items."""
        return len(np.unique(self.rows)) == len(self.rows)

    @property
    def to_check(self) -> list[int]:
        """Rows of the audit, the most suspicious first, without those that gold has settled."""
        return [int(r) for r in self.audit.order if self.gold[self.rows[r]] < 0]


def find(data: LabelledData, log_p: Tensor, seed: int = 0) -> Findings:
    """Judge labels by out-of-fold log-probabilities ``(N, K)``; `data` has gold in `extra`, if any."""
    known = data.extra.get(GOLD, torch.full((len(data),), -1)).numpy()
    probs = log_p.softmax(-1).numpy()
    if data.crowd is None:
        return _single(data, probs, known, seed)
    several = bool((torch.bincount(data.crowd.item) > 1).any())
    return _crowd(data, probs, known) if several else _one_each(data, probs, known, seed)


def _single(data: LabelledData, probs: Array, known: Array, seed: int) -> Findings:
    """Every label is judged; those that were checked correct the probabilities of the others, and are left out."""
    labels = data.labels.numpy()
    rows = np.flatnonzero(labels >= 0)
    names, ids = np.array(data.classes, dtype=object), np.array(data.ids, dtype=object)
    found = audit(
        names[labels[rows]].tolist(),
        probs[rows],
        classes=list(data.classes),
        ids=ids[rows].tolist(),
        features=_features(data, rows),
        checked=_checked(names, known[rows]),
        seed=seed,
    )
    open_ = np.flatnonzero(known[rows] < 0)
    found, rows = found.part(open_), rows[open_]
    q = np.eye(len(data.classes))[np.maximum(known, 0)]
    q[rows] = found.probabilities
    return Findings(found, rows, probs, q, known)


def _checked(names: Array, known: Array) -> list[str | None] | None:
    """Names of the classes that are known; None for nothing."""
    return [names[k] if k >= 0 else None for k in known.tolist()] if (known >= 0).any() else None


def _one_each(data: LabelledData, probs: Array, known: Array, seed: int) -> Findings:
    """A crowd where nobody judges what another has labelled: one matrix for all, then counts per annotator.

    EM would stand still here, at labels that are all right.
    """
    assert data.crowd is not None
    item, who, label = (t.numpy() for t in data.crowd)
    crowd, ids = crowd_of(data), np.array(data.ids, dtype=object)
    found = audit(
        np.array(data.classes, dtype=object)[label].tolist(),
        probs[item],
        classes=list(data.classes),
        ids=ids[item].tolist(),
        annotators=crowd.annotator_ids[who].tolist(),
        features=_features(data, item),
        checked=_checked(np.array(data.classes, dtype=object), known[item]),
        seed=seed,
    )
    q = probs.copy()
    q[item] = found.probabilities
    q[known >= 0] = np.eye(len(data.classes))[known[known >= 0]]
    posteriors = torch.from_numpy(q)
    A = _counted(posteriors, data.crowd, crowd.num_annotators)
    judged = Judged(posteriors, A, data.crowd)
    return Findings(found, item, probs, q, known, _people(crowd, judged), _ask(crowd, judged, found, known))


def _features(data: LabelledData, rows: Array) -> Array | None:
    """What neighbours are looked for in: the inputs, where they are small."""
    if not isinstance(data.inputs, Tensor) or len(data) > MOST_ITEMS:
        return None
    x = data.batch(torch.from_numpy(rows)).flatten(1)
    return x.double().numpy() if x.shape[1] <= MOST_FEATURES else None


def _neighbours(data: LabelledData, found: Audit) -> dict[int, tuple[int, ...]]:
    """For the most suspicious labels of a crowd a label of each of the nearest other items."""
    assert data.crowd is not None
    x = feature_table(_features(data, np.arange(len(data))), len(data))
    item = data.crowd.item.numpy()
    names, first = np.unique(item, return_index=True)
    place = dict(zip(names.tolist(), first.tolist()))
    rows = found.order[:MOST_NEIGHBOURS]
    near = _nearby(x, np.unique(item[rows]), NEIGHBOURS)
    return {
        int(row): tuple(place[i] for i in near.get(int(item[row]), ()) if i in place) for row in rows.tolist()
    }


def crowd_of(data: LabelledData) -> CrowdLabels:
    """The labels of the items under their names."""
    assert data.crowd is not None
    ids = data.ids if data.ids is not None else [str(i) for i in range(len(data))]
    names = data.annotators or tuple(str(r) for r in range(int(data.crowd.annotator.max()) + 1))
    as_text = [np.array(v, dtype=object) for v in (list(ids), list(names), list(data.classes))]
    item, who, label = (t.numpy() for t in data.crowd)
    return CrowdLabels(
        as_text[0][item].tolist(),
        as_text[1][who].tolist(),
        as_text[2][label].tolist(),
        classes=list(data.classes),
        item_ids=list(ids),
        annotator_ids=list(names),
        duplicates="keep",
    )


def _crowd(data: LabelledData, probs: Array, known: Array) -> Findings:
    from .._audit.people import from_posteriors

    assert data.crowd is not None
    crowd = crowd_of(data)
    codes = data.crowd
    q, A, evidence, prior = joint(crowd, codes, torch.from_numpy(probs), torch.from_numpy(known))
    before = posterior(prior.clamp(min=1e-12).log(), evidence)
    found = from_posteriors(crowd, q.numpy(), before.numpy(), prior.numpy())
    found = replace(found, nearby=_neighbours(data, found))
    judged = Judged(q, A, codes)
    people = _people(crowd, judged)
    found = replace(found, noise_rate=_rate(found, people))
    ask = _ask(crowd, judged, found, known)
    return Findings(found, codes.item.numpy(), probs, q.numpy(), known, people, ask)


def joint(
    crowd: CrowdLabels, codes: Triplets, probs: Tensor, known: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Posteriors ``(N, K)``, matrices ``(R, K, K)``, evidence ``(N, K)`` and class prior ``(K,)``.

    EM around fixed out-of-fold predictions, from the consensus of the labels on: an item's class is judged by its
    labels and by networks that did not see them, and gold items are what they are.
    """
    K, R, n = crowd.num_classes, crowd.num_annotators, len(probs)
    log_p = probs.double().clamp(min=1e-12).log()
    sure = torch.nn.functional.one_hot(known.clamp(min=0), K).double()
    is_gold = (known >= 0).unsqueeze(1)
    q = with_model(aggregate(crowd), probs).double()
    for _ in range(ROUNDS):
        q = torch.where(is_gold, sure, q)
        A = _counted(q, codes, R)
        evidence = log_evidence(A, codes, n)
        new = posterior(weigh_model(log_p, evidence), evidence)
        moved = float((new - q).abs().max())
        q = new
        if moved < 1e-4:
            break
    q = torch.where(is_gold, sure, q)
    return q, _counted(q, codes, R), evidence, q.mean(0)


def _counted(q: Tensor, codes: Triplets, R: int) -> Tensor:
    """The annotators' matrices; nothing is impossible because it has not been seen yet."""
    return (1 - RARE) * count_matrices(q, codes, R, strength=1.0) + RARE / q.shape[1]


def _rate(found: Audit, people: People) -> Estimate:
    """The share of wrong labels, as uncertain as single labels and the skills of those who gave them are."""
    chance = (found.p_wrong * (1 - found.p_wrong)).sum() / len(found.p_wrong) ** 2
    share = people.labels / people.labels.sum()
    skill = (share * (people.skill_high - people.skill_low) / (2 * Z)) ** 2
    return around(found.noise_rate.value, float(chance + skill.sum()) ** 0.5)


def _people(crowd: CrowdLabels, judged: Judged) -> People:
    A, codes = judged.matrices, judged.crowd
    rows = A.new_zeros(A.shape[:2]).index_add(0, codes.annotator, judged.posteriors[codes.item])
    mean, variance = jeffreys(A, rows.unsqueeze(2).expand_as(A))
    interval = beta_interval(mean, variance, 0.95)
    skill = judged.skill_intervals(0.95)
    return People(
        names=tuple(str(a) for a in crowd.annotator_ids.tolist()),
        labels=crowd.labels_per_annotator().numpy(),
        matrices=A.numpy(),
        low=interval[..., 0].numpy(),
        high=interval[..., 1].numpy(),
        skills=A.diagonal(dim1=1, dim2=2).mean(-1).numpy(),
        skill_low=skill[:, 0].numpy(),
        skill_high=skill[:, 1].numpy(),
    )


def _ask(crowd: CrowdLabels, judged: Judged, found: Audit, known: Array) -> dict[int, str]:
    """For the most suspicious labels: who would tell most about the item and has not labelled it yet."""
    item = judged.crowd.item.numpy()
    rows = [int(r) for r in found.order[: 2 * MOST_ASKED] if known[item[r]] < 0][:MOST_ASKED]
    if not rows:
        return {}
    q, A = judged.posteriors, judged.matrices
    worth = expected_gain(q.mean(0).expand(len(A), -1), A)
    people = torch.argsort(worth, descending=True, stable=True)[:CANDIDATES]
    items = torch.from_numpy(np.unique(item[rows]))
    gain = expected_gain(q[items].unsqueeze(1), A[people].unsqueeze(0))
    gain = gain.masked_fill(_already(crowd, items, people), -1.0)
    best = gain.argmax(1)
    names = crowd.annotator_ids.tolist()
    who = {
        int(i): str(names[int(people[b])])
        for i, b, g in zip(items, best, gain.max(1).values)
        if float(g) >= 0
    }
    return {row: who[int(item[row])] for row in rows if int(item[row]) in who}
