"""log p_y = log of the integral of f_y(t) prod_{k != y} F_k(t), with its gradient and its error.

Let v be the signed square root of the drop below the mode, so that the integrand is exp(-v^2) dt/dv. The results of
the search (curvature at the mode; place, drop and slope at both ends) determine a smooth approximate map

    t(v) = mode + v exp(q(v)),    q a polynomial of degree 4,

under which the trapezoid rule in v converges within one or two dozen nodes. The change when every other node is
left out tells its error. Rows that it does not suit (scales of very different size) get tanh-sinh nodes between the
mode, the shoulders and the ends, whose number is doubled until the tolerance is met.

Gradients need only first derivatives of log F_k: with r_k = d log F_k / dt, R = sum_{k != y} r_k and < > the
average over nodes, d log p / d theta_k = < d log F_k / d theta_k > for a rival k, and, integrating by parts,
for the target d log p / d theta_y = -< (R / r_y) d log F_y / d theta_y >.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .gumbel_normal import EULER, ROOT_C, deep, far
from .rows import Rows, log_slope_and_ratio
from .search import Support
from .table import DEEP, lookup

_CHANGE = 2e-3  # relative, of a gradient when the step is halved; the error left is about its power of 1.5
_EARLIER = 5
_NARROW, _CUT = 0.5, 1e-9  # share of the distance of nodes; share of p
_NOTHING = 1e-8  # gradients below this, relative to 1 / width, need not settle


class Answer(NamedTuple):
    """Per row: log p, its estimated error, whether the gradients have settled too, and the gradients.

    d_mean and d_scale are (B, K), d_temperature (B, 1); the others (B,).
    """

    log_p: Tensor
    error: Tensor
    settled: Tensor
    d_mean: Tensor
    d_scale: Tensor
    d_temperature: Tensor


class Nodes(NamedTuple):
    """Offsets from the mode and logarithms of weights, (B, N); `spoilt` marks rows with an unusable map."""

    offset: Tensor
    log_weight: Tensor
    spoilt: Tensor


def laplace_nodes(support: Support, count: int) -> Nodes:
    """An odd number of nodes, equally spaced in v."""
    low, high = -support.root[:, :1], support.root[:, 1:]
    at_mode = 0.5 * (2 / support.bend).log()
    sides = torch.cat([low, high], 1)
    ratio = (support.reach / sides.abs()).log()
    # t' = 2 v / slope and t' / (t - mode) = 1 / v + q'
    slope = support.slope.abs() * support.reach
    tangent = (2 * sides.abs() / slope.clamp(min=1e-30) - 1 / sides.abs()) * sides.sign()
    # q = q(0) + v p(v) with p the cubic through its values and slopes at both ends
    p = (ratio - at_mode) / sides
    p_slope = (tangent - p) / sides
    length = high - low
    s = torch.linspace(0, 1, count, dtype=low.dtype, device=low.device)
    v = low + length * s
    rise = p[:, 1:] - p[:, :1]
    first, last = length * p_slope[:, :1], length * p_slope[:, 1:]
    c2, c3 = 3 * rise - 2 * first - last, first + last - 2 * rise
    cubic = p[:, :1] + s * (first + s * (c2 + s * c3))
    d_cubic = (first + s * (2 * c2 + 3 * s * c3)) / length
    stretch = at_mode + v * cubic
    growth = 1 + v * (cubic + v * d_cubic)
    spoilt = (growth < 0.05).any(-1) | (growth > 50).any(-1) | ~torch.isfinite(stretch).all(-1)
    log_weight = stretch + growth.clamp(min=0.05).log() + (length / (count - 1)).log()
    return Nodes(v * stretch.exp(), log_weight, spoilt)


def tanh_sinh_nodes(support: Support, shoulder: Tensor, count: int) -> Nodes:
    """`count` + 1 nodes on each of four pieces (end, shoulder, mode, shoulder, end), thickening towards all."""
    k = torch.linspace(-3.2, 3.2, count + 1, dtype=shoulder.dtype, device=shoulder.device)
    g = math.pi * k.sinh()
    share = torch.sigmoid(g)
    log_weight = (k.cosh() * (6.4 / count * math.pi)).log() + F.logsigmoid(g) + F.logsigmoid(-g)
    shoulder = torch.minimum(shoulder, support.reach)
    rest = (support.reach - shoulder).clamp(min=1e-30)
    sign = torch.tensor([-1.0, 1.0], dtype=share.dtype, device=share.device)
    # (B, 4): where the pieces start, seen from the mode, and their signed lengths
    begin = torch.cat([torch.zeros_like(shoulder), shoulder * sign], 1)
    length = torch.cat([shoulder * sign, rest * sign], 1)
    offset = begin.unsqueeze(1) + length.unsqueeze(1) * share[:, None]
    weight = length.abs().log().unsqueeze(1) + log_weight[:, None]
    return Nodes(offset.flatten(1), weight.flatten(1), torch.zeros_like(shoulder[:, 0], dtype=torch.bool))


def integrate(rows: Rows, mode: Tensor, nodes: Nodes, pieces: int, exact: bool) -> Answer:
    """Sum over nodes, which lie interleaved on `pieces` pieces of the support.

    With `exact`, values outside the table are computed without it; else such rows get an infinite error.
    """
    inverse = (1 / rows.width).unsqueeze(-1)
    x = nodes.offset.unsqueeze(1) * inverse + (mode - rows.mean).unsqueeze(-1) * inverse
    m, parts, log_slope, ratio, too_far = _factors(rows, x, exact)
    width = rows.of_target(rows.width.unsqueeze(-1))
    terms = parts[0].sum(1) + log_slope - width.log() + nodes.log_weight
    log_p = torch.logsumexp(terms, -1)
    weight = (terms - log_p.unsqueeze(-1)).exp()
    error = _error(terms, log_p, pieces, _with_steps(rows, mode + nodes.offset, weight))
    if not exact:
        lost = (((m.amax(1) > DEEP) | too_far) & (weight > 1e-9)).any(-1)
        error = torch.where(lost | nodes.spoilt, math.inf, error)
    # A second column of weights leaves out every other node: gradients that this changes have not settled.
    coarse = weight.unflatten(-1, (-1, pieces)).clone()
    coarse[:, 1::2] = 0
    coarse = coarse.flatten(1)
    both = torch.stack([weight, coarse / coarse.sum(-1, keepdim=True)], -1)
    d_mean, d_scale, d_tau = _gradient(rows, x, parts, both, rows.of_target(x), ratio)
    floor = _NOTHING / rows.width.amax(-1)
    large, small = (torch.stack([d_mean[..., i], d_scale[..., i]]) for i in (0, 1))
    moved = (large - small).abs().amax(-1) < _CHANGE * large.abs().amax(-1) + floor
    of_tau = (d_tau[:, 0, 0] - d_tau[:, 0, 1]).abs() < _CHANGE * d_tau[:, 0, 0].abs() + floor
    settled = moved[0] & moved[1] & of_tau
    return Answer(log_p, error, settled, large[0], large[1], d_tau[..., 0])


def height(rows: Rows, t: Tensor) -> Tensor:
    """log of f_y(t) prod_{k != y} F_k(t) at t (B, N), to full precision up to a constant in t."""
    x = (t.unsqueeze(1) - rows.mean.unsqueeze(-1)) / rows.width.unsqueeze(-1)
    _, parts, log_slope, _, _ = _factors(rows, x, exact=True)
    return parts[0].sum(1) + log_slope


def _factors(rows: Rows, x: Tensor, exact: bool) -> tuple[Tensor, list[Tensor], Tensor, Tensor, Tensor]:
    """At x (B, K, N): M; log F and its derivatives in x and v; and of the target the log of d log F / dx, the ratio
    of the derivatives, and where the table does not give these two."""
    m, m_x, m_v = lookup(rows.table, x, rows.cell.unsqueeze(-1), _full(rows.offset, x))
    own = [rows.of_target(part) for part in (x, m, m_x, m_v)]
    log_f = -m.exp()
    parts = [log_f, log_f * m_x, log_f * m_v]
    columns = (rows.of_target(part.unsqueeze(-1)) for part in (rows.cos, rows.sin, rows.turn))
    log_slope, ratio, too_far = log_slope_and_ratio(*own, *columns)
    if exact:
        parts = _replace_deep(rows, x, m > DEEP, parts)
        log_slope, ratio = _replace_far(rows, own[0], own[1] > DEEP, too_far, log_slope, ratio)
    return m, parts, log_slope, ratio, too_far


def _full(values: Tensor, x: Tensor) -> Tensor:
    return values.unsqueeze(-1).expand_as(x).contiguous()


def _error(terms: Tensor, log_p: Tensor, pieces: int, steps: Tensor | None = None) -> Tensor:
    """The error of the sum, from the changes by the last two halvings of the step.

    The rules converge exponentially: halving the step about squares the error; the exponent 1.5 is cautious. In
    rows with unresolved `steps` they do not: there the error is taken as twice the change.
    """
    sums = [log_p]
    for step in (2, 4):
        coarse = terms.unflatten(-1, (-1, pieces))[:, ::step].flatten(1)
        sums.append(torch.logsumexp(coarse, -1) + math.log(step))
    last, before = (sums[0] - sums[1]).abs(), (sums[1] - sums[2]).abs()
    rounding = 4 * torch.finfo(terms.dtype).eps * (1 + log_p.abs())
    error = torch.maximum(last**1.5, before**_EARLIER)
    if steps is not None:
        error = torch.where(steps, 2 * torch.maximum(last, before), error)
    return error.clamp(max=1.0) + rounding


def _with_steps(rows: Rows, t: Tensor, weight: Tensor) -> Tensor:
    """Rows (B,) with a class that is narrower than half the distance of the two nodes around its mean.

    Its F is a step, which the nodes may miss; it does not matter where the integrand has negligible weight.
    """
    t, order = t.sort(-1)
    above = torch.searchsorted(t, rows.mean).clamp_(1, t.shape[-1] - 1)
    low, high = t.gather(-1, above - 1), t.gather(-1, above)
    narrow = (rows.mean > low) & (rows.mean < high) & (rows.width < _NARROW * (high - low))
    return (narrow & (weight.gather(-1, order).gather(-1, above) > _CUT)).any(-1)


def _replace_deep(rows: Rows, x: Tensor, bottom: Tensor, parts: list[Tensor]) -> list[Tensor]:
    """Where log F is far below zero, the exact computation, converted to the table's variables."""
    if not bool(bottom.any()):
        return parts
    scale, tau = _full(rows.cos, x)[bottom].double(), _full(rows.sin, x)[bottom].double() / ROOT_C
    log_f, *slopes = deep(x[bottom].double() + EULER * tau, scale, tau)
    d_x, d_v = _to_table(slopes, scale, tau, _full(rows.turn, x)[bottom])
    return [part.masked_scatter(bottom, new.to(part.dtype)) for part, new in zip(parts, (log_f, d_x, d_v))]


def _replace_far(
    rows: Rows, x: Tensor, too_deep: Tensor, too_far: Tensor, log_slope: Tensor, ratio: Tensor
) -> tuple[Tensor, Tensor]:
    """The target's density outside the table: log of dF/dx / F, and (dF/dv) / (dF/dx), on both sides."""
    for mask, rule in ((too_deep, deep), (too_far, far)):
        if not bool(mask.any()):
            continue
        cos, sin, turn = (
            rows.of_target(part.unsqueeze(-1)).expand_as(x)[mask].double()
            for part in (rows.cos, rows.sin, rows.turn)
        )
        tau = sin / ROOT_C
        value, *slopes = rule(x[mask].double() + EULER * tau, cos, tau)
        d_x, d_v = _to_table(slopes, cos, tau, turn)
        new = d_x.abs().log() + (value if rule is far else 0.0)
        log_slope = log_slope.masked_scatter(mask, new.to(x.dtype))
        ratio = ratio.masked_scatter(mask, (d_v / d_x).to(x.dtype))
    return log_slope, ratio


def _to_table(slopes: list[Tensor], scale: Tensor, tau: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives in (t, sigma, tau) at width 1 as derivatives in x and in the table's angle offset."""
    d_t, d_scale, d_tau = slopes
    d_alpha = (d_tau + EULER * d_t) / ROOT_C * scale - d_scale * (tau * ROOT_C)
    return d_t, d_alpha / turn


def _gradient(
    rows: Rows, x: Tensor, parts: list[Tensor], weight: Tensor, own_x: Tensor, ratio: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Average the derivatives of log F over the nodes; the target's by integration by parts. Weights (B, N, 2)."""
    sums = [torch.bmm(part, weight) for part in (parts[1], parts[1] * x, parts[2])]
    width, turn, cos, sin = (part.unsqueeze(-1) for part in (rows.width, rows.turn, rows.cos, rows.sin))
    rivals = (1 / rows.width).scatter(1, rows.target, 0.0)
    rate = torch.bmm(rivals.unsqueeze(1), parts[1]).squeeze(1)  # R at each node
    balance = weight * (-rate * rows.of_target(width)).unsqueeze(-1)
    own = (balance, balance * own_x.unsqueeze(-1), balance * ratio.unsqueeze(-1))
    at = rows.target.unsqueeze(-1).expand(-1, 1, weight.shape[-1])
    a, b, c = (total.scatter(1, at, part.sum(1, keepdim=True)) for total, part in zip(sums, own))
    c = c * turn
    d_mean = -a / width
    d_scale = -(cos * b + sin * c) / width
    d_tau = ROOT_C * ((cos * c - sin * b) / width).sum(1, keepdim=True)
    return d_mean, d_scale, d_tau
