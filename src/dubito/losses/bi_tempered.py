"""The bi-tempered logistic loss: a tempered softmax with heavy or cut tails, and a bounded log loss on it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._numbers import Number, check_interval
from .._tensors import at_least_float32, check_classes, check_floating, expect, prepare, reduce
from ..errors import DubitoError
from ._deformed import deformed_log, log_deformed_exp
from ._normalizer import Normalizer, WithTangents

MOST_ITERATIONS = 1000  # of the published fixed point, which needs five


def bi_tempered(
    logits: Tensor,
    target: Tensor,
    *,
    t1: Number = 0.8,
    t2: Number = 1.2,
    iterations: int | None = None,
    dim: int = -1,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Bi-tempered logistic loss: the Bregman divergence of log_t1 between the target and a tempered softmax.

        l = sum_k [ w_k (log_t1 w_k - log_t1 p_k) - (w_k^(2-t1) - p_k^(2-t1)) / (2-t1) ],   p = exp_t2(a - lambda)
        log_t x = (x^(1-t) - 1)/(1-t),    exp_t x = [1 + (1-t) x]_+^(1/(1-t)),    sum_k p_k = 1 fixes lambda

    t1 < 1 bounds the loss, t2 > 1 gives p heavy tails, t2 < 1 a finite support; both are continuous at 1, where
    the loss is the Kullback-Leibler divergence KL(w, p) (cross-entropy for class indices). The temperatures are
    hyper-parameters: no gradient flows to them. With t1 >= 1 and t2 < 1 a label outside the support costs
    infinity, as it must.

    Shapes: logits ``(..., C)``, target ``(...)`` integers or ``(..., C)`` floats; the classes lie on axis `dim`.

    Arguments:
        logits: real activations.
        target: class indices, or a distribution over the classes. Amid et al.'s code smooths to 1 - s on the label
            and s/(C - 1) elsewhere, which is `targets.smooth` with alpha = s C/(C - 1).
        t1: from 0 to below 2.
        t2: 0 or more.
        iterations: None solves for lambda to machine precision. A number runs that many steps of the fixed
            point (t2 > 1) or bisection (t2 < 1) of Amid et al.'s code, for parity with it.
        dim, ignore_index, reduction: as in `nll`.

    Reference:
        Amid et al. 2019

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]])
        >>> bi_tempered(logits, torch.tensor([0, 2]), t1=0.8, t2=1.2, reduction="none")
        tensor([0.2131, 1.0005])
    """
    check_floating(logits, "logits")
    check_interval(t1, "t1", 0.0, 2.0, closed="left")
    _check_heavy_tail(t2, "t2", logits, dim)
    _check_iterations(iterations)
    z, y, kept = prepare(logits, target, dim=dim, ignore_index=ignore_index, distribution=True)
    return reduce(_bi_tempered(z, y, t1=t1, t2=t2, iterations=iterations), kept, reduction)


def _bi_tempered(
    activations: Tensor, target: Tensor, *, t1: Number = 0.8, t2: Number = 1.2, iterations: int | None = None
) -> Tensor:
    return _tempered_nll(_tempered_log_softmax(activations, t2, iterations), target, t1=t1)


def _tempered_nll(log_p: Tensor, target: Tensor, *, t1: Number) -> Tensor:
    """The divergence given log p; on class indices sum_k w_k log_t1 w_k = 0 and sum_k w_k^(2-t1) = 1."""
    s = 1 - t1
    power = ((1 + s) * log_p).exp().sum(-1) / (1 + s)
    # Only for classes with weight: for t1 > 1 the others may overflow, and the gradient 0 * inf would be NaN.
    if not target.is_floating_point():
        return power - deformed_log(expect(log_p, target), s) - 1 / (1 + s)
    spread = power - expect(deformed_log(torch.where(target > 0, log_p, 0.0), s), target)
    log_w = torch.where(target > 0, target, 1.0).log()
    return spread + (target * (deformed_log(log_w, s) - (s * log_w).exp() / (1 + s))).sum(-1)


def tempered_log_softmax(activations: Tensor, t: Number, iterations: int | None = None) -> Tensor:
    """Logarithm of the tempered softmax p_k = exp_t(a_k - lambda), sum_k p_k = 1, over the last axis.

    t = 1 is log_softmax, t > 1 has polynomial tails, t < 1 sets small probabilities to zero (log 0 = -inf).

    Shapes: ``(..., C)`` to ``(..., C)``.

    Arguments:
        activations: real scores, classes last.
        t: the temperature, 0 or more; it does not divide the scores.
        iterations: as in `bi_tempered`.

    Reference:
        Amid et al. 2019

    Example:
        >>> tempered_log_softmax(torch.tensor([2.0, -1.0, 0.5]), 1.5)
        tensor([-0.4725, -2.0352, -1.4027])
    """
    check_floating(activations, "activations")
    check_classes(activations, "activations")
    _check_heavy_tail(t, "t", activations, -1)
    _check_iterations(iterations)
    return _tempered_log_softmax(at_least_float32(activations), t, iterations)


def tempered_softmax(activations: Tensor, t: Number, iterations: int | None = None) -> Tensor:
    """Tempered softmax p_k = exp_t(a_k - lambda), sum_k p_k = 1, over the last axis; see `tempered_log_softmax`.

    Example:
        >>> tempered_softmax(torch.tensor([2.0, -1.0, 0.5]), 0.5)
        tensor([0.9496, 0.0000, 0.0504])
    """
    return tempered_log_softmax(activations, t, iterations).exp()


def _tempered_log_softmax(a: Tensor, t: Number, iterations: int | None = None) -> Tensor:
    a = a - a.amax(-1, keepdim=True).detach()  # a shift changes nothing, so it needs no gradient
    if isinstance(t, Tensor):
        s = (1 - t).detach().to(a.dtype)
    else:
        s = torch.full((), 1.0 - t, dtype=a.dtype, device=a.device)
    rule = Normalizer if torch.compiler.is_compiling() else WithTangents
    normalizer: Tensor = rule.apply(a, s, iterations)  # type: ignore[no-untyped-call]
    return log_deformed_exp(a - normalizer, s)


def _check_heavy_tail(t: Number, name: str, a: Tensor, dim: int) -> None:
    """Refuse a negative temperature, and one so large that lambda ~ C^(t-1) overflows."""
    check_interval(t, name, 0.0)
    if isinstance(t, Tensor) or not -a.dim() <= dim < a.dim():
        return
    classes = max(a.shape[dim], 2)
    most = 1 + math.log(1e30) / math.log(classes)
    if t > most:
        raise DubitoError(
            f"{name} is too large for {classes} classes", expected=f"{name} <= {most:.3g}", got=t
        )


def _check_iterations(iterations: int | None) -> None:
    if iterations is not None and not 1 <= iterations <= MOST_ITERATIONS:
        expected = f"1 to {MOST_ITERATIONS}, or None for exactness"
        raise DubitoError("iterations out of range", expected=expected, got=iterations)
