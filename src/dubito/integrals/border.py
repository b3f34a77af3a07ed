"""Validation and shapes shared by the public functions of the integrals."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .._tensors import at_least_float32, check_axis, check_floating, checks_values, from_half, place_in
from ..errors import DubitoError, NotFiniteError


class Gaussian(NamedTuple):
    """A Gaussian over logits and its temperature, checked and with one leading shape.

    Mean and scale (..., K), factors (..., K, R), temperature (..., 1).
    """

    mean: Tensor
    scale: Tensor
    factors: Tensor | None
    temperature: Tensor

    @property
    def rank(self) -> int:
        """Number of factors, 0 without any."""
        return 0 if self.factors is None else self.factors.shape[-1]


def every_class(latent: Gaussian) -> tuple[Gaussian, Tensor]:
    """One copy of each row per class, (..., K, K), and the class of each copy, (..., K)."""
    shape, classes = latent.mean.shape, latent.mean.shape[-1]
    mean, scale, tau = (
        x.unsqueeze(-2).expand(*shape, x.shape[-1]) for x in (latent.mean, latent.scale, latent.temperature)
    )
    factors = latent.factors
    if factors is not None:
        factors = factors.unsqueeze(-3).expand(*shape, classes, factors.shape[-1])
    target = torch.arange(classes, device=latent.mean.device).expand(shape)
    return Gaussian(mean, scale, factors, tau), target


def as_latent(
    mean: Tensor,
    scale: Tensor | float,
    factors: Tensor | None,
    temperature: float | Tensor,
    dim: int = -1,
    keep_half: bool = False,
) -> Gaussian:
    """Check the parameters and bring them to one leading shape, classes last, float32 at least.

    With `keep_half`, bfloat16 stays: the kernels read it as it is.
    """
    check_floating(mean, "mean")
    check_axis(mean, dim, "mean")
    m = _last(mean, dim)
    if not (keep_half and m.dtype == torch.bfloat16):
        m = _widen(m)
    s = as_real(scale, m)
    s = s if s.dim() == 0 else _last(s, dim)
    tau = as_real(temperature, at_least_float32(m.new_empty(0)))
    _check_values(m, s, tau)
    try:
        shape = m.shape if m.shape == s.shape else torch.broadcast_shapes(m.shape, s.shape)
        m, s = (x if x.shape == shape else x.expand(shape) for x in (m, s))
        tau = tau.expand(*shape[:-1], 1)
    except RuntimeError:
        raise DubitoError(
            "mean, scale and temperature do not go together",
            expected="shapes that broadcast, with temperature a number or (..., 1)",
            got=f"{tuple(m.shape)}, {tuple(s.shape)} and {tuple(tau.shape)}",
        ) from None
    return Gaussian(m, s, _as_factors(m, factors), tau)


def levelled(latent: Gaussian) -> Gaussian:
    """With factors: without what classes have in common, which no softmax sees.

    For rules over the factors, whose part is added to the means: beside 10,000 it would lose its digits.
    """
    mean, factors = latent.mean, latent.factors
    if factors is None or 0 in mean.shape:
        return latent
    top = mean.detach().amax(-1, keepdim=True)
    level = factors.detach().mean(-2, keepdim=True)
    return latent._replace(mean=(mean - top).clamp(min=torch.finfo(mean.dtype).min), factors=factors - level)


def as_real(value: float | Tensor, like: Tensor) -> Tensor:
    """A number or tensor in the dtype and on the device of `like`; a number keeps all its digits."""
    if isinstance(value, Tensor):
        wide = value if value.dtype == like.dtype else _widen(value)
        return wide.to(like.device, like.dtype)
    if torch.finfo(like.dtype).max < abs(value) < math.inf:
        raise DubitoError("a number is out of range", expected=f"one that {like.dtype} can hold", got=value)
    return torch.full((), value, dtype=like.dtype, device=like.device)  # filled there: no copy to wait for


def mapped_first(x: Tensor, dim: int | None, size: int) -> Tensor:
    """A tensor with the axis that `torch.vmap` maps in front; one that is not mapped is repeated along it."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _last(x: Tensor, dim: int) -> Tensor:
    """The class axis last; no view is made where it is so already, as that would cost time on a GPU."""
    return x if dim in (-1, x.dim() - 1) else x.movedim(dim, -1)


def _widen(x: Tensor) -> Tensor:
    """float32 at least; the range of bfloat16 is that of float32, so its gradients need no care."""
    return from_half(x) if x.dtype == torch.float16 else at_least_float32(x)


def _as_factors(mean: Tensor, factors: Tensor | None) -> Tensor | None:
    if factors is None:
        return None
    fits = factors.dim() >= 2 and factors.shape[-2] == mean.shape[-1]
    try:
        shape = torch.broadcast_shapes(factors.shape[:-2], mean.shape[:-1]) if fits else None
    except RuntimeError:
        shape = None
    if shape is None or shape != mean.shape[:-1]:
        raise DubitoError(
            "factors do not match mean",
            expected=f"(..., {mean.shape[-1]}, R) over the leading shape {tuple(mean.shape[:-1])}",
            got=tuple(factors.shape),
        )
    if factors.shape[-1] == 0:
        return None
    return factors.to(mean.dtype).expand(*shape, *factors.shape[-2:])


def _check_values(mean: Tensor, scale: Tensor, temperature: Tensor) -> None:
    for name, x in (("mean", mean), ("scale", scale), ("temperature", temperature)):
        if x.numel() == 0 or not checks_values(x):
            continue
        least, most = (float(end) for end in torch.aminmax(x.detach()))  # NaN if anything is
        if not (math.isfinite(least) and math.isfinite(most)):
            raise NotFiniteError(f"{name} is not finite", where=_place(~torch.isfinite(x), name))
        if name != "mean" and least < 0:
            raise DubitoError(f"negative {name}", where=_place(x < 0, name), expected=f"{name} >= 0")


def _place(bad: Tensor, name: str) -> str:
    return place_in(name, bad.nonzero()[0].tolist())
