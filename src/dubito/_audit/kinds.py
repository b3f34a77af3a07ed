"""What kind of noise it is: likelihoods of nested transition models, and of noise that varies between groups."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .likelihood import Array, blend, counts, even, posterior

NEGLIGIBLE = 0.01  # "none" allows one label in a hundred to be wrong anywhere
STRAY = 0.02  # share of pairwise errors that may go elsewhere
LEAST_RATIO = 1.5  # between the noisiest and the cleanest group, for noise to be called dependent on them


@dataclass(frozen=True)
class Evidence:
    """One candidate: its log-likelihood, its number of free parameters and its BIC (smaller is better)."""

    model: str
    log_likelihood: float
    parameters: int
    bic: float


@dataclass(frozen=True)
class Groups:
    """How the noise rate differs between groups of labels.

    Fields:
        by: what the groups are.
        names: of the groups.
        rates: estimated noise rate in each.
        log_likelihood_gain: over one rate for all, at the same matrix and calibration.
        bic_gain: the same, penalised; positive speaks for a difference.
    """

    by: str
    names: tuple[str, ...]
    rates: tuple[float, ...]
    log_likelihood_gain: float
    bic_gain: float

    @property
    def differ(self) -> bool:
        """Whether the difference is significant and large enough to matter."""
        return self.bic_gain > 0 and max(self.rates) > LEAST_RATIO * max(min(self.rates), NEGLIGIBLE)


@dataclass(frozen=True)
class Kind:
    """The kind of noise, with the evidence.

    Fields:
        name: "none", "symmetric", "pairwise", "class-dependent", "input-dependent" or "annotator-specific".
        transition: which of the nested models of the matrix has the smallest BIC; "none" where at most one label in
            a hundred is wrong.
        evidence: all of them, best first.
        groups: whether noise differs with the model's confidence, with the features, or between annotators.
    """

    name: str
    transition: str
    evidence: tuple[Evidence, ...]
    groups: tuple[Groups, ...]

    def __str__(self) -> str:
        return self.name


def nested(log_p: Array, labels: Array, T: Array) -> tuple[Evidence, ...]:
    """Restricted matrices beside the free one T, at the same calibrated probabilities; best first.

    Calibration is held fixed, for a model that has learned the noise could otherwise pass it off as doubt.
    """
    K, N = len(T), len(labels)
    pairs = np.eye(K)[(T - 2 * np.eye(K)).argmax(1)]
    pairs = (1 - STRAY) * pairs + STRAY * even(K)
    candidates: dict[str, tuple[str, Array, int]] = {
        "none": ("fixed", even(K), 0),
        "symmetric": ("rate", even(K), 1),
        "class rates": ("rates", even(K), K),
    }
    if K > 2:
        candidates["pairwise"] = ("rates", pairs, 2 * K)
    found = {name: (_best(log_p, labels, shape, to), n) for name, (shape, to, n) in candidates.items()}
    if K > 2:
        found["free"] = float(posterior(log_p, T, labels)[1].sum()), K * (K - 1)
    out = [Evidence(name, value, n, n * math.log(N) - 2 * value) for name, (value, n) in found.items()]
    return tuple(sorted(out, key=lambda e: e.bic))


def _best(log_p: Array, labels: Array, shape: str, to: Array) -> float:
    """The largest log-likelihood over the rates of a restricted matrix, by EM."""
    K = len(to)
    rates, last = np.full(K, NEGLIGIBLE if shape == "fixed" else 0.1), -math.inf
    for _ in range(200):
        q, total = posterior(log_p, np.maximum(blend(rates, to), 1e-12), labels)
        value = float(total.sum())
        if shape == "fixed" or value - last < 1e-3:
            break
        C, last = counts(q, labels), value
        wrong, all_ = C.sum(1) - np.diag(C), C.sum(1)
        if shape == "rate":
            wrong, all_ = np.full(K, wrong.sum()), np.full(K, all_.sum())
        rates = np.clip(wrong / np.maximum(all_, 1e-12), 1e-6, 1 - 1e-6)
    return value


def between(by: str, names: list[str], group: Array, log_p: Array, T: Array, labels: Array) -> Groups:
    """One multiple s of the noise per group: ``T_g = I + s_g (T - I)``, all else kept.

    The likelihood of a label is then ``(1 - s) p(y | x) + s sum_k p(k | x) T[k, y]``, concave in s.
    """
    own = np.exp(log_p[np.arange(len(labels)), labels])
    seen = np.exp(posterior(log_p, T, labels)[1])
    most = 1 / max(float((1 - np.diag(T)).max()), 1e-6)
    grid = np.concatenate([[1.0], np.geomspace(1e-2, min(most, 20.0), 60) * (1 - 1e-9)])
    C = len(names)
    totals = np.stack(
        [np.bincount(group, np.log(np.maximum(own + s * (seen - own), 1e-300)), C) for s in grid]
    )
    best = totals.argmax(0)
    gain = float((totals.max(0) - totals[0]).sum())
    prior = np.exp(log_p) @ (1 - np.diag(T))
    usual = np.bincount(group, prior, C) / np.maximum(np.bincount(group, minlength=C), 1)
    rates = np.minimum(grid[best] * usual, 1.0)
    penalty = (C - 1) / 2 * math.log(len(labels))
    return Groups(by, tuple(names), tuple(float(r) for r in rates), gain, gain - penalty)


def by_confidence(probs: Array) -> Array:
    """Quarters of the labels by the model's highest probability, within the class it predicts."""
    top, value = probs.argmax(1), probs.max(1)
    group = np.zeros(len(top), dtype=np.int64)
    for k in np.unique(top):
        rows = np.flatnonzero(top == k)
        place = value[rows].argsort(kind="stable").argsort(kind="stable")
        group[rows] = 4 * place // len(rows)
    return group


def by_features(features: Array, group: Array, p_wrong: Array, seed: int) -> Array:
    """Quarters of the labels by the noise that the features foretell beyond the class, each foretold out of fold.

    Within a class (`group`) both the features' main axes, with their squares, and p_wrong lose their means; a ridge
    regression of one on the other is fitted on four fifths of the labels and applied to the fifth.
    """
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import KFold, cross_val_predict

    word = seed % 2**32  # what scikit-learn takes
    beyond = within(features, group)
    if not beyond.any():  # features that tell no more than the class
        return np.zeros(len(group), dtype=np.int64)
    axes = PCA(min(10, *features.shape), random_state=word).fit_transform(beyond)
    axes = axes / max(float(axes.std()), 1e-12)
    inputs = within(np.concatenate([axes, axes**2], 1), group)
    rest = within(p_wrong[:, None], group)[:, 0]
    folds = KFold(min(5, len(rest)), shuffle=True, random_state=word)
    foretold = cross_val_predict(Ridge(0.01 * len(rest)), inputs, rest, cv=folds)
    place = foretold.argsort(kind="stable").argsort(kind="stable")
    quarters: Array = 4 * place // len(place)
    return quarters


def within(values: Array, group: Array) -> Array:
    """Values less the mean of their group."""
    size = np.maximum(np.bincount(group), 1)
    means = np.stack([np.bincount(group, column) / size for column in values.T], 1)
    out: Array = values - means[group]
    return out


def decide(evidence: tuple[Evidence, ...], groups: tuple[Groups, ...], rate: float) -> Kind:
    """Put a name to it: annotators first, then inputs, then the shape of the matrix."""
    transition = "none" if rate <= NEGLIGIBLE else evidence[0].model
    names = {"class rates": "class-dependent", "free": "class-dependent"}
    name = names.get(transition, transition)
    differing = {g.by for g in groups if g.differ}
    if name != "none" and differing & {"features", "confidence"}:
        name = "input-dependent"
    if "annotators" in differing:
        name = "annotator-specific"
    return Kind(name, transition, evidence, groups)
