"""A table of M(x, alpha) = log(-log F): a small polynomial in each of a few thousand cells.

Cells are equal steps of sign(x) log(1 + |x|/2) and of a function of alpha that is steep at both ends. Within
a cell M is a polynomial of total degree 5 (4 in float32) in the offsets (u, v) from its centre, in cell
units. The first row of cells is centred on alpha = 0 and has no terms in v and v^2, since M = M_normal +
O(alpha^3); the last is centred on pi/2 and even in v, since M depends on the square of the scale. Otherwise
the derivative in alpha would lose its relative precision there. Built once per process in half a second;
nothing is stored on disk.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .gumbel_normal import log_minus_log_cdf

X_MIN, X_MAX = -16.0, 36.0
STRETCH, TURN, UPTURN = 2.0, 0.15, 0.6
LEFT, ANGLES = 100, 80  # cells left of 0, and in alpha
STEP = math.log1p(-X_MIN / STRETCH) / LEFT
RIGHT = math.ceil(math.log1p(X_MAX / STRETCH) / STEP)
STEP_ANGLE = (math.log1p(math.pi / 2 / TURN) + math.log1p(math.pi / 2 / UPTURN)) / ANGLES
DEEP, FAR = 4.8, -40.0  # M between which the table is accurate; beyond, log F < -121 or 1 - F < 4e-18
_POINTS = 7  # samples per cell and axis
# Closer towards pi/2, where a little normal noise changes the far left of a Gumbel distribution a lot.
_PANELS = (
    *(0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.0),
    *(1.15, 1.25, 1.32, 1.38, 1.43, 1.48, 1.53, math.pi / 2),
)
_CELLS_PER_PANEL = 9
_PER_PANEL = 13  # exact values per panel (of angles, or of some cells in x) that M is interpolated through


class Table(NamedTuple):
    """Coefficients, one tensor (cells,) per power; centre and inverse half-width of each cell in x and in alpha."""

    degree: int
    coefficients: tuple[Tensor, ...]
    centre: Tensor
    inverse: Tensor
    angle: Tensor
    turn: Tensor


def powers(degree: int) -> list[tuple[int, int]]:
    """The exponents of (u, v) in the order of the coefficients."""
    return [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]


@lru_cache(maxsize=1)
def _samples() -> Tensor:
    """M at the Chebyshev points of every cell, (angle cells, x cells, points of u and v)."""
    points = _chebyshev(_POINTS)
    centre, half = _x_cells()
    angle, reach = _angle_cells()
    x = (centre[:, None] + half[:, None] * points).flatten()
    alpha = angle[:, None] + reach[:, None] * points
    alpha[0] += reach[0]  # v is in [0, 2] here, in [-2, 0] in the last cell, in [-1, 1] in the others
    alpha[-1] -= reach[-1]
    values = sample(x, alpha.flatten())
    return values.reshape(len(centre), _POINTS, ANGLES, _POINTS).permute(2, 0, 1, 3).flatten(2)


def _coefficients(degree: int) -> Tensor:
    """Least-squares coefficients of every cell in float64, (powers, x cells, angle cells)."""
    points, values = _chebyshev(_POINTS), _samples()
    u = points[:, None].expand(_POINTS, _POINTS).flatten()
    v = points[None].expand(_POINTS, _POINTS).flatten()
    first, last = fit(degree, u, v + 1, skip=(1, 2)), fit(degree, u, v - 1, skip=(1, 3, 5))
    inner = fit(degree, u, v)
    out = torch.cat([values[:1] @ first.T, values[1:-1] @ inner.T, values[-1:] @ last.T])
    return out.permute(2, 1, 0).contiguous()


def fit(degree: int, u: Tensor, v: Tensor, skip: tuple[int, ...] = ()) -> Tensor:
    """The matrix that takes values at (u, v) to least-squares coefficients of u^i v^j, none for j in `skip`."""
    columns = torch.stack([u**i * v**j * (j not in skip) for i, j in powers(degree)], 1)
    inverse: Tensor = torch.linalg.pinv(columns)
    return inverse


def _chebyshev(n: int) -> Tensor:
    return ((torch.arange(n, dtype=torch.float64) + 0.5) * (math.pi / n)).cos()


def _x_edges() -> Tensor:
    steps = STEP * torch.arange(-LEFT, RIGHT + 1, dtype=torch.float64)
    return STRETCH * torch.expm1(steps.abs()).copysign(steps)


def _x_cells() -> tuple[Tensor, Tensor]:
    """Centres and half-widths of the cells in x."""
    return _middle_and_half(_x_edges())


def _middle_and_half(edges: Tensor) -> tuple[Tensor, Tensor]:
    return (edges[1:] + edges[:-1]) / 2, edges.diff() / 2


def _angle_steps(alpha: Tensor) -> Tensor:
    """A rising function of the angle whose whole numbers are the edges of the cells: close at both ends."""
    first, last = torch.log1p(alpha * (1 / TURN)), torch.log1p((math.pi / 2 - alpha) * (1 / UPTURN))
    return (first - last + math.log1p(math.pi / 2 / UPTURN)) * (1 / STEP_ANGLE)


def _angle_cells() -> tuple[Tensor, Tensor]:
    """Centres and half-widths of the cells in alpha; the first is centred on 0, the last on pi/2."""
    steps = torch.arange(ANGLES + 1, dtype=torch.float64)
    low, high = torch.zeros_like(steps), torch.full_like(steps, math.pi / 2)
    for _ in range(60):
        middle = (low + high) / 2
        below = _angle_steps(middle) < steps
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    centre, half = _middle_and_half(low)
    centre[0], centre[-1] = 0.0, math.pi / 2
    return centre, half


def sample(x: Tensor, alpha: Tensor) -> Tensor:
    """M at every pair, (len(x), len(alpha)): interpolated, to 1e-11, from exact values at few points."""
    x_panels, angle_panels, exact = _exact()
    return _through(x_panels, x) @ exact @ _through(angle_panels, alpha).T


@lru_cache(maxsize=1)
def _exact() -> tuple[Tensor, Tensor, Tensor]:
    """Edges of the panels in x and in alpha, and M at the nodes of all of them."""
    edges = _x_edges()
    x_panels = torch.cat([edges[::_CELLS_PER_PANEL], edges[-1:]]).unique()
    angle_panels = torch.tensor(_PANELS, dtype=edges.dtype)
    x, alpha = _nodes(x_panels), _nodes(angle_panels)
    exact = log_minus_log_cdf(x.repeat_interleave(len(alpha)), alpha.repeat(len(x)))
    return x_panels, angle_panels, exact.reshape(len(x), len(alpha))


def _nodes(edges: Tensor) -> Tensor:
    """Chebyshev nodes of all panels."""
    middle, half = _middle_and_half(edges)
    return (middle[:, None] + half[:, None] * _chebyshev(_PER_PANEL)).flatten()


def _through(edges: Tensor, at: Tensor) -> Tensor:
    """The matrix that interpolates from the nodes of all panels to the points `at`."""
    nodes = _chebyshev(_PER_PANEL)
    middle, half = _middle_and_half(edges)
    matrix = torch.zeros(len(at), len(middle), _PER_PANEL, dtype=at.dtype)
    panel = (torch.searchsorted(edges, at, right=True) - 1).clamp(0, len(middle) - 1)
    rows = torch.arange(len(at))
    matrix[rows, panel] = _barycentric(nodes, (at - middle[panel]) / half[panel])
    return matrix.flatten(1)


def _barycentric(nodes: Tensor, at: Tensor) -> Tensor:
    """Matrix of polynomial interpolation from Chebyshev nodes to other points."""
    n = len(nodes)
    k = torch.arange(n, dtype=torch.float64)
    weights = (1 - 2 * (k % 2)) * ((k + 0.5) * (math.pi / n)).sin()
    distance = at[:, None] - nodes
    terms = weights / torch.where(distance == 0, 1e-16, distance)
    return terms / terms.sum(-1, keepdim=True)


@lru_cache(maxsize=8)
def table(device: torch.device, dtype: torch.dtype) -> Table:
    """The table in the dtype and on the device of the work."""
    degree = 5 if dtype == torch.float64 else 4
    flat = _coefficients(degree).flatten(1).to(device, dtype)
    centre, half = _x_cells()
    angle, reach = _angle_cells()
    sides = (x.to(device, dtype) for x in (centre, 1 / half, angle, 1 / reach))
    return Table(degree, tuple(flat.unbind(0)), *sides)


def angle_cell(tab: Table, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cell of an angle (int32), the offset v within it, and the inverse half-width of the cell."""
    cell = _angle_steps(alpha).floor_().clamp_(0, ANGLES - 1).int().clamp_(min=0)
    turn = _at(tab.turn, cell)
    return cell, (alpha - _at(tab.angle, cell)) * turn, turn


def _at(column: Tensor, index: Tensor) -> Tensor:
    """Entries of a vector; `index_select` with an int32 index is the fastest way on a CPU."""
    return column.index_select(0, index.reshape(-1)).reshape(index.shape)


def x_cell(x: Tensor) -> Tensor:
    """The cell (int32) of an x inside the table; a NaN lands in the first."""
    steps = torch.log1p(x.abs() * (1 / STRETCH)).mul_(1 / STEP).copysign_(x)
    return steps.floor_().add_(LEFT).int().clamp_(0, LEFT + RIGHT - 1)


def lookup(tab: Table, x: Tensor, cell: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """M and its derivatives in x and v.

    `cell` and `v` are those of `angle_cell`, `v` of the shape of x. Beyond the table M stays at its edge: on the
    right it is below -45 there, on the left above `DEEP`.
    """
    x = x.clamp(X_MIN, X_MAX)
    row = x_cell(x)
    inverse = _at(tab.inverse, row)
    u = (x - _at(tab.centre, row)).mul_(inverse)
    index = row.mul_(ANGLES).add_(cell).reshape(-1)
    shape, u, v = x.shape, u.reshape(-1), v.reshape(-1)
    terms = iter(reversed(tab.coefficients))
    value = d_u = d_v = next(terms).index_select(0, index)
    for degree in range(1, tab.degree + 1):
        # the coefficient of the next lower power of u: a polynomial in v of this degree, and its derivative
        across = slope = next(terms).index_select(0, index)
        for power in range(degree):
            slope = across if power == 0 else torch.addcmul(across, slope, v)
            across = torch.addcmul(next(terms).index_select(0, index), across, v)
        first = degree == 1
        d_u = value if first else torch.addcmul(value, d_u, u)
        d_v = slope if first else torch.addcmul(slope, d_v, u)
        value = torch.addcmul(across, value, u)
    return value.reshape(shape), d_u.reshape(shape) * inverse, d_v.reshape(shape)


def rough(
    tab: Table, x: Tensor, cell: Tensor, v: Tensor, *, branchless: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """M and its first and second derivatives in x to about 1e-3, continued on both sides: enough to search by.

    With `branchless`, the operations depend on shapes only, not on whether any value needs them.
    """
    inside = x.clamp(X_MIN, X_MAX)
    row = x_cell(inside)
    inverse = _at(tab.inverse, row)
    u = (inside - _at(tab.centre, row)).mul_(inverse)
    index = row.mul_(ANGLES).add_(cell)
    c, d = tab.coefficients, tab.degree  # the powers 1, v, ..., v^d, u, u v, ..., u v^(d - 1), u^2, ...
    linear = torch.addcmul(_at(c[d + 1], index), _at(c[d + 2], index), v)
    square = _at(c[2 * d + 1], index)
    value = torch.addcmul(_at(c[0], index), _at(c[1], index), v)
    value += u * torch.addcmul(linear, square, u)
    d_x, d_xx = torch.addcmul(linear, square, u, value=2.0) * inverse, 2 * square * inverse * inverse
    least, most = (None, None) if branchless else torch.aminmax(x)
    if most is None or bool(most > X_MAX):  # a parabola on the right
        ahead = (x - X_MAX).clamp(min=0.0)
        value += ahead * torch.addcmul(d_x, d_xx, ahead, value=0.5)
        d_x += d_xx * ahead
    if least is None or bool(least < X_MIN):  # on the left -log F grows like x^2
        value += 2 * (x * (1 / X_MIN)).clamp(min=1.0).log()
        left = x < X_MIN
        d_x, d_xx = torch.where(left, 2 / x, d_x), torch.where(left, -2 / (x * x), d_xx)
    return value, d_x, d_xx
