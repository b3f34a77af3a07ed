"""The expected sigmoid of a Gaussian: one latent, one dimension, to rounding error."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .._tensors import at_least_float32, check_broadcast
from ..errors import DubitoError
from .border import as_latent, as_real
from .gumbel_normal import normal_hazard

_NODES = 128
_PER_PIECE = 96
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


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
    """log E[ sigmoid((mean + scale e) / tau) ], precise where the probability is 1e-300.

    The other class has -mean.

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
    return _log_expected(*(x.squeeze(-1) for x in (latent.mean, latent.scale, latent.temperature)))


def _log_expected(mean: Tensor, scale: Tensor, tau: Tensor) -> Tensor:
    """Over the Gaussian where scale <= tau, over a logistic variable elsewhere, from the small side of 1/2."""
    # Not -abs(mean), which has no slope at 0.
    upper = _log_small(torch.where(mean > 0, -mean, mean), scale, tau)
    other = torch.log1p(-upper.exp())
    return torch.where(mean > 0, other, upper)


def _log_small(mean: Tensor, scale: Tensor, tau: Tensor) -> Tensor:
    gaussian = scale <= tau
    step = (scale == 0) & (tau == 0)
    safe_tau = torch.where(gaussian & (tau > 0), tau, 1.0)
    safe_scale = torch.where(gaussian, 1.0, scale)
    over_e = _over_normal(mean, torch.where(gaussian, scale, 0.0), safe_tau)
    over_l = _over_logistic(torch.where(gaussian, 0.0, mean), safe_scale, torch.where(gaussian, 0.0, tau))
    limit = torch.where(mean == 0, torch.full_like(mean, -math.log(2.0)), -math.inf)
    return torch.where(step, limit, torch.where(gaussian, over_e, over_l))


def _over_normal(mean: Tensor, scale: Tensor, tau: Tensor) -> Tensor:
    """log of the integral of phi(e) sigmoid((mean + scale e)/tau): its mode is between 0 and scale/tau <= 1."""
    e = torch.linspace(-9.0, 10.0, _NODES, dtype=mean.dtype, device=mean.device)
    terms = F.logsigmoid((mean.unsqueeze(-1) + scale.unsqueeze(-1) * e) / tau.unsqueeze(-1)) - e * e / 2
    return torch.logsumexp(terms, -1) + math.log(19.0 / (_NODES - 1)) - _LOG_ROOT_2PI


def _over_logistic(mean: Tensor, scale: Tensor, tau: Tensor) -> Tensor:
    """log of the integral of Phi((mean + tau l)/scale) times the logistic density of l, around its mode.

    The density bends at 0 over a few units, Phi over scale / tau, which may be thousands: tanh-sinh nodes on three
    pieces, up to 0, to the mode and beyond, thicken where either does.
    """
    with torch.no_grad():
        low, mode, high = _logistic_window(mean.double(), scale.double(), tau.double())
        bend = torch.zeros_like(mode).minimum(mode).maximum(low)
        edges = torch.stack([low, bend, mode, high], -1)
        length = edges.diff(dim=-1).clamp(min=1e-30).unsqueeze(-1)
        k = torch.linspace(-3.2, 3.2, _PER_PIECE + 1, dtype=torch.float64, device=mean.device)
        g = math.pi * k.sinh()
        nodes = (edges[..., :-1].unsqueeze(-1) + length * torch.sigmoid(g)).flatten(-2).to(mean.dtype)
        share = (k.cosh() * (6.4 / _PER_PIECE * math.pi)).log() + F.logsigmoid(g) + F.logsigmoid(-g)
        log_weight = (length.log() + share).flatten(-2).to(mean.dtype)
    return torch.logsumexp(_logistic_terms(nodes, mean, scale, tau) + log_weight, -1)


def _logistic_terms(nodes: Tensor, mean: Tensor, scale: Tensor, tau: Tensor) -> Tensor:
    z = (mean.unsqueeze(-1) + tau.unsqueeze(-1) * nodes) / scale.unsqueeze(-1)
    log_cdf: Tensor = torch.special.log_ndtr(z)
    return log_cdf + F.logsigmoid(nodes) + F.logsigmoid(-nodes)


def _logistic_window(mean: Tensor, scale: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the terms are 40 nats below their largest on the left, the mode, and where they are on the right."""
    low, high = torch.zeros_like(mean), torch.full_like(mean, 1e12)
    for _ in range(80):
        middle = (low + high) / 2
        rising = tau / scale * normal_hazard((mean + tau * middle) / scale) > torch.tanh(middle / 2)
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    mode = (low + high) / 2
    aim = _logistic_terms(mode.unsqueeze(-1), mean, scale, tau).squeeze(-1) - 40
    ends = []
    for outer in (mode - 1e8, mode + 1e8):
        inner = mode
        for _ in range(40):
            middle = (inner + outer) / 2
            inside = _logistic_terms(middle.unsqueeze(-1), mean, scale, tau).squeeze(-1) > aim
            inner, outer = torch.where(inside, middle, inner), torch.where(inside, outer, middle)
        ends.append(outer)
    return ends[0], mode, ends[1]
