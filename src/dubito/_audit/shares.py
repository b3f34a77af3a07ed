"""How much of the disagreement between model and labels is noise, and how much is the model's own doubt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .likelihood import (
    ALIKE,
    MOST_WRONG,
    USUAL,
    Array,
    Fit,
    _Problem,
    clean,
    counts,
    fit,
    in_order,
    judge_without_own,
    posterior,
)
from .plan import Z
from .shapes import odds_of_free, spread

# To both sides of the best fit; a share is a scale, so its values are denser near 0.
SHARES = (1.0, 1.15, 1.3, 0.85, 0.7, 0.55, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)
COARSE = 0.3  # see `weigh`
WEAK = (
    0.63  # share of labels not foretold above which the best fit leans to noise already: no more of it then
)
DOUBT = 0.5  # least standard error of the noise rate, over (1 - mean certainty)^2: a rule of thumb from benchmarks
STEPS = 40
SLOPES = (0.15, 0.3, 0.5, 0.8)
NEGLIGIBLE = 1e-3  # weight below which an explanation is left out


@dataclass(frozen=True)
class Weighed:
    """Explanations of the labels and what they come to.

    Fields:
        parts: (weight, fit) of every explanation that counts; the weights sum to one.
        fit: one fit in their middle, for what needs a single one.
        share: mean multiple of the noise in the best fit's matrix.
        error: standard error of the noise rate that comes from not knowing which explanation holds.
    """

    parts: tuple[tuple[float, Fit], ...]
    fit: Fit
    share: float
    error: float


def explain(x: Array, labels: Array, best: Fit) -> Weighed:
    """All explanations: the matrix free or symmetric, noise growing with doubt or not, and how much of it there is.

    Noise that follows the input leaves a pattern in a free matrix, which then misjudges the other labels: what the
    pattern does not foretell seems right. So the free matrix counts by its odds against symmetric noise (`shapes`),
    and for the rest the same explanations do with their mean rate in all entries.
    """
    weighed = by_doubt(x, labels, best)
    odds = odds_of_free(x, labels, best)
    if odds > 1 - NEGLIGIBLE:
        return weighed
    free = [(odds * w, part) for w, part in weighed.parts] if odds > NEGLIGIBLE else []
    evened = [((1 - odds if free else 1.0) * w, spread(x, part)) for w, part in weighed.parts]
    return replace(weighed, parts=(*free, *evened))


def knowing(told: float, N: int) -> float:
    """Probability that a model tells labels apart at all: the odds are ``exp(told - log(N) / 2)`` (BIC).

    `told` is the log-likelihood of N labels by the model over that by their shares alone (`tempered`).
    """
    return 1 / (1 + math.exp(-min(max(told - 0.5 * math.log(N), -50.0), 50.0)))


def blind(labels: Array, K: int) -> Weighed:
    """The explanation for a model that knows nothing: labels are right, or drawn by their shares f.

        ``p(true) = f,   T = (1 - s) I + s 1 f',   s = USUAL``

    Nothing tells s: the error reaches from no noise to labels that are all drawn, where ``1 - f'f`` are wrong.
    """
    share = (np.bincount(labels, minlength=K) + 0.5) / (len(labels) + K / 2)
    T = (1 - USUAL) * np.eye(K) + USUAL * share
    by_share = Fit(np.zeros((K, K)), np.log(share), T, 0.0)
    return Weighed(((1.0, by_share),), by_share, 1.0, (1 - USUAL) * float(1 - share @ share) / Z)


def either(one: Weighed, other: Weighed, odds: float) -> Weighed:
    """Both explanations, the first with this probability."""
    if odds > 1 - NEGLIGIBLE:
        return one
    parts = (*((odds * w, f) for w, f in one.parts), *(((1 - odds) * w, f) for w, f in other.parts))
    error = odds * one.error + (1 - odds) * other.error
    return Weighed(parts, one.fit if odds > 0.5 else other.fit, one.share, error)


def by_doubt(x: Array, labels: Array, best: Fit) -> Weighed:
    """Noise alike everywhere, or more of it where the model doubts, each with its shares.

    The second has one parameter more, and counts by its odds ``exp(gain - log(N) / 2)`` (BIC).
    """
    hot = heated(x, labels, best)
    gain = hot.log_likelihood - best.log_likelihood - 0.5 * math.log(len(labels))
    odds = 0.0 if hot is best else 1 / (1 + math.exp(-min(max(gain, -50.0), 50.0)))
    if odds < 0.01:
        return weigh(x, labels, best)
    if odds > 0.99:
        return weigh(x, labels, hot)
    one, two = weigh(x, labels, best), weigh(x, labels, hot)
    parts = [((1 - odds) * w, f) for w, f in one.parts] + [(odds * w, f) for w, f in two.parts]
    share = (1 - odds) * one.share + odds * two.share
    error = math.hypot(*((1 - odds) * one.error, odds * two.error))
    return Weighed(tuple(parts), two.fit if odds > 0.5 else one.fit, share, max(error, one.error, two.error))


def heated(x: Array, labels: Array, best: Fit) -> Fit:
    """The best fit where noise grows with the model's doubt: ``h_n ~ exp(b u_n)``, u the standardised entropy.

    People err where items are hard, and there the model is in doubt as well. b is 0 or more. It ends where a class
    would change places with another: a matrix with heat can call nearly every label wrong and fit as well.
    """
    log_p = clean(best, x)
    entropy = -(np.exp(log_p) * log_p).sum(1)
    spread = float(entropy.std())
    if spread < 1e-9:
        return best
    u = (entropy - entropy.mean()) / spread
    most = MOST_WRONG / max(1 - float(best.T.diagonal().min()), 1e-9)
    found = best
    for slope in SLOPES:
        heat = np.exp(slope * u)
        heat = np.minimum(heat / heat.mean(), most)
        now = fit(x, labels, replace(found, heat=heat), rounds=1, steps=60)
        if now.log_likelihood <= found.log_likelihood or not in_order(now):
            break
        found = now
    return found


def weigh(x: Array, labels: Array, best: Fit) -> Weighed:
    """Average over explanations of the labels that are almost as good as the best one.

        ``T_s = I + s (T - I)``,   calibration refitted for each s,   weight_s ~ exp((l_s - l_max) / d)

    with l the log-likelihood per label. ``d = 1 / N + COARSE u^4``: the first term is what N labels can tell. The
    second is for the model: u is the share of labels that it would not foretell even so. One that foretells many
    leaves no doubt about s, as without noise in T the labels are far less likely; to a weak one hard items explain
    them almost as well: the likelihood is flat, and small differences come from what calibration cannot express.
    COARSE was set on simulated noise of five kinds in digits, MNIST, SVHN and tables, with models of all qualities;
    then raised threefold where models with a third of the items right, linear or counting neighbours, had their
    miscalibration taken for noise (SVHN, CIFAR-10N from pixels).
    Where a class would mostly be given another's label, l is less by `ALIKE` in all.
    """
    doubt = 1 - float(np.exp(clean(best, x).max(1)).mean())
    missed = unforetold(best, x)
    d = 1 / len(labels) + COARSE * missed**4
    most = 1.0 if missed > WEAK else MOST_WRONG / max(1 - float(best.T.diagonal().min()), 1e-9)
    found: list[tuple[float, float, float, Fit]] = []  # share, log-likelihood, noise rate, fit
    now, ended = best, False
    for s in SHARES:
        if s in (SHARES[1], SHARES[3]):
            now, ended = best, False  # away from the best to one side, then to the other
        if ended or s > most:
            continue
        now = best if s == 1 else settle(x, labels, shrink(now, best.T, s))
        q, total = posterior(clean(now, x), now.T, labels, now.heat)
        rate = float(1 - q[np.arange(len(labels)), labels].mean())
        value = float(total.mean()) - (0 if in_order(now) else ALIKE / len(labels))
        found.append((s, value, rate, now))
        ended = found[-1][1] < found[0][1] + d * math.log(NEGLIGIBLE / 10)
    return _averaged(x, labels, best, found, d, doubt)


def unforetold(fit: Fit, x: Array) -> float:
    """Share of labels that differ from the likeliest one, by the fit itself: ``1 - mean max_j (p T)_j``."""
    return 1 - float((np.exp(clean(fit, x)) @ fit.T).max(1).mean())


def _averaged(
    x: Array, labels: Array, best: Fit, found: list[tuple[float, float, float, Fit]], d: float, doubt: float
) -> Weighed:
    shares, values, rates = (np.array([f[i] for f in found]) for i in range(3))
    weight = np.exp((values - values.max()) / d)
    weight = np.where(weight < NEGLIGIBLE * weight.sum(), 0.0, weight)
    weight /= weight.sum()
    share, mean = float(weight @ shares), float(weight @ rates)
    error = float(weight @ (rates - mean) ** 2) ** 0.5
    near = found[int(np.abs(shares - share).argmin())][3]
    middle = near if share == 1 else settle(x, labels, shrink(near, best.T, share))
    parts = tuple((float(w), f[3]) for w, f in zip(weight, found) if w > 0)
    return Weighed(parts, middle, share, max(error, DOUBT * doubt**2))


def judge(x: Array, labels: Array, weighed: Weighed, strength: float) -> Array:
    """Probabilities of the true class (N, K): the mean of the explanations, never surer than counts allow.

    Nothing was seen more often than a class has labels, N / K on average, so by the rule of succession the model's
    word counts for nothing with probability ``1 / (N / K + 2)``; then only the given label speaks.
    """
    K = x.shape[1]
    q = np.zeros_like(x)
    for weight, part in weighed.parts:
        q += weight * judge_without_own(clean(part, x), part.T, labels, strength, part.heat, part.alike)
    C = counts(q, labels) + 1e-12
    by_label = (C / C.sum(0)).T[labels]
    blind = 1 / (len(labels) / K + 2)
    out: Array = (1 - blind) * q + blind * by_label
    return out


def shrink(fit: Fit, T: Array, share: float) -> Fit:
    """The fit with only a share of the noise of T, or with more of it."""
    eye = np.eye(len(T))
    return replace(fit, T=np.maximum(eye + share * (T - eye), 1e-12))


def settle(x: Array, labels: Array, begin: Fit, weights: Array | None = None, steps: int = STEPS) -> Fit:
    """Fit the calibration W, c for a matrix T that stays as it is."""
    from scipy.optimize import minimize

    problem = _Problem(x, labels, begin, weights)
    whole = problem.pack()
    tail = whole[-(len(begin.T) ** 2) :]
    n = len(whole) - len(tail)

    def value(head: Array) -> tuple[float, Array]:
        found, gradient = problem.value(np.concatenate([head, tail]))
        return found, gradient[:n]

    found = minimize(value, whole[:n], jac=True, method="L-BFGS-B", options={"maxiter": steps})
    W, c, _ = problem.unpack(np.concatenate([found.x, tail]))
    _, total = posterior(clean(Fit(W, c, begin.T, 0.0), x), begin.T, labels, begin.heat)
    return Fit(W, c, begin.T, float(total.sum() if weights is None else total @ weights), begin.heat)
