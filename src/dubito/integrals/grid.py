"""M(x, alpha) = log(-log F) on equal steps of x, in float32, for arrays whose last axes are classes and rows.

The table of `table` has close cells where M bends and serves every precision. Here cells in x are equal, so that
finding one is a rounding, and a polynomial of total degree 3 in the offsets is exact to float32. Angles up to pi/4
have cells of the variable q = alpha, the first of them q = alpha^3, and those above q = (pi/2 - alpha)^2, because
M = M_normal + O(alpha^3) at one end and depends on the square of the scale at the other: so derivatives keep their
relative precision at both. A class has one angle, and what depends on it is found once, not once per node.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .gumbel_normal import ROOT_C
from .table import TURN, X_MAX, X_MIN, fit, sample

STEP = 0.1  # of x
DEGREE = 3
LOWER, UPPER = 60, 60  # angle cells below and above pi/4
LEFT, RIGHT = round(X_MIN / STEP), round(X_MAX / STEP)
CELLS = RIGHT - LEFT + 1
PER_LOWER = LOWER / math.log1p(math.pi / 4 / TURN)
PER_UPPER = UPPER / (math.pi / 4)
_POINTS = 5
_LAST = (LOWER + UPPER) * CELLS - 1
_NONE = -60.0  # of M: below it -log F is nothing, and its exponential should not become denormal


class Grid(NamedTuple):
    """Coefficients, one tensor (angle cells x CELLS,) per power; centre and inverse half-width of q per cell."""

    coefficients: tuple[Tensor, ...]
    centre: Tensor
    inverse: Tensor


class Columns(NamedTuple):
    """Classes by rows, (K, B). Means are relative to the target's, and the Gumbel mean is dropped."""

    mean: Tensor
    width: Tensor
    per_step: Tensor  # 1 / (width STEP)
    cos: Tensor  # scale / width
    sin: Tensor  # sqrt(c) temperature / width
    base: Tensor  # of the angle's cells in the table, a whole number
    v: Tensor  # offset in the angle's cell
    turn: Tensor  # derivative of that in the angle
    own: Tensor  # (B,) int64, the target's place in the flattened (K, B)
    target: Tensor  # (4, B): the target's width, cos, sin and turn

    def of_target(self, values: Tensor) -> Tensor:
        """The target's entries: (..., K, B) -> (..., B)."""
        return values.flatten(-2).index_select(-1, self.own)


def _angle_cells() -> tuple[Tensor, Tensor, Tensor]:
    """Centre and half-width of q in each cell, and the angles at the Chebyshev points of each."""
    edges = TURN * torch.expm1(torch.arange(LOWER + 1, dtype=torch.float64) / PER_LOWER)
    upper = (torch.arange(UPPER + 1, dtype=torch.float64) / PER_UPPER) ** 2
    low = torch.cat([edges[:-1], upper[:-1]])
    high = torch.cat([edges[1:], upper[1:]])
    low[0], high[0] = 0.0, high[0] ** 3
    centre, half = (low + high) / 2, (high - low) / 2
    q = centre[:, None] + half[:, None] * _unit()
    angles = torch.cat([q[:1] ** (1 / 3), q[1:LOWER], math.pi / 2 - q[LOWER:].clamp(min=0.0).sqrt()])
    return centre, half, angles


def _unit() -> Tensor:
    return ((torch.arange(_POINTS, dtype=torch.float64) + 0.5) * (math.pi / _POINTS)).cos()


@lru_cache(maxsize=1)
def grid() -> Grid:
    """Built once per process in a tenth of a second."""
    centre, half, angles = _angle_cells()
    cells = torch.arange(LEFT, RIGHT + 1, dtype=torch.float64)
    x = ((cells[:, None] + 0.5 * _unit()) * STEP).flatten()
    values = sample(x, angles.flatten()).reshape(CELLS, _POINTS, LOWER + UPPER, _POINTS)
    u = (0.5 * _unit())[:, None].expand(_POINTS, _POINTS).flatten()
    v = _unit()[None].expand(_POINTS, _POINTS).flatten()
    flat = values.permute(2, 0, 1, 3).flatten(2) @ fit(DEGREE, u, v).T
    flat = flat.flatten(0, 1).T.float().contiguous()
    return Grid(tuple(flat.unbind(0)), centre.float(), (1 / half).float())


def columns(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor) -> Columns:
    """Standardise rows: mean and scale (B, K), temperature (B, 1), target (B,). No width may be 0."""
    own = target * len(target) + torch.arange(len(target))
    mean, scale = mean.t().contiguous(), scale.t().contiguous()
    gumbel = (ROOT_C * temperature).t().expand_as(scale)
    width = torch.hypot(scale, gumbel)
    inverse = width.reciprocal()
    base, v, turn = _place_angles(scale, gumbel)
    relative = mean - mean.flatten().index_select(0, own)
    cos, sin = scale * inverse, gumbel * inverse
    mine = torch.stack([width, cos, sin, turn]).flatten(1).index_select(1, own)
    return Columns(relative, width, inverse / STEP, cos, sin, base, v, turn, own, mine)


def _place_angles(scale: Tensor, gumbel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the cells of an angle begin in the table, the offset v in its cell, and dv / d alpha."""
    tab, steep = grid(), gumbel > scale
    near = (torch.minimum(scale, gumbel) / torch.maximum(scale, gumbel)).atan_()  # from the nearer end
    square = near.square()
    cell = torch.where(steep, near * PER_UPPER, torch.log1p(near * (1 / TURN)).mul_(PER_LOWER)).floor_()
    cell = torch.where(steep, cell.clamp(0, UPPER - 1) + LOWER, cell.clamp(0, LOWER - 1)).nan_to_num_(0.0)
    at = cell.int().flatten()
    centre, per = (x.index_select(0, at).view_as(near) for x in (tab.centre, tab.inverse))
    first = cell == 0
    q = torch.where(first, near * square, torch.where(steep, square, near))
    rise = torch.where(first, 3 * square, torch.where(steep, -2 * near, 1.0))
    return cell.mul_(CELLS).sub_(LEFT), (q - centre).mul_(per), rise.mul_(per)


def places(rows: Columns, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """At t (N, B): x in steps (N, K, B), the offset from the centre of its cell, and the cell in the table."""
    x = (t.unsqueeze(1) - rows.mean).mul_(rows.per_step).clamp_(LEFT, RIGHT)
    cell = x.round()
    u = x - cell
    return x, u, cell.add_(rows.base).int().clamp_(0, _LAST).flatten()  # a NaN lands in the first


def look_up(rows: Columns, u: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """M and its derivatives in steps of x and in v, (N, K, B); they own their memory."""
    a0, b0, c0, d0, a1, b1, c1, a2, b2, a3 = (
        column.index_select(0, index).view_as(u) for column in grid().coefficients
    )
    v, twice = rows.v, 2 * rows.v
    # Horner's rule in v for every power of u (a0 to a3), and the same for the derivative in v (b0 to b2)
    slope0 = torch.addcmul(b0, torch.addcmul(c0, d0, v, value=1.5), twice)
    slope1 = torch.addcmul(b1, c1, twice)
    a0.addcmul_(b0.addcmul_(c0.addcmul_(d0, v), v), v)
    a1.addcmul_(b1.addcmul_(c1, v), v)
    a2.addcmul_(b2, v)
    d_u = torch.addcmul(a1, torch.addcmul(a2, a3, u, value=1.5), u, value=2.0)
    value = a0.addcmul_(a1.addcmul_(a2.addcmul_(a3, u), u), u).clamp_(min=_NONE)
    return value, d_u, slope0.addcmul_(slope1.addcmul_(b2, u), u)


def rough(rows: Columns, u: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """M and its first two derivatives in steps of x to about 1e-3: enough to search by."""
    c = grid().coefficients
    a0, b0, a1, b1, bend = (c[j].index_select(0, index).view_as(u) for j in (0, 1, 4, 5, 7))
    a1.addcmul_(b1, rows.v)
    slope = torch.addcmul(a1, bend, u, value=2.0)
    value = a0.addcmul_(b0, rows.v).addcmul_(a1.addcmul_(bend, u), u).clamp_(min=_NONE)
    return value, slope, bend.mul_(2.0)
