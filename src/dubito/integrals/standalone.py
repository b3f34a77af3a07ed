"""The exact likelihood of a heteroscedastic classifier in one file that needs PyTorch and nothing else. Copy it.

    nll, error = expected_softmax_nll(mean, scale, target, temperature=0.5)
    nll.mean().backward()

-log E[ softmax((mean + scale e) / tau)_y ], e standard normal, without sampling: softmax(u / tau)_y is the
probability that y wins a race with Gumbel noise, so p_y = integral of f_y(t) prod_{k != y} F_k(t) dt, with
F_k and f_k the distribution function and density of a Gaussian plus tau times a Gumbel variable. The
integrand is log-concave: find its mode, find where it has dropped by 40 nats, and put tanh-sinh nodes in
between. `error` estimates the error of each value, before it is rounded to the dtype of `mean`. Everything is
computed in float64. The library's own version, with a table and kernels, is a hundred times faster.

mean, scale: (rows, classes), scale > 0 or tau > 0. target: (rows,). temperature: a number or a tensor, >= 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

_INNER = 96
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_CHUNK = 1 << 22  # rows x classes x nodes x inner nodes at a time


def expected_softmax_nll(
    mean: Tensor, scale: Tensor, target: Tensor, temperature: float | Tensor = 1.0, tol: float = 1e-8
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood (rows,) with gradients for mean, scale and temperature, and its estimated error.

    Example:
        >>> nll, error = expected_softmax_nll(torch.tensor([[1.0, 0.0, -0.5]]), torch.tensor([[0.5, 1.0, 2.0]]),
        ...                                   torch.tensor([0]))
        >>> round(float(nll), 6), bool(error < 1e-6)
        (0.646513, True)
    """
    tau = torch.as_tensor(temperature, dtype=mean.dtype, device=mean.device).expand(len(mean), 1)
    nll, error = _Likelihood.apply(mean, scale, tau, target, tol)  # type: ignore[no-untyped-call]
    return nll, error


class _Likelihood(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, tau: Tensor, target: Tensor, tol: float
    ) -> tuple[Tensor, Tensor]:
        parts, size = [], max(1, _CHUNK // (mean.shape[1] * 512 * _INNER))
        for m, s, t, y in zip(*(x.split(size) for x in (mean, scale, tau, target))):
            parts.append(_row_block(m.double(), s.double(), t.double(), y, tol))
        log_p, error, *grads = (torch.cat(column) for column in zip(*parts))
        ctx.save_for_backward(*grads)
        ctx.dtype = mean.dtype
        ctx.mark_non_differentiable(error)
        return -log_p.to(mean.dtype), error

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_mean, d_scale, d_tau = ((-grad.double().unsqueeze(-1) * d).to(ctx.dtype) for d in ctx.saved_tensors)
        return d_mean, d_scale, d_tau, None, None


def _row_block(mean: Tensor, scale: Tensor, tau: Tensor, target: Tensor, tol: float) -> tuple[Tensor, ...]:
    """log p, error and gradients, with the number of nodes doubled until the error is below `tol`."""
    at = target.unsqueeze(-1)
    mean = mean - mean.gather(1, at)
    mode, reach = _support(mean, scale, tau, at)
    for count in (32, 64, 128, 256):
        k = torch.linspace(-3.2, 3.2, count + 1, dtype=torch.float64, device=mean.device)
        share = torch.sigmoid(math.pi * k.sinh())
        weight = 6.4 / count * math.pi * k.cosh() * share * (1 - share)
        t = torch.stack([mode - reach[:, :1] * share, mode + reach[:, 1:] * share], -1)
        log_weight = torch.stack([(reach[:, :1] * weight).log(), (reach[:, 1:] * weight).log()], -1)
        terms = _log_integrand(t.flatten(1), mean, scale, tau, at).unflatten(1, (-1, 2)) + log_weight
        log_p = torch.logsumexp(terms.flatten(1), 1)
        halves = [torch.logsumexp(terms[:, ::s].flatten(1), 1) + math.log(s) for s in (2, 4)]
        change = (log_p - halves[0]).abs() ** 1.5, (halves[0] - halves[1]).abs() ** 4
        error = torch.maximum(*change) + 1e-13 * (1 + log_p.abs())
        if bool((error <= tol).all()):
            break
    weights = (terms - log_p[:, None, None]).exp().flatten(1)
    return log_p, error, *_gradients(t.flatten(1), weights, mean, scale, tau, at)


def _support(mean: Tensor, scale: Tensor, tau: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The mode (B, 1) and the distances (B, 2) to where the log-integrand has dropped by 40: zoom, then bisect."""
    width = (scale**2 + 1.65 * tau**2).sqrt()
    own = width.gather(1, at)
    low, high = -9 * own, (mean + 9 * width).amax(1, keepdim=True).clamp(min=0) + 9 * own
    steps = torch.linspace(0, 1, 9, dtype=torch.float64, device=mean.device)
    for _ in range(30):
        t = low + (high - low) * steps
        best = _log_integrand(t, mean, scale, tau, at).argmax(1, keepdim=True)
        low, high = t.gather(1, (best - 1).clamp(min=0)), t.gather(1, (best + 1).clamp(max=8))
        if bool((high - low < 1e-3 * width.amin(1, keepdim=True)).all()):
            break
    mode = (low + high) / 2
    aim = _log_integrand(mode, mean, scale, tau, at) - 40
    sign = torch.tensor([-1.0, 1.0], dtype=torch.float64, device=mean.device)
    inner, outer = torch.zeros_like(aim).expand(-1, 2), (0.1 * own).expand(-1, 2)
    for _ in range(60):
        short = _log_integrand(mode + sign * outer, mean, scale, tau, at) > aim
        if not bool(short.any()):
            break
        inner, outer = torch.where(short, outer, inner), torch.where(short, 2 * outer, outer)
    for _ in range(12):
        middle = (inner + outer) / 2
        short = _log_integrand(mode + sign * middle, mean, scale, tau, at) > aim
        inner, outer = torch.where(short, middle, inner), torch.where(short, outer, middle)
    return mode, outer


def _log_integrand(t: Tensor, mean: Tensor, scale: Tensor, tau: Tensor, at: Tensor) -> Tensor:
    """log of f_y prod_{k != y} F_k at t (B, N)."""
    log_f = _log_cdf(t.unsqueeze(1) - mean.unsqueeze(-1), scale.unsqueeze(-1), tau.unsqueeze(-1))[0]
    rivals = log_f.sum(1) - log_f.gather(1, at.unsqueeze(-1).expand(-1, 1, t.shape[1])).squeeze(1)
    return rivals + _log_density(t, scale.gather(1, at), tau)[0]


def _log_density(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log density of sigma e + tau g and its derivatives in sigma and tau.

    The integral over g of a Gaussian times the Gumbel density, around its mode.
    """
    t, sigma, tau = torch.broadcast_tensors(t, sigma.clamp(min=1e-200), tau.clamp(min=1e-200))
    s, a = sigma / tau, t / tau  # the Gaussian seen in g: its width and place
    low, high = torch.minimum(a, torch.zeros_like(a)) - 1, a.clamp(min=0) + 1
    for _ in range(60):
        g = (low + high) / 2
        rising = (a - g) / (s * s) - 1 + (-g).exp() > 0
        low, high = torch.where(rising, g, low), torch.where(rising, high, g)
    mode = (low + high) / 2
    # 40 nats down by the Gaussian alone, unless the Gumbel density ends first; there equal steps of asinh(g / 4)
    # are small
    back, ahead = (
        torch.minimum(9 * s, (mode + 6).clamp(min=3)),
        torch.minimum(9 * s, 2 + 42 * mode.clamp(max=690).exp()),
    )
    low, high = torch.asinh((mode - back) / 4), torch.asinh((mode + ahead) / 4)
    step = (high - low) / (4 * _INNER)
    nodes = torch.arange(4 * _INNER + 1, dtype=torch.float64, device=t.device)
    u = low.unsqueeze(-1) + step.unsqueeze(-1) * nodes
    g = 4 * u.sinh()
    z = (a.unsqueeze(-1) - g) / s.unsqueeze(-1)
    terms = -0.5 * z * z - g - (-g).exp() + (4 * u.cosh()).log()
    total = torch.logsumexp(terms, -1)
    weight = (terms - total.unsqueeze(-1)).exp()
    mixed = (
        total + step.log() - s.log() - _LOG_ROOT_2PI - tau.log(),
        ((z * z - 1) * weight).sum(-1) / sigma,
        (z * g * weight).sum(-1) / sigma,
    )
    x, v = t / sigma, (-a).clamp(max=690).exp()
    plain = (-0.5 * x * x - sigma.log() - _LOG_ROOT_2PI, (x * x - 1) / sigma, 0.5772156649015329 * x / sigma)
    gumbel = (-a - v - tau.log(), torch.zeros_like(a), (a - 1 - a * v) / tau)
    is_plain, is_gumbel = tau < 1e-9 * sigma, sigma < 1e-9 * tau
    result = [torch.where(is_plain, p, torch.where(is_gumbel, q, m)) for p, q, m in zip(plain, gumbel, mixed)]
    return result[0], result[1], result[2]


def _log_cdf(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log P(sigma e + tau g <= t) and its derivatives in t, sigma and tau, from the wider of the two variables."""
    t, sigma, tau = torch.broadcast_tensors(t, sigma, tau)
    over_e = sigma < tau
    one = torch.ones_like(t)
    first = _over_normal(
        torch.where(over_e, t, one), torch.where(over_e, sigma, one), torch.where(over_e, tau, one)
    )
    other = _over_gumbel(
        torch.where(over_e, one, t), torch.where(over_e, one, sigma), torch.where(over_e, one, tau)
    )
    a, b, c, d = (torch.where(over_e, x, y) for x, y in zip(first, other))
    return a, b, c, d


def _over_normal(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The integral over e of phi(e) exp(-exp(-(t - sigma e)/tau)).

    Its mode is -W/s, s = sigma/tau, with W exp(W) = s^2 exp(-t/tau).
    """
    s, a = (sigma / tau).clamp(min=1e-100), t / tau
    low, high = torch.full_like(a, -700.0), (2 * s.log() - a).clamp(min=1.0).log()  # of log W
    for _ in range(60):
        middle = (low + high) / 2
        small = middle + middle.exp() < 2 * s.log() - a
        low, high = torch.where(small, middle, low), torch.where(small, high, middle)
    w = ((low + high) / 2).exp()
    half = 9 / (1 + w).sqrt()
    e = (-w / s).unsqueeze(-1) + half.unsqueeze(-1) * torch.linspace(
        -1, 1, _INNER, dtype=t.dtype, device=t.device
    )
    v = (s.unsqueeze(-1) * e - a.unsqueeze(-1)).clamp(max=690).exp()
    terms = -0.5 * e * e - v
    total = torch.logsumexp(terms, -1)
    weight = (terms - total.unsqueeze(-1)).exp() * v / tau.unsqueeze(-1)
    d_t, d_sigma = weight.sum(-1), -(weight * e).sum(-1)
    d_tau = -(weight * (t.unsqueeze(-1) - sigma.unsqueeze(-1) * e)).sum(-1) / tau
    return total + (2 * half / (_INNER - 1)).log() - _LOG_ROOT_2PI, d_t, d_sigma, d_tau


def _over_gumbel(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The integral over g of Phi((t - tau g)/sigma) exp(-g - exp(-g)).

    At its mode exp(-g) = 1 + (tau/sigma) phi/Phi.
    """
    q = tau / sigma
    high = 1 + q * _hazard(t / sigma)
    low = torch.ones_like(high)
    for _ in range(60):
        v = (low + high) / 2
        small = v < 1 + q * _hazard((t + tau * v.log()) / sigma)
        low, high = torch.where(small, v, low), torch.where(small, high, v)
    v = (low + high) / 2
    back, ahead = (9 * v.rsqrt()).clamp(max=5), 9 * v.rsqrt() + 36 / v
    steps = torch.linspace(0, 1, 2 * _INNER, dtype=t.dtype, device=t.device)
    g = (-v.log() - back).unsqueeze(-1) + (back + ahead).unsqueeze(-1) * steps
    z = (t.unsqueeze(-1) - tau.unsqueeze(-1) * g) / sigma.unsqueeze(-1)
    terms = torch.special.log_ndtr(z) - g - (-g).exp()
    total = torch.logsumexp(terms, -1)
    weight = (terms - total.unsqueeze(-1)).exp() * _hazard(z) / sigma.unsqueeze(-1)
    d_t, d_sigma, d_tau = weight.sum(-1), -(weight * z).sum(-1), -(weight * g).sum(-1)
    return total + ((back + ahead) / (2 * _INNER - 1)).log(), d_t, d_sigma, d_tau


def _hazard(z: Tensor) -> Tensor:
    log_cdf: Tensor = torch.special.log_ndtr(z)
    return (-0.5 * z * z - _LOG_ROOT_2PI - log_cdf).exp()


def _gradients(
    t: Tensor, weights: Tensor, mean: Tensor, scale: Tensor, tau: Tensor, at: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Averages over the nodes of d log F_k for the rivals and of d log f_y for the target."""
    _, d_t, d_sigma, d_tau = _log_cdf(
        t.unsqueeze(1) - mean.unsqueeze(-1), scale.unsqueeze(-1), tau.unsqueeze(-1)
    )
    d_mean, d_scale, per_class = (torch.einsum("bkn,bn->bk", x, weights) for x in (-d_t, d_sigma, d_tau))
    _, own_sigma, own_tau = _log_density(t, scale.gather(1, at), tau)
    d_mean = d_mean.scatter(1, at, 0.0)
    d_mean = d_mean.scatter(1, at, -d_mean.sum(1, keepdim=True))  # a common shift changes nothing
    d_scale = d_scale.scatter(1, at, (own_sigma * weights).sum(1, keepdim=True))
    d_tau = per_class.scatter(1, at, (own_tau * weights).sum(1, keepdim=True)).sum(1, keepdim=True)
    return d_mean, d_scale, d_tau
