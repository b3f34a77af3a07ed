# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call, assignment"
"""What both passes over all classes share: classes along lanes, nodes, and rates. Imported where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_lanes import log
from .triton_range import TURNS
from .triton_table import ROOT_C, X_MAX, columns, look_up, pick

_EULER = tl.constexpr(0.5772156649015329)


@triton.jit
def prepare(mean_ptr, scale_ptr, angle_ptr, row, classes, gumbel, WIDE: tl.constexpr):
    """Places in memory, mask, the columns that rates need, and further ones for gradients.

    Means are relative to the highest.
    """
    k = tl.arange(0, WIDE)
    at = row.to(tl.int64) * classes + k
    shift = tl.max(tl.load(mean_ptr + at, mask=k < classes, other=-float("inf")).to(tl.float32))
    k, keep, mean, scale, inverse, base, offset, turn = columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, WIDE
    )
    sin = gumbel * inverse
    return at, keep, (mean, inverse, base, offset, scale / gumbel), (turn, ROOT_C / sin, scale * inverse, sin)


@triton.jit
def nodes_of(low, length, even, j, intervals):
    """The j-th of equally spaced s in [0, 1], as t, and the logarithm of its weight.

    A parabola t(s) puts the middle of the mass near the middle of the nodes: the long tail on the left, which
    matters only for tiny probabilities, needs few of them.
    """
    s = j / intervals
    t = low + length * s * (even + (1 - even) * s)
    return t, tl.where(j <= intervals, tl.log(length / intervals * (even + 2 * (1 - even) * s)), -1e30)


@triton.jit
def evenness(low, high, middle):
    """The evenness of the parabola t(s); 1 is a straight line."""
    return tl.minimum(tl.maximum(4 * (middle - low) / (high - low) - 1, 0.35), 1.65)


@triton.jit
def narrowest(keep, column, low, length, even, deep):
    """The length of the range in widths of the narrowest class that can win (where G is above -18).

    With fewer intervals than half of that, its step may lie between two nodes, and sums may miss it.
    """
    mean, inverse, base, offset, cot = column
    inside = keep & (mean + 7 / inverse > deep) & (mean - 3 / inverse < low + length)
    place = tl.minimum(tl.maximum((mean - low) / length, 0.0), 1.0)
    return tl.max(tl.where(inside, length * tl.sqrt(even * even + 4 * (1 - even) * place) * inverse, 0.0))


@triton.jit
def error_of(p, every, half, total, hidden):
    """The error of the probabilities: from their sum, and from what every other node alone gives.

    The share of every other node in a probability should be one half; the square of its deviation is what one more
    halving of the step may change. It counts less for small probabilities, and not below 1e-8. The error is
    infinite where a step may be `hidden`.
    """
    uneven = half / every - 0.5
    share = tl.where(p > 1e-8, tl.maximum(tl.sqrt(p), 1e-3), 0.0)
    error = 2 * tl.abs(total - 1) + tl.max(tl.where(share > 0, uneven * uneven * share, 0.0))
    return tl.where((error < 1e30) & (hidden == 0), error, float("inf"))  # a NaN compares as false


@triton.jit
def total_of(table_ptr, column, classes, t, log_weight):
    """G + log of the weights at t (nodes,)."""
    mean, inverse, base, offset, cot = column
    index = tl.zeros(t.shape, tl.int32)
    total = log_weight
    for start in range(0, classes, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            m, _, _ = look_up(
                table_ptr, (t - pick(mean, j)) * pick(inverse, j), pick(base, j), pick(offset, j)
            )
            total -= tl.exp(m)
    return total


@triton.jit
def rate_of(table_ptr, column, t, per_tau, j):
    """For class j at t (nodes,): x, M, log of the rate, whether on the exponential tail, dM/d offset, dM/dx.

    The Gumbel's tail is exactly exponential far to the right.
    """
    mean, inverse, base, offset, cots = column
    off, per, cot = t - pick(mean, j), pick(inverse, j), pick(cots, j)
    x = off * per
    m, m_x, m_v = look_up(table_ptr, x, pick(base, j), pick(offset, j))
    straight = (x > 8 + ROOT_C * cot) & ((m < -21.0) | (x > X_MAX))
    line = 0.5 * ROOT_C * ROOT_C * cot * cot - _EULER + log(per_tau) - off * per_tau
    log_rate = tl.where(straight, line, m + log(tl.maximum(-m_x * per, 1e-37)))
    return x, m, log_rate, straight, m_v, m_x


@triton.jit
def ratio_of(tail, cots, j, x, straight, m_v, m_x):
    """(dM / d alpha) / (dM / dx) of class j."""
    turns, slopes, cos, sin = tail
    bent = m_v * pick(turns, j) / tl.minimum(m_x, -1e-30)
    return tl.where(straight, (pick(slopes, j) - x) * pick(cots, j), bent)


@triton.jit
def _sum(terms, even):
    """The largest log-term, and sums over all and over even nodes."""
    top = tl.max(terms)
    parts = tl.exp(terms - top)
    return top, tl.sum(parts), tl.sum(tl.where(even, parts, 0.0))


@triton.jit
def log_sums(table_ptr, column, classes, t, log_weight, per_tau, CHUNK: tl.constexpr, WIDE: tl.constexpr):
    """For each class, one per lane, over a chunk: the largest log-term, and sums over all and over even nodes."""
    index = tl.zeros(t.shape, tl.int32)
    lane = tl.arange(0, WIDE)
    even = tl.arange(0, CHUNK) % 2 == 0
    peak = tl.full([WIDE], -1e30, tl.float32)
    every = tl.zeros([WIDE], tl.float32)
    half = tl.zeros([WIDE], tl.float32)
    total = total_of(table_ptr, column, classes, t, log_weight)
    for start in range(0, classes, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            x, m, log_rate, straight, m_v, m_x = rate_of(table_ptr, column, t, per_tau, j)
            top, full, some = _sum(log_rate + total, even)
            mine = lane == start + turn
            peak = tl.where(mine, top, peak)
            every = tl.where(mine, full, every)
            half = tl.where(mine, some, half)
    return peak, every, half
