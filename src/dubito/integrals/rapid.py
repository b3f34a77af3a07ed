"""The likelihood of ordinary rows in float32 on a CPU, in a fraction of the operations of `scan` and `likelihood`.

Arrays are (nodes, classes, rows), rows last. So operations, and sums over classes or nodes, run along contiguous
memory, and most of them work in place. For a small batch the number of operations matters, not their size: one
sweep over equally spaced points, with one table lookup per class and point, finds the centre of the integrand and
how far it reaches on both sides, and

    t(s) = centre + rise (exp(bend s) - 1),   -1 <= s <= 1,

takes s = -1, 0, 1 to the left end, the centre and the right end: smooth, and denser on the steeper side. The
trapezoid rule in s converges exponentially. The sweep need not be right: the error is estimated from the terms at
both ends, from the change when every other node is left out, and from classes too narrow for the nodes. Gradients
are computed in the same pass, as in `likelihood`; rows that miss the tolerance are left to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from .grid import NONE, STEP, Columns, columns, look_up, places, sweep, workspace
from .gumbel_normal import ROOT_C
from .likelihood import Answer
from .rows import log_slope_and_ratio

NODES = 29
_POINTS = 40
_ELEMENTS = 1 << 18  # nodes x classes x rows worked on at a time
_CHANGE, _POWER, _EARLIER = 3e-3, 1.75, 4  # as in `likelihood`
_NOTHING, _SHARE = 1e-8, 1e-4
_ROUNDING = 3.5e-6  # of log p, by the table and float32
_BEYOND = 40.0  # the most that lies beyond an end, gradients included, in units of the term at the end
_LOOSEST = 1e-2  # looser tolerances get the range that this one needs
_WIDER = 1.25  # the range of a second try: an end may have been too near
_NARROW = 0.5  # share of the distance of nodes: a narrower class is a step that they may miss
_DEPTH = 120.0  # of -sum of log F: above it a term may lie outside the table
_SPARE, _RAMP, _ROOM = 3.0, 5.0, 0.6  # nats below the drop aimed at; nats of a step at the ends; in steps


class Stretch(NamedTuple):
    """Where the integrand lives, (B,): its centre, and the distances of both ends from it."""

    centre: Tensor
    left: Tensor
    right: Tensor


_T = TypeVar("_T", Answer, Stretch)


def rapid(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float) -> Answer:
    """Value, error and gradients of all rows; those above `tol` or not settled need another rule."""
    inputs, drop = (mean, scale, temperature, target), min(38.0, 4 - math.log(min(tol, _LOOSEST)))
    parts, stretches = [], []
    for part in _split(inputs, NODES):
        rows = columns(*part)
        stretches.append(find(rows, drop))
        parts.append(integrate(rows, stretches[-1], NODES))
    answer, stretch = _joined(parts), _joined(stretches)
    missed = (~((answer.error <= tol) & answer.settled)).nonzero().squeeze(-1)
    if len(missed):
        finer = 2 * NODES - 1
        wider = Stretch(stretch.centre, stretch.left * _WIDER, stretch.right * _WIDER)
        again = tuple(x[missed] for x in (*inputs, *wider))
        closer = [integrate(columns(*part[:4]), Stretch(*part[4:]), finer) for part in _split(again, finer)]
        for old, new in zip(answer, _joined(closer)):
            old[missed] = new
    return answer


def _split(inputs: tuple[Tensor, ...], nodes: int) -> Iterable[tuple[Tensor, ...]]:
    rows, classes = inputs[0].shape
    size = max(1, _ELEMENTS // (classes * nodes))
    return [inputs] if size >= rows else zip(*(x.split(size) for x in inputs))


def _joined(parts: list[_T]) -> _T:
    first, *others = parts
    return type(first)(*(torch.cat(column) for column in zip(*parts))) if others else first


@lru_cache(maxsize=1)
def _points() -> tuple[Tensor, Tensor]:
    """0, 1, 2, ... as a column; and two rows, ones and 0, 1, 2, ..., which take values to their sum and moment."""
    numbers = torch.arange(_POINTS, dtype=torch.float32)
    return numbers.unsqueeze(-1), torch.stack([torch.ones_like(numbers), numbers])


def find(rows: Columns, drop: float) -> Stretch:
    """The mean of the integrand and where it has dropped by `drop` nats, from one sweep.

    Points within the drop are counted, those near its border in part: their number and their mean give both ends.
    """
    width, cos, sin, _ = rows.target
    far = math.sqrt(2.2 * drop)
    above = (sin * ((math.log(len(rows.mean)) + drop) / ROOT_C)).add_(cos, alpha=far)
    top = torch.add(rows.mean, rows.width, alpha=2.0).amax(0)
    low = width * -far
    step = top.addcmul_(width, above).sub_(low).mul_(1 / (_POINTS - 1))
    numbers, sums = _points()
    value = sweep(rows, torch.addcmul(low, numbers, step))
    value -= value.amax(0)
    inside = torch.clamp(value * (1 / _RAMP) + ((drop + _SPARE) / _RAMP + 0.5), 0.0, 1.0)
    count, places_inside = sums @ inside
    mass, first = sums @ value.clamp_(min=-60.0).exp_()
    centre, middle = first / mass, places_inside / count
    half = count.mul_(0.5).add_(_ROOM - 0.5)
    left, right = (half + (centre - middle)).mul_(step), (half + (middle - centre)).mul_(step)
    return Stretch(low.addcmul_(step, centre), left, right)


@lru_cache(maxsize=8)
def _nodes(count: int) -> tuple[Tensor, Tensor]:
    """s as a column, and (3, N): all nodes; every other one, counted twice; every fourth, four times."""
    picks = torch.ones(3, count)
    for row, step in ((1, 2), (2, 4)):
        picks[row] = 0
        picks[row, ::step] = step
    return torch.linspace(-1, 1, count).unsqueeze(-1), picks


def integrate(rows: Columns, stretch: Stretch, count: int) -> Answer:
    """Sum over nodes; a row of which a part that counts lies outside the table gets an infinite error."""
    s, picks = _nodes(count)
    bend = (stretch.right / stretch.left).log_().add_(1e-4)  # 0 would divide by 0
    rise = stretch.right / torch.expm1(bend)
    log_weight = s * bend
    t = torch.addcmul(stretch.centre, torch.expm1(log_weight), rise)
    work = workspace(rows, count)
    x, u, index = places(rows, t, work)
    m, m_x, m_v = look_up(rows, u, index, work)
    width = rows.target[0]
    own_x = t / width
    log_slope, ratio, too_far = _own(rows, own_x, *(rows.of_target(part) for part in (m, m_x, m_v)))
    minus_log_f = m.exp_()
    depth = minus_log_f.sum(1)
    log_p, weight, error, half = _summed(log_slope.add_(log_weight).sub_(depth), picks)
    log_p += (rise * bend / width).mul_(2 / (count - 1)).log_()
    error += log_p.abs() * (4 * torch.finfo(m.dtype).eps)
    error.masked_fill_(_too_narrow(rows, stretch, rise, bend * (_NARROW * 2 / (count - 1))), math.inf)
    if too_far is not None or not float(depth.amax()) <= _DEPTH:
        lost = depth > _DEPTH if too_far is None else (depth > _DEPTH) | too_far
        error = torch.where((lost & (weight > 1e-9)).any(0), math.inf, error)
    minus_log_f.mul_(weight.unsqueeze(1))
    in_t = m_x.mul_(minus_log_f)  # minus d log F / d steps, weighted
    in_t.flatten(1).index_fill_(1, rows.own, 0.0)
    balance = torch.mul(in_t, rows.per_step, out=u).sum(1).neg_()
    owns = torch.stack([balance, balance * own_x, balance * ratio])
    sums = torch.empty(3, 2, *rows.mean.shape)
    for out, part in zip(sums.flatten(2), (in_t, x.mul_(in_t), m_v.mul_(minus_log_f))):
        torch.mm(picks[:2], part.flatten(1), out=out)
    return _finish(rows, log_p, error, sums, picks[:2] @ owns, half)


def _too_narrow(rows: Columns, stretch: Stretch, rise: Tensor, share: Tensor) -> Tensor:
    """Rows (B,) with a class between the ends that is narrower than `share` of the local distance of nodes."""
    distance = (rows.mean - (stretch.centre - rise)).mul_(share)
    return ((distance > rows.width) & (rows.mean > stretch.centre - stretch.left)).any(0)


def _own(
    rows: Columns, x: Tensor, y: Tensor, y_x: Tensor, y_v: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of the target: log of d log F / dx, (dM / d alpha) / (dM / dx), and where the table does not give these."""
    _, cos, sin, turn = rows.target
    if float(y.amin()) > NONE:
        slope = y_x * (1 / STEP)
        return (-slope).log_().add_(y), y_v.mul_(turn).div_(slope), None
    return log_slope_and_ratio(x, y, y_x / STEP, y_v * turn, cos, sin, 1.0)


def _summed(terms: Tensor, picks: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log of the sum, weights (N, B), the error, and the sum over every other node relative to that over all.

    The error is that of `likelihood`, from the last two halvings of the step, plus what the ends may have cut off.
    """
    peak = terms.amax(0)
    weight = terms.sub_(peak).exp_()
    sums = picks @ weight
    every, last, before = sums.log()
    error = torch.maximum((every - last).abs_() ** _POWER, (last - before).abs_() ** _EARLIER).clamp_(max=1.0)
    weight.div_(sums[0])
    error.add_(weight[0], alpha=_BEYOND).add_(weight[-1], alpha=_BEYOND).add_(_ROUNDING)
    return every + peak, weight, error, sums[1] / sums[0]


def _finish(rows: Columns, log_p: Tensor, error: Tensor, sums: Tensor, owns: Tensor, half: Tensor) -> Answer:
    """The answer from the averages (3, 2, K, B), with the target's `owns` put in; checks that gradients settled."""
    inverse = rows.per_step * STEP
    sums.mul_(torch.stack([rows.per_step, inverse, rows.turn * inverse]).unsqueeze(1))
    sums.flatten(2).index_copy_(2, rows.own, owns)
    sums.select(1, 1).div_(half)
    _, b, c = sums.unbind(0)
    tau, other = torch.addcmul(rows.sin * b, rows.cos, c, value=-1.0).sum(1).mul_(ROOT_C).unbind(0)
    b.mul_(rows.cos).addcmul_(rows.sin, c)  # the derivative in the scale
    every, some = sums.narrow(0, 0, 2).unbind(1)
    size, change = every.abs().amax(1), (every - some).abs_().amax(1)
    floor = rows.width.amax(0).reciprocal_().mul_(_NOTHING)
    settled = (change < torch.add(floor, size, alpha=_CHANGE)).all(0)
    # Terms of the temperature's gradient may cancel, so its change is compared with the largest of scale's, too.
    floor.add_(size[1], alpha=_SHARE).add_(tau.abs(), alpha=_CHANGE)
    settled &= other.sub_(tau).abs_() < floor
    d_mean, d_scale = every.transpose(1, 2).contiguous().unbind(0)
    return Answer(log_p, error, settled, d_mean, d_scale, tau.unsqueeze(-1))
