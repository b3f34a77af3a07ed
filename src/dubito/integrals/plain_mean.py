"""A short cut to the mean negative log-likelihood on a CPU, for the simplest calls.

For a batch of up to a few hundred rows of ten classes, checks, shapes and reductions would take another 6 to 9 % of
the time. So if float32 rows come with labels and one positive temperature, and nothing has to be ignored or refused,
the mean is a single autograd function. Other calls take the general way, which gives the same numbers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._tensors import is_mapped
from .quadrature import default_tolerance, solve_any


def plain(
    mean: Tensor, scale: Tensor | float, target: Tensor, temperature: float | Tensor, ignore_index: int
) -> bool:
    """Whether `mean_loss` may take these as they are."""
    return (
        isinstance(scale, Tensor)
        and isinstance(temperature, float)
        and 0 < temperature < math.inf
        and mean.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and mean.dtype == scale.dtype == torch.float32
        and target.dtype == torch.int64
        and mean.dim() == 2
        and mean.shape == scale.shape
        and target.shape == mean.shape[:1]
        and mean.numel() > 0
        and not 0 <= ignore_index < mean.shape[-1]
        and not any(is_mapped(x) for x in (mean, scale, target))
        and _within(mean, -math.inf, math.inf)
        and _within(scale, -1e-45, math.inf)
        and _within(target, -1, mean.shape[-1])
    )


def _within(x: Tensor, low: float, high: float) -> bool:
    """Whether all values lie strictly between two numbers; a NaN does not."""
    least, most = torch.aminmax(x.detach())
    return low < float(least) and float(most) < high


class _Mean(torch.autograd.Function):
    """The mean over all rows; the gradients of each come from the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, target: Tensor, temperature: float, tol: float
    ) -> Tensor:
        tau = torch.full((len(mean), 1), temperature)
        answer, _ = solve_any(mean, scale, tau, target, tol)
        ctx.save_for_backward(answer.d_mean, answer.d_scale)
        return answer.log_p.mean().neg_()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = d_mean, _ = ctx.saved_tensors
        factor = grad / -len(d_mean)
        found = [d * factor if wanted else None for d, wanted in zip(saved, ctx.needs_input_grad)]
        if not math.isfinite(float(factor)):  # or 0 * inf would be NaN
            found = [None if g is None else torch.where(d == 0, 0.0, g) for d, g in zip(saved, found)]
        return *found, None, None, None


def mean_loss(mean: Tensor, scale: Tensor, target: Tensor, temperature: float, tol: float | None) -> Tensor:
    """The mean over all rows by quadrature."""
    goal = default_tolerance(mean.dtype) if tol is None else tol
    loss: Tensor = _Mean.apply(mean, scale, target, temperature, goal)  # type: ignore[no-untyped-call]
    return loss
