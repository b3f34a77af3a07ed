"""All classes on a GPU: two launches forward, two backward, and one wait for the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .fused import one_or_all, ready

MOST_CLASSES = 64  # that the kernels take


def fitting(mean: Tensor, scale: Tensor, temperature: Tensor) -> bool:
    """Whether the kernels can take these rows."""
    return (
        mean.dtype == torch.float32
        and scale.dtype == torch.float32
        and ready(mean, scale, temperature)
        and mean.shape[-1] <= MOST_CLASSES
        and not torch.compiler.is_compiling()
    )


class _Classes(torch.autograd.Function):
    """Normalised log p (B, K) and the absolute error of the probabilities (B,)."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, temperature: Tensor, tol: float
    ) -> tuple[Tensor, Tensor]:
        from . import triton_all

        inputs = mean.contiguous(), scale.contiguous(), one_or_all(temperature)
        log_p, error, places = triton_all.forward(*inputs, tol)
        ctx.save_for_backward(*inputs, log_p, places)
        ctx.mark_non_differentiable(error)
        ctx.set_materialize_grads(False)
        return log_p, error

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        from . import triton_all

        if grad is None:
            return None, None, None, None
        mean, scale, temperature, log_p, places = ctx.saved_tensors
        heat = ctx.needs_input_grad[2]
        d_mean, d_scale, d_tau = triton_all.backward(
            mean, scale, temperature, log_p, places, grad.contiguous(), heat
        )
        return d_mean, d_scale, d_tau if heat else None, None


def by_kernels(
    mean: Tensor, scale: Tensor, temperature: Tensor, tol: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """log p (B, K), the error of the probabilities (B,), and the rows above `tol` or None."""
    from .triton_mean import count_missed

    log_p, error = _Classes.apply(mean, scale, temperature, tol)  # type: ignore[no-untyped-call]
    if count_missed(error, tol) == 0:  # the only wait for the device
        return log_p, error, None
    return log_p, error, (~(error <= tol)).nonzero().flatten()
