"""Labels that were checked: what they say about the probabilities of all the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..crowd._coding import as_column, encode_with
from ..errors import DubitoError
from .likelihood import Array

KNOTS = np.arange(-14.0, 15.0)  # of log-odds, between which the correction is linear
SIZE, REACH = 2.0, 2.0  # standard deviation of a correction, and how far along the log-odds it carries
LEAST_SLOPE = 0.01
STEPS = 50
SPOT = 100


@dataclass(frozen=True)
class Correction:
    """``logit P(wrong) = z + f(z)``, z the log-odds of p_wrong, believed as far as the checked labels speak for it.

    Fields:
        odds: probability that p_wrong needs a correction at all.
        theta: f at the knots; root: Cholesky factor of its covariance (Laplace).
    """

    odds: float
    theta: Array
    root: Array

    def __call__(self, p_wrong: Array) -> Array:
        """Corrected probabilities: a mean of p_wrong as it is and as it is corrected."""
        out: Array = (1 - self.odds) * p_wrong + self.odds * _moved(p_wrong, self.theta)
        return out

    def drawn(self, p_wrong: Array, noise: Array) -> Array:
        """The correction as it could also be: `noise` has a standard normal number for each knot."""
        moved = _moved(p_wrong, self.theta + self.root @ noise)
        out: Array = (1 - self.odds) * p_wrong + self.odds * moved
        return out

    def spread(self, p_wrong: Array, seed: int) -> float:
        """How far the checked labels leave the mean of p_wrong open, as a standard error."""
        noise = np.random.default_rng(seed).standard_normal((50, len(KNOTS)))
        return float(np.std([_moved(p_wrong, self.theta + self.root @ z).mean() for z in noise]))


def correct(p_wrong: Array, wrong: Array) -> Correction:
    """What checked labels teach: whether those called wrong with 30 % were wrong in 30 % of cases.

    f is a Gaussian process of the log-odds, ``cov(f(z), f(z')) = SIZE^2 exp(-(z - z')^2 / (2 REACH^2))``, so that
    checks of the most suspicious labels say nothing about the others. Its mode is found by Newton's method; the
    odds are those of the marginal likelihoods with f and without (Laplace). Which labels were checked may depend on
    p_wrong, on nothing else. SIZE and REACH were settled on simulated noise.
    """
    z, y = _logit(p_wrong), wrong.astype(np.float64)
    B = _between(z)
    prior = SIZE**2 * np.exp(-((KNOTS[:, None] - KNOTS) ** 2) / (2 * REACH**2)) + 1e-4 * np.eye(len(KNOTS))
    inverse = np.linalg.inv(prior)

    def value(theta: Array) -> float:
        u = z + B @ theta
        return float((np.logaddexp(0, u) - y * u).sum() + theta @ inverse @ theta / 2)

    theta, now = np.zeros(len(KNOTS)), value(np.zeros(len(KNOTS)))
    without = now
    for _ in range(STEPS):
        s = _sigmoid(z + B @ theta)
        curve = (B * (s * (1 - s))[:, None]).T @ B + inverse
        step = np.linalg.solve(curve, B.T @ (s - y) + inverse @ theta)
        while value(theta - step) > now + 1e-12 and np.abs(step).max() > 1e-9:
            step = step / 2
        theta, last, now = theta - step, now, min(now, value(theta - step))
        if last - now < 1e-9:
            break
    s = _sigmoid(z + B @ theta)
    curve = (B * (s * (1 - s))[:, None]).T @ B + inverse
    gain = without - now - (np.linalg.slogdet(curve)[1] + np.linalg.slogdet(prior)[1]) / 2
    odds = 1 / (1 + math.exp(-min(max(float(gain), -50.0), 50.0)))
    return Correction(odds, theta, np.linalg.cholesky(np.linalg.inv(curve) + 1e-9 * np.eye(len(KNOTS))))


def _logit(p: Array) -> Array:
    q = np.clip(p, 1e-300, 1 - 1e-15)
    out: Array = np.log(q) - np.log1p(-q)
    return out


def _sigmoid(u: Array) -> Array:
    out: Array = 1 / (1 + np.exp(-np.clip(u, -700, 700)))
    return out


def _between(z: Array) -> Array:
    """Weights (n, knots) that read a function off its knots, linearly, constant beyond the last."""
    place = np.clip(z, KNOTS[0], KNOTS[-1]) - KNOTS[0]
    left = np.minimum(place.astype(np.int64), len(KNOTS) - 2)
    out = np.zeros((len(z), len(KNOTS)))
    rows = np.arange(len(z))
    out[rows, left], out[rows, left + 1] = 1 - (place - left), place - left
    return out


def _moved(p: Array, theta: Array) -> Array:
    """p with f added to its log-odds; where that would turn the order of labels around, they rise but little."""
    z, least = _logit(p), LEAST_SLOPE * KNOTS
    rising = np.maximum.accumulate(KNOTS + theta - least) + least
    return _sigmoid(z + np.interp(z, KNOTS, rising - KNOTS))


def moved_to(q: Array, labels: Array, p_wrong: Array) -> Array:
    """Probabilities (N, K) with the same shares among the other classes, but with another p_wrong."""
    rows = np.arange(len(labels))
    others = q.copy()
    others[rows, labels] = 0
    total = others.sum(1)
    even = (1 - np.eye(q.shape[1])[labels]) / max(q.shape[1] - 1, 1)
    out: Array = np.where(total[:, None] > 0, others / np.maximum(total, 1e-300)[:, None], even)
    out *= p_wrong[:, None]
    out[rows, labels] = 1 - p_wrong
    return out


def read_checked(checked: Any, classes: Array, N: int) -> Array:
    """Codes of the true classes (N,), -1 where a label was not checked (None or NaN)."""
    try:
        values = list(checked)
    except TypeError:
        raise DubitoError(
            "checked must be a column", expected="a class or None for each label", got=repr(checked)[:80]
        ) from None
    if len(values) != N:
        raise DubitoError("checked and probs must be of one length", expected=N, got=len(values))
    rows = [i for i, v in enumerate(values) if not _missing(v)]
    out = np.full(N, -1, dtype=np.int64)
    if rows:
        column = as_column([values[i] for i in rows], "checked")
        out[rows] = encode_with(column, classes, "checked", "None where a label was not checked")
    return out


def _missing(value: Any) -> bool:
    """None, NaN, or pandas' NA, known by its name as pandas may not be installed."""
    return (
        value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
    )


def spot_check(order: Array, n: int = SPOT) -> Array:
    """Rows to check that tell most about all: one of each of n equal parts of the ranking.

    Which one is drawn by the number of the row: two rows that change places in the ranking, as they do by the last
    digits of a fit, rarely change the sample. The seed of the draws is one that nobody simulates noise with.

    Example:
        >>> spot_check(np.arange(10), 3).tolist()
        [1, 5, 7]
    """
    n = min(n, len(order))
    drawn = np.random.default_rng(list(b"spot check")).random(int(order.max(initial=-1)) + 1)
    parts = np.array_split(order, n) if n else []
    return np.array([part[drawn[part].argmin()] for part in parts], dtype=np.int64)
