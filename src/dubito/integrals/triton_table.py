# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""A table of M(x, alpha) = log(-log F) for Triton kernels, and its lookup. Imported only where Triton is.

The cells in angle are those of `grid`. In x they are wider, with a polynomial of one degree more, so that adjacent
nodes read few lines of memory, and all that a batch needs stays in the first-level cache.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import table as _table
from .triton_launch import PTX, log

STEP, DEGREE, LOWER, UPPER = 0.4, 4, 60, 60  # of x; of the polynomials; angle cells below and above pi/4
_FIRST, _LAST = round(_table.X_MIN / STEP), round(_table.X_MAX / STEP)
PER_LOWER, PER_UPPER = LOWER / math.log1p(math.pi / 4 / _table.TURN), UPPER / (math.pi / 4)
_SAMPLES = 7  # per cell and axis

ROOT_C = tl.constexpr(1.2825498301618641)
X_MIN, X_MAX = tl.constexpr(_table.X_MIN), tl.constexpr(_table.X_MAX)
_PER_STEP, _PER_TURN = tl.constexpr(1 / STEP), tl.constexpr(1 / _table.TURN)
_LEFT, _RIGHT, _CELLS = tl.constexpr(_FIRST), tl.constexpr(_LAST), tl.constexpr(_LAST - _FIRST + 1)
_LOWER, _UPPER = tl.constexpr(LOWER), tl.constexpr(UPPER)
_PER_LOWER, _PER_UPPER = tl.constexpr(PER_LOWER), tl.constexpr(PER_UPPER)
_ANGLES = tl.constexpr(LOWER + UPPER)
_SIZE = tl.constexpr((LOWER + UPPER) * (_LAST - _FIRST + 1))


def _reads(powers: tuple[int, ...]) -> str:
    """PTX that reads the coefficients of some powers of one cell.

    Written as single loads in Triton, they would make the compiler take minutes.
    """
    size = 4 * (LOWER + UPPER) * (_LAST - _FIRST + 1)
    return " ".join(
        f"ld.global.nc.f32 ${i}, [${len(powers)}+{power * size}];" for i, power in enumerate(powers)
    )


_ALL, _SOME = tl.constexpr(_reads(tuple(range(15)))), tl.constexpr(_reads((0, 1, 5, 6, 9)))
_ALL_OUT, _SOME_OUT = tl.constexpr("=&f," * 15 + "l"), tl.constexpr("=&f," * 5 + "l")


@triton.jit
def _near_angle(scale, gumbel):
    """atan of the smaller over the larger of two numbers >= 0, to 1e-8."""
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
    """Where the cells of an angle begin in the table, the offset in its cell, and its derivative in the angle."""
    near = _near_angle(scale, gumbel)
    square = near * near
    steep = gumbel > scale
    lower = tl.minimum(tl.floor(tl.log(1.0 + near * _PER_TURN) * _PER_LOWER), _LOWER - 1.0)
    upper = tl.minimum(tl.floor(near * _PER_UPPER), _UPPER - 1.0) + _LOWER
    cell = tl.maximum(tl.where(steep, upper, lower), 0.0).to(tl.int32)
    cell = tl.minimum(tl.maximum(cell, 0), _ANGLES - 1)  # a NaN becomes some cell
    per = tl.load(angle_ptr + _ANGLES + cell)
    first = cell == 0
    q = tl.where(first, near * square, tl.where(steep, square, near))
    rise = tl.where(first, 3 * square, tl.where(steep, -2 * near, 1.0))
    return cell * _CELLS - _LEFT, (q - tl.load(angle_ptr + cell)) * per, rise * per


@triton.jit
def columns(mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, WIDE: tl.constexpr):
    """Some classes along lanes: number, mask, centred mean, scale, inverse width, base, offset, turn.

    Padding classes lie so far below the others that their F is 1 everywhere.
    """
    k = start + tl.arange(0, WIDE)
    keep = k < classes
    at = row.to(tl.int64) * classes + k
    mean = tl.load(mean_ptr + at, mask=keep, other=0.0).to(tl.float32) - shift
    scale = tl.load(scale_ptr + at, mask=keep, other=1.0).to(tl.float32)
    inverse = 1 / tl.sqrt(scale * scale + gumbel * gumbel)
    base, offset, turn = place_angle(angle_ptr, scale, gumbel)
    return k, keep, tl.where(keep, mean, -1e30), scale, inverse, base, offset, turn


@triton.jit
def pick(column, index):
    """One lane's number for all nodes; `index` (nodes,) says which lane."""
    return tl.gather(column, index, 0)


@triton.jit
def _place(x, base):
    """Cell of the table for each x (clamped to it), and the offset u in it.

    Adding 1.5 2^23 rounds to a whole number, which the last bits then hold.
    """
    steps = tl.minimum(tl.maximum(x * _PER_STEP, _LEFT), _RIGHT)
    rounded = steps + 12582912.0
    return base + (rounded.to(tl.int32, bitcast=True) - 0x4B400000), steps - (rounded - 12582912.0)


@triton.jit
def _some(c):
    """Coefficients of 1, v, u, u v and u^2."""
    if PTX:
        return tl.inline_asm_elementwise(
            _SOME, _SOME_OUT, [c.to(tl.int64)], dtype=(tl.float32,) * 5, is_pure=True, pack=1
        )
    else:
        return (
            tl.load(c), tl.load(c + _SIZE), tl.load(c + 5 * _SIZE), tl.load(c + 6 * _SIZE), tl.load(c + 9 * _SIZE)
        )  # fmt: skip


@triton.jit
def _every(c):
    """Coefficients of 1, v, v^2, v^3, v^4, u, u v, u v^2, u v^3, u^2, u^2 v, u^2 v^2, u^3, u^3 v, u^4."""
    if PTX:
        return tl.inline_asm_elementwise(
            _ALL, _ALL_OUT, [c.to(tl.int64)], dtype=(tl.float32,) * 15, is_pure=True, pack=1
        )
    else:
        return (
            tl.load(c), tl.load(c + _SIZE), tl.load(c + 2 * _SIZE), tl.load(c + 3 * _SIZE), tl.load(c + 4 * _SIZE),
            tl.load(c + 5 * _SIZE), tl.load(c + 6 * _SIZE), tl.load(c + 7 * _SIZE), tl.load(c + 8 * _SIZE),
            tl.load(c + 9 * _SIZE), tl.load(c + 10 * _SIZE), tl.load(c + 11 * _SIZE), tl.load(c + 12 * _SIZE),
            tl.load(c + 13 * _SIZE), tl.load(c + 14 * _SIZE),
        )  # fmt: skip


@triton.jit
def rough(table_ptr, x, base, v):
    """M and dM/dx to a few digits; beyond the table a parabola (right) or twice a logarithm (left)."""
    index, u = _place(x, base)
    a0, b0, a1, b1, square = _some(table_ptr + index)
    linear = a1 + v * b1
    value = a0 + v * b0 + u * (linear + square * u)
    slope, bend = (linear + 2 * square * u) * _PER_STEP, 2 * square * _PER_STEP * _PER_STEP
    ahead = tl.maximum(x - X_MAX, 0.0)
    behind = tl.maximum(x / X_MIN, 1.0)
    value += ahead * (slope + 0.5 * bend * ahead) + 2 * log(behind)
    slope = tl.where(behind > 1, 2 / x, slope + bend * ahead)
    return value, slope


@triton.jit
def rough_value(table_ptr, x, base, v):
    """M to a few digits; beyond the table its last value (right), to which a logarithm is added (left)."""
    index, u = _place(x, base)
    a0, b0, a1, b1, square = _some(table_ptr + index)
    value = a0 + v * b0 + u * (a1 + v * b1 + square * u)
    return value + 2 * log(tl.maximum(x * (1 / X_MIN), 1.0))


@triton.jit
def look_up(table_ptr, x, base, v):
    """M and its derivatives in x and in the angle offset v; NaN where x is."""
    index, u = _place(x, base)
    a0, b0, c0, d0, e0, a1, b1, c1, d1, a2, b2, c2, a3, b3, a4 = _every(table_ptr + index)
    # Horner's rule for a polynomial and its derivative at once, in v and then in u.
    p = e0 * v + d0
    q = e0 * v + p
    p = p * v + c0
    q = q * v + p
    p = p * v + b0
    d_v0 = q * v + p
    a0 += p * v
    p = d1 * v + c1
    q = d1 * v + p
    p = p * v + b1
    d_v1 = q * v + p
    a1 += p * v
    p = c2 * v + b2
    d_v2 = c2 * v + p
    a2 += p * v
    a3 += b3 * v
    p = a4 * u + a3
    q = a4 * u + p
    p = p * u + a2
    q = q * u + p
    p = p * u + a1
    q = q * u + p
    value = p * u + a0
    return tl.where(x == x, value, x), q * _PER_STEP, d_v0 + u * (d_v1 + u * (d_v2 + u * b3))


@triton.jit
def target_slope(table_ptr, scale, gumbel, width, x, base, offset, turn):
    """At x (nodes,): the target's log-slope, its M where the table gives it, and (dM/d alpha) / (dM/dx)."""
    m, m_x, m_v = look_up(table_ptr, x, base, offset)
    cos, sin = scale / width, gumbel / width
    # The Gumbel's tail is exactly exponential far to the right.
    slope = ROOT_C / sin
    straight = ((x - 8) * sin > ROOT_C * cos) & ((m < -21.0) | (x > X_MAX))
    line = slope * slope * cos * cos * 0.5 - 0.5772156649015329 - slope * x + tl.log(slope)
    log_slope = tl.where(straight, line, m + tl.log(tl.maximum(-m_x, 1e-30)))
    ratio = tl.where(straight, (slope - x) * cos / sin, m_v * turn / tl.minimum(m_x, -1e-30))
    return log_slope, tl.where(straight, 0.0, m), ratio


def _angle_cells() -> tuple[Tensor, Tensor, Tensor]:
    """Centre and half-width of q in each cell, and the angles at the Chebyshev points of each; see `grid`."""
    edges = _table.TURN * torch.expm1(torch.arange(LOWER + 1, dtype=torch.float64) / PER_LOWER)
    upper = (torch.arange(UPPER + 1, dtype=torch.float64) / PER_UPPER) ** 2
    low, high = torch.cat([edges[:-1], upper[:-1]]), torch.cat([edges[1:], upper[1:]])
    low[0], high[0] = 0.0, high[0] ** 3
    centre, half = (low + high) / 2, (high - low) / 2
    q = centre[:, None] + half[:, None] * _unit()
    angles = torch.cat([q[:1] ** (1 / 3), q[1:LOWER], math.pi / 2 - q[LOWER:].clamp(min=0.0).sqrt()])
    return centre, half, angles


def _unit() -> Tensor:
    return ((torch.arange(_SAMPLES, dtype=torch.float64) + 0.5) * (math.pi / _SAMPLES)).cos()


@lru_cache(maxsize=8)
def tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Angle cells (centre, inverse half-width) and coefficients (powers, angle cells, x cells)."""
    centre, half, angles = _angle_cells()
    cells = torch.arange(_FIRST, _LAST + 1, dtype=torch.float64)
    x = ((cells[:, None] + 0.5 * _unit()) * STEP).flatten()
    values = _table.sample(x, angles.flatten()).reshape(len(cells), _SAMPLES, LOWER + UPPER, _SAMPLES)
    u = (0.5 * _unit())[:, None].expand(_SAMPLES, _SAMPLES).flatten()
    v = _unit()[None].expand(_SAMPLES, _SAMPLES).flatten()
    flat = values.permute(2, 0, 1, 3).flatten(2) @ _table.fit(DEGREE, u, v).T
    coefficients = flat.flatten(0, 1).T.float().contiguous()
    return torch.cat([centre, 1 / half]).float().to(device), coefficients.to(device)
