"""Rows of standardised classes, and the rough integrand over them: against the formulas, one class at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import softmax_rows as families
import torch

from dubito.integrals.rows import (
    log_slope_and_ratio,
    make_rows,
    rough_log_integrand,
    rough_value_and_slope,
)
from dubito.integrals.table import angle_cell, rough, table

F64 = torch.float64
ROOT_C, EULER = math.pi / math.sqrt(6), float(np.euler_gamma)


def test_rows_are_the_target_s():
    """Means relative to the target's, widths, angles and cells; some rows are the same rows."""
    mean, scale, tau, target = families.rows("ordinary", 0.7, 4, 5)
    rows = make_rows(mean, scale, tau, target)
    tab = table(torch.device("cpu"), F64)
    for i in range(5):
        y = int(target[i])
        for k in range(4):
            width = math.hypot(float(scale[i, k]), ROOT_C * 0.7)
            assert float(rows.mean[i, k]) == pytest.approx(float(mean[i, k] - mean[i, y]), abs=1e-14)
            assert float(rows.width[i, k]) == pytest.approx(width)
            assert float(rows.cos[i, k]) == pytest.approx(float(scale[i, k]) / width)
            assert float(rows.sin[i, k]) == pytest.approx(ROOT_C * 0.7 / width)
            angle = torch.tensor([math.acos(float(rows.cos[i, k]))], dtype=F64)
            found = (rows.cell[i, k], rows.offset[i, k], rows.turn[i, k])
            assert [float(x) for x in found] == pytest.approx(
                [float(x) for x in angle_cell(tab, angle)], abs=1e-9
            )
        assert int(rows.own[i]) == 4 * i + y
    values = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    wanted = torch.stack([values[i, target[i]] for i in range(5)])
    assert torch.equal(rows.of_target(values), wanted)
    some = torch.tensor([3, 1])
    assert torch.equal(rows.take(some).of_target(values[some]), wanted[some])
    for whole, part in zip(rows[:8], rows.take(some)[:8]):
        assert torch.equal(whole[some], part)


def plain_slope(x, m, m_x, m_v, cos, sin, turn):
    """log of d log F / dx, and dM/dv over dM/dx; straight on: -log F = exp(s^2 / 2 - E g - x sqrt(c) / sin)."""
    rate = ROOT_C / sin
    straight = (x - 8) * sin > ROOT_C * cos and (m < -21 or x > 36)
    if straight:
        line = (rate * cos) ** 2 / 2 - EULER - rate * x
        return line + math.log(rate), (rate - x) * cos / (sin * turn), False
    return m + math.log(max(-m_x, 1e-30)), m_v / min(m_x, -1e-30), m < -40


def test_slope_of_the_target():
    dice = np.random.default_rng(0)
    cases = []
    for _ in range(300):
        angle = dice.uniform(0.02, math.pi / 2)
        x, m = dice.uniform(-5, 50), dice.uniform(-50, 3)
        cases.append(
            (x, m, -dice.exponential(), dice.normal(), math.cos(angle), math.sin(angle), dice.uniform(1, 90))
        )
    usual = (-1.2, 0.3, 0.6, 0.8, 20.0)
    # exactly at the borders: of the straight part, of where it is taken, of the table; and no slope at all
    cases += [(8.0, -30.0, -1.2, 0.3, 0.0, 1.0, 20.0), (20.0, -21.0, *usual), (36.0, -15.0, *usual)]
    cases += [(9.0, -40.0, -1.2, 0.3, 1.0, 0.1, 20.0), (3.0, -2.0, 0.0, 0.3, 0.6, 0.8, 20.0)]
    cases += [(3.0, -2.0, 1e-3, 0.3, 0.6, 0.8, 20.0), (36.1, -15.0, *usual), (20.0, -21.1, *usual)]
    found = log_slope_and_ratio(*(torch.tensor(part, dtype=F64) for part in zip(*cases)))
    for got, wanted in zip(found, zip(*(plain_slope(*case) for case in cases))):
        torch.testing.assert_close(got, torch.tensor(wanted, dtype=got.dtype), rtol=1e-10, atol=1e-10)
    straight = sum(x > 36 or m < -21 for x, m, *_ in cases)
    assert 50 < straight < 250


@pytest.mark.parametrize("case", [("ordinary", 0.4, 4), ("lognormal", 1.0, 3)], ids=str)
def test_rough_integrand_is_the_sum_over_classes(case):
    """sum_k log F_k + log of f_y / F_y with -log F = exp(M), and both derivatives, class by class."""
    rows = make_rows(*families.rows(*case, 4))
    t = rows.width.amax(-1, keepdim=True) * torch.linspace(-3, 6, 7, dtype=F64)
    found = rough_log_integrand(rows, t)
    value, first, second = (torch.zeros(4, 7, dtype=F64) for _ in range(3))
    for i in range(4):
        for k in range(case[2]):
            w = rows.width[i, k]
            m, m_x, m_xx = rough(rows.table, (t[i] - rows.mean[i, k]) / w, rows.cell[i, k], rows.offset[i, k])
            value[i] -= m.exp()
            first[i] -= m.exp() * m_x / w
            second[i] -= m.exp() * (m_x**2 + m_xx) / w**2
            if k == int(rows.target[i]):
                value[i] += m + (-m_x).log() - w.log()
                first[i] += (m_x + m_xx / m_x) / w
                second[i] += (m_xx - (m_xx / m_x) ** 2) / w**2
    for got, wanted in zip(found, (value, first, second)):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)
    for got, wanted in zip(rough_value_and_slope(rows, t), (value, first)):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


def test_far_behind_is_still_a_number():
    """A rival 1e25 widths ahead, in float32: log F is -1e50, and the search must go on."""
    mean, one = torch.tensor([[0.0, 1e25]]), torch.ones(1, 2)
    rows = make_rows(mean, one, one[:, :1], torch.tensor([0]))
    for part in (
        *rough_log_integrand(rows, torch.zeros(1, 1)),
        *rough_value_and_slope(rows, torch.zeros(1, 1)),
    ):
        assert bool(part.isfinite().all())
