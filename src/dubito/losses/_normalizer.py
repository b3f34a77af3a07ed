"""The normaliser lambda(a) of the tempered softmax, sum_k exp_t(a_k - lambda) = 1, with its exact gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._deformed import deformed_log, log_deformed_exp, times_log

# Newton's method on log_t(sum) approaches the root from one side (the sum is a power mean of affine functions of
# lambda) and converges quadratically: at most 14 steps were needed for t from 0 to 10, up to 50,000 classes and
# scores up to 1e8. A fixed number keeps examples independent and the graph free of branches.
STEPS = 16


class Normalizer(torch.autograd.Function):
    """lambda given a (largest entry 0) and s = 1 - t; d lambda / d a is the escort p^t / sum p^t."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, s: Tensor, iterations: int | None) -> Tensor:
        """lambda of shape ``(..., 1)``: exact, or after this many steps of the published iterations."""
        if iterations is None:
            return _newton(a, s)
        return torch.where(s > 0, _bisection(a, s, iterations), _fixed_point(a, s, iterations))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int | None], output: Tensor) -> None:
        """Keep what the escort is computed from."""
        ctx.save_for_backward(inputs[0], inputs[1], output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        """The escort, however lambda was found: nothing is propagated through the iterations."""
        return grads[0] * _escort(*ctx.saved_tensors), None, None


class WithTangents(Normalizer):
    """`Normalizer` with forward-mode derivatives; a class of its own, as torch.compile refuses one with a `jvp`."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int | None], output: Tensor) -> None:
        """Keep what the escort is computed from, for both directions."""
        Normalizer.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], inputs[1], output)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """The escort again; as in the backward pass, s is taken as a constant."""
        found: Tensor = (_escort(*ctx.saved_tensors) * tangents[0]).sum(-1, keepdim=True)
        return found


def _escort(a: Tensor, s: Tensor, normalizer: Tensor) -> Tensor:
    return times_log(1 - s, log_deformed_exp(a - normalizer, s)).softmax(-1)


def _newton(a: Tensor, s: Tensor) -> Tensor:
    t = 1 - s
    normalizer = torch.zeros_like(a[..., :1])
    for _ in range(STEPS):
        log_p = log_deformed_exp(a - normalizer, s)
        log_sum = log_p.exp().sum(-1, keepdim=True).log()
        slope = times_log(t, log_p).exp().sum(-1, keepdim=True)
        normalizer = normalizer + deformed_log(log_sum, s) * (t * log_sum).exp() / slope
    return normalizer


def _fixed_point(a: Tensor, s: Tensor, iterations: int) -> Tensor:
    """t >= 1: rescale the scores by (sum)^(1-t), repeatedly."""
    scaled = a
    for _ in range(iterations):
        scaled = a * _sum(scaled, s).pow(s)
    return -deformed_log(-_sum(scaled, s).log(), s)


def _bisection(a: Tensor, s: Tensor, iterations: int) -> Tensor:
    """t < 1: bisection between 0 and the root for equal scores of all classes that can have mass."""
    size = (s * a > -1).sum(-1, keepdim=True).to(a.dtype)
    low, high = torch.zeros_like(size), -deformed_log(-size.log(), s)
    for _ in range(iterations):
        middle = (low + high) / 2
        too_far = _sum(a - middle, s) < 1
        low, high = torch.where(too_far, low, middle), torch.where(too_far, middle, high)
    return (low + high) / 2


def _sum(x: Tensor, s: Tensor) -> Tensor:
    return log_deformed_exp(x, s).exp().sum(-1, keepdim=True)
