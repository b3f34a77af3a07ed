"""The likelihood of ordinary rows in float32 on a CPU: what `scan` and `likelihood` do, in a third of the time.

Classes lie before rows, and nodes before both: (N, K, B). So everything that belongs to a class or to a row is
added along long contiguous runs, a sum over classes or nodes adds such runs, and most operations work in place. A
sweep over few points and a closer look at the mode and both ends find where the integrand lives. The mathematics is
that of `likelihood`; rows that miss are left to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor

from .grid import STEP, Columns, columns, look_up, places, rough
from .gumbel_normal import ROOT_C
from .likelihood import Answer, Nodes, laplace_nodes
from .rows import log_slope_and_ratio
from .scan import between, search_range, spaced
from .search import Support

_T = TypeVar("_T", Answer, Support)

NODES = 25
_ELEMENTS = 1 << 17  # nodes x classes x rows worked on at a time: what fits into a cache
_POINTS = 24
_CHANGE, _POWER, _EARLIER = 4e-3, 1.75, 5  # as in `likelihood`
_NOTHING = 1e-8
_ROUNDING = 3.5e-6  # of log p: what the table and float32 leave
_DEPTH = 120.0  # of the sum of log F: below it a term may lie outside the table


def rapid(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float) -> Answer:
    """Value, error and gradients of all rows; those that miss `tol` or have not settled need another rule."""
    inputs, drop = (mean, scale, temperature, target), min(38.0, 4 - math.log(tol))
    parts, supports = [], []
    for part in _split(inputs, NODES):
        rows = columns(*part)
        support = find(rows, drop)
        parts.append(integrate(rows, support.mode, laplace_nodes(support, NODES)))
        supports.append(support)
    answer, support = _joined(parts), _joined(supports)
    missed = (~(answer.settled & (answer.error <= tol))).nonzero().squeeze(-1)
    if len(missed):
        finer = 2 * NODES - 1
        again = (x[missed] for x in (*inputs, *support))
        closer = [
            integrate(columns(*part[:4]), part[4], laplace_nodes(Support(*part[4:]), finer))
            for part in _split(tuple(again), finer)
        ]
        for old, new in zip(answer, _joined(closer)):
            old[missed] = new
    return answer


def _split(inputs: tuple[Tensor, ...], nodes: int) -> Iterator[tuple[Tensor, ...]]:
    size = max(1, _ELEMENTS // (inputs[0].shape[-1] * nodes))
    return zip(*(x.split(size) for x in inputs))


def _joined(parts: list[_T]) -> _T:
    if len(parts) == 1:
        return parts[0]
    return type(parts[0])(*(torch.cat(column) for column in zip(*parts)))


def _log_integrand(rows: Columns, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Roughly, at t (B, P): value, slope (B, P), and the second derivative at the first of them (B, 1)."""
    _, u, index = places(rows, t.t())
    m, m_x, m_xx = rough(rows, u, index)
    y, y_x, y_xx = (rows.of_target(part) for part in (m, m_x, m_xx))
    width = rows.of_target(rows.per_step)
    minus_log_f = m.exp_()
    ratio = y_xx / y_x
    value = y + (-y_x).clamp_(min=1e-30).log_() - minus_log_f.sum(1)
    bent = (m_x[0].square() + m_xx[0]).mul_(minus_log_f[0]).mul_(rows.per_step).mul_(rows.per_step)
    second = (y_xx[0] - ratio[0].square()) * width.square() - bent.sum(0)
    slope = (y_x + ratio) * width - minus_log_f.mul_(m_x).mul_(rows.per_step).sum(1)
    return value.t(), slope.t(), second.unsqueeze(-1)


def find(rows: Columns, drop: float) -> Support:
    """Mode and ends of every row; NaN where an end is not far enough down."""
    own = rows.of_target(rows.width)
    gumbel, normal = own * rows.of_target(rows.sin), own * rows.of_target(rows.cos)
    top = torch.add(rows.mean, rows.width, alpha=2.0).amax(0)
    low, high = search_range(own, gumbel / ROOT_C, normal, top, len(rows.mean), drop)
    t = spaced(low.unsqueeze(-1), high.unsqueeze(-1), _POINTS)
    value, slope, _ = _log_integrand(rows, t)
    found = between(t, value, slope, drop)
    # A closer look at the mode and at both ends: what has not lost enough there has at the next point of the sweep.
    value, slope, second = _log_integrand(rows, torch.cat([found.mode, found.ends], -1))
    fallen = (torch.maximum(found.peak, value[:, :1]) - value[:, 1:]).clamp_(min=0.0).sqrt_()
    root = math.sqrt(drop)
    enough = fallen >= root
    ends, fallen, slope = (
        torch.where(enough, near, far)
        for near, far in ((found.ends, found.outer), (fallen, found.root), (slope[:, 1:], found.slope))
    )
    fallen = torch.where(fallen >= root, fallen, math.nan)
    return Support(found.mode, second.neg_().clamp_(min=1e-12), (ends - found.mode).abs_(), fallen, slope)


def integrate(rows: Columns, mode: Tensor, nodes: Nodes) -> Answer:
    """Sum over nodes; a row of which a part that counts lies outside the table gets an infinite error."""
    t = (mode + nodes.offset).t().contiguous()
    x, u, index = places(rows, t)
    m, m_x, m_v = look_up(rows, u, index)
    own_x = t / rows.of_target(rows.width)
    y, y_x, y_v, cos, sin, turn = (
        rows.of_target(part) for part in (m, m_x, m_v, rows.cos, rows.sin, rows.turn)
    )
    log_slope, ratio, too_far = log_slope_and_ratio(own_x, y, y_x / STEP, y_v * turn, cos, sin, 1.0)
    minus_log_f = m.exp_()
    depth = minus_log_f.sum(1)
    width = rows.of_target(rows.width)
    terms = log_slope - depth - width.log() + nodes.log_weight.t()
    log_p = torch.logsumexp(terms, 0)
    weight = (terms - log_p).exp_()
    error = _error(terms, log_p)
    lost = (((depth > _DEPTH) | too_far) & (weight > 1e-9)).any(0)
    error = torch.where(lost | nodes.spoilt, math.inf, error)
    in_t = m_x.mul_(minus_log_f).mul_(rows.per_step)  # minus d log F / dt
    in_t.flatten(1).index_fill_(1, rows.own, 0.0)
    balance = in_t.sum(1).mul_(weight).neg_()
    half = weight[::2].sum(0)
    owns = [_halves(part, half) for part in (balance, balance * own_x, balance * ratio)]
    a = _halves(in_t.mul_(weight.unsqueeze(1)), half)
    b = _halves(in_t.mul_(x), half)
    c = _halves(m_v.mul_(minus_log_f).mul_(weight.unsqueeze(1)), half)
    return _finish(rows, log_p, error, a, b, c, owns)


def _halves(values: Tensor, half: Tensor) -> Tensor:
    """Sums over all nodes and, as estimated from them, over every other node: (2, ...)."""
    even = values[::2].sum(0)
    return torch.stack([values[1::2].sum(0).add_(even), even / half])


def _finish(
    rows: Columns, log_p: Tensor, error: Tensor, a: Tensor, b: Tensor, c: Tensor, owns: list[Tensor]
) -> Answer:
    """Gradients from the averages (2, K, B), the target's own put in, and whether they have settled."""
    c *= rows.turn * rows.per_step * STEP
    b *= STEP
    for part, own in zip((a, b, c), owns):
        part.flatten(1).index_copy_(1, rows.own, own)
    d_scale = torch.addcmul(rows.cos * b, rows.sin, c)
    d_tau = ROOT_C * torch.addcmul(rows.sin * b, rows.cos, c, value=-1.0).sum(1)
    floor = _NOTHING / rows.width.amax(0)
    settled = _stands(a, floor) & _stands(d_scale, floor) & _stands(d_tau.unsqueeze(1), floor)
    d_mean, d_scale = (part[0].t().contiguous() for part in (a, d_scale))
    return Answer(log_p, error, settled, d_mean, d_scale, d_tau[0].unsqueeze(-1))


def _stands(gradient: Tensor, floor: Tensor) -> Tensor:
    """Whether half of the nodes give the same (K, B), relative to the largest of a row."""
    return (gradient[0] - gradient[1]).abs_().amax(0) < _CHANGE * gradient[0].abs().amax(0) + floor


def _error(terms: Tensor, log_p: Tensor) -> Tensor:
    """As in `likelihood`, from the last two halvings of the step."""
    last = torch.logsumexp(terms[::2], 0) + math.log(2)
    before = (torch.logsumexp(terms[::4], 0) + math.log(4) - last).abs_()
    rounding = _ROUNDING + 4 * torch.finfo(terms.dtype).eps * log_p.abs()
    return torch.maximum((log_p - last).abs_() ** _POWER, before**_EARLIER).clamp_(max=1.0).add_(rounding)
