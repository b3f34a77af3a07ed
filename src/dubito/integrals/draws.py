"""Averages over given draws by fused kernels, for one run or, under `torch.vmap`, for many with their own draws."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import fused
from .border import mapped_first


class _Draws(torch.autograd.Function):
    """log of the softmax averaged over draws, in groups ``(G, B, K)``; a mapped axis joins the groups."""

    @staticmethod
    def forward(
        mean: Tensor, scale: Tensor, factors: Tensor | None, tau: Tensor, noise: Tensor, shared: Tensor | None
    ) -> Tensor:
        """One pass over the draws."""
        from . import triton_draws

        return triton_draws.forward(*_contiguous(mean, scale, factors, tau, noise, shared))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep inputs and result, never the draws' probabilities."""
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Walk the draws once more."""
        from . import triton_draws

        *inputs, log_p = ctx.saved_tensors
        gradients = triton_draws.backward(*_contiguous(*inputs, log_p, grad))
        d_mean, d_scale, d_factors, d_tau = gradients
        return d_mean, d_scale, d_factors, d_tau, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor | None) -> tuple[Tensor, int]:
        """Runs along the mapped axis become further groups."""
        merged = [_merge(x, dim, info.batch_size) for x, dim in zip(inputs, in_dims)]
        found: Tensor = _Draws.apply(*merged)  # type: ignore[no-untyped-call]
        return found.unflatten(0, (info.batch_size, -1)), 0


def _contiguous(*tensors: Tensor | None) -> tuple[Any, ...]:
    return tuple(None if x is None else x.contiguous() for x in tensors)


def _merge(x: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    return None if x is None else mapped_first(x, dim, size).flatten(0, 1)


def fit(
    mean: Tensor, scale: Tensor, noise: Tensor, factors: Tensor | None, factor_noise: Tensor | None
) -> bool:
    """Whether the kernels can take these: float32 on a GPU, draws shared by all rows, few enough classes."""
    given = [x for x in (mean, scale, noise, factors, factor_noise) if x is not None]
    if not fused.ready(*given) or any(x.dtype != torch.float32 for x in given):
        return False
    from . import triton_draws

    shared = all(x.numel() == x.shape[0] * x.shape[-1] for x in (noise, factor_noise) if x is not None)
    return (
        shared
        and mean.shape == scale.shape
        and mean.shape[-1] <= triton_draws.MOST_CLASSES
        and (factors is None or factors.shape[-1] <= triton_draws.MOST_FACTORS)
    )


def average(
    mean: Tensor,
    scale: Tensor,
    noise: Tensor,
    factors: Tensor | None,
    factor_noise: Tensor | None,
    temperature: float | Tensor,
) -> Tensor:
    """As `sampled.sampled_log_softmax`, for inputs that `fit`."""
    lead, classes = mean.shape[:-1], mean.shape[-1]
    # A number is filled in on the device: a copy from the host could not be captured in a graph.
    tau = temperature if isinstance(temperature, Tensor) else mean.new_full((), temperature)
    found: Tensor = _Draws.apply(  # type: ignore[no-untyped-call]
        mean.reshape(1, -1, classes),
        scale.reshape(1, -1, classes),
        None if factors is None else factors.reshape(1, -1, classes, factors.shape[-1]),
        tau.to(mean).expand(*lead, 1).reshape(1, -1),
        noise.reshape(1, -1, classes),
        None if factor_noise is None else factor_noise.reshape(1, -1, factor_noise.shape[-1]),
    )
    return found.reshape(*lead, classes)
