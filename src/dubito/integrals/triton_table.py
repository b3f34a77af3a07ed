# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The table of `table` and its look-up inside Triton kernels, in float32. Imported only where Triton is."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import table as _table

ROOT_C = tl.constexpr(1.2825498301618641)
_LEFT = tl.constexpr(_table.LEFT)
_CELLS = tl.constexpr(_table.LEFT + _table.RIGHT)
_ANGLES = tl.constexpr(_table.ANGLES)
_SIZE = tl.constexpr((_table.LEFT + _table.RIGHT) * _table.ANGLES)
X_MIN, X_MAX = tl.constexpr(_table.X_MIN), tl.constexpr(_table.X_MAX)
_PER_STRETCH, _PER_STEP = tl.constexpr(1 / _table.STRETCH), tl.constexpr(1 / _table.STEP)
_PER_TURN, _PER_ANGLE = tl.constexpr(1 / _table.TURN), tl.constexpr(1 / _table.STEP_ANGLE)
_PER_UPTURN = tl.constexpr(1 / _table.UPTURN)
_FIRST_STEP = tl.constexpr(math.log1p(math.pi / 2 / _table.UPTURN))


@triton.jit
def angle(scale, gumbel):
    """atan2(gumbel, scale) for non-negative arguments, to 1e-8."""
    low, high = tl.minimum(scale, gumbel), tl.maximum(scale, gumbel)
    r = low / high
    q = r * r
    p = q * 0.0028340641874819994 - 0.016005029901862144
    p = p * q + 0.042587608098983765
    p = p * q - 0.07495445758104324
    p = p * q + 0.10636754333972931
    p = p * q - 0.14202570915222168
    p = p * q + 0.19992484152317047
    p = p * q - 0.3333306610584259
    a = r * (p * q + 1.0)
    return tl.where(gumbel > scale, 1.5707963267948966 - a, a)


@triton.jit
def class_columns(mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K: tl.constexpr):
    """A chunk of classes as columns (BLOCK_K, 1): mask, centred mean, width, cos, sin, cell, offset, turn."""
    k = start + tl.arange(0, BLOCK_K)[:, None]
    keep = k < classes
    at = row.to(tl.int64) * classes + k
    mean = tl.load(mean_ptr + at, mask=keep, other=0.0).to(tl.float32) - shift
    scale = tl.load(scale_ptr + at, mask=keep, other=1.0).to(tl.float32)
    width = tl.sqrt(scale * scale + gumbel * gumbel)
    alpha = angle(scale, gumbel)
    rest = 1.0 + (1.5707963267948966 - alpha) * _PER_UPTURN
    steps = tl.log(1.0 + alpha * _PER_TURN) - tl.log(rest) + _FIRST_STEP
    cell = tl.floor(steps * _PER_ANGLE).to(tl.int32)
    cell = tl.minimum(tl.maximum(cell, 0), _ANGLES - 1)
    turn = tl.load(angle_ptr + _ANGLES + cell)
    offset = (alpha - tl.load(angle_ptr + cell)) * turn
    return k, keep, mean, width, scale / width, gumbel / width, cell, offset, turn


@triton.jit
def _place(cells_ptr, x, cell):
    """Cell of the table for each x (clamped to it), its offset u and inverse half-width."""
    x = tl.minimum(tl.maximum(x, X_MIN), X_MAX)
    steps = tl.log(1.0 + tl.abs(x) * _PER_STRETCH) * _PER_STEP
    at = tl.floor(tl.where(x < 0, -steps, steps)).to(tl.int32) + _LEFT
    at = tl.minimum(tl.maximum(at, 0), _CELLS - 1)
    inverse = tl.load(cells_ptr + _CELLS + at)
    return cell * _CELLS + at, (x - tl.load(cells_ptr + at)) * inverse, inverse


@triton.jit
def rough(table_ptr, cells_ptr, x, cell, v):
    """M and dM/dx to a few digits; beyond the table a parabola (right) or twice a logarithm (left)."""
    index, u, inverse = _place(cells_ptr, x, cell)
    # powers of (u, v) up to degree 4: 1, v, .., v^4, u, u v, .., u^2, ..
    linear = tl.load(table_ptr + 5 * _SIZE + index) + v * tl.load(table_ptr + 6 * _SIZE + index)
    square = tl.load(table_ptr + 9 * _SIZE + index)
    value = tl.load(table_ptr + index) + v * tl.load(table_ptr + _SIZE + index) + u * (linear + square * u)
    slope, bend = (linear + 2 * square * u) * inverse, 2 * square * inverse * inverse
    ahead = tl.maximum(x - X_MAX, 0.0)
    behind = tl.maximum(x / X_MIN, 1.0)
    value += ahead * (slope + 0.5 * bend * ahead) + 2 * tl.log(behind)
    slope = tl.where(behind > 1, 2 / x, slope + bend * ahead)
    return value, slope


@triton.jit
def look_up(table_ptr, cells_ptr, x, cell, v):
    """M and its derivatives in x and in the angle offset v."""
    index, u, inverse = _place(cells_ptr, x, cell)
    c = table_ptr + index
    a = tl.load(c + 14 * _SIZE)
    b1, b0 = tl.load(c + 13 * _SIZE), tl.load(c + 12 * _SIZE)
    value, d_u, d_v = a * u + (b0 + b1 * v), a, b1
    c2, c1, c0 = tl.load(c + 11 * _SIZE), tl.load(c + 10 * _SIZE), tl.load(c + 9 * _SIZE)
    d_u = d_u * u + value
    value = value * u + (c0 + v * (c1 + v * c2))
    d_v = d_v * u + (c1 + 2 * v * c2)
    e3, e2 = tl.load(c + 8 * _SIZE), tl.load(c + 7 * _SIZE)
    e1, e0 = tl.load(c + 6 * _SIZE), tl.load(c + 5 * _SIZE)
    d_u = d_u * u + value
    value = value * u + (e0 + v * (e1 + v * (e2 + v * e3)))
    d_v = d_v * u + (e1 + v * (2 * e2 + v * 3 * e3))
    f4, f3, f2 = tl.load(c + 4 * _SIZE), tl.load(c + 3 * _SIZE), tl.load(c + 2 * _SIZE)
    f1, f0 = tl.load(c + _SIZE), tl.load(c)
    d_u = d_u * u + value
    value = value * u + (f0 + v * (f1 + v * (f2 + v * (f3 + v * f4))))
    d_v = d_v * u + (f1 + v * (2 * f2 + v * (3 * f3 + v * 4 * f4)))
    return value, d_u * inverse, d_v


@lru_cache(maxsize=8)
def tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Angle cells (centre, turn), x cells (centre, inverse), coefficients with x running fastest; float32."""
    tab = _table.table(device, torch.float32)
    cells = _table.LEFT + _table.RIGHT
    flat = torch.stack(tab.coefficients).reshape(-1, cells, _table.ANGLES).transpose(1, 2).contiguous()
    return torch.cat([tab.angle, tab.turn]), torch.cat([tab.centre, tab.inverse]), flat
