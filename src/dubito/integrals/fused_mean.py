"""The mean negative log-likelihood on a GPU in few launches.

The kernels take a fraction of a millisecond, and so would a dozen operations around them. So two kernels compute
value, gradients and the mean over rows that are not ignored, and the backward pass is one product per input.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .._tensors import is_mapped
from .fused import ready
from .quadrature import default_tolerance, finish_hard


def plain(mean: Tensor, scale: Tensor | float, target: Tensor, temperature: float | Tensor) -> bool:
    """Whether `mean_loss` can take these as they are: classes last, integer labels, one given temperature."""
    return (
        simple(mean, scale, temperature)
        and target.is_cuda
        and target.dtype == torch.int64
        and target.shape == mean.shape[:-1]
        and not is_mapped(target)
    )


def simple(mean: Tensor, scale: Tensor | float, temperature: float | Tensor) -> bool:
    """Whether the kernels can take these as they are: one shape, one given temperature."""
    return (
        isinstance(scale, Tensor)
        and not isinstance(temperature, Tensor)
        and temperature > 0
        and ready(mean, scale)
        and not torch.compiler.is_compiling()
        and scale.shape == mean.shape
        and mean.numel() > 0
        and not any(is_mapped(x) for x in (mean, scale))
    )


@lru_cache(maxsize=64)
def on_device(device: torch.device, temperature: float) -> Tensor:
    """A temperature where the kernels can read it, (1, 1)."""
    return torch.full((1, 1), temperature, device=device)


class _Mean(torch.autograd.Function):
    """The mean over rows that are not ignored; the gradients of each row come out of the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, tau: Tensor, target: Tensor, ignore: int, tol: float, bank: Any
    ) -> Tensor:
        from . import triton_qmc, triton_quadrature
        from .triton_mean import mean_of

        mean, scale, target = mean.contiguous(), scale.contiguous(), target.contiguous()
        if bank is not None:
            log_p, d_mean, d_scale, _ = triton_qmc.nll(
                mean, scale, tau, target, bank, ignore=ignore, heat=False
            )
            loss, facts = mean_of(log_p, target, ignore)
        else:
            log_p, error, d_mean, d_scale, _ = triton_quadrature.nll(
                mean, scale, tau, target, tol, ignore=ignore, heat=False
            )
            loss, facts = mean_of(log_p, target, ignore, error, tol, triton_quadrature.ALLOWED)
            if facts.tolist()[1] > 0:  # the only wait for the device
                found = (log_p, error, d_mean, d_scale, error.unsqueeze(-1).clone())
                finish_hard(found, mean, scale, tau.expand(len(mean), 1), target, tol)
                loss, facts = mean_of(log_p, target, ignore)
        ctx.save_for_backward(d_mean, d_scale, facts)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from .triton_mean import scaled

        d_mean, d_scale, facts = ctx.saved_tensors
        for_mean, for_scale = scaled(d_mean, d_scale, grad, facts)
        return for_mean, for_scale, None, None, None, None, None


def mean_loss(
    mean: Tensor,
    scale: Tensor,
    target: Tensor,
    temperature: float,
    ignore_index: int,
    tol: float | None,
    bank: Tensor | None,
) -> Tensor:
    """The mean over all rows, by quadrature or over a bank of quasi-random points."""
    if mean.dim() != 2:
        mean, scale, target = mean.flatten(0, -2), scale.flatten(0, -2), target.flatten()
    goal = default_tolerance(mean.dtype) if tol is None else tol
    tau = on_device(mean.device, float(temperature))
    loss: Tensor = _Mean.apply(mean, scale, tau, target, ignore_index, goal, bank)  # type: ignore[no-untyped-call]
    return loss
