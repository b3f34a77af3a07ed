# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Where the integrand of a row lives, inside a Triton kernel: a few rounds of points over a shrinking range."""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_table import class_columns, rough

_DROP, _ROUNDS = tl.constexpr(12.5), tl.constexpr(8)


@triton.jit
def _to_level(value, index, outer, inner, level):
    """Steps outwards from a point above the level to one below it, at most 1.

    The function is concave: a line through the last two points above the level crosses it no sooner.
    """
    here = tl.sum(tl.where(index == outer, value, 0.0))
    fall = tl.sum(tl.where(index == inner, value, 0.0)) - here
    return tl.minimum((here - level) / tl.maximum(fall, 1e-6), 1.0)


@triton.jit
def support(
    mean_ptr, scale_ptr, angle_ptr, cells_ptr, table_ptr, row, target, classes, shift, gumbel, own_width,
    BLOCK_K: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """A stretch of t at whose ends the integrand has dropped by `_DROP` nats or more, and about its mode."""
    high = 0.0
    for start in range(0, classes, BLOCK_K):
        k, keep, mean, width, cos, sin, cell, offset, turn = class_columns(
            mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
        )
        high = tl.maximum(high, tl.max(tl.where(keep, mean + 6 * width, 0.0)))
    low = -7 * own_width
    high += 14 * own_width
    index = tl.arange(0, POINTS)
    mode = low
    inside = 0
    rounds = 0
    while (inside < POINTS // 3) & (rounds < _ROUNDS):
        step = (high - low) / (POINTS - 1)
        t = low + step * index[None, :]
        value = tl.zeros([POINTS], tl.float32)
        for start in range(0, classes, BLOCK_K):
            k, keep, mean, width, cos, sin, cell, offset, turn = class_columns(
                mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
            )
            m, m_x = rough(table_ptr, cells_ptr, (t - mean) / width, cell, offset)
            own = m + tl.log(tl.maximum(-m_x, 1e-30))
            terms = tl.where(k == target, own, 0.0) - tl.exp(tl.minimum(m, 80.0))
            value += tl.sum(tl.where(keep, terms, 0.0), 0)
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
        rounds += 1
    return low, high, mode
