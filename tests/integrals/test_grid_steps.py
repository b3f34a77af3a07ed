"""The table of equal steps, one step at a time, against the same written out in float64."""

from __future__ import annotations

import math

import pytest
import torch

from dubito.integrals import grid
from dubito.integrals.gumbel_normal import ROOT_C, log_minus_log_cdf

F64 = torch.float64
LOWER = UPPER = 60
STEP, LEFT, RIGHT = 0.1, -160, 360
CELLS = RIGHT - LEFT + 1
POWERS = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]


def cell_of(alpha):
    """The cell of an angle: its number, the variable q with its derivative, and both ends of q in the cell."""
    sin, cos = math.sin(alpha), math.cos(alpha)
    if sin > cos:
        per = (UPPER - 1e-3) / math.sqrt(0.5)
        i = math.floor(cos * per)
        return LOWER + i, cos**2, -2 * cos * sin, (i / per) ** 2, ((i + 1) / per) ** 2
    per = (LOWER - 1e-3) / math.log1p(math.sqrt(0.5) / 0.15)
    i = math.floor(math.log1p(sin / 0.15) * per)
    low, high = (0.15 * math.expm1(n / per) for n in (i, i + 1))
    if i == 0:
        return 0, sin**3, 3 * sin**2 * cos, 0.0, high**3
    return i, sin, cos, low, high


def made(tau=0.5, rows=3, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    mean = torch.randn(rows, classes, generator=g)
    scale = torch.rand(rows, classes, generator=g) + 0.05
    target = torch.arange(rows) % classes
    return mean, scale, torch.full((rows, 1), tau), target


def close(found, wanted, rtol=2e-5, atol=1e-6):
    torch.testing.assert_close(found.double(), torch.as_tensor(wanted, dtype=F64), rtol=rtol, atol=atol)


def test_sizes():
    """The table ends where its last index points, and each angle has every cell of x."""
    assert (grid.LEFT, grid.RIGHT, grid.CELLS) == (LEFT, RIGHT, CELLS)
    tab = grid.grid.__wrapped__()
    assert len(tab.coefficients) == len(POWERS)
    for part in (*tab.coefficients, tab.log_f, tab.log_rate):
        assert part.shape == ((LOWER + UPPER) * CELLS,)
        assert part.dtype == torch.float32
    assert len(tab.log_f) - 1 == grid._LAST
    assert grid.workspace(grid.columns(*made()), 7).shape == (10, 7, 4, 3)


def test_points_of_chebyshev():
    close(grid._unit(), [math.cos((k + 0.5) * math.pi / 5) for k in range(5)], 1e-12)


def test_angles_of_every_cell():
    """The points of each cell lie in it, in its own variable, from end to end; v is the offset of that variable."""
    angles, cubic = grid._angle_cells()
    assert angles.shape == (LOWER + UPPER, 5)
    assert cubic.shape == (4, LOWER + UPPER)
    nearest = math.cos(math.pi / 10)
    for number, points in enumerate(angles.tolist()):
        a, b, c, d = cubic[:, number].tolist()
        for k, alpha in enumerate(points):
            cell, q, _, low, high = cell_of(alpha)
            assert cell == number
            v = (2 * q - low - high) / (high - low)
            assert v == pytest.approx(math.cos((k + 0.5) * math.pi / 5), abs=1e-6)
            assert abs(v) <= nearest + 1e-6
            near = min(math.sin(alpha), math.cos(alpha))
            assert a + near * (b + near * (c + near * d)) == pytest.approx(v, abs=1e-6)


def test_classes_and_rows_change_places():
    """Widths, angles and places of the targets, class by class."""
    mean, scale, tau, target = made(0.7, 3, 4)
    rows = grid.columns(mean, scale, tau, target)
    for b, y in enumerate(target.tolist()):
        for k in range(4):
            gumbel = ROOT_C * 0.7
            width = math.hypot(scale[b, k], gumbel)
            alpha = math.atan2(gumbel, scale[b, k])
            cell, q, dq, low, high = cell_of(alpha)
            close(rows.mean[k, b], float(mean[b, k] - mean[b, y]))
            close(rows.width[k, b], width)
            close(rows.per_step[k, b], 1 / (width * STEP))
            close(rows.cos[k, b], float(scale[b, k]) / width)
            close(rows.sin[k, b], gumbel / width)
            assert int(rows.base[k, b]) == cell * CELLS - LEFT
            close(rows.v[k, b], (2 * q - low - high) / (high - low), atol=1e-4)
            close(rows.turn[k, b], 2 * dq / (high - low), rtol=1e-4)
        assert int(rows.own[b]) == y * 3 + b
        of_target = torch.stack([x[y, b] for x in (rows.width, rows.cos, rows.sin, rows.turn)])
        assert torch.equal(rows.target[:, b], of_target)
    values = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    wanted = torch.stack([values[:, y, b] for b, y in enumerate(target.tolist())], -1)
    assert torch.equal(rows.of_target(values), wanted)


def test_places_of_angles():
    """From the normal to the Gumbel end, the middle among them: cell, offset and derivative; no number, cell 0."""
    alpha = torch.cat([torch.linspace(0, math.pi / 2, 400), torch.tensor([1e-5, 1e-3, 0.785, 0.786, 1.5705])])
    base, v, turn = grid._place_angles(alpha.cos().clamp(min=0.0), alpha.sin())
    checked = 0
    for i, angle in enumerate(alpha.double().clamp(max=math.pi / 2).tolist()):
        cell, q, dq, low, high = cell_of(angle)
        offset = (2 * q - low - high) / (high - low)
        if abs(abs(offset) - 1) < 1e-3 and 1e-5 < angle < 1.57:
            continue  # at an edge rounding decides
        checked += 1
        assert int(base[i]) == cell * CELLS - LEFT
        close(v[i], offset, atol=2e-4)
        close(turn[i], 2 * dq / (high - low), rtol=1e-3, atol=1e-4)
    assert checked > 380
    cell, _, _ = grid._place_angles(torch.tensor([math.nan]), torch.tensor([0.5]))
    assert int(cell) == -LEFT


def test_places_of_nodes():
    """x in steps, held inside the table; the nearest whole step; the offset from it; where that cell is kept."""
    rows = grid.columns(*made(0.3))
    t = torch.tensor([[-60.0, -1.0, 0.3], [0.0, 2.0, 1.0], [0.17, 500.0, 3.0]])
    x, u, index = grid.places(rows, t)
    index = index.reshape(x.shape)
    for n in range(3):
        for k in range(4):
            for b in range(3):
                steps = float(t[n, b] - rows.mean[k, b]) / (float(rows.width[k, b]) * STEP)
                steps = min(max(steps, LEFT), RIGHT)
                whole = round(steps)
                close(x[n, k, b], steps, atol=1e-4)
                close(u[n, k, b], steps - whole, atol=2e-4)
                assert int(index[n, k, b]) == int(rows.base[k, b]) + whole
    assert bool(((index >= 0) & (index <= grid._LAST)).all())
    t[1, 1] = math.nan  # lands in the first cell
    assert int(grid.places(rows, t)[2].reshape(x.shape)[1, 0, 1]) == 0


@pytest.mark.parametrize("room", [False, True])
def test_value_and_derivatives_of_the_polynomial(room):
    """Horner's rule against the powers written out; below `NONE` M stays there."""
    g = torch.Generator().manual_seed(1)
    rows = grid.columns(*made(0.2))
    u = torch.rand(6, 4, 3, generator=g) - 0.5
    index = torch.randint(len(grid.grid().log_f), (6 * 4 * 3,), generator=g, dtype=torch.int32)
    index[0] = CELLS - 2  # a normal far to the right
    work = grid.workspace(rows, 6) if room else None
    value, in_u, in_v = grid.look_up(rows, u, index, work)
    own = [c[index.long()].reshape(u.shape).double() for c in grid.grid().coefficients]
    a, b = u.double(), rows.v.double()
    wanted = sum(c * a**i * b**j for c, (i, j) in zip(own, POWERS))
    assert float(wanted.min()) < -50 < float(value.max())
    close(value, wanted.clamp(min=-50.0), 1e-5, 1e-5)
    close(in_u, sum(i * c * a ** max(i - 1, 0) * b**j for c, (i, j) in zip(own, POWERS)), 1e-4, 1e-5)
    close(in_v, sum(j * c * a**i * b ** max(j - 1, 0) for c, (i, j) in zip(own, POWERS)), 1e-4, 1e-5)


def test_what_is_tabulated():
    """Polynomials at their corners; log F and the log of its rise per step at the upper edge, mid-angle."""
    tab = grid.grid.__wrapped__()  # made anew
    numbers = torch.tensor([0, 1, 7, 30, 59, 60, 75, 118])
    angles, _ = grid._angle_cells()
    middle = angles[numbers, 2]  # v = 0
    steps = torch.tensor([-80, -31, -7, 0, 4, 22, 49])
    index = (numbers[:, None] * CELLS + steps - LEFT).flatten()
    alpha = middle.repeat_interleave(len(steps))

    def exact(x):
        return log_minus_log_cdf(x.double(), alpha)

    x = steps.double().repeat(len(numbers)) * STEP
    h = 1e-4
    usable = (exact(x) > -20) & (exact(x) < 4.5)
    assert int(usable.sum()) > 40
    for u in (-0.5, 0.0, 0.5):
        value = sum(c[index] * u**i for c, (i, j) in zip(tab.coefficients, POWERS) if j == 0)
        close(value[usable], exact(x + u * STEP)[usable], 1e-5, 1e-5)
    edge = x + STEP / 2
    close(tab.log_f[index][usable], -exact(edge).exp()[usable], 1e-4, 1e-6)
    slope = (exact(edge + h) - exact(edge - h)) / (2 * h)
    close(tab.log_rate[index][usable], (exact(edge) + (-slope * STEP).log())[usable], 1e-3, 2e-3)


@pytest.mark.parametrize("tau", [0.4, 0.0])
def test_sweep(tau):
    """One look per class: log F at the upper edge of the cell whose middle lies next to the left, and the rise."""
    rows = grid.columns(*made(tau, seed=3))
    t = torch.tensor([[-3.0], [-0.7], [0.2], [1.4], [70.0], [-70.0]]).expand(6, 3)
    value, tab = grid.sweep(rows, t), grid.grid()
    checked = 0
    for p in range(6):
        for b, y in enumerate((0, 1, 2)):
            steps = [float(t[p, b] - rows.mean[k, b]) / (float(rows.width[k, b]) * STEP) for k in range(4)]
            if any(abs(s - round(s)) < 1e-3 for s in steps):
                continue
            checked += 1
            cells = [int(rows.base[k, b]) + math.floor(min(max(s, LEFT), RIGHT)) for k, s in enumerate(steps)]
            wanted = sum(float(tab.log_f[c]) for c in cells) + float(tab.log_rate[cells[y]])
            assert float(value[p, b]) == pytest.approx(wanted, rel=1e-5, abs=1e-4)
    assert checked > 12
