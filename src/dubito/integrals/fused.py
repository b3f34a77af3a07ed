"""The bridge from PyTorch to the Triton kernels, for CUDA devices where Triton can be imported."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.bfloat16)


# Looked up once, here: a compiled function cannot look for modules.
_TRITON_IS_THERE = find_spec("triton") is not None


def ready(*tensors: Tensor) -> bool:
    """Whether the kernels can take these tensors as they are: on a CUDA device, float32 or bfloat16."""
    return _TRITON_IS_THERE and all(x.is_cuda and x.dtype in _DTYPES for x in tensors)


def fits(classes: int) -> bool:
    """Whether this many classes fit into one tile of the sampling kernels."""
    from . import triton_qmc

    return classes <= triton_qmc.MOST_CLASSES


def quadrature(
    mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor | None]:
    """log p, error, and gradients in mean, scale and temperature; and which rows need more, None if none does."""
    from . import triton_quadrature
    from .triton_mean import mean_of

    target = target.contiguous()
    found = triton_quadrature.nll(mean.contiguous(), scale.contiguous(), one_or_all(temperature), target, tol)
    log_p, error = found[:2]
    _, facts = mean_of(log_p, target, -1, error, tol, triton_quadrature.ALLOWED)
    # the only wait for the device
    hard = missed(log_p, error, tol) if facts.tolist()[1] > 0 else None
    return found, hard


def missed(log_p: Tensor, error: Tensor, tol: float) -> Tensor:
    """Rows whose error, by the kernel's estimate, is above the tolerance."""
    from .triton_quadrature import ALLOWED

    return ~(error <= log_p.abs() * ALLOWED + tol)


def one_or_all(temperature: Tensor) -> Tensor:
    """(B, 1) as the kernels read it: a single number where all rows share it."""
    return temperature[:1] if temperature.stride(0) == 0 else temperature.contiguous()


def scaled_gradients(
    ctx: Any, grad: Tensor, lost: bool = False
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The saved gradients times the incoming `grad` (B,); only those that autograd needs.

    A `lost` row has log p = -inf and zero gradients, which an infinite `grad` must not turn into NaN.
    """
    column = grad.unsqueeze(-1)
    found: list[Tensor | None] = []
    for d, dtype, wanted in zip(ctx.saved_tensors, ctx.dtypes, ctx.needs_input_grad):
        scaled = column * d if wanted else None
        if scaled is not None and lost:
            scaled = torch.where(d == 0, 0.0, scaled)
        found.append(None if scaled is None else scaled.to(dtype))
    return found[0], found[1], found[2]


class QmcLikelihood(torch.autograd.Function):
    """log p of the target over a shared bank; the gradients come out of the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, bank: Tensor
    ) -> Tensor:
        """Value and, at no extra pass, gradients."""
        from . import triton_qmc

        log_p, *gradients = triton_qmc.nll(
            mean.contiguous(), scale.contiguous(), one_or_all(temperature), target.contiguous(), bank
        )
        ctx.save_for_backward(*gradients)
        ctx.dtypes = (mean.dtype, scale.dtype, temperature.dtype)
        return log_p

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients."""
        return *scaled_gradients(ctx, grad), None, None


class QmcAllClasses(torch.autograd.Function):
    """log p of all classes over a shared bank, which the backward pass walks once more."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, scale: Tensor, temperature: Tensor, bank: Tensor) -> Tensor:
        """Average the softmax over the bank."""
        from . import triton_qmc

        mean, scale, temperature = mean.contiguous(), scale.contiguous(), one_or_all(temperature)
        log_p = triton_qmc.forward(mean, scale, temperature, bank)
        ctx.save_for_backward(mean, scale, temperature, bank, log_p)
        return log_p

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Recompute every draw."""
        from . import triton_qmc

        mean, scale, temperature, bank, log_p = ctx.saved_tensors
        d_mean, d_scale, d_tau = triton_qmc.backward(mean, scale, temperature, bank, log_p, grad)
        return d_mean, d_scale, d_tau if ctx.needs_input_grad[2] else None, None
