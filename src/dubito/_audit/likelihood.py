"""The model behind an audit: calibrated probabilities of the true class, seen through a transition matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FLOOR = 1e-6  # probabilities below are taken as this: what a model calls impossible is merely very unlikely
COUNTED = (
    1e-4  # the least for models that count (trees, neighbours) and rounded files: a zero there says little
)
SMALL = 0.01  # quantile of their other probabilities, of which a zero is taken as half
ZEROS = 0.01  # share of exact zeros by which they are known
RIDGE = 1e-2  # pull of the calibration matrix towards b times the identity, per label
CALM = 1e-2  # pull of b towards 0, once: where all b are as likely, as for hard predictions, it stays small
MOST_WRONG = 0.95  # of the labels of a class, wherever noise is hottest
USUAL = 0.3  # noise rate of the second start
ALIKE = 7.0  # log-odds against a class most of whose labels are another's: about one in a thousand
MOST_CLASSES = 50  # above, and with few labels, calibration is one number b instead of a matrix


@dataclass(frozen=True)
class Fit:
    """Maximum of the penalised likelihood: calibration W, c, transition matrix T, and the log-likelihood.

    With `heat` (N,) the noise of each label is that multiple of T's: ``T_n = I + h_n (T - I)``. Where the noise is
    `alike`, T has one rate for all classes and all errors, instead of being free.
    """

    W: Array
    c: Array
    T: Array
    log_likelihood: float
    heat: Array | None = None
    alike: bool = False


def even(K: int) -> Array:
    """Where labels go under symmetric noise: to all other classes alike."""
    return (1 - np.eye(K)) / max(K - 1, 1)


def blend(rates: Array, to: Array) -> Array:
    """``diag(1 - r) + diag(r) Q``."""
    out: Array = np.diag(1 - rates) + rates[:, None] * to
    return out


def centred_logs(probs: Array) -> Array:
    """Log-probabilities, floored, minus their mean over the classes: the input of the calibration.

    Where a model counts, 0 of 15 neighbours is taken as half a neighbour, and not as an impossible class.
    """
    floor = FLOOR
    if (probs == 0).mean() > ZEROS:
        least = float(np.quantile(probs[probs > 0], SMALL)) / 2
        floor = min(max(least, COUNTED), 0.5 / probs.shape[1])
    logs = np.log(np.maximum(probs, floor))
    out: Array = logs - logs.mean(1, keepdims=True)
    return out


def tempered(x: Array, labels: Array) -> tuple[float, float]:
    """b >= 0 of the likeliest ``p(label | x) = softmax(b x + c)``, and its log-likelihood over that of c alone.

    Shapes: x ``(N, K)``, labels ``(N,)``.
    """
    from scipy.optimize import minimize

    rows, share = np.arange(len(x)), np.bincount(labels, minlength=x.shape[1]) / len(x)
    level = np.log(np.maximum(share, 1e-300))
    own, alone = share > 0, float(level[labels].sum())  # a class without labels would have c = -inf

    def value(theta: Array) -> tuple[float, Array]:
        log_p = _log_softmax(theta[0] * x + theta[1:] + level)
        push = np.exp(log_p)
        total = alone - float(log_p[rows, labels].sum())
        push[rows, labels] -= 1
        return total / len(x), np.concatenate([[np.vdot(push, x)], push.sum(0) * own]) / len(x)

    bounds = [(0.0, None), *[(-10.0, 10.0)] * x.shape[1]]
    begin = np.zeros(x.shape[1] + 1)
    found = minimize(value, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100})
    return float(found.x[0]), -float(found.fun) * len(x)


def clean(fit: Fit, x: Array) -> Array:
    """``log p(true = k | x) = log softmax(W x + c)``, (N, K)."""
    return _log_softmax(calibrated(x, fit.W, fit.c))


def calibrated(x: Array, W: Array, c: Array) -> Array:
    """``W x + c`` (N, K), of many classes, where W is a multiple of the identity, without the N K^2 products."""
    b = W.diagonal()
    out: Array = (x @ W.T if np.count_nonzero(W) > np.count_nonzero(b) else x * b) + c
    return out


def chances(seen: Array, labels: Array, heat: Array | None = None) -> Array:
    """``log T_n[k, y_n]`` (N, K) from T[k, y_n]: how likely each label is under every true class."""
    out: Array
    if heat is None:
        out = np.log(seen)
        return out
    rows = np.arange(len(labels))
    out = np.log(heat[:, None] * seen)
    out[rows, labels] = np.log(np.maximum(1 - heat * (1 - seen[rows, labels]), 1 - MOST_WRONG))
    return out


def posterior(log_p: Array, T: Array, labels: Array, heat: Array | None = None) -> tuple[Array, Array]:
    """``q[n, k] ~ p(k | x_n) T_n[k, y_n]`` (N, K), and the log of its normaliser (N,)."""
    joint = log_p + chances(T.T[labels], labels, heat)
    total = _logsumexp(joint)
    return np.exp(joint - total[:, None]), total


def counts(q: Array, labels: Array, weights: Array | None = None) -> Array:
    """Expected number of labels, C[true, given]."""
    K = q.shape[1]
    q = q if weights is None else q * weights[:, None]
    return np.stack([np.bincount(labels, q[:, k], K) for k in range(K)])


def judge_without_own(
    log_p: Array, T: Array, labels: Array, strength: float, heat: Array | None = None, alike: bool = False
) -> Array:
    """The posterior with each label's own share taken out of the matrix that judges it, (N, K).

    In one rate of all labels (`alike`) that share is too small to matter.
    """
    q, _ = posterior(log_p, T, labels, heat)
    if alike:
        return q
    C = counts(q, labels) + strength * T
    above = np.maximum(C.T[labels] - q, 1e-12)
    below = np.maximum(C.sum(1) - q, 1e-12)
    joint = log_p + chances(above / below, labels, heat)
    out: Array = np.exp(joint - _logsumexp(joint)[:, None])
    return out


def prior_strength(K: int) -> float:
    """Pseudo-labels per true class behind a free matrix, spread as its symmetric relative would be."""
    return K / 2


def start(probs: Array, labels: Array) -> Fit:
    """Where a fit begins: the probabilities sharpened, and the matrix of the confident counts.

    An item is counted for the likeliest class whose probability reaches its mean among labels of that class
    (Northcutt et al. 2021, confident learning). Other starts end in the same place or in a worse one, but where
    this one has classes out of order (`first_fit`).
    """
    K = probs.shape[1]
    own = probs[np.arange(len(labels)), labels]
    level = np.bincount(labels, own, K) / np.maximum(np.bincount(labels, minlength=K), 1)
    sure = probs >= np.where(level > 0, level, np.inf)
    likely = np.where(sure, probs, -1.0).argmax(1)
    kept = sure.any(1)
    C = np.bincount(likely[kept] * K + labels[kept], minlength=K * K).reshape(K, K) + 0.5
    return Fit(2 * np.eye(K), np.zeros(K), C / C.sum(1, keepdims=True), -np.inf)


def fit(
    x: Array, labels: Array, begin: Fit, *, weights: Array | None = None, rounds: int = 3, steps: int = 150
) -> Fit:
    """Maximise ``sum_n w_n log sum_k softmax(W x_n + c)_k T[k, y_n]`` less the penalties, by L-BFGS.

    Penalties: ``RIDGE/2 |W - b I|^2`` per label with b the mean of W's diagonal, ``CALM/2 b^2``, ``|c|^2 / 2``, and
    a Dirichlet prior of T centred on symmetric noise at the present rate, which is renewed in each round.
    """
    for _ in range(rounds):
        begin = _Problem(x, labels, begin, weights).solve(steps)
    return begin


def in_order(found: Fit) -> bool:
    """Whether every class has its own labels the commonest, and the model's probabilities speak for it.

    The likelihood of labels does not know the names of the true classes: a fit may have exchanged them.
    """
    own = found.T.argmax(1) == np.arange(len(found.T))
    return bool(own.all()) and float(np.trace(found.W)) > 0


def first_fit(x: Array, labels: Array, probs: Array) -> Fit:
    """The fit from the confident counts; where that is out of order, one from symmetric noise that is in order.

    With strong noise and a weak model the confident counts of a class can be mostly those of another, and the fit
    stays there. The second is taken where it is in order and the first is not more likely by `ALIKE`.
    """
    found = fit(x, labels, start(probs, labels))
    if in_order(found):
        return found
    K = x.shape[1]
    T = blend(np.full(K, USUAL), even(K))
    other = fit(x, labels, Fit(2 * np.eye(K), np.zeros(K), T, -np.inf))
    better = in_order(other) and other.log_likelihood > found.log_likelihood - ALIKE
    return other if better else found


class _Problem:
    """The objective and its gradient as functions of one flat vector (scale, c, logits of T)."""

    def __init__(self, x: Array, labels: Array, begin: Fit, weights: Array | None) -> None:
        self.x, self.labels, self.begin, self.weights = x, labels, begin, weights
        self.heat, self.alike = begin.heat, begin.alike
        self.N, self.K = x.shape
        self.of_T = 1 if self.alike else self.K**2  # parameters of T, the last of the vector
        self.total = self.N if weights is None else float(weights.sum())
        self.full = self.K <= MOST_CLASSES and self.N >= 5 * self.K**2
        rates = 1 - np.diag(begin.T)
        mean = float(np.clip(rates.mean(), 1e-3, 0.9))
        strength = prior_strength(self.K) / (self.K if self.alike else 1)
        self.prior = strength * blend(np.full(self.K, mean), even(self.K))

    def solve(self, steps: int) -> Fit:
        from scipy.optimize import minimize

        found = minimize(
            self.value, self.pack(), jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 20}
        )
        W, c, T = self.unpack(found.x)
        _, total = posterior(_log_softmax(calibrated(self.x, W, c)), T, self.labels, self.heat)
        value = float(total.sum() if self.weights is None else total @ self.weights)
        return Fit(W, c, T, value, self.heat, self.alike)

    def pack(self) -> Array:
        W, T = self.begin.W, np.maximum(self.begin.T, 1e-12)
        scale = W.ravel() if self.full else np.array([np.trace(W) / self.K])
        rate = np.clip(1 - T.diagonal().mean(), 1e-9, 1 - 1e-9)
        noise = np.log([rate / (1 - rate)]) if self.alike else np.log(T).ravel()
        return np.concatenate([scale, self.begin.c, noise])

    def unpack(self, theta: Array) -> tuple[Array, Array, Array]:
        K, n = self.K, self.K**2 if self.full else 1
        W = theta[:n].reshape(K, K) if self.full else theta[0] * np.eye(K)
        if self.alike:
            T = blend(np.full(K, 1 / (1 + np.exp(-theta[-1]))), even(K))
        else:
            T = np.exp(_log_softmax(theta[n + K :].reshape(K, K)))
        return W, theta[n : n + K], np.maximum(T, 1e-12)

    def value(self, theta: Array) -> tuple[float, Array]:
        W, c, T = self.unpack(theta)
        log_p = _log_softmax(calibrated(self.x, W, c))
        q, total = posterior(log_p, T, self.labels, self.heat)
        push = np.exp(log_p) - q
        if self.weights is not None:
            push, total = push * self.weights[:, None], total * self.weights
        off = W - np.trace(W) / self.K * np.eye(self.K)
        value = -total.sum() + RIDGE * self.total / 2 * (off**2).sum() + (c**2).sum() / 2
        value -= (self.prior * np.log(T)).sum()
        b = np.trace(W) / self.K
        value += CALM / 2 * b**2
        if self.full:
            to_scale = (
                push.T @ self.x + RIDGE * self.total * off + CALM * b / self.K * np.eye(self.K)
            ).ravel()
        else:
            to_scale = np.array([np.vdot(push, self.x) + CALM * b])
        C = counts(self.through(q, log_p, T, total), self.labels, self.weights) + self.prior
        to_T = C.sum(1, keepdims=True) * T - C  # through the logits of the rows
        if self.alike:  # through the log-odds of the rate
            to_T = np.array([np.trace(C) - C.sum() * T[0, 0]])
        gradient = np.concatenate([to_scale, push.sum(0) + c, to_T.ravel()])
        return float(value) / self.total, gradient / self.total

    def through(self, q: Array, log_p: Array, T: Array, total: Array) -> Array:
        """``T[k, y] dl/dT[k, y]`` of each label (N, K): the posterior, less what heat leaves outside of T."""
        if self.heat is None:
            return q
        rows = np.arange(self.N)
        own = T[self.labels, self.labels]
        seen = np.exp(log_p[rows, self.labels] - total) * self.heat * own
        out = q.copy()
        out[rows, self.labels] = np.where(1 - self.heat * (1 - own) > 1 - MOST_WRONG, seen, 0.0)
        return out


def _logsumexp(a: Array) -> Array:
    top = a.max(1)
    out: Array = top + np.log(np.exp(a - top[:, None]).sum(1))
    return out


def _log_softmax(a: Array) -> Array:
    return a - _logsumexp(a)[:, None]
