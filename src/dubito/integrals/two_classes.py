"""Two independent classes are one-dimensional, and exact: the difference of two Gaussian logits is one Gaussian.

With b the distance of the means, s = hypot of the scales and S the smaller of the two probabilities,

    S = E[ sigmoid((s e - b) / tau) ],   e standard normal.

Where s <= tau the trapezoid rule over e converges to rounding error. Elsewhere, with r = s / tau, c = b / s and
Mills' ratio R(z) = (1 - Phi(z)) / phi(z), the geometric series of the sigmoid on both sides of 0 gives

    S = phi(c) ( R(c) - sum_{n >= 1} (-1)^(n-1) R(n r + c) + sum_{n >= 1} (-1)^(n-1) R(n r - c) ),

alternating sums of moments, for which 20 terms with the weights of Cohen, Villegas and Zagier are enough at any r
and c: no term is larger than a few times the sum. Derivatives are sums of the same kind. Everything is computed in
float64 without branches on values, and the other probability and its derivatives follow.

Reference:
    Cohen, Villegas and Zagier 2000, algorithm 1
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .._tensors import at_least_float32
from .border import Gaussian
from .likelihood import Answer

_ROOT_HALF, _ROOT_2PI = math.sqrt(0.5), math.sqrt(2 * math.pi)
TERMS = 20
FIRST, STEP, NODES = -8.5, 0.5, 37  # of e, up to 9.5: the mode is between 0 and s / tau <= 1
SHARPEST = 1e7  # of s / tau: beyond, nothing changes
FAR = 12.0  # where 1 - z R(z) is taken from its expansion
ERROR = 1e-12  # of log S, besides its rounding
_ROWS, _MOST_ROWS = 1 << 12, 1 << 15  # at a time, on a CPU and elsewhere
POINTS = 2 * TERMS + 1
TWO = "two classes: the difference of two Gaussians is one, and exact"


class Pair(NamedTuple):
    """log S of the smaller probability S (...), and the derivatives of log S.

    In the mean of its class; in a scale, divided by that scale (the same for both classes); in the temperature.
    """

    log_small: Tensor
    in_mean: Tensor
    in_scale: Tensor
    in_temperature: Tensor


def weights() -> list[float]:
    """Signed weights that give the sum of an alternating series of moments from its first terms."""
    top = (3 + math.sqrt(8.0)) ** TERMS
    whole = (top + 1 / top) / 2
    b, c, found = -1.0, -whole, []
    for k in range(TERMS):
        c = b - c
        found.append(c / whole)
        b *= (k + TERMS) * (k - TERMS) / ((k + 0.5) * (k + 1))
    return found


_WEIGHTS = weights()


def smaller(gap: Tensor, scale: Tensor, temperature: Tensor) -> Pair:
    """log S and its derivatives for the distance of means, the joint scale and tau, float64 of one shape.

    If scale and temperature are 0, S is 0, or 1/2 at a distance of 0, and all derivatives are 0.
    """
    wide = scale > temperature
    step = (scale == 0) & (temperature == 0)
    tau = torch.where(wide | step, 1.0, temperature)
    narrow = _over_normal(torch.where(wide, 0.0, gap), torch.where(wide, 0.0, scale), tau)
    s = torch.where(wide, scale, 1.0)
    heat = torch.where(wide, temperature, 1.0).maximum(s / SHARPEST)
    series = _by_series(torch.where(wide, gap, 0.0) / s, s / heat, s, temperature)
    found = [torch.where(wide, a, b) for a, b in zip(series, narrow)]
    limit = torch.where(gap == 0, torch.full_like(gap, -math.log(2.0)), -math.inf)
    found[0] = torch.where(step, limit, found[0])
    return Pair(found[0], *(torch.where(step, 0.0, x) for x in found[1:]))


def _over_normal(gap: Tensor, scale: Tensor, tau: Tensor) -> Pair:
    """s <= tau: by equal steps of e."""
    e = torch.arange(NODES, dtype=gap.dtype, device=gap.device) * STEP + FIRST
    u = (gap.unsqueeze(-1) - scale.unsqueeze(-1) * e) / tau.unsqueeze(-1)
    terms = F.logsigmoid(-u) - e * e / 2
    log_sum = torch.logsumexp(terms, -1)
    slope = (terms - log_sum.unsqueeze(-1)).exp() * torch.sigmoid(u)
    bend = (slope * torch.tanh(u / 2)).sum(-1) / tau
    return Pair(
        log_sum + math.log(STEP / _ROOT_2PI), slope.sum(-1) / tau, bend / tau, (slope * u).sum(-1) / tau
    )


def _by_series(c: Tensor, r: Tensor, scale: Tensor, temperature: Tensor) -> Pair:
    """s > tau: sums over n of Mills' ratios at n r + c and n r - c, both divided by exp(max(c - r, 0)^2 / 2)."""
    n = torch.arange(1, TERMS + 1, dtype=c.dtype, device=c.device)
    weight = torch.tensor(_WEIGHTS, dtype=c.dtype, device=c.device)
    above = (c - r).clamp(min=0)
    fade = (-0.5 * above * above).exp().unsqueeze(-1)
    c_, r_ = c.unsqueeze(-1), r.unsqueeze(-1)
    right, left = n * r_ + c_, n * r_ - c_
    outer, outer_1 = (x * fade for x in _mills(right))
    inner, inner_1 = _mills(left.clamp(min=0))
    # Left of 0 the ratio is sqrt(2 pi) exp(z^2 / 2) Phi(-z); z^2 - (r - c)^2 without large squares.
    deep = (0.5 * (n - 1) * r_ * ((n + 1) * r_ - 2 * c_)).clamp(max=0).exp()
    beyond = _ROOT_2PI * deep * torch.special.ndtr(-left)
    below = left < 0
    inner = torch.where(below, beyond, inner * fade)
    inner_1 = torch.where(below, fade - left * beyond, inner_1 * fade)
    first = _mills(c)[0] * fade.squeeze(-1)
    total = first + (inner - outer) @ weight
    in_mean = r * (((inner + outer) * n) @ weight) / total  # times s
    in_heat = r * (((inner_1 - outer_1) * n) @ weight) / total  # times tau
    bend = c * in_mean - in_heat  # the derivative by s, times s: of degree 0 in distance, s and tau
    log_small = total.log() - math.log(_ROOT_2PI) - torch.where(above > 0, r * (c - 0.5 * r), 0.5 * c * c)
    heat = torch.where(temperature > 0, in_heat / temperature, 0.0)
    return Pair(log_small, in_mean / scale, bend / scale / scale, heat)


def _mills(z: Tensor) -> tuple[Tensor, Tensor]:
    """R(z) and 1 - z R(z) for z >= 0."""
    ratio = torch.special.erfcx(z * _ROOT_HALF) * (_ROOT_2PI / 2)
    far = z.clamp(min=FAR)
    y = 1 / (far * far)
    tail = torch.ones_like(y)
    for k in range(27, 2, -2):
        tail = 1 - k * y * tail
    return ratio, torch.where(z > FAR, y * tail, 1 - z * ratio)


def _both(mean: Tensor, scale: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """log p (B, 2), factors (B, 2), and the derivatives (B, 1) of log S, where S is the smaller probability.

    d log p_c = factor_c d log S, with factor 1 for the smaller class and -S / (1 - S) for the larger.
    """
    mean, scale, tau = mean.double(), scale.double(), temperature.double().squeeze(-1)
    gap = mean.diff(dim=-1).squeeze(-1)  # of the second from the first
    pair = smaller(gap.abs(), torch.hypot(*scale.unbind(-1)), tau)
    large = torch.log1p(-pair.log_small.exp())
    less = -(pair.log_small - large).exp()
    first = torch.stack([gap >= 0, gap < 0], -1)  # which is the smaller
    log_p = torch.where(first, pair.log_small.unsqueeze(-1), large.unsqueeze(-1))
    factor = torch.where(first, 1.0, less.unsqueeze(-1))
    sign = torch.where(gap >= 0, 1.0, -1.0)
    slope = (pair.in_mean * sign).unsqueeze(-1)
    return log_p, factor, slope, pair.in_scale.unsqueeze(-1), pair.in_temperature.unsqueeze(-1)


def _in_parts(mean: Tensor, scale: Tensor, temperature: Tensor) -> list[Tensor]:
    size = _ROWS if mean.device.type == "cpu" else _MOST_ROWS
    if len(mean) <= size:
        return list(_both(mean, scale, temperature))
    parts = [_both(*part) for part in zip(*(x.split(size) for x in (mean, scale, temperature)))]
    return [torch.cat(column) for column in zip(*parts)]


def _error(log_p: Tensor, dtype: torch.dtype) -> Tensor:
    """Of log p in this dtype."""
    return log_p.clamp(min=-1e30).abs() * max(ERROR, torch.finfo(dtype).eps / 2) + ERROR


def two_log_likelihood(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor) -> Answer:
    """log p of the target, error and gradients for mean, scale (B, 2), temperature (B, 1), target (B,)."""
    dtype = at_least_float32(mean[:0]).dtype
    log_p, factor, in_mean, in_scale, in_tau = _in_parts(mean, scale, temperature)
    own = target.unsqueeze(-1)
    log_p, factor = log_p.gather(-1, own), factor.gather(-1, own)
    slope = factor * in_mean
    found = (torch.cat([slope, -slope], -1), factor * in_scale * scale, factor * in_tau)
    value, error = log_p.squeeze(-1), _error(log_p.squeeze(-1), dtype)
    settled = torch.ones_like(target, dtype=torch.bool)
    return Answer(value.to(dtype), error.to(dtype), settled, *(x.to(dtype) for x in found))


class TwoClasses(torch.autograd.Function):
    """log p of both classes (B, 2)."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, scale: Tensor, temperature: Tensor) -> Tensor:
        """Keep what the gradients are computed from."""
        log_p, *rest = _in_parts(mean, scale, temperature)
        ctx.save_for_backward(scale, *rest)
        return log_p.to(mean.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale it."""
        scale, factor, in_mean, in_scale, in_tau = ctx.saved_tensors
        total = torch.where(factor == 0, 0.0, grad.double() * factor).sum(-1, keepdim=True)
        slope = total * in_mean
        found = (torch.cat([slope, -slope], -1), total * in_scale * scale, total * in_tau)
        return tuple(x.to(scale.dtype) for x in found)


def two_classes(mean: Tensor, scale: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """log p (B, 2) and the absolute error (B,) of the probabilities."""
    log_p: Tensor = TwoClasses.apply(mean, scale, temperature)  # type: ignore[no-untyped-call]
    known = log_p.detach()
    return log_p, (known.exp() * _error(known, mean.dtype)).amax(-1)


def joined(latent: Gaussian) -> Gaussian:
    """Two classes with factors as two without: the factors' part of the difference is added to the first scale."""
    if latent.factors is None or latent.mean.shape[-1] != 2:
        return latent
    first, second = latent.scale.unbind(-1)
    apart = torch.cat([first.unsqueeze(-1), latent.factors.diff(dim=-2).squeeze(-2)], -1)
    scale = torch.stack([torch.linalg.vector_norm(apart, dim=-1), second], -1)
    return latent._replace(scale=scale, factors=None)
