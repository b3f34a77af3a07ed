"""The likelihood of ordinary rows in float32 on a CPU: what `scan` and `likelihood` do, in a third of the time.

Classes lie before rows, and nodes before both: (N, K, B). So everything that belongs to a class or to a row is
added along long contiguous runs, a sum over classes or nodes adds such runs, and most operations work in place. A
sweep over few points and a closer look at the mode and both ends find where the integrand lives. The mathematics is
that of `likelihood`; rows that miss are left to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
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
_NOTHING, _SHARE = 1e-8, 1e-4
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
    per_step = 1 / (STEP * rows.target[0])
    minus_log_f = m.exp_()
    ratio = y_xx / y_x
    value = y + (-y_x).clamp_(min=1e-30).log_() - minus_log_f.sum(1)
    bent = (m_x[0].square() + m_xx[0]).mul_(minus_log_f[0]).mul_(rows.per_step).mul_(rows.per_step)
    second = (y_xx[0] - ratio[0].square()) * per_step.square() - bent.sum(0)
    slope = (y_x + ratio) * per_step - minus_log_f.mul_(m_x).mul_(rows.per_step).sum(1)
    return value.t(), slope.t(), second.unsqueeze(-1)


def find(rows: Columns, drop: float) -> Support:
    """Mode and ends of every row; NaN where an end is not far enough down."""
    own, cos, sin, _ = rows.target
    top = torch.add(rows.mean, rows.width, alpha=2.0).amax(0)
    low, high = search_range(own, own * sin / ROOT_C, own * cos, top, len(rows.mean), drop)
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
    width, cos, sin, turn = rows.target
    own_x = t / width
    y, y_x, y_v = (rows.of_target(part) for part in (m, m_x, m_v))
    log_slope, ratio, too_far = log_slope_and_ratio(own_x, y, y_x / STEP, y_v * turn, cos, sin, 1.0)
    minus_log_f = m.exp_()
    depth = minus_log_f.sum(1)
    terms = nodes.log_weight.t() + log_slope - depth
    log_p, weight, error, half = _summed(terms)
    lost = (((depth > _DEPTH) | too_far) & (weight > 1e-9)).any(0)
    error = torch.where(lost | nodes.spoilt, math.inf, error)
    in_t = m_x.mul_(minus_log_f).mul_(rows.per_step)  # minus d log F / dt
    in_t.flatten(1).index_fill_(1, rows.own, 0.0)
    balance = in_t.sum(1).mul_(weight).neg_()
    owns = torch.stack([balance, balance * own_x, balance * ratio])
    parts = torch.empty(3, *in_t.shape)
    torch.mul(in_t, weight.unsqueeze(1), out=parts[0])
    torch.mul(parts[0], x, out=parts[1])
    torch.mul(m_v.mul_(minus_log_f), weight.unsqueeze(1), out=parts[2])
    return _finish(rows, log_p - width.log(), error, _halves(parts), _halves(owns), half)


@lru_cache(maxsize=8)
def _picks(nodes: int) -> Tensor:
    """(3, N): all nodes; every other one, counted twice; every fourth, four times."""
    out = torch.ones(3, nodes)
    for row, step in ((1, 2), (2, 4)):
        out[row] = 0
        out[row, ::step] = step
    return out


def _summed(terms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log of the sum, weights (N, B), the error, and the sum that every other node gives relative to all.

    The error is that of `likelihood`, from the last two halvings of the step.
    """
    peak = terms.amax(0)
    weight = (terms - peak).exp_()
    sums = _picks(len(terms)) @ weight
    every, last, before = sums.log()
    log_p = every + peak
    error = torch.maximum((every - last).abs_() ** _POWER, (last - before).abs_() ** _EARLIER).clamp_(max=1.0)
    error += _ROUNDING + 4 * torch.finfo(terms.dtype).eps * log_p.abs()
    return log_p, weight.div_(sums[0]), error, sums[1] / sums[0]


def _halves(values: Tensor) -> Tensor:
    """(3, N, ...): sums over all nodes and twice those over every other node, (3, 2, ...)."""
    sums: Tensor = _picks(values.shape[1])[:2] @ values.flatten(2)
    return sums.reshape(len(values), 2, *values.shape[2:])


def _finish(rows: Columns, log_p: Tensor, error: Tensor, sums: Tensor, owns: Tensor, half: Tensor) -> Answer:
    """Gradients from the averages (3, 2, K, B), the target's own put in, and whether they have settled."""
    sums[1] *= STEP
    sums[2] *= rows.turn * rows.per_step * STEP
    sums.flatten(2).index_copy_(2, rows.own, owns)
    sums[:, 1] /= half
    d_mean, b, c = sums
    d_scale = torch.addcmul(rows.cos * b, rows.sin, c)
    d_tau = ROOT_C * torch.addcmul(rows.sin * b, rows.cos, c, value=-1.0).sum(1)
    both = torch.stack([d_mean, d_scale])
    size, change = both[:, 0].abs().amax(1), (both[:, 0] - both[:, 1]).abs_().amax(1)
    floor = _NOTHING / rows.width.amax(0)
    settled = (change < _CHANGE * size + floor).all(0)
    # The temperature's is a sum over classes that may cancel: measured against the largest of the others too.
    settled &= (d_tau[0] - d_tau[1]).abs_() < _CHANGE * d_tau[0].abs() + _SHARE * size[1] + floor
    out = both[:, 0].transpose(1, 2).contiguous()
    return Answer(log_p, error, settled, out[0], out[1], d_tau[0].unsqueeze(-1))
