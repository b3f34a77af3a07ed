"""The expected sigmoid of a Gaussian: one latent, one dimension, to rounding error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._tensors import at_least_float32, check_broadcast
from ..errors import DubitoError
from .border import as_latent, as_real, mapped_first
from .two_classes import smaller


def expected_sigmoid(mean: Tensor, scale: Tensor | float, *, temperature: float | Tensor = 1.0) -> Tensor:
    """E[ sigmoid((mean + scale e) / tau) ], e standard normal; at tau = 0 it is Phi(mean / scale).

    Shapes: mean, scale and temperature broadcast; the result has their shape.

    Arguments:
        mean, scale: location and standard deviation of the latent; scale may be 0.
        temperature: tau >= 0; with scale 0 too the limit is a step, 1/2 at mean 0, with zero gradient.

    Reference:
        collier2020 eq. 8

    Example:
        >>> expected_sigmoid(torch.tensor([0.5, 0.5]), 1.5, temperature=torch.tensor([1.0, 0.0]))
        tensor([0.5876, 0.6306])
    """
    return expected_log_sigmoid(mean, scale, temperature=temperature).exp()


def expected_log_sigmoid(mean: Tensor, scale: Tensor | float, *, temperature: float | Tensor = 1.0) -> Tensor:
    """log E[ sigmoid((mean + scale e) / tau) ], accurate even where the probability is 1e-300.

    That of the other class is the value at -mean.

    Shapes and arguments: as for `expected_sigmoid`.

    Reference:
        collier2020 eq. 8

    Example:
        >>> expected_log_sigmoid(torch.tensor([-60.0, 60.0]), 1.0)
        tensor([-5.9500e+01, -1.4437e-26])
    """
    if not mean.is_floating_point():
        raise DubitoError("mean must be a floating tensor", got=str(mean.dtype))
    spread, tau = as_real(scale, at_least_float32(mean)), as_real(temperature, at_least_float32(mean))
    check_broadcast(mean=mean, scale=spread, temperature=tau)
    shape = torch.broadcast_shapes(mean.shape, spread.shape, tau.shape)
    m, s, t = (x.expand(shape).unsqueeze(-1) for x in (mean, spread, tau))
    latent = as_latent(m, s, None, t)
    given = (x.squeeze(-1) for x in (latent.mean, latent.scale, latent.temperature))
    log_p: Tensor = _LogExpected.apply(*given)[0]  # type: ignore[no-untyped-call]
    return log_p


class _LogExpected(torch.autograd.Function):
    """log E[sigmoid] and its derivatives, of one shape; mapped by flattening, since no entry knows of another."""

    @staticmethod
    def forward(mean: Tensor, scale: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Computed for the smaller of the two probabilities; the larger follows from it."""
        pair = smaller(mean.double().abs(), scale.double(), temperature.double())
        large = torch.log1p(-pair.log_small.exp())
        below = mean <= 0
        log_p = torch.where(below, pair.log_small, large)
        share = torch.where(below, 1.0, -(pair.log_small - large).exp())
        found = (share.abs() * pair.in_mean, share * pair.in_scale * scale, share * pair.in_temperature)
        return log_p.to(mean.dtype), *(d.to(mean.dtype) for d in found)  # type: ignore[return-value]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the derivatives."""
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        """Scale them; a step (scale and temperature 0) has gradient 0 even if `grad` is infinite."""
        return tuple(torch.where(d == 0, 0.0, grad * d) for d in ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, Any]:
        """The mapped axis becomes a leading one."""
        whole = [mapped_first(x, dim, info.batch_size) for x, dim in zip(inputs, dims)]
        return _LogExpected.apply(*whole), (0,) * 4  # type: ignore[no-untyped-call]
