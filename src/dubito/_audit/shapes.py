"""A matrix that is free, or symmetric noise with one rate: which of the two the labels speak for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from .likelihood import ALIKE, Array, Fit, blend, clean, counts, even, fit, in_order, posterior

COST = 2.5  # of an entry in use, in log-likelihood: settled on noise made at borders, in classes and in pairs


def symmetric(x: Array, labels: Array, free: Fit) -> Fit:
    """The fit with one noise rate for all classes and all errors, begun from the free one."""
    K = len(free.T)
    rate = float(np.clip(1 - free.T.diagonal().mean(), 1e-3, 0.5))
    W = free.W if np.trace(free.W) > 0 else np.eye(K)
    begin = replace(free, W=W, T=blend(np.full(K, rate), even(K)), alike=True)
    return fit(x, labels, begin, rounds=1, steps=100)


def odds_of_free(x: Array, labels: Array, free: Fit) -> float:
    """Probability of the free matrix against symmetric noise, both equally likely at first.

    The likelihood of a free matrix is larger in any case. What it costs is one for each of its K (K - 1) parameters
    but that of the rate (AIC), or, where that is less, COST for each entry in use: ``sum n / (n + 1)`` of them, n
    the number of labels in an entry off the diagonal. With many classes most entries are never needed. One that is
    out of order costs `ALIKE` more.
    """
    plain, K = symmetric(x, labels, free), len(free.T)
    if not in_order(plain):
        return 1.0
    exchanged = 0.0 if in_order(free) else ALIKE
    n = counts(posterior(clean(free, x), free.T, labels)[0], labels)[~np.eye(K, dtype=bool)]
    cost = min(COST * float((n / (n + 1)).sum()), K * (K - 1) - 1)
    gain = free.log_likelihood - plain.log_likelihood - cost - exchanged
    return 1 / (1 + math.exp(-min(max(gain, -50.0), 50.0)))


def spread(x: Array, part: Fit) -> Fit:
    """The same noise on average, with one rate for all classes and all errors."""
    rate = float(np.exp(clean(part, x)).mean(0) @ (1 - part.T.diagonal()))
    T = np.maximum(blend(np.full(len(part.T), rate), even(len(part.T))), 1e-12)
    return replace(part, T=T, alike=True)
