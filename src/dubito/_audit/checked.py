"""Labels that were checked: what they say about the probabilities of all the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..crowd._coding import as_column, encode_with
from ..errors import DubitoError
from .likelihood import Array

SHIFT, STRETCH = 2.0, 0.7  # prior standard deviations of a and log b, settled on simulated noise
LEAST = 1e-12
SPOT = 100


@dataclass(frozen=True)
class Correction:
    """``logit P(wrong) = a + b logit p_wrong``, believed as far as the checked labels speak for it.

    Fields:
        odds: probability that p_wrong needs this correction at all.
        theta: a and log b; covariance: of both (Laplace).
    """

    odds: float
    theta: Array
    covariance: Array

    def __call__(self, p_wrong: Array) -> Array:
        """Corrected probabilities: a mean of p_wrong as it is and as it is corrected."""
        out: Array = (1 - self.odds) * p_wrong + self.odds * _moved(p_wrong, self.theta)
        return out

    def drawn(self, p_wrong: Array, noise: Array) -> Array:
        """The correction as it could also be: `noise` (2,) is standard normal."""
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(2))
        out: Array = (1 - self.odds) * p_wrong + self.odds * _moved(p_wrong, self.theta + root @ noise)
        return out

    def spread(self, p_wrong: Array, seed: int) -> float:
        """How far the checked labels leave the mean of p_wrong open, as a standard error."""
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(2))
        noise = np.random.default_rng(seed).standard_normal((50, 2))
        return float(np.std([_moved(p_wrong, self.theta + root @ z).mean() for z in noise]))


def correct(p_wrong: Array, wrong: Array) -> Correction:
    """What checked labels teach: whether those called wrong with 30 % were wrong in 30 % of cases.

    a and log b have normal priors around 0. The odds are those of the two marginal likelihoods, with and without
    the correction, by Laplace's approximation. Which labels were checked may depend on p_wrong, on nothing else.
    """
    z, y, scale = _logit(p_wrong), wrong.astype(np.float64), np.array([SHIFT, STRETCH])

    def parts(theta: Array) -> tuple[float, Array, Array]:
        slope = math.exp(theta[1]) * z
        u = theta[0] + slope
        s = 1 / (1 + np.exp(-u))
        to = np.stack([np.ones_like(z), slope], 1)
        value = float((np.logaddexp(0, u) - y * u).sum() + (theta**2 / scale**2).sum() / 2)
        fisher = (to * (s * (1 - s))[:, None]).T @ to + np.diag(1 / scale**2)
        return value, to.T @ (s - y) + theta / scale**2, fisher

    from scipy.optimize import minimize

    bounds = [(-15.0, 15.0), (-3.0, 3.0)]
    theta = minimize(lambda t: parts(t)[:2], np.zeros(2), jac=True, method="L-BFGS-B", bounds=bounds).x
    value, _, fisher = parts(theta)
    without = float((np.logaddexp(0, z) - y * z).sum())
    gain = without - value - np.linalg.slogdet(fisher)[1] / 2 - np.log(scale).sum()
    odds = 1 / (1 + math.exp(-min(max(float(gain), -50.0), 50.0)))
    return Correction(odds, theta, np.linalg.inv(fisher))


def _logit(p: Array) -> Array:
    q = np.clip(p, LEAST, 1 - LEAST)
    out: Array = np.log(q) - np.log1p(-q)
    return out


def _moved(p: Array, theta: Array) -> Array:
    out: Array = 1 / (1 + np.exp(-(theta[0] + math.exp(theta[1]) * _logit(p))))
    return out


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
    values = list(checked)
    if len(values) != N:
        raise DubitoError("checked and probs must be of one length", expected=N, got=len(values))
    rows = [i for i, v in enumerate(values) if v is not None and not (isinstance(v, float) and math.isnan(v))]
    out = np.full(N, -1, dtype=np.int64)
    if rows:
        column = as_column([values[i] for i in rows], "checked")
        out[rows] = encode_with(column, classes, "checked", "None where a label was not checked")
    return out


def spot_check(order: Array, n: int = SPOT) -> Array:
    """Rows to check that tell most about all: n of them, evenly along the ranking.

    Example:
        >>> spot_check(np.arange(10), 3).tolist()
        [1, 5, 8]
    """
    n = min(n, len(order))
    out: Array = order[((np.arange(n) + 0.5) * (len(order) / max(n, 1))).astype(np.int64)]
    return out
