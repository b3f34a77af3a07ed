"""The distribution of a Gaussian plus a scaled Gumbel variable, to full precision and at any depth.

X = sigma e + tau g with e standard normal and g standard Gumbel has variance w^2 = sigma^2 + c tau^2, c =
pi^2/6. Standardised, it depends on one angle: sigma / w = cos(alpha), sqrt(c) tau / w = sin(alpha), so that
alpha = 0 is the normal and alpha = pi/2 the Gumbel distribution. With x = (X - E X) / w,

    M(x, alpha) = log(-log P(x' <= x))

is a line for the Gumbel; for the normal it is a parabola on the right and grows like 2 log|x| on the left. So it
keeps relative precision in both tails. The integrands over e and over g are log-concave and smooth, so the
trapezoid rule centred on their mode converges to rounding error. This is slow and exact; `table` makes it fast.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

EULER = 0.5772156649015329
ROOT_C = math.pi / math.sqrt(6.0)
_ROOT_2PI = math.sqrt(2 * math.pi)
_NODES = 192


def log_minus_log_cdf(x: Tensor, alpha: Tensor) -> Tensor:
    """M(x, alpha) for float64 vectors of equal length, to about 1e-14 wherever M > -30.

    Example:
        >>> x = torch.tensor([0.0, 0.0], dtype=torch.float64)
        >>> log_minus_log_cdf(x, torch.tensor([0.0, math.pi / 2], dtype=torch.float64))
        tensor([-0.3665, -0.5772], dtype=torch.float64)
    """
    parts = zip(x.split(1024), alpha.split(1024))  # small pieces stay in the cache
    return torch.cat([_one_piece(a, b) for a, b in parts])


def _one_piece(x: Tensor, alpha: Tensor) -> Tensor:
    sigma, tau = alpha.cos().clamp(min=0.0), alpha.sin() / ROOT_C
    t = x + EULER * tau
    out = torch.empty_like(x)
    over_e, left = sigma < tau, x <= 0
    for mask, rule in (
        (over_e & left, _over_normal),
        (over_e & ~left, _survival_over_normal),
        (~over_e & left, _over_gumbel),
        (~over_e & ~left, _survival_over_gumbel),
    ):
        if bool(mask.any()):
            out[mask] = rule(t[mask], sigma[mask], tau[mask])
    return out


def _grid(like: Tensor, nodes: int = _NODES) -> Tensor:
    return (torch.arange(nodes, dtype=like.dtype, device=like.device) + 0.5) / nodes


def _over_normal(t: Tensor, sigma: Tensor, tau: Tensor) -> Tensor:
    """sigma < tau, left: log of the integral over e of phi(e) exp(-exp(-(t - sigma e)/tau))."""
    e, v, h = _normal_nodes(t, sigma, tau)
    log_f = torch.logsumexp(-e * e / 2 - v, -1) + (h / _ROOT_2PI).log()
    return (-log_f).log()


def _normal_nodes(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes e around the mode -W/s, the values v = exp(-(t - sigma e)/tau) there, and the step."""
    a, s = t / tau, sigma / tau
    safe = s.clamp(min=1e-150)
    w = lambert_w_exp(2 * safe.log() - a)
    h = 18 / (1 + w).sqrt() / _NODES
    e = (-w / safe)[:, None] + (_grid(t) - 0.5) * _NODES * h[:, None]
    return e, (s[:, None] * e - a[:, None]).clamp(max=690.0).exp(), h


def _survival_over_normal(t: Tensor, sigma: Tensor, tau: Tensor) -> Tensor:
    """sigma < tau, right: the integral over e of phi(e) (1 - exp(-v)), which loses nothing where F is near 1."""
    e = 20 * _grid(t) - 9.5  # the mode is between 0 and sigma / tau
    v = ((sigma[:, None] * e - t[:, None]) / tau[:, None]).exp()
    tail = (-e * e / 2).exp() * -torch.expm1(-v)
    return (-torch.log1p(-(tail.mean(-1) * 20 / _ROOT_2PI))).log()


def _over_gumbel(t: Tensor, sigma: Tensor, tau: Tensor) -> Tensor:
    """sigma >= tau, left: log of the integral over g of Phi((t - tau g)/sigma) exp(-g - exp(-g))."""
    g, h = _gumbel_nodes(t, sigma, tau)
    z = (t[:, None] - tau[:, None] * g) / sigma[:, None]
    log_f = torch.logsumexp(torch.special.log_ndtr(z) - g - (-g).exp(), -1) + h.log()
    return (-log_f).log()


def _gumbel_nodes(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes g around the mode, where exp(-g) = 1 + (tau/sigma) phi(z)/Phi(z), and the step."""
    q = tau / sigma
    v = torch.ones_like(t)
    for _ in range(8):
        z = (t + tau * v.log()) / sigma
        r = normal_hazard(z)
        v = (v - (v - 1 - q * r) / (1 + q * q * r * (z + r) / v)).clamp(min=1.0)
    low, high = -(9 * v.rsqrt()).clamp(max=5.0), 9 * v.rsqrt() + 40 / v
    h = (high - low) / _NODES
    return (low - v.log())[:, None] + _grid(t) * (high - low)[:, None], h


def _survival_over_gumbel(t: Tensor, sigma: Tensor, tau: Tensor) -> Tensor:
    """sigma >= tau, right: the integral over g of Phi(-(t - tau g)/sigma) exp(-g - exp(-g))."""
    g, h = _upper_nodes(t, sigma, tau)
    log_tail = torch.logsumexp(_upper_terms(g, t, sigma, tau), -1) + h.log()
    # -log(1 - Q) = Q (1 + Q/2 + ...), with Q itself below the smallest number at the far end
    correction = (-torch.log1p(-log_tail.exp()) / log_tail.exp().clamp(min=1e-300)).log()
    return log_tail + torch.where(log_tail < -40, 0.0, correction)


def _upper_terms(g: Tensor, t: Tensor, sigma: Tensor, tau: Tensor) -> Tensor:
    z = (tau[:, None] * g - t[:, None]) / sigma[:, None]
    log_cdf: Tensor = torch.special.log_ndtr(z)
    return log_cdf - g - (-g).exp()


def _upper_nodes(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes g for the upper tail, and the step."""
    low, high = _upper_ends(t, sigma, tau)
    return low[:, None] + _grid(t) * (high - low)[:, None], (high - low) / _NODES


def _uneven_nodes(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes g for the upper tail, and logarithms of their weights.

    Equal steps of asinh(g / 4): close at 0, where the Gumbel density ends, and reaching hundreds in the tail.
    """
    low, high = (torch.asinh(end / 4) for end in _upper_ends(t, sigma, tau))
    u = low[:, None] + _grid(t) * (high - low)[:, None]
    return 4 * u.sinh(), (4 / _NODES * (high - low)[:, None] * u.cosh()).log()


def _upper_ends(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Where the terms of the upper tail have dropped by 40 nats from their mode, which is found by bisection."""
    low, high = torch.zeros_like(t), torch.full_like(t, 1e6)
    for _ in range(50):
        g = (low + high) / 2
        rising = (-g).exp() - 1 + tau / sigma * normal_hazard((tau * g - t) / sigma) > 0
        low, high = torch.where(rising, g, low), torch.where(rising, high, g)
    mode = (low + high) / 2
    aim = _upper_terms(mode[:, None], t, sigma, tau)[:, 0] - 40
    ends = []
    for outer in (mode - 1e4, mode + 1e4):
        inner = mode
        for _ in range(28):
            g = (inner + outer) / 2
            inside = _upper_terms(g[:, None], t, sigma, tau)[:, 0] > aim
            inner, outer = torch.where(inside, g, inner), torch.where(inside, outer, g)
        ends.append(outer)
    return ends[0], ends[1]


def normal_hazard(z: Tensor) -> Tensor:
    """phi(z) / Phi(z), finite for any z."""
    log_cdf: Tensor = torch.special.log_ndtr(z)
    return (-z * z / 2 - log_cdf).exp() / _ROOT_2PI


def lambert_w_exp(b: Tensor) -> Tensor:
    """The solution w of w + log(w) = b (Lambert's W of exp(b)).

    Example:
        >>> lambert_w_exp(torch.tensor([1.0, -800.0], dtype=torch.float64))
        tensor([1., 0.], dtype=torch.float64)
    """
    # The logarithm of w, from above the root, where Newton's method falls towards it.
    y = torch.minimum(b, b.clamp(min=1.0).log())
    for _ in range(6):
        y = y - (y.exp() + y - b) / (y.exp() + 1)
    return y.exp()


def deep(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log F of X = sigma e + tau g at t < 0 and its derivatives in t, sigma and tau, at any depth.

    Vectors of equal length in float64, tau >= 0 and not both scales 0. Derivatives are averages over the nodes of
    the inner integral, so they keep their relative precision where log F is -1e6.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> round(float(deep(-30 * one, one, 0 * one)[0]), 3)
        -454.321
    """
    out = t.new_empty(4, len(t))
    over_e = sigma < tau
    for mask, rule in ((over_e, _deep_over_normal), (~over_e, _deep_over_gumbel)):
        if bool(mask.any()):
            out[:, mask] = torch.stack(rule(t[mask], sigma[mask], tau[mask]))
    value, d_t, d_sigma, d_tau = out
    return value, d_t, d_sigma, d_tau


def _deep_over_normal(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    e, v, h = _normal_nodes(t, sigma, tau)
    log_terms = -e * e / 2 - v
    log_f = torch.logsumexp(log_terms, -1)
    weight = (log_terms - log_f[:, None]).exp() * v / tau[:, None]
    d_t, d_sigma = weight.sum(-1), -(weight * e).sum(-1)
    d_tau = -(weight * (t[:, None] - sigma[:, None] * e)).sum(-1) / tau
    return log_f + (h / _ROOT_2PI).log(), d_t, d_sigma, d_tau


def _deep_over_gumbel(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g, h = _gumbel_nodes(t, sigma, tau)
    z = (t[:, None] - tau[:, None] * g) / sigma[:, None]
    log_terms = torch.special.log_ndtr(z) - g - (-g).exp()
    log_f = torch.logsumexp(log_terms, -1)
    weight = (log_terms - log_f[:, None]).exp() * normal_hazard(z) / sigma[:, None]
    d_t, d_sigma, d_tau = weight.sum(-1), -(weight * z).sum(-1), -(weight * g).sum(-1)
    return log_f + h.log(), d_t, d_sigma, d_tau


def far(t: Tensor, sigma: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log(1 - F) far to the right, where it is below -20, and its derivatives in t, sigma and tau.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> round(float(far(30 * one, one, 0 * one)[0]), 3)
        -454.321
    """
    g, log_weight = _uneven_nodes(t, sigma, tau)
    z = (tau[:, None] * g - t[:, None]) / sigma.clamp(min=1e-300)[:, None]
    log_terms = torch.special.log_ndtr(z) - g - (-g).exp() + log_weight
    log_tail = torch.logsumexp(log_terms, -1)
    weight = (log_terms - log_tail[:, None]).exp() * normal_hazard(z) / sigma[:, None]
    over_g = (log_tail, -weight.sum(-1), -(weight * z).sum(-1), (weight * g).sum(-1))
    # With sigma < tau only the mean of exp(-(t - sigma e)/tau) is left.
    safe = torch.where(tau > 0, tau, 1.0)
    a, s = t / safe, sigma / safe
    over_e = (s * s / 2 - a, -1 / safe, s / safe, (a - s * s) / safe)
    parts = [torch.where(sigma < tau, e, g) for e, g in zip(over_e, over_g)]
    return parts[0], parts[1], parts[2], parts[3]
