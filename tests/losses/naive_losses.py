"""The losses written down a second time, from their equations: float64, one example, plain loops and matrices."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from dubito import losses


def softmax(z):
    e = np.exp(z - np.max(z))
    return e / e.sum()


def nll(z, w):
    return -sum(w[k] * math.log(softmax(z)[k]) for k in range(len(z)))


def gce(z, w, q=0.7):
    return sum(w[k] * (1 - softmax(z)[k] ** q) / q for k in range(len(z)))


def truncated_gce(z, w, q=0.7, k=0.5):
    p = softmax(z)
    total = 0.0
    for j in range(len(z)):
        total += w[j] * ((1 - k**q) / q if p[j] <= k else (1 - p[j] ** q) / q)
    return total


def bootstrap(z, w, beta, kind):
    p = softmax(z)
    own = p if kind == "soft" else np.eye(len(z))[np.argmax(p)]
    return -sum((beta * w[k] + (1 - beta) * own[k]) * math.log(p[k]) for k in range(len(z)))


def log_t(x, t):
    return math.log(x) if t == 1 else (x ** (1 - t) - 1) / (1 - t)


def exp_t(x, t):
    return math.exp(x) if t == 1 else max(1 + (1 - t) * x, 0.0) ** (1 / (1 - t))


def tempered_softmax(a, t):
    top = float(np.max(a))
    size = len(a)

    def excess(normalizer):
        return sum(exp_t(x - top - normalizer, t) for x in a) - 1

    high = -log_t(1 / size, t) + 1e-9
    root = 0.0 if excess(0.0) <= 0 else brentq(excess, 0.0, high, xtol=1e-15, rtol=1e-15)
    return np.array([exp_t(x - top - root, t) for x in a])


def bi_tempered(z, w, t1, t2):
    p = tempered_softmax(z, t2)
    total = 0.0
    for k in range(len(z)):
        if w[k] > 0:
            total += w[k] * (log_t(w[k], t1) - log_t(p[k], t1))
        total -= (w[k] ** (2 - t1) - p[k] ** (2 - t1)) / (2 - t1)
    return total


def simplex_target(w, t, dummy):
    """The smoothed target over n outcomes, the dummy last."""
    w = np.append(w, 0.0) if dummy else np.asarray(w)
    return (1 - t) * w + t / len(w)


def covariance_matrix(c, lam, covariance="full", size=None):
    size = len(c) if size is None else size
    if covariance == "full":
        root = np.outer(c, c) + lam * np.eye(size)
    elif covariance == "diagonal":
        root = np.diag([lam + x**2 for x in c])
    elif covariance == "isotropic":
        root = (lam + c[0] ** 2) * np.eye(size)
    else:
        root = np.eye(size)
    return root @ root.T


def logistic_normal(mean, c, w, lam, tau=1.0, t=0.01, dummy=True, covariance="full", normalized=False):
    s = simplex_target(w, t, dummy)
    y = tau * np.log(s[:-1] / s[-1])
    sigma = covariance_matrix(c, lam, covariance, len(mean))
    r = y - mean
    value = 0.5 * r @ np.linalg.inv(sigma) @ r + 0.5 * np.linalg.slogdet(sigma)[1]
    if normalized:
        value += len(r) / 2 * math.log(2 * math.pi) + np.log(s).sum() - len(r) * math.log(tau)
    return value


def ln_on_logits(
    mean: Tensor, target: Tensor, *, covariance: str = "full", dummy: bool = True, dim=-1, **options
):
    """`logistic_normal_nll` as a function of the mean alone, its root a fixed vector."""
    shape = list(mean.shape)
    if covariance == "isotropic":
        shape[dim] = 1
    root = torch.full(shape, 0.75, dtype=mean.dtype, device=mean.device)
    return losses.logistic_normal_nll(
        mean, root, target, lam=0.5, covariance=covariance, dummy=dummy, dim=dim, **options
    )


def naive_ln(z, w, **options):
    return logistic_normal(z, np.full(len(z), 0.75), w, 0.5, **options)


SQUARED = {"largest": 1e15}
# name: (loss, its transcription for logits z and weights w, what check_loss must know)
LOSSES = {
    "nll": (losses.nll, nll, {"targets": "weights"}),
    "gce": (losses.gce, gce, {}),
    "gce-1": (partial(losses.gce, q=1.0), partial(gce, q=1.0), {}),
    "gce-0.1": (partial(losses.gce, q=0.1), partial(gce, q=0.1), {}),
    "gce-0": (partial(losses.gce, q=0.0), nll, {}),
    "truncated_gce": (losses.truncated_gce, truncated_gce, {}),
    "truncated_gce-0.2": (partial(losses.truncated_gce, k=0.2), partial(truncated_gce, k=0.2), {}),
    "bootstrap": (losses.bootstrap, partial(bootstrap, beta=0.95, kind="soft"), {}),
    "bootstrap-detach": (
        partial(losses.bootstrap, beta=0.6, detach=True),
        partial(bootstrap, beta=0.6, kind="soft"),
        {"differentiable": False},
    ),
    "bootstrap-hard": (partial(losses.bootstrap, kind="hard"), partial(bootstrap, beta=0.8, kind="hard"), {}),
    "bi_tempered": (losses.bi_tempered, partial(bi_tempered, t1=0.8, t2=1.2), {}),
    "bi_tempered-heavy": (
        partial(losses.bi_tempered, t1=0.5, t2=4.0),
        partial(bi_tempered, t1=0.5, t2=4.0),
        {},
    ),
    "bi_tempered-finite": (
        partial(losses.bi_tempered, t1=0.5, t2=0.7),
        partial(bi_tempered, t1=0.5, t2=0.7),
        {},
    ),
    "bi_tempered-one": (partial(losses.bi_tempered, t1=1.0, t2=1.0), partial(bi_tempered, t1=1, t2=1), {}),
    "ln": (ln_on_logits, naive_ln, SQUARED),
    "ln-normalized": (
        partial(ln_on_logits, normalized=True, temperature=0.5, smoothing=0.1),
        partial(naive_ln, normalized=True, tau=0.5, t=0.1),
        SQUARED,
    ),
    "ln-diagonal": (
        partial(ln_on_logits, covariance="diagonal"),
        partial(naive_ln, covariance="diagonal"),
        SQUARED,
    ),
    "ln-isotropic": (
        partial(ln_on_logits, covariance="isotropic"),
        partial(naive_ln, covariance="isotropic"),
        SQUARED,
    ),
    "ln-identity": (
        partial(ln_on_logits, covariance="identity"),
        partial(naive_ln, covariance="identity"),
        SQUARED,
    ),
}
