# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The support of a row's integrand, inside a Triton kernel: a few rounds of points over a shrinking range."""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_launch import log
from .triton_table import columns, pick, rough, rough_value

WIDE = tl.constexpr(32)  # classes prepared at a time, one per lane
TURNS = tl.constexpr(4)  # of them worked on side by side
_DROP, _ROUNDS = tl.constexpr(13.5), tl.constexpr(8)


@triton.jit
def _to_level(value, index, outer, inner, level):
    """Steps outwards from a point above the level to one below it, at most 1.

    The function is concave, so a line through the last two points above the level does not cross it sooner. A whole
    step if there is only one such point.
    """
    here = tl.sum(tl.where(index == outer, value, 0.0))
    there = tl.sum(tl.where(index == inner, value, 0.0))
    known = (inner >= 0) & (inner < index.shape[0])
    fall = tl.where(known, there - here, 0.0)
    return tl.minimum((here - level) / tl.maximum(fall, 1e-6), 1.0)


@triton.jit
def rivals(table_ptr, mean, inverse, base, offset, count, t):
    """Sum of log F over the classes of a chunk at t (points,), roughly."""
    index = tl.zeros(t.shape, tl.int32)
    total = tl.zeros(t.shape, tl.float32)
    for start in range(0, count, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            x = (t - pick(mean, j)) * pick(inverse, j)
            m = rough_value(table_ptr, x, pick(base, j), pick(offset, j))
            total -= tl.exp(tl.minimum(m, 80.0))
    return total


@triton.jit
def shrink(value, low, high, POINTS: tl.constexpr):
    """The part of a range where the integrand is large, by equally spaced points: new ends, mode, points inside."""
    index = tl.arange(0, POINTS)
    step = (high - low) / (POINTS - 1)
    peak = tl.max(value)
    mode = low + step * tl.max(tl.where(value == peak, index, 0))
    level = peak - _DROP
    within = value > level
    inside = tl.sum(within.to(tl.int32))
    first = tl.min(tl.where(within, index, POINTS))
    last = tl.max(tl.where(within, index, -1))
    back = _to_level(value, index, first, first + 1, level)
    ahead = _to_level(value, index, last, last - 1, level)
    high = low + step * tl.minimum(last + ahead, POINTS - 1.0)
    low = low + step * tl.maximum(first - back, 0.0)
    return low, high, mode, inside


@triton.jit
def support(
    mean_ptr, scale_ptr, angle_ptr, table_ptr, row, classes, shift, gumbel, own_width, own_base, own_offset,
    POINTS: tl.constexpr,
):  # fmt: skip
    """A range of t at whose ends the integrand has dropped by `_DROP` nats or more, and roughly its mode."""
    k, keep, mean, scale, inverse, base, offset, turn = columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, WIDE
    )
    high = tl.max(tl.where(keep, mean + 6 / inverse, 0.0))
    for start in range(WIDE, classes, WIDE):
        k, keep, mean, scale, inverse, base, offset, turn = columns(
            mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, WIDE
        )
        high = tl.maximum(high, tl.max(tl.where(keep, mean + 6 / inverse, 0.0)))
    high = tl.maximum(high, 0.0) + 14 * own_width
    low = -7 * own_width
    mode = low
    inside = 0
    rounds = 0
    while (inside < POINTS // 3) & (rounds < _ROUNDS):
        t = low + (high - low) / (POINTS - 1) * tl.arange(0, POINTS)
        m, m_x = rough(table_ptr, t / own_width, own_base, own_offset)
        value = m + log(tl.maximum(-m_x, 1e-30))
        for start in range(0, classes, WIDE):
            if classes > WIDE:
                k, keep, mean, scale, inverse, base, offset, turn = columns(
                    mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, WIDE
                )
            value += rivals(
                table_ptr, mean, inverse, base, offset, tl.minimum(classes - start, WIDE), t
            )  # fmt: skip
        low, high, mode, inside = shrink(value, low, high, POINTS)
        rounds += 1
    return low, high, mode
