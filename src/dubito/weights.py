"""Weights: functions from per-example losses to how much each example counts in the step.

Pure functions; weights never carry a gradient. Small-loss weights are 0 or 1 and the step takes the mean over
the chosen (`mean_over_chosen`); self-paced weights lie in [0, 1] and the step takes the mean of weight times
loss over the whole batch. State (the moving quantile) is an explicit tensor that a checkpoint can hold.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._tensors import at_least_float32, check_broadcast, check_floating
from .errors import DubitoError, nearest

SCHEDULES = ("paper", "code")


def forget_rate(
    epoch: int, rate: float, ramp: int = 10, exponent: float = 1.0, *, schedule: str = "paper"
) -> float:
    """Share of each batch that co-teaching leaves out in an epoch, rising from nearly 0 to `rate`.

        "paper":  f(T) = min(T^c / T_k, 1) rate
        "code":   f(T) = rate^c T / (T_k - 1) for T < T_k, then rate   (the released implementation)

    The two agree to rate / T_k for c = 1; for other exponents they are different things.

    Arguments:
        epoch: T, counted from 1 for the first training epoch (0 is before training).
        rate: the share of wrong labels, in [0, 1): the realised one, not the re-draw rate.
        ramp: T_k, epochs until the full rate.
        exponent: c.
        schedule: which of the two definitions.

    Reference:
        collier2020 sec. 5.1
        Han et al. 2018

    Example:
        >>> [round(forget_rate(epoch, 0.2), 2) for epoch in (1, 5, 10, 50)]
        [0.02, 0.1, 0.2, 0.2]
    """
    if not 0 <= rate < 1:
        raise DubitoError("a forget rate must be at least 0 and below 1", got=rate)
    if epoch < 0 or ramp < 1 or exponent <= 0:
        raise DubitoError(
            "a schedule needs epoch >= 0, ramp >= 1 and exponent > 0", got=f"{epoch}, {ramp}, {exponent}"
        )
    if schedule == "paper":
        return float(min(epoch**exponent / ramp, 1.0) * rate)
    if schedule != "code":
        raise DubitoError("unknown schedule", got=repr(schedule), remedy=nearest(schedule, SCHEDULES))
    return float(rate**exponent) * epoch / max(ramp - 1, 1) if epoch < ramp else rate


def keep_count(size: int, forget: float) -> int:
    """How many of `size` examples remain: int((1 - f) size), rounded down.

    Example:
        >>> keep_count(128, 0.2)
        102
    """
    if not 0 <= forget < 1:
        raise DubitoError("a forget rate must be at least 0 and below 1", got=forget)
    return int((1 - forget) * size)


def small_loss(losses: Tensor, forget: float) -> Tensor:
    """Choose the examples with the smallest losses.

        w_i = 1 for the int((1 - f) B) smallest losses of the batch, else 0

    Ties go to the earlier example; a loss that is not a number counts as the largest. In co-teaching each
    network trains on the choice of the other: ``small_loss(losses_b, f)`` weighs network a.

    Shapes: losses ``(..., B)`` -> weights ``(..., B)``, of the dtype of the losses (float32 at least).

    Arguments:
        losses: one loss per example; the last axis is the batch.
        forget: share f to leave out, in [0, 1), see `forget_rate`.

    Reference:
        collier2020 sec. 5.1
        Han et al. 2018

    Example:
        >>> small_loss(torch.tensor([0.3, 2.0, 0.1, 0.3]), 0.5)
        tensor([1., 0., 1., 0.])
    """
    check_floating(losses, "losses")
    return _small_loss(at_least_float32(losses), keep_count(losses.shape[-1], forget))


def mean_over_chosen(losses: Tensor, weights: Tensor) -> Tensor:
    """Mean loss over the chosen examples: sum w l / sum w, and 0 with zero gradient over none.

    Shapes: losses and weights ``(..., B)`` -> ``(...)``.

    Example:
        >>> mean_over_chosen(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0]))
        tensor(2.)
    """
    check_broadcast(losses=losses, weights=weights)
    # A masked sum, not a product: an infinite loss of weight 0 must not become NaN.
    chosen = torch.where(weights > 0, losses, 0.0)
    total = weights.sum(-1)
    return (chosen * weights).sum(-1) / torch.where(total > 0, total, 1.0)


def moving_quantile(state: Tensor, losses: Tensor, *, quantile: float, decay: float = 0.9) -> Tensor:
    """Exponential moving average of a quantile of the batch losses: the threshold of self-paced learning.

        m <- d m + (1 - d) q_p(losses),   m_0 = 0 without bias correction

    The quantile is the nearest order statistic (index round((B - 1) p), halves to even), as in the original.

    Shapes: state ``(...)`` , losses ``(..., B)`` -> ``(...)``, without gradient. An empty batch changes
    nothing.

    Arguments:
        state: m, a tensor that belongs in the checkpoint; start with ``torch.zeros(())``.
        quantile: p in [0, 1]; the paper takes 1 - noise rate.
        decay: d in [0, 1).

    Reference:
        collier2020 sec. 5.1
        Jiang et al. 2018

    Example:
        >>> moving_quantile(torch.zeros(()), torch.tensor([1.0, 2.0, 3.0]), quantile=1.0)
        tensor(0.3000)
    """
    if not 0 <= quantile <= 1 or not 0 <= decay < 1:
        raise DubitoError("quantile must lie in [0, 1] and decay in [0, 1)", got=f"{quantile}, {decay}")
    check_floating(losses, "losses")
    check_broadcast(state=state, losses=losses.new_empty(losses.shape[:-1]))
    return _moving_quantile(state, at_least_float32(losses), quantile, decay)


def self_paced(losses: Tensor, threshold: Tensor | float, *, lambda2: float = 0.0) -> Tensor:
    """Self-paced weights: the closed-form optimum of the MentorNet objective.

        minimise over v:  sum_i v_i l_i + lambda2 v_i^2 / 2 - (lambda1 + lambda2) v_i,   0 <= v <= 1
        v_i = 1(l_i <= lambda1)                              lambda2 = 0
        v_i = clip(1 - (l_i - lambda1) / lambda2, 0, 1)      lambda2 > 0

    Shapes: losses ``(..., B)``, threshold ``()`` or ``(..., 1)`` -> weights ``(..., B)``, without gradient.
    The step's loss is the mean of v l over the whole batch, not divided by sum v.

    Arguments:
        threshold: lambda1, see `moving_quantile`.
        lambda2: width of the ramp, at least 0; the paper searches 0, .5, 1, 2.

    Reference:
        collier2020 sec. 5.1
        Jiang et al. 2018

    Example:
        >>> self_paced(torch.tensor([0.5, 1.5, 9.0]), 1.0, lambda2=1.0)
        tensor([1.0000, 0.5000, 0.0000])
    """
    if lambda2 < 0:
        raise DubitoError("lambda2 must be at least 0", got=lambda2)
    check_floating(losses, "losses")
    check_broadcast(losses=losses, threshold=threshold)
    return _self_paced(at_least_float32(losses), threshold, lambda2)


def mentornet(
    losses: Tensor,
    state: Tensor,
    *,
    quantile: float,
    lambda2: float = 0.0,
    decay: float = 0.9,
    epoch: int = 0,
    burn_in: int = 0,
) -> tuple[Tensor, Tensor]:
    """One step of self-paced MentorNet: (weights, new state).

    The moving quantile takes in the current batch before it is used as threshold, during burn-in too; in the
    first `burn_in` epochs all weights are 1. With m_0 = 0 and no burn-in the first steps weigh almost nothing.

    Arguments:
        epoch: counted from 0. The others as for `moving_quantile` and `self_paced`.

    Reference:
        collier2020 sec. 5.1
        Jiang et al. 2018

    Example:
        >>> weights, state = mentornet(torch.tensor([0.1, 4.0]), torch.ones(()), quantile=0.5, decay=0.5)
        >>> weights, state
        (tensor([1., 0.]), tensor(0.5500))
    """
    state = moving_quantile(state, losses, quantile=quantile, decay=decay)
    weights = self_paced(losses, state.unsqueeze(-1), lambda2=lambda2)
    return (torch.ones_like(weights) if epoch < burn_in else weights), state


def _small_loss(losses: Tensor, count: int | Tensor) -> Tensor:
    # Ranks instead of a slice: the shape does not depend on the count, which may be a tensor in a graph.
    order = losses.detach().argsort(dim=-1, stable=True)
    ranks = order.argsort(dim=-1)
    return (ranks < count).to(losses.dtype)


def _moving_quantile(state: Tensor, losses: Tensor, quantile: float, decay: float) -> Tensor:
    if losses.shape[-1] == 0:
        return state.detach().clone()
    index = round((losses.shape[-1] - 1) * quantile)
    return (decay * state + (1 - decay) * losses.sort(dim=-1).values[..., index]).detach()


def _self_paced(losses: Tensor, threshold: Tensor | float, lambda2: float) -> Tensor:
    over = losses.detach() - threshold
    if lambda2 == 0:
        return (over <= 0).to(losses.dtype)
    return (1 - over / lambda2).clamp(0.0, 1.0)
