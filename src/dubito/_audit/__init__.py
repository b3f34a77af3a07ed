"""Which labels are wrong, how many, and why: an audit of labels by anyone's predicted probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import DubitoError
from .border import Inputs, read
from .checked import KNOTS, Correction, correct, moved_to
from .kinds import Evidence, Groups, Kind, between, by_confidence, by_features, decide, nested
from .likelihood import (
    Array,
    Fit,
    centred_logs,
    clean,
    counts,
    first_fit,
    fit,
    posterior,
    prior_strength,
    tempered,
)
from .notes import notes
from .plan import Z, around, relabel_plan
from .result import Audit, Estimate, Step, Suspect
from .shares import blind, either, explain, judge, knowing, settle, shrink, unforetold

__all__ = ["Audit", "Estimate", "Evidence", "Groups", "Kind", "Step", "Suspect", "audit"]

MOST_DRAWN = 20_000  # labels in one refit for the intervals

CONFIDENT = ["least confident", "second quarter", "third quarter", "most confident"]
FORETOLD = ["least noise foretold", "second quarter", "third quarter", "most noise foretold"]


def audit(
    labels: Any,
    probs: Any,
    *,
    classes: Any = None,
    ids: Any = None,
    annotators: Any = None,
    features: Any = None,
    checked: Any = None,
    bootstrap: int = 30,
    neighbours: int = 5,
    seed: int = 0,
) -> Audit:
    """For each label the probability that it is wrong, from predicted probabilities of any model.

    The model's probabilities p are calibrated and seen through a transition matrix T,

        ``P(label = y | x) = sum_k softmax(W log p(x) + c)_k T[k, y]``,

    W, c and T have the largest likelihood (with a ridge that holds W to a multiple of the identity and a weak
    prior for T), averaged over how much of T is noise and how much the model's own doubt, and over whether noise
    grows where the model doubts, as far as the labels leave that open. Then
    ``P(true = k | x, y) ~ softmax(W log p + c)_k T[k, y]``, where each label's own share in T is taken out, and
    p_wrong is one minus the probability of the given label. No p_wrong is surer than the number of labels per class
    allows (rule of succession). A model that foretells the labels no better than their shares do tells nothing:
    then p_wrong differs between classes only, and the interval of the noise rate says how little is known.

    The probabilities must be out of fold: a model that saw a label will defend it. The numbers rest on the model:
    errors that look like the truth to it cannot be found, and the rates of a weak model are rough (see `notes`).
    Labels that were checked put that right: with `checked` the log-odds of the others are corrected by a smooth
    function of themselves, as far as the checked ones speak for it. A hundred labels spread evenly over the
    ranking (`spot_check()`) do.

    Arguments:
        labels: (N,) given labels, integers or text, one of `classes` each; or `CrowdLabels` (several labels per
            item, with annotators), judged by `dubito.crowd`.
        probs: (N, K) out-of-fold probabilities of any classifier; for a crowd one row per item.
        classes: names of the columns of probs; 0 to K - 1 by default.
        ids: (N,) names of the rows; their numbers by default.
        annotators: (N,) who gave each label; tells whether the noise differs between them.
        features: (N, ...) any description of the inputs, for nearest neighbours and input-dependent noise.
        checked: (N,) true classes of labels that were checked, None elsewhere. Their own p_wrong is 0 or 1, they
            come last in the order, and noise rate and plan are about the others.
        bootstrap: refits for the intervals; 0 leaves them out.
        neighbours: how many nearest neighbours the most suspicious labels get.
        seed: of the bootstrap.

    Returns:
        `Audit`.

    Reference:
        Northcutt et al. 2021 (confident learning); Patrini et al. 2017 (forward model)

    Example:
        >>> labels, probs = [0, 0, 0, 1, 1, 1, 0, 1], [[0.9, 0.1]] * 3 + [[0.2, 0.8]] * 3 + [[0.1, 0.9], [0.3, 0.7]]
        >>> found = audit(labels, probs, bootstrap=0)
        >>> found.suspicious(1)[0].row, found.suspicious(1)[0].suggested
        (6, 1)
    """
    _count("bootstrap", bootstrap, "0, or 2 or more", allowed=bootstrap != 1)
    _count("neighbours", neighbours, "0 or more")
    _count("seed", seed, "0 or more")
    if hasattr(labels, "annotator_ids"):
        from .people import audit_crowd

        return audit_crowd(labels, probs, classes, (ids, annotators, features, checked))
    inputs = read(labels, probs, classes, ids, annotators, features, checked)
    return _audit(inputs, bootstrap, neighbours, seed)


def _count(name: str, number: Any, expected: str, allowed: bool = True) -> None:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 0 or not allowed:
        raise DubitoError(f"{name} must be a count", expected=expected, got=repr(number))


def _audit(inputs: Inputs, bootstrap: int, neighbours: int, seed: int) -> Audit:
    y, K, known = inputs.labels, inputs.probs.shape[1], inputs.checked
    x = centred_logs(inputs.probs)
    b, told = tempered(x, y)
    x, informed = min(b, 1.0) * x, knowing(told, len(y))
    first = first_fit(x, y, inputs.probs)
    weighed = either(explain(x, y, first), blind(y, K), informed)
    best = weighed.fit
    log_p = clean(best, x)
    q = judge(x, y, weighed, prior_strength(K))
    begin = replace(first, heat=best.heat)
    draws, matrices = _refits(x, y, begin, weighed.share, bootstrap, seed)
    if draws is not None and matrices is not None:  # what is not of the fit stays as it is
        draws = informed * draws + (1 - informed) * verdicts(q, y)[0]
        matrices = informed * matrices + (1 - informed) * best.T
    doubt, T, fixed = weighed.error, best.T, None
    if known is not None and (known >= 0).any():
        q, draws, doubt, fixed = _corrected(q, y, known, draws, doubt, seed)
        T = counts(q, y) + prior_strength(K) * T
        T /= T.sum(1, keepdims=True)
    doubt = 0.0 if draws is None else doubt
    prior = np.exp(log_p).mean(0)
    _, suggested, _ = verdicts(q, y)
    why = _why(log_p, q, prior, y, suggested)
    if known is not None:
        q[known >= 0] = np.eye(K)[known[known >= 0]]
    p_wrong, suggested, order = verdicts(q, y)
    todo = order if known is None else order[known[order] < 0]
    rate = float(p_wrong[todo].mean()) if len(todo) else 0.0
    error = 0.0 if draws is None or not len(todo) else _rate_error(p_wrong[todo], draws[:, todo], doubt)
    groups = _groups(inputs, log_p, best.T, p_wrong, seed)
    noise_rate, missed = around(rate, error), unforetold(best, x)
    return Audit(
        ids=inputs.ids,
        annotators=inputs.annotators,
        classes=inputs.classes,
        given=y,
        suggested=suggested,
        p_wrong=p_wrong,
        probabilities=q,
        why=why,
        order=np.concatenate([todo, order[known[order] >= 0]]) if known is not None else order,
        noise_rate=noise_rate,
        transition=T,
        transition_interval=_matrix_interval(T, matrices, doubt / max(rate, 1e-9), prior * len(y)),
        class_prior=prior,
        kind=decide(nested(log_p, y, best.T), groups, rate),
        plan=relabel_plan(p_wrong, todo, draws, doubt) if len(todo) else (),
        notes=notes(inputs, best.T, log_p, noise_rate.high, missed, informed, fixed is not None),
        nearby=_nearby(inputs.features, order[:200], neighbours),
        checked=known,
        unseen=None if fixed else max(missed, noise_rate.high),
        informed=informed,
    )


def _corrected(
    q: Array, y: Array, known: Array, draws: Array | None, doubt: float, seed: int
) -> tuple[Array, Array | None, float, Correction]:
    """Posteriors and bootstrap draws as the checked labels say, and what they leave of the doubt."""
    p, rows = verdicts(q, y)[0], known >= 0
    fixed = correct(p[rows], known[rows] != y[rows])
    q = moved_to(q, y, fixed(p))
    doubt = min(doubt, fixed.spread(p[~rows], seed)) if not rows.all() else 0.0
    if draws is not None:
        noise = np.random.default_rng(seed + 1).standard_normal((len(draws), len(KNOTS)))
        draws = np.stack([fixed.drawn(d, z) for d, z in zip(draws, noise)])
    return q, draws, doubt, fixed


def verdicts(q: Array, labels: Array) -> tuple[Array, Array, Array]:
    """p_wrong, the likeliest other class, and the rows from the most suspicious on; ties in the order given."""
    rows = np.arange(len(labels))
    others = q.copy()
    others[rows, labels] = 0
    p_wrong = others.sum(1)  # the sum of the others keeps small numbers exact
    others[rows, labels] = -1
    return p_wrong, others.argmax(1), np.argsort(-p_wrong, kind="stable")


def _why(log_p: Array, q: Array, prior: Array, y: Array, s: Array) -> Array:
    """The log-odds of q in three: what the model says, the prior, and the rest, how such labels come about."""
    rows = np.arange(len(y))
    by_prior = np.log(prior[s]) - np.log(prior[y])
    by_model = log_p[rows, s] - log_p[rows, y] - by_prior
    whole = np.log(np.maximum(q[rows, s], 1e-300)) - np.log(np.maximum(q[rows, y], 1e-300))
    return np.stack([by_model, whole - by_model - by_prior, by_prior], 1)


def _refits(
    x: Array, y: Array, best: Fit, share: float, B: int, seed: int
) -> tuple[Array | None, Array | None]:
    """p_wrong of all labels (B, N) and matrices (B, K, K) when labels are drawn anew with replacement.

    Of very many labels m = MOST_DRAWN are drawn, and the spread is what it would be with all: times sqrt(m / N).
    """
    if B == 0:
        return None, None
    generator, N = np.random.default_rng(seed), len(y)
    m = min(N, MOST_DRAWN)
    draws, matrices = [], []
    for _ in range(B):
        weights = generator.multinomial(m, np.full(N, 1 / N)).astype(np.float64)
        rows = np.arange(N) if m == N else np.flatnonzero(weights)
        begin = best if best.heat is None else replace(best, heat=best.heat[rows])
        again = fit(x[rows], y[rows], begin, weights=weights[rows], rounds=1, steps=25)
        again = settle(x[rows], y[rows], shrink(again, again.T, share), weights[rows], steps=10)
        q, _ = posterior(clean(again, x), again.T, y, best.heat)
        draws.append(1 - q[np.arange(N), y])
        matrices.append(again.T)
    scale = (m / N) ** 0.5
    return _drawn_in(np.stack(draws), scale), _drawn_in(np.stack(matrices), scale)


def _drawn_in(draws: Array, scale: float) -> Array:
    if scale == 1:
        return draws
    middle = draws.mean(0)
    out: Array = middle + scale * (draws - middle)
    return out


def _rate_error(p_wrong: Array, draws: Array, doubt: float) -> float:
    """Standard error of the share of wrong labels: of the fit, of chance in each label, and of the model.

    By the rule of succession it is not below ``1 / (N + 2)``, about that of a share of which none was seen in N.
    """
    N = len(p_wrong)
    chance = (p_wrong * (1 - p_wrong)).sum() / N**2
    return float((draws.mean(1).var(ddof=1) + chance + doubt**2 + 1 / (N + 2) ** 2) ** 0.5)


def _matrix_interval(T: Array, matrices: Array | None, doubt: float, size: Array) -> Array:
    """Of the fit, of chance in the labels of a class, and of how much of T is noise.

    There are `size` (K,) labels of each true class, and by the rule of succession no entry is known better than
    ``1 / (size + 2)``. ``I + s (T - I)``: s is known but for the relative error `doubt`.
    """
    if matrices is None:
        return np.stack([T, T], -1)
    n = size[:, None]
    error = matrices.var(0, ddof=1) + T * (1 - T) / np.maximum(n, 1) + 1 / (n + 2) ** 2
    error = Z * np.sqrt(error + (doubt * (T - np.eye(len(T)))) ** 2)
    return np.stack([np.clip(T - error, 0, 1), np.clip(T + error, 0, 1)], -1)


def _groups(inputs: Inputs, log_p: Array, T: Array, p_wrong: Array, seed: int) -> tuple[Groups, ...]:
    y, out = inputs.labels, []
    out.append(between("confidence", CONFIDENT, by_confidence(inputs.probs), log_p, T, y))
    if inputs.features is not None:
        group = by_features(inputs.features, log_p.argmax(1), p_wrong, seed)
        out.append(between("features", FORETOLD, group, log_p, T, y))
    if inputs.annotators is not None:
        from ..crowd._coding import encode

        codes, names = encode(inputs.annotators)
        out.append(between("annotators", [str(v) for v in names.tolist()], codes, log_p, T, y))
    return tuple(out)


def _nearby(features: Array | None, rows: Array, k: int) -> dict[int, tuple[int, ...]]:
    if features is None or k == 0:
        return {}
    length = (features**2).sum(1)
    out = {}
    for row in rows.tolist():
        distance = length - 2 * features @ features[row]
        distance[row] = np.inf
        out[row] = tuple(np.argsort(distance, kind="stable")[: min(k, len(length) - 1)].tolist())
    return out
