# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The table of `grid` and its look-up inside Triton kernels. Imported only where Triton is."""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import grid as _grid
from . import table as _table

ROOT_C = tl.constexpr(1.2825498301618641)
X_MIN, X_MAX = tl.constexpr(_table.X_MIN), tl.constexpr(_table.X_MAX)
_PER_STEP, _PER_TURN = tl.constexpr(1 / _grid.STEP), tl.constexpr(1 / _table.TURN)
_LEFT, _RIGHT, _CELLS = tl.constexpr(_grid.LEFT), tl.constexpr(_grid.RIGHT), tl.constexpr(_grid.CELLS)
_LOWER, _UPPER = tl.constexpr(_grid.LOWER), tl.constexpr(_grid.UPPER)
_PER_LOWER, _PER_UPPER = tl.constexpr(_grid.PER_LOWER), tl.constexpr(_grid.PER_UPPER)
_ANGLES = tl.constexpr(_grid.LOWER + _grid.UPPER)
_SIZE = tl.constexpr((_grid.LOWER + _grid.UPPER) * _grid.CELLS)


@triton.jit
def _near_angle(scale, gumbel):
    """atan of the smaller over the larger, both not negative, to 1e-8."""
    r = tl.minimum(scale, gumbel) / tl.maximum(scale, gumbel)
    q = r * r
    p = q * 0.0028340641874819994 - 0.016005029901862144
    p = p * q + 0.042587608098983765
    p = p * q - 0.07495445758104324
    p = p * q + 0.10636754333972931
    p = p * q - 0.14202570915222168
    p = p * q + 0.19992484152317047
    p = p * q - 0.3333306610584259
    return r * (p * q + 1.0)


@triton.jit
def place_angle(angle_ptr, scale, gumbel):
    """Where the cells of an angle begin in the table, the offset in its cell, and the derivative of that."""
    near = _near_angle(scale, gumbel)
    square = near * near
    steep = gumbel > scale
    lower = tl.minimum(tl.floor(tl.log(1.0 + near * _PER_TURN) * _PER_LOWER), _LOWER - 1.0)
    upper = tl.minimum(tl.floor(near * _PER_UPPER), _UPPER - 1.0) + _LOWER
    cell = tl.maximum(tl.where(steep, upper, lower), 0.0).to(tl.int32)
    cell = tl.minimum(tl.maximum(cell, 0), _ANGLES - 1)  # whatever a NaN became
    per = tl.load(angle_ptr + _ANGLES + cell)
    first = cell == 0
    q = tl.where(first, near * square, tl.where(steep, square, near))
    rise = tl.where(first, 3 * square, tl.where(steep, -2 * near, 1.0))
    return cell * _CELLS - _LEFT, (q - tl.load(angle_ptr + cell)) * per, rise * per


@triton.jit
def class_columns(mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K: tl.constexpr):
    """A chunk of classes as columns (BLOCK_K, 1): mask, centred mean, width, cos, sin, base, offset, turn."""
    k = start + tl.arange(0, BLOCK_K)[:, None]
    keep = k < classes
    at = row.to(tl.int64) * classes + k
    mean = tl.load(mean_ptr + at, mask=keep, other=0.0).to(tl.float32) - shift
    scale = tl.load(scale_ptr + at, mask=keep, other=1.0).to(tl.float32)
    width = tl.sqrt(scale * scale + gumbel * gumbel)
    base, offset, turn = place_angle(angle_ptr, scale, gumbel)
    return k, keep, mean, width, scale / width, gumbel / width, base, offset, turn


@triton.jit
def _place(x, base):
    """Cell of the table for each x (clamped to it), and the offset u in it."""
    steps = tl.minimum(tl.maximum(x * _PER_STEP, _LEFT), _RIGHT)
    cell = tl.floor(steps + 0.5)
    return base + cell.to(tl.int32), steps - cell


@triton.jit
def rough(table_ptr, x, base, v):
    """M and dM/dx to a few digits; beyond the table a parabola (right) or twice a logarithm (left)."""
    index, u = _place(x, base)
    c = table_ptr + index
    linear = tl.load(c + 4 * _SIZE) + v * tl.load(c + 5 * _SIZE)
    square = tl.load(c + 7 * _SIZE)
    value = tl.load(c) + v * tl.load(c + _SIZE) + u * (linear + square * u)
    slope, bend = (linear + 2 * square * u) * _PER_STEP, 2 * square * _PER_STEP * _PER_STEP
    ahead = tl.maximum(x - X_MAX, 0.0)
    behind = tl.maximum(x / X_MIN, 1.0)
    value += ahead * (slope + 0.5 * bend * ahead) + 2 * tl.log(behind)
    slope = tl.where(behind > 1, 2 / x, slope + bend * ahead)
    return value, slope


@triton.jit
def look_up(table_ptr, x, base, v):
    """M and its derivatives in x and in the angle offset v; NaN where x is."""
    index, u = _place(x, base)
    c = table_ptr + index
    # the powers 1, v, v^2, v^3, u, u v, u v^2, u^2, u^2 v, u^3
    a3 = tl.load(c + 9 * _SIZE)
    b2, a2 = tl.load(c + 8 * _SIZE), tl.load(c + 7 * _SIZE)
    c1, b1, a1 = tl.load(c + 6 * _SIZE), tl.load(c + 5 * _SIZE), tl.load(c + 4 * _SIZE)
    d0, c0, b0, a0 = tl.load(c + 3 * _SIZE), tl.load(c + 2 * _SIZE), tl.load(c + _SIZE), tl.load(c)
    d_v = b0 + v * (2 * c0 + 3 * v * d0) + u * (b1 + 2 * v * c1 + u * b2)
    a0 += v * (b0 + v * (c0 + v * d0))
    a1 += v * (b1 + v * c1)
    a2 += v * b2
    value = a0 + u * (a1 + u * (a2 + u * a3)) + (x - x)
    return value, (a1 + u * (2 * a2 + 3 * u * a3)) * _PER_STEP, d_v


@lru_cache(maxsize=8)
def tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Angle cells (centre, inverse half-width) and coefficients with x running fastest."""
    tab = _grid.grid()
    return torch.cat([tab.centre, tab.inverse]).to(device), torch.stack(tab.coefficients).to(device)
