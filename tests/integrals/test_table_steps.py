"""How the table is made and read: cells, interpolation, least squares, polynomials, each against plain formulas."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from dubito.integrals import table as made
from dubito.integrals.gumbel_normal import log_minus_log_cdf

F64, CPU = torch.float64, torch.device("cpu")


def numbers(*values):
    return torch.tensor(values, dtype=F64)


def angle_steps(alpha):
    """The place of an angle in cells: log(1 + a / 0.15) - log(1 + (pi/2 - a) / 0.6), from 0 to 80."""
    place = lambda a: math.log1p(a / 0.15) - math.log1p((math.pi / 2 - a) / 0.6)  # noqa: E731
    return 80 * (place(alpha) - place(0.0)) / (place(math.pi / 2) - place(0.0))


def test_cells_in_x():
    """100 cells left of 0, equal steps of log(1 + |x| / 2), as many as it takes to reach 36 on the right."""
    step = math.log(9) / 100
    right = math.ceil(math.log(19) / step)
    edges = [2 * math.copysign(math.expm1(abs(k) * step), k) for k in range(-100, right + 1)]
    centre, half = made._x_cells()
    np.testing.assert_allclose(made._x_edges().numpy(), edges, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(centre.numpy(), [(a + b) / 2 for a, b in pairwise(edges)], atol=1e-12)
    np.testing.assert_allclose(half.numpy(), [(b - a) / 2 for a, b in pairwise(edges)], atol=1e-12)
    x = torch.linspace(-15.99, 35.9, 997, dtype=F64)
    wanted = np.searchsorted(edges, x.numpy(), side="right") - 1
    assert made.x_cell(x).tolist() == wanted.tolist()
    assert made.x_cell(numbers(-16.0, 0.0, math.nan, 1e3, -1e3)).tolist() == [0, 100, 0, 99 + right, 0]


def test_cells_in_the_angle():
    """80 cells; the first is centred on 0 and the last on pi/2, which they reach with half their width twice."""
    centre, half = made._angle_cells()
    edges = [0.0, *(float(c + h) for c, h in zip(centre[1:-1], half[1:-1])), math.pi / 2]
    edges.insert(1, float(centre[1] - half[1]))
    assert [angle_steps(e) for e in edges] == pytest.approx(range(81), abs=1e-9)
    assert (2 * half).tolist() == pytest.approx(np.diff(edges).tolist(), rel=1e-9)
    assert (float(centre[0]), float(centre[-1])) == (0.0, math.pi / 2)
    assert centre[1:-1].tolist() == pytest.approx([(a + b) / 2 for a, b in pairwise(edges[1:-1])])
    tab = made.table(CPU, F64)
    alpha = torch.linspace(0.0, math.pi / 2, 313, dtype=F64)
    cell, v, turn = made.angle_cell(tab, alpha)
    wanted = [min(int(angle_steps(float(a))), 79) for a in alpha]
    assert cell.tolist() == wanted
    assert turn.tolist() == pytest.approx([1 / float(half[k]) for k in wanted], rel=1e-12)
    offsets = [(float(a) - float(centre[k])) / float(half[k]) for a, k in zip(alpha, wanted)]
    assert v.tolist() == pytest.approx(offsets, rel=1e-9, abs=1e-9)
    assert made.angle_cell(tab, numbers(math.nan, -0.1, 2.0))[0].tolist() == [0, 0, 79]


def test_table_ends_where_it_is_not_trusted():
    """Left of it log F is below -121 for every angle, and not far below for the normal; on the right 1 - F is 0."""
    assert float(made._x_edges()[0]) == pytest.approx(made.X_MIN)
    alpha = torch.linspace(0.0, math.pi / 2, 25, dtype=F64)
    left = log_minus_log_cdf(torch.full_like(alpha, made.X_MIN), alpha)
    assert float(left.min()) == pytest.approx(made.DEEP, abs=0.1)
    assert -122 < -math.exp(made.DEEP) < -121
    right = log_minus_log_cdf(torch.full_like(alpha, made.X_MAX), alpha)
    assert -48.0 < float(right.max()) < -45.0
    assert math.exp(made.FAR) < torch.finfo(F64).eps / 8 < math.exp(made.FAR + 4)


def test_interpolation_is_exact_for_polynomials():
    """13 points carry degree 12, at the nodes themselves as well, in every panel."""
    nodes = made._chebyshev(13)
    np.testing.assert_allclose(
        nodes.numpy(), [math.cos((2 * k + 1) * math.pi / 26) for k in range(13)], atol=1e-15
    )
    at = torch.cat([torch.linspace(-1, 1, 21, dtype=F64), nodes])
    matrix = made._barycentric(nodes, at)
    for power in range(13):
        torch.testing.assert_close(matrix @ nodes**power, at**power, rtol=0, atol=1e-12)
    edges = numbers(-2.0, -0.5, 1.0, 4.0)
    places = numbers(-2.0, -1.2, -0.5, 0.3, 1.0, 3.7, 4.0)
    inside = made._nodes(edges)
    assert inside.shape == (39,)
    for panel, (a, b) in enumerate(pairwise(edges)):
        wanted = sorted(float((a + b) / 2 + (b - a) / 2 * n) for n in nodes)
        assert sorted(inside[13 * panel : 13 * panel + 13].tolist()) == pytest.approx(wanted)
    through = made._through(edges, places)
    for power in range(13):
        torch.testing.assert_close(through @ inside**power, places**power, rtol=1e-9, atol=1e-9)
    # each point reads its own panel alone, the last one included; an inner edge reads the one on its right
    used = (through.reshape(7, 3, 13) != 0).any(-1).int().argmax(-1)
    assert used.tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_samples_are_what_they_stand_for():
    """Within a few 1e-12 of the full computation, wherever the table is trusted and the angle no sharp corner."""
    g = torch.Generator().manual_seed(1)
    x = torch.rand(70, generator=g, dtype=F64) * 20 - 9
    alpha = torch.rand(40, generator=g, dtype=F64) * (math.pi / 2)
    exact = log_minus_log_cdf(x.repeat_interleave(40), alpha.repeat(70)).reshape(70, 40)
    trusted = (exact < made.DEEP) & (exact > -20)
    off = (made.sample(x, alpha) - exact).abs()[trusted]
    assert float(off.max()) < 2e-9
    assert float(off.quantile(0.9)) < 1e-11


def test_where_samples_are_taken(monkeypatch):
    """At 7 points of each cell, u before v; v is in [0, 2] beside the normal, [-2, 0] beside the Gumbel."""
    monkeypatch.setattr(made, "sample", lambda x, alpha: x[:, None] + 1000 * alpha[None])
    samples = made._samples.__wrapped__()
    points = np.cos((np.arange(7) + 0.5) * math.pi / 7)
    (centre, half), (angle, reach) = made._x_cells(), made._angle_cells()
    assert samples.shape == (80, len(centre), 49)
    for k, shift in ((0, 1.0), (1, 0.0), (40, 0.0), (78, 0.0), (79, -1.0)):
        alpha = float(angle[k]) + float(reach[k]) * (points + shift)
        for j in (0, 99, 230):
            x = float(centre[j]) + float(half[j]) * points
            wanted = (x[:, None] + 1000 * alpha[None]).ravel()
            np.testing.assert_allclose(samples[k, j].numpy(), wanted, rtol=1e-12, atol=1e-9)


def test_where_the_full_computation_is_made(monkeypatch):
    """At 13 nodes of every panel: nine cells in x, the last panel what is left; x before alpha."""
    monkeypatch.setattr(made, "log_minus_log_cdf", lambda x, alpha: x + 1000 * alpha)
    x_panels, angle_panels, exact = made._exact.__wrapped__()
    edges = made._x_edges()
    assert x_panels.tolist() == sorted({*edges[::9].tolist(), float(edges[-1])})
    assert (float(angle_panels[0]), float(angle_panels[-1])) == (0.0, math.pi / 2)
    assert bool((angle_panels.diff() > 0).all())
    wanted = made._nodes(x_panels)[:, None] + 1000 * made._nodes(angle_panels)[None]
    torch.testing.assert_close(exact, wanted)


@pytest.mark.parametrize("degree", [4, 5])
def test_least_squares_find_a_polynomial(degree):
    dice = np.random.default_rng(degree)
    u, v = (torch.from_numpy(dice.uniform(-1, 2, 60)) for _ in range(2))
    exponents = made.powers(degree)
    assert exponents == [(i, j) for i in range(degree + 1) for j in range(degree + 1) if i + j <= degree]
    for skip in ((), (1, 2)):
        wanted = torch.tensor([0.0 if j in skip else dice.normal() for _, j in exponents], dtype=F64)
        values = sum(c * u**i * v**j for c, (i, j) in zip(wanted, exponents))
        found = made.fit(degree, u, v, skip) @ values
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def cells(dtype, count=400):
    """A table, random cells and offsets within them, the places x and the coefficients there by exponents."""
    tab = made.table(CPU, dtype)
    dice = np.random.default_rng(7)
    row, cell = dice.integers(2, 200, count), dice.integers(0, made.ANGLES, count)
    u = torch.from_numpy(dice.uniform(-0.99, 0.99, count))
    v = torch.from_numpy(dice.uniform(0, 1, count) * np.where(cell == made.ANGLES - 1, -1.0, 1.0))
    x = tab.centre[row].double() + u / tab.inverse[row].double()
    of = {
        power: column[row * made.ANGLES + cell].double()
        for power, column in zip(made.powers(tab.degree), tab.coefficients)
    }
    return tab, x, torch.from_numpy(cell).int(), u, v, of, tab.inverse[row].double()


@pytest.mark.parametrize(("dtype", "degree"), [(F64, 5), (torch.float32, 4)])
def test_reading_sums_the_polynomial(dtype, degree):
    tab, x, cell, u, v, of, inverse = cells(dtype)
    assert tab.degree == degree
    value = sum(c * u**i * v**j for (i, j), c in of.items())
    d_u = sum(c * i * u ** (i - 1) * v**j for (i, j), c in of.items() if i)
    d_v = sum(c * j * u**i * v ** (j - 1) for (i, j), c in of.items() if j)
    found = made.lookup(tab, x.to(dtype), cell, v.to(dtype))
    close = 1e-9 if dtype == F64 else 2e-3
    for got, wanted in zip(found, (value, d_u * inverse, d_v)):
        torch.testing.assert_close(got.double(), wanted, rtol=close, atol=close)


@pytest.mark.parametrize("branchless", [False, True])
def test_rough_reading_takes_the_first_terms(branchless):
    """1, v, u, u v and u^2 alone, with both derivatives in x."""
    tab, x, cell, u, v, of, inverse = cells(F64)
    value = of[0, 0] + of[0, 1] * v + u * (of[1, 0] + of[1, 1] * v + of[2, 0] * u)
    d_x = (of[1, 0] + of[1, 1] * v + 2 * of[2, 0] * u) * inverse
    found = made.rough(tab, x, cell, v, branchless=branchless)
    for got, wanted in zip(found, (value, d_x, 2 * of[2, 0] * inverse**2)):
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("branchless", [False, True])
def test_rough_reading_goes_on_beyond_the_table(branchless):
    """A parabola on the right; -log F grows like x^2 on the left; a single place beyond is enough."""
    tab = made.table(CPU, F64)
    cell, v, _ = made.angle_cell(tab, numbers(0.0, 0.4, 1.1, 1.5))
    for edge in (made.X_MIN, made.X_MAX):
        value, d_x, d_xx = made.rough(tab, torch.full_like(v, edge), cell, v)
        for beyond in (0.0, 0.7, 30.0):
            x = torch.full_like(v, edge)
            x[:3] += math.copysign(beyond, edge)
            found = made.rough(tab, x, cell, v, branchless=branchless)
            away = x - edge
            if edge > 0:
                wanted = (value + d_x * away + d_xx * away**2 / 2, d_x + d_xx * away, d_xx)
            else:
                out = away < 0
                grown = (value + 2 * (x / edge).log(), 2 / x, -2 / x**2)
                wanted = tuple(torch.where(out, a, b) for a, b in zip(grown, (value, d_x, d_xx)))
            for got, part in zip(found, wanted):
                torch.testing.assert_close(got, part, rtol=1e-11, atol=1e-11)


def test_first_and_last_angle_keep_their_form():
    """No terms in v and v^2 beside the normal; only even ones beside the Gumbel; right in both."""
    for dtype, close in ((F64, 3e-9), (torch.float32, 4e-6)):
        tab = made.table.__wrapped__(CPU, dtype)  # made anew
        assert tab.degree == (5 if dtype == F64 else 4)
        for column, (_, j) in zip(tab.coefficients, made.powers(tab.degree)):
            first, last = column[:: made.ANGLES], column[made.ANGLES - 1 :: made.ANGLES]
            assert (float(first.abs().max()) < 1e-11) is (j in (1, 2))
            assert (float(last.abs().max()) < 1e-11) is (j % 2 == 1)
        x = torch.linspace(-5.0, 5.0, 40, dtype=F64)
        for alpha in (0.0, 2e-3, 6.4e-3, math.pi / 2 - 0.02, math.pi / 2 - 1e-3, math.pi / 2):
            cell, v, _ = made.angle_cell(tab, torch.full_like(x, alpha).to(dtype))
            exact = log_minus_log_cdf(x, torch.full_like(x, alpha))
            found = made.lookup(tab, x.to(dtype), cell, v)[0]
            trusted = exact < 2.0
            assert float((found - exact).abs()[trusted].max()) < close, (dtype, alpha)
