"""An audit of a crowd's labels: each label judged by the other annotators and by a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DubitoError
from .border import probabilities
from .kinds import Evidence, Groups, Kind
from .likelihood import Array, even
from .plan import around, relabel_plan
from .result import Audit

if TYPE_CHECKING:
    from ..crowd import CrowdLabels

MOST_ENTRIES = 20_000_000  # of all annotators' matrices; above, they are not compared


def audit_crowd(crowd: CrowdLabels, probs: Any, classes: Any, unused: tuple[Any, ...]) -> Audit:
    """One row per label. The posterior of an item is that of `crowd.with_model` on `crowd.aggregate`."""
    from ..crowd import aggregate, with_model

    if classes is not None or any(v is not None for v in unused):
        raise DubitoError(
            "a crowd brings its own classes, ids and annotators",
            remedy="leave out classes, ids, annotators, features, checked",
        )
    p = probabilities(probs, "probs")
    merged = aggregate(crowd)
    before = merged.probabilities.double().cpu().numpy()
    q_items = with_model(merged, p).double().cpu().numpy()
    return from_posteriors(crowd, q_items, before, merged.class_prior.double().cpu().numpy())


def from_posteriors(crowd: CrowdLabels, q_items: Array, before: Array, prior: Array) -> Audit:
    """An audit of labels whose items have the posteriors `q_items`.

    Arguments:
        q_items: ``(items, classes)`` from labels and model together.
        before: ``(items, classes)`` from the labels and the class prior alone.
        prior: ``(classes,)``.
    """
    item, y = crowd.item.long().cpu().numpy(), crowd.label.long().cpu().numpy()
    who = crowd.annotator.long().cpu().numpy()
    from . import verdicts

    q = q_items[item]
    p_wrong, suggested, order = verdicts(q, y)
    C = _counts(q, y, len(crowd.classes))
    chance = float((p_wrong * (1 - p_wrong)).sum() ** 0.5) / max(len(y), 1)
    T = C / np.maximum(C.sum(1, keepdims=True), 1e-12)
    error = 1.96 * np.sqrt(T * (1 - T) / (C.sum(1, keepdims=True) + 1))
    return Audit(
        ids=crowd.item_ids[item],
        annotators=crowd.annotator_ids[who],
        classes=crowd.classes,
        given=y,
        suggested=suggested,
        p_wrong=p_wrong,
        probabilities=q,
        why=_why(before[item], q, prior, y, suggested),
        order=order,
        noise_rate=around(float(p_wrong.mean()), chance),
        transition=T,
        transition_interval=np.stack([np.clip(T - error, 0, 1), np.clip(T + error, 0, 1)], -1),
        class_prior=q_items.mean(0),
        kind=_kind(q, y, who, crowd),
        plan=relabel_plan(p_wrong, order, None),
        notes=("intervals of a crowd take the consensus model as known",),
    )


def _counts(q: Array, y: Array, K: int) -> Array:
    return np.stack([np.bincount(y, q[:, k], K) for k in range(K)])


def _why(before: Array, after: Array, prior: Array, y: Array, s: Array) -> Array:
    """The annotators' part is their posterior without the prior; the model takes the prior's place."""
    tiny, rows = 1e-300, np.arange(len(y))
    log = [np.log(np.maximum(a, tiny)) for a in (before, after, prior)]
    by_prior = log[2][s] - log[2][y]
    by_people = log[0][rows, s] - log[0][rows, y] - by_prior
    whole = log[1][rows, s] - log[1][rows, y]
    return np.stack([whole - by_people - by_prior, by_people, by_prior], 1)


def _kind(q: Array, y: Array, who: Array, crowd: CrowdLabels) -> Kind:
    """Compare matrices at the posterior: symmetric, free, one rate per annotator, one matrix per annotator."""
    K, R, N = q.shape[1], crowd.num_annotators, len(y)
    C = _counts(q, y, K)
    right = q[np.arange(N), y]
    rate = float(1 - right.mean())
    out = [
        _evidence("none", *_flat(C, np.full(K, 0.01)), 0, N),
        _evidence("symmetric", *_flat(C, np.full(K, rate)), 1, N),
        _evidence("free", _rows(C), K * (K - 1), N),
    ]
    hits, labels = np.bincount(who, right, R), np.bincount(who, minlength=R)
    one = _binary(hits, labels - hits) + (N - hits.sum()) * -math.log(max(K - 1, 1))
    out.append(_evidence("one rate per annotator", one, R, N))
    if R * K * K <= MOST_ENTRIES:
        each = np.stack([np.bincount(who * K + y, q[:, k], R * K).reshape(R, K) for k in range(K)], 1)
        out.append(_evidence("one matrix per annotator", _rows(each), R * K * (K - 1), N))
    out.sort(key=lambda e: e.bic)
    rates = 1 - hits / np.maximum(labels, 1)
    pooled = _binary(hits.sum(keepdims=True), (labels - hits).sum(keepdims=True))
    gain = _binary(hits, labels - hits) - pooled
    group = Groups(
        "annotators",
        tuple(str(a) for a in crowd.annotator_ids.tolist()),
        tuple(float(r) for r in rates),
        float(gain),
        float(gain - (R - 1) / 2 * math.log(max(N, 2))),
    )
    names = {"free": "class-dependent"}
    best = out[0].model
    name = "annotator-specific" if "annotator" in best else names.get(best, best)
    return Kind(name, best, tuple(out), (group,))


def _evidence(model: str, value: float, parameters: int, N: int) -> Evidence:
    return Evidence(model, value, parameters, parameters * math.log(max(N, 2)) - 2 * value)


def _flat(C: Array, rates: Array) -> tuple[float]:
    from .likelihood import blend

    T = np.maximum(blend(np.clip(rates, 1e-6, 1 - 1e-6), even(len(C))), 1e-12)
    return (float((C * np.log(T)).sum()),)


def _rows(C: Array) -> float:
    """Expected log-likelihood of counts under their own shares, over the last axis."""
    share = C / np.maximum(C.sum(-1, keepdims=True), 1e-12)
    return float((C * np.log(np.maximum(share, 1e-12))).sum())


def _binary(a: Array, b: Array) -> float:
    return _rows(np.stack([a, b], -1))
