# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Where the integrand of a row lives, inside a Triton kernel: a few rounds of points over a shrinking range."""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_table import class_columns, rough

_DROP, _ROUNDS = tl.constexpr(13.5), tl.constexpr(8)


@triton.jit
def _to_level(value, index, outer, inner, level):
    """Steps outwards from a point above the level to one below it, at most 1.

    The function is concave: a line through the last two points above the level crosses it no sooner. Where the
    inner one is not among the points, a whole step.
    """
    here = tl.sum(tl.where(index == outer, value, 0.0))
    there = tl.sum(tl.where(index == inner, value, 0.0))
    fall = tl.where(tl.sum((index == inner).to(tl.int32)) > 0, there - here, 0.0)
    return tl.minimum((here - level) / tl.maximum(fall, 1e-6), 1.0)


@triton.jit
def reach(mean_ptr, scale_ptr, angle_ptr, row, classes, shift, gumbel, BLOCK_K: tl.constexpr):
    """The highest mean plus six widths, 0 at least."""
    high = 0.0
    for start in range(0, classes, BLOCK_K):
        k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
            mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
        )
        high = tl.maximum(high, top(keep, mean, width))
    return high


@triton.jit
def top(keep, mean, width):
    """The highest mean plus six widths of a chunk, 0 at least."""
    return tl.max(tl.where(keep, mean + 6 * width, 0.0))


@triton.jit
def log_integrand(table_ptr, k, keep, mean, width, base, offset, t, target):
    """What a chunk of classes adds to the log-integrand at t (1, points), roughly: (points,)."""
    m, m_x = rough(table_ptr, (t - mean) * (1 / width), base, offset)
    own = m + tl.log(tl.maximum(-m_x, 1e-30))
    terms = tl.where(k == target, own, 0.0) - tl.exp(tl.minimum(m, 80.0))
    return tl.sum(tl.where(keep, terms, 0.0), 0)


@triton.jit
def shrink(value, low, high, POINTS: tl.constexpr):
    """The part of a range that matters after a look at equally spaced points: new ends, mode, points inside."""
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
    mean_ptr, scale_ptr, angle_ptr, table_ptr, row, target, classes, shift, gumbel, own_width,
    BLOCK_K: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """A stretch of t at whose ends the integrand has dropped by `_DROP` nats or more, and about its mode."""
    low = -7 * own_width
    high = 14 * own_width + reach(mean_ptr, scale_ptr, angle_ptr, row, classes, shift, gumbel, BLOCK_K)
    mode = low
    inside = 0
    rounds = 0
    while (inside < POINTS // 3) & (rounds < _ROUNDS):
        t = low + (high - low) / (POINTS - 1) * tl.arange(0, POINTS)[None, :]
        value = tl.zeros([POINTS], tl.float32)
        for start in range(0, classes, BLOCK_K):
            k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
                mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
            )
            value += log_integrand(table_ptr, k, keep, mean, width, base, offset, t, target)
        low, high, mode, inside = shrink(value, low, high, POINTS)
        rounds += 1
    return low, high, mode


@triton.jit
def support_of_chunk(table_ptr, k, keep, mean, width, base, offset, target, own_width, POINTS: tl.constexpr):
    """`support` where all classes are at hand in one chunk."""
    low = -7 * own_width
    high = 14 * own_width + top(keep, mean, width)
    mode = low
    inside = 0
    rounds = 0
    while (inside < POINTS // 3) & (rounds < _ROUNDS):
        t = low + (high - low) / (POINTS - 1) * tl.arange(0, POINTS)[None, :]
        value = log_integrand(table_ptr, k, keep, mean, width, base, offset, t, target)
        low, high, mode, inside = shrink(value, low, high, POINTS)
        rounds += 1
    return low, high, mode
