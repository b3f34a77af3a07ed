"""M(x, alpha) = log(-log F) on equal steps of x, in float32, for arrays whose last axes are classes and rows.

`table` serves every precision, with narrower cells where M is curved. Here cells in x are equal, so that rounding
finds the cell, and a polynomial of total degree 3 in the offsets is exact to float32. Angles up to pi/4 have cells
in q = sin(alpha) (the first cell in q = sin(alpha)^3), those above in q = cos(alpha)^2, because M = M_normal +
O(alpha^3) at one end and depends on the square of the scale at the other; so derivatives keep their relative
precision at both. A class has one angle, so what depends on it is computed once, not once per node. For searching,
log F and the log of its slope are tabulated too, as one number per cell.
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
_EDGE = math.sqrt(0.5)
# A little less than a whole number of cells, so that rounding cannot lead into the next one.
PER_LOWER = (LOWER - 1e-3) / math.log1p(_EDGE / TURN)
PER_UPPER = (UPPER - 1e-3) / _EDGE
_POINTS = 5
_LAST = (LOWER + UPPER) * CELLS - 1
NONE = -50.0  # the least M: -log F is negligible there, and smaller values would make products denormal


class Grid(NamedTuple):
    """Polynomials of M, one tensor (angle cells x CELLS,) per power of the offsets; log F and the log of
    d log F / d steps at the upper edge of each cell; and v as a cubic in the smaller of sin and cos, (4, cells).
    """

    coefficients: tuple[Tensor, ...]
    log_f: Tensor
    log_rate: Tensor
    offsets: Tensor


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


def _angle_cells() -> tuple[Tensor, Tensor]:
    """The angles at the Chebyshev points of each cell, (cells, points), and v as a cubic, (4, cells)."""
    lower = TURN * torch.expm1(torch.arange(LOWER + 1, dtype=torch.float64) / PER_LOWER)
    upper = (torch.arange(UPPER + 1, dtype=torch.float64) / PER_UPPER) ** 2
    low, high = torch.cat([lower[:-1], upper[:-1]]), torch.cat([lower[1:], upper[1:]])
    high[0] = high[0] ** 3
    centre, half = (low + high) / 2, (high - low) / 2
    q = centre[:, None] + half[:, None] * _unit()
    angles = torch.cat([(q[:1] ** (1 / 3)).asin(), q[1:LOWER].asin(), q[LOWER:].sqrt().acos()])
    cubic = torch.zeros(4, LOWER + UPPER, dtype=torch.float64)
    cubic[0] = -centre / half
    cubic[3, :1], cubic[1, 1:LOWER], cubic[2, LOWER:] = 1 / half[:1], 1 / half[1:LOWER], 1 / half[LOWER:]
    return angles, cubic


def _unit() -> Tensor:
    return ((torch.arange(_POINTS, dtype=torch.float64) + 0.5) * (math.pi / _POINTS)).cos()


@lru_cache(maxsize=1)
def grid() -> Grid:
    """Built once per process in a tenth of a second."""
    angles, offsets = _angle_cells()
    cells = torch.arange(LEFT, RIGHT + 1, dtype=torch.float64)
    x = ((cells[:, None] + 0.5 * _unit()) * STEP).flatten()
    values = sample(x, angles.flatten()).reshape(CELLS, _POINTS, LOWER + UPPER, _POINTS)
    u = (0.5 * _unit())[:, None].expand(_POINTS, _POINTS).flatten()
    v = _unit()[None].expand(_POINTS, _POINTS).flatten()
    flat = values.permute(2, 0, 1, 3).flatten(2) @ fit(DEGREE, u, v).T
    flat = flat.flatten(0, 1).T.contiguous()
    _, _, _, _, one, _, _, two, _, _ = flat  # for searching, cubic terms are not needed
    edge = flat[0] + one / 2 + two / 4
    log_rate = edge + (one + two).neg().clamp(min=1e-30).log()
    return Grid(tuple(flat.float().unbind(0)), -edge.exp().float(), log_rate.float(), offsets.float())


def columns(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor) -> Columns:
    """Standardise rows: mean and scale (B, K), temperature (B, 1), target (B,). No width may be 0."""
    own = torch.add(torch.arange(len(target)), target, alpha=len(target))
    mean, scale = mean.t().contiguous(), scale.t().contiguous()
    gumbel = (temperature * ROOT_C).t()
    width = torch.hypot(scale, gumbel)
    inverse = width.reciprocal()
    cos, sin = scale * inverse, gumbel * inverse
    relative = mean - mean.flatten().index_select(0, own)
    base, v, turn = _place_angles(cos, sin)
    mine = torch.stack([width, cos, sin, turn]).flatten(1).index_select(1, own)
    return Columns(relative, width, inverse.mul_(1 / STEP), cos, sin, base, v, turn, own, mine)


def _place_angles(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the cells of an angle begin in the table, the offset v in its cell, and dv / d alpha."""
    near, steep = torch.minimum(cos, sin), sin > cos  # near: from the nearer end
    cell = torch.where(steep, near * PER_UPPER + LOWER, torch.log1p(near * (1 / TURN)).mul_(PER_LOWER))
    cell = cell.nan_to_num_(0.0).floor_()
    a, b, c, d = grid().offsets.index_select(1, cell.int().flatten()).unflatten(1, near.shape).unbind(0)
    v = torch.addcmul(c, d, near).mul_(near).add_(b).mul_(near).add_(a)
    # The derivative in sin or cos, times that of sin or cos in the angle.
    rise = c.addcmul_(d, near, value=1.5).mul_(near)
    turn = b.add_(rise, alpha=2.0).mul_(torch.where(steep, -sin, cos))
    return cell.mul_(CELLS).sub_(LEFT), v, turn


def workspace(rows: Columns, nodes: int) -> Tensor:
    """Working memory for `places` and `look_up`, (10, N, K, B); reused, it stays in the cache."""
    return torch.empty(10, nodes, *rows.mean.shape)


def places(rows: Columns, t: Tensor, work: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """At t (N, B): x in steps (N, K, B), the offset from the centre of its cell, and the cell in the table."""
    x, u, whole, cell, *_ = (workspace(rows, len(t)) if work is None else work).unbind(0)
    torch.sub(t.unsqueeze(1), rows.mean, out=x).mul_(rows.per_step).clamp_(LEFT, RIGHT)
    torch.sub(x, torch.round(x, out=cell), out=u)
    index = whole.view(torch.int32).copy_(cell.add_(rows.base)).clamp_(0, _LAST)  # a NaN lands in the first
    return x, u, index.view(-1)


def look_up(
    rows: Columns, u: Tensor, index: Tensor, work: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """M and its derivatives in steps of x and in v, (N, K, B); with `work`, in its last seven parts."""
    v, twice, coefficients = rows.v, 2 * rows.v, grid().coefficients
    room = (workspace(rows, len(u)) if work is None else work).unbind(0)[3:]

    def at(power: int, place: int) -> Tensor:
        torch.index_select(coefficients[power], 0, index, out=room[place].view(-1))
        return room[place]

    # Horner's rule in v for each power of u, and the same for the derivative in v.
    square, first, linear = at(8, 0), at(5, 1), at(6, 2)
    across = torch.addcmul(first, linear, twice, out=room[3]).addcmul_(square, u)
    first.addcmul_(linear, v)
    two = at(7, 2).addcmul_(square, v)
    one, three = at(4, 0).addcmul_(first, v), at(9, 1)
    in_u = torch.addcmul(two, three, u, value=1.5, out=room[4])
    torch.addcmul(one, in_u, u, value=2.0, out=in_u)
    one.addcmul_(two.addcmul_(three, u), u)
    square, cube, first = at(2, 1), at(3, 2), at(1, 5)
    in_v = torch.addcmul(square, cube, v, value=1.5, out=room[6])
    torch.addcmul(first, in_v, twice, out=in_v).addcmul_(across, u)
    first.addcmul_(square.addcmul_(cube, v), v)
    value = at(0, 3).addcmul_(first, v).addcmul_(one, u).clamp_(min=NONE)
    return value, in_u, in_v


def sweep(rows: Columns, t: Tensor) -> Tensor:
    """The log-integrand at t (P, B), up to a constant and to about a nat: enough to search by."""
    start = torch.addcmul(rows.base, rows.mean, rows.per_step, value=-1.0)
    at = torch.addcmul(start, t.unsqueeze(1), rows.per_step)
    torch.clamp(at, rows.base + LEFT, rows.base + RIGHT, out=at)
    index = at.int().clamp_(0, _LAST)
    tab = grid()
    torch.index_select(tab.log_f, 0, index.view(-1), out=at.view(-1))
    mine = rows.of_target(index)
    return at.sum(1).add_(tab.log_rate.index_select(0, mine.view(-1)).view_as(mine))
