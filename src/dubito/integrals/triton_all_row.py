# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call, assignment"
"""What both passes over all classes share: classes along lanes, and rates at nodes. Imported where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_launch import log
from .triton_range import TURNS
from .triton_table import ROOT_C, X_MAX, columns, look_up, pick


@triton.jit
def prepare(mean_ptr, scale_ptr, angle_ptr, row, classes, gumbel, WIDE: tl.constexpr):
    """Places in memory, mask, the columns that a look-up needs, and those that a rate needs besides.

    Means are relative to the highest. The Gumbel's tail is exactly exponential far to the right, beyond `edge`.
    """
    k = tl.arange(0, WIDE)
    at = row.to(tl.int64) * classes + k
    shift = tl.max(tl.load(mean_ptr + at, mask=k < classes, other=-float("inf")).to(tl.float32))
    k, keep, mean, scale, inverse, base, offset, turn = columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, WIDE
    )
    cos, sin = scale * inverse, gumbel * inverse
    slope = ROOT_C / sin
    edge = 8 + ROOT_C * cos / sin
    line = slope * slope * cos * cos * 0.5 - 0.5772156649015329 + tl.log(slope)
    log_inverse = tl.where(keep, tl.log(inverse), -1e30)
    return at, keep, (mean, inverse, base, offset), (log_inverse, slope, edge, line, turn, cos, sin)


@triton.jit
def nodes_of(low, step, i, CHUNK: tl.constexpr):
    """The i-th chunk of nodes."""
    return low + step * (i * CHUNK + tl.arange(0, CHUNK))


@triton.jit
def total_of(table_ptr, column, classes, t, log_step):
    """G + log step at t (nodes,)."""
    mean, inverse, base, offset = column
    index = tl.zeros(t.shape, tl.int32)
    total = tl.zeros(t.shape, tl.float32) + log_step
    for start in range(0, classes, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            m, _, _ = look_up(
                table_ptr, (t - pick(mean, j)) * pick(inverse, j), pick(base, j), pick(offset, j)
            )
            total -= tl.exp(m)
    return total


@triton.jit
def rate_of(table_ptr, column, tail, t, j):
    """Of class j at t (nodes,): x, M, log of the rate, whether on the exponential tail, dM/d offset, dM/dx."""
    mean, inverse, base, offset = column
    log_inverse, slope, edge, line, turn, cos, sin = tail
    x = (t - pick(mean, j)) * pick(inverse, j)
    m, m_x, m_v = look_up(table_ptr, x, pick(base, j), pick(offset, j))
    straight = (x > pick(edge, j)) & ((m < -21.0) | (x > X_MAX))
    bent = m + log(tl.maximum(-m_x, 1e-30))
    log_rate = tl.where(straight, pick(line, j) - pick(slope, j) * x, bent) + pick(log_inverse, j)
    return x, m, log_rate, straight, m_v, m_x


@triton.jit
def _sum(terms, even):
    """The largest log-term, and sums over all and over even nodes."""
    top = tl.max(terms)
    parts = tl.exp(terms - top)
    return top, tl.sum(parts), tl.sum(tl.where(even, parts, 0.0))


@triton.jit
def log_sums(table_ptr, column, tail, classes, t, log_step, CHUNK: tl.constexpr, WIDE: tl.constexpr):
    """For each class, one per lane, over a chunk: the largest log-term, and sums over all and over even nodes."""
    index = tl.zeros(t.shape, tl.int32)
    lane = tl.arange(0, WIDE)
    even = tl.arange(0, CHUNK) % 2 == 0
    peak = tl.full([WIDE], -1e30, tl.float32)
    every = tl.zeros([WIDE], tl.float32)
    half = tl.zeros([WIDE], tl.float32)
    total = total_of(table_ptr, column, classes, t, log_step)
    for start in range(0, classes, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            x, m, log_rate, straight, m_v, m_x = rate_of(table_ptr, column, tail, t, j)
            top, full, some = _sum(log_rate + total, even)
            mine = lane == start + turn
            peak = tl.where(mine, top, peak)
            every = tl.where(mine, full, every)
            half = tl.where(mine, some, half)
    return peak, every, half
