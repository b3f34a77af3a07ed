"""Which classes can hide between nodes, on panels and on equal steps: the rule at its very borders."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito.integrals import panels, quick
from dubito.integrals.rows import make_rows

F64 = torch.float64


def made(mean, scale, tau=0.0, count=1):
    inputs = (torch.tensor([x] * count, dtype=F64) for x in (mean, scale, [tau]))
    return make_rows(*inputs, torch.zeros(count, dtype=torch.int64))


def one(left, length):
    return panels.Panels(
        torch.tensor([0]), torch.tensor([left], dtype=F64), torch.tensor([length], dtype=F64)
    )


@pytest.mark.parametrize(
    ("left", "length", "wanted"),
    [
        (2.4, 6.0, True),  # the narrow class reaches from -0.5 to 2.5
        (2.5, 6.0, False),
        (2.6, 6.0, False),
        (-6.4, 6.0, True),
        (-6.5, 6.0, False),
        (-6.6, 6.0, False),
        (0.0, 5.0, False),  # ten of its widths
        (0.0, 5.1, True),
        (-50.0, 55.0, True),
        (-500.0, 440.0, False),  # nothing can win so far to the left
    ],
)
def test_a_class_in_a_long_panel(left, length, wanted):
    assert bool(panels.hiding(made([0.0, 1.0], [20.0, 0.5]), one(left, length))) == wanted


def test_a_panel_at_a_depth_of_twenty_six():
    """Where a higher class has -log F of 21 and the one in the panel 5."""
    assert not bool(panels.hiding(made([0.0, 1.0, 4.0], [20.0, 0.5, 0.7]), one(-6.2, 6.0)))
    assert bool(panels.hiding(made([0.0, 1.0, 4.0], [20.0, 0.5, 1.4]), one(-6.2, 6.0)))


def test_a_panel_deep_down_counts_no_more(monkeypatch):
    """At the very depth, measured by -G at the right end."""
    rows = made([0.0, 1.0], [20.0, 0.5])
    x = (torch.tensor([[0.5 - 0.0, 0.5 - 1.0]], dtype=F64) / rows.width).unsqueeze(-1)
    m, _, _ = panels.rough(rows.table, x, rows.cell.unsqueeze(-1), rows.offset.unsqueeze(-1))
    depth = float(m.squeeze(-1).exp().sum(-1))
    for limit, wanted in ((depth, False), (depth * (1 + 1e-12), True)):
        monkeypatch.setattr(panels, "_DEEP", limit)
        assert bool(panels.hiding(rows, one(-9.5, 10.0))) == wanted


def test_how_far_a_panel_is_off():
    """The sum from the mass, and (|c6| + |c7|)^2 / c0 of the least smooth class, no more than all of it."""
    rows = made([0.0, 0.4, -1.0], [1.0, 0.05, 3.0], 0.02)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    for left, length in ((-1.0, 3.0), (0.2, 0.4), (-3.0, 2.0), (0.3, 0.1)):
        values = panels.evaluate(rows, one(left, length))
        assert values.x.shape == (1, 3, 8)
        density = (values.log_rate + values.total.unsqueeze(1)).exp()[0].numpy()
        sums, rest = density @ (weights / 2 * length), []
        for k in range(3):
            c = np.polynomial.legendre.legfit(nodes, density[k], 7) * length / np.sqrt(2 * np.arange(8) + 1)
            rest.append(min((abs(c[6]) + abs(c[7])) ** 2 / sums[k], sums[k]))
        mass = float(panels._mass(rows, one(left, length)))
        found = float(panels._misses(rows, one(left, length)))
        assert found == pytest.approx(abs(sums.sum() - mass) + max(rest), rel=1e-6, abs=1e-15)


def test_a_class_between_equal_steps():
    """Steps of 1 from -10 to -6; G is above -18 from the node after the first, or after the second."""
    total = torch.tensor([[-30.0, -18.0, -17.0, -1.0, -0.1], [-30.0, -20.0, -17.0, -1.0, -0.1]], dtype=F64)
    low, step = torch.full((2,), -10.0, dtype=F64), torch.ones(2, dtype=F64)
    for mean, width, wanted in (
        (-12.7, 0.4, (True, False)),  # seven widths above
        (-12.9, 0.4, (False, False)),
        (-11.7, 0.4, (True, True)),
        (-11.75, 0.25, (False, False)),  # to -10
        (-4.9, 0.4, (True, True)),  # three widths below
        (-5.25, 0.25, (False, False)),  # to -6
        (-4.7, 0.4, (False, False)),
        (-8.0, 0.5, (False, False)),
        (-8.0, 0.49, (True, True)),
    ):
        rows = made([0.0, mean], [2.0, width], count=2)
        assert tuple(quick._hiding(rows, total, low, step).tolist()) == wanted, (mean, width)


def test_the_rule_is_asked_about_the_depth_itself(monkeypatch):
    """G at the nodes, without the logarithm of the step; a row that hides something has no error."""
    seen = []

    def hiding(rows, total, low, step):
        seen.append((total, low, step))
        return torch.tensor([True, False])

    monkeypatch.setattr(quick, "_hiding", hiding)
    inputs = [torch.tensor(x, dtype=F64) for x in ([[0.0, 1.0]] * 2, [[1.0, 2.0]] * 2, [[0.5]] * 2)]
    _, error, low, step = quick._forward(16, *inputs)
    total = quick._values(quick._rows(*inputs), low, step, 16).total
    torch.testing.assert_close(seen[0], (total - step.log().unsqueeze(-1), low, step))
    assert float(total[0, -1] - step[0].log()) > -1e-6
    assert error.isinf().tolist() == [True, False]
    assert math.isfinite(float(error[1]))


def test_where_the_steps_end():
    """At log(-G) = -18 or just beyond: F is 1 there to 1.5e-8 and not to 1e-11."""
    inputs = [torch.tensor(x, dtype=F64) for x in ([[0.0, 1.0]], [[1.0, 1.0]], [[0.01]])]
    rows = quick._rows(*inputs)
    low, step = quick._stretch(rows, 64)
    total = quick._values(rows, low, step, 64).total - step.log()
    assert -1.6e-8 < float(total[0, -1]) < -1e-11
