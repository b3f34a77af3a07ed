"""The quick rule of the CPU in float32 and its table: against exact values, in parts, honest about its error."""

from __future__ import annotations

import math

import pytest
import softmax_rows as families
import torch

from dubito.integrals import grid, rapid
from dubito.integrals.gumbel_normal import ROOT_C, log_minus_log_cdf
from dubito.integrals.quadrature import solve
from dubito.integrals.table import DEEP

CASES = [
    *[("ordinary", tau, 10) for tau in (0.0, 0.05, 0.5, 5.0, 100.0)],
    ("ordinary", 0.5, 100),
    ("ordinary", 1.0, 2),
    ("lognormal", 0.3, 10),
    ("extreme", 0.3, 8),
    ("far", 1.0, 21),
    ("shifted", 0.5, 10),
]


def rows(kind, tau, classes, count=64):
    mean, scale, temperature, target = families.rows(kind, tau, classes, count)
    scale = scale.clamp(min=1e-4)  # classes without any spread never come here
    return mean.float(), scale.float(), temperature.float(), target


@pytest.mark.parametrize("tau", [0.02, 0.1, 0.5, 2.0, 50.0])
def test_the_table_against_exact_values(tau):
    """M to float32, dM/dx and dM/d alpha to 1e-4 of their size, from the normal to the Gumbel end."""
    source = torch.Generator().manual_seed(0)
    classes, count = 24, 12
    scale = torch.rand(count, classes, generator=source) * 2 + 1e-3
    mean = torch.randn(count, classes, generator=source)
    target = torch.zeros(count, dtype=torch.int64)
    made = grid.columns(mean, scale, torch.full((count, 1), tau), target)
    t = torch.linspace(-4, 6, 17).unsqueeze(-1).expand(-1, count)
    x, u, index = grid.places(made, t)
    m, m_x, m_v = (part.double() for part in grid.look_up(made, u, index))
    x = x.double() * grid.STEP
    alpha = torch.atan2(torch.full_like(scale, ROOT_C * tau).double(), scale.double()).t().expand_as(x)

    def exact(dx, da):
        return log_minus_log_cdf((x + dx).flatten(), (alpha + da).flatten()).reshape(x.shape)

    usable = (wanted := exact(0, 0)).gt(-20) & (wanted < DEEP)
    h = 1e-4
    step = torch.minimum(torch.full_like(alpha, h), torch.minimum(alpha, math.pi / 2 - alpha) / 4)
    slope = (exact(h, 0) - exact(-h, 0)) / (2 * h)
    turn = (exact(0, step) - exact(0, -step)) / (2 * step)
    assert int(usable.sum()) > 1000
    assert float(((m - wanted).abs() / (1 + wanted.abs()))[usable].max()) < 2e-6
    assert float(((m_x / grid.STEP - slope).abs() / slope.abs())[usable].max()) < 1e-4
    off = (m_v * made.turn.double() - turn).abs() / (turn.abs() + 1e-3 * turn[usable].abs().max() + 1e-6)
    assert float(off[usable].max()) < 2e-3


@pytest.mark.rel
@pytest.mark.parametrize(("kind", "tau", "classes"), CASES)
def test_accepted_rows_are_right(kind, tau, classes):
    """Scorecard 9: what the rule accepts is within its estimate, and gradients to 1e-4."""
    inputs = rows(kind, tau, classes)
    answer = rapid.rapid(*inputs, 2e-5)
    exact, _ = solve(*(x.double() for x in inputs[:3]), inputs[3], 1e-9)
    good = answer.settled & (answer.error <= 2e-5)
    assert int(good.sum()) >= (60 if kind == "ordinary" and tau >= 0.5 else 1)
    off = (answer.log_p.double() - exact.log_p).abs()
    assert bool((off <= answer.error)[good].all())
    # A row's gradient is one vector: the part in the scales may cancel where that in the means does not.
    found, wanted = (torch.cat([x.d_mean, x.d_scale], -1).double() for x in (answer, exact))
    size = wanted.abs().amax(-1) + 1e-3
    assert float(((found - wanted).abs().amax(-1) / size)[good].max()) < 1e-4
    size = exact.d_temperature.abs() + 1e-2 * exact.d_mean.abs().amax(-1, keepdim=True)
    assert float(((answer.d_temperature - exact.d_temperature).abs() / size)[good].max()) < 2e-3


def test_parts_do_not_matter(monkeypatch):
    inputs = rows("lognormal", 0.3, 10)
    whole = rapid.rapid(*inputs, 2e-5)
    monkeypatch.setattr(rapid, "_ELEMENTS", 7 * 10 * rapid.NODES)
    for a, b in zip(whole, rapid.rapid(*inputs, 2e-5)):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_what_is_not_a_number_stays_so():
    mean, scale, temperature, target = rows("ordinary", 1.0, 5, 4)
    mean[2, 3] = math.nan
    answer = rapid.rapid(mean, scale, temperature, target, 2e-5)
    assert answer.log_p.isnan().tolist() == [False, False, True, False]
    assert not bool(answer.error[2] <= 1e9)


def test_a_step_between_the_nodes_is_not_believed():
    """A rival a hundred times narrower than the target: whether nodes fall on its step is chance, no estimate."""
    count = 400
    mean = torch.stack([torch.zeros(count), torch.linspace(-1.0, 1.0, count)], 1)
    scale = torch.tensor([1.0, 0.01]).expand(count, 2).contiguous()
    temperature, target = torch.full((count, 1), 1e-3), torch.zeros(count, dtype=torch.int64)
    made = rapid.columns(mean, scale, temperature, target)
    once = rapid.integrate(made, rapid.find(made, 15.0), rapid.NODES)
    assert bool((once.error > 2e-5).all())
    assert float(once.error.isinf().float().mean()) > 0.5
    answer, hard = solve(mean, scale, temperature, target, 2e-5)
    wanted = torch.special.log_ndtr(-mean[:, 1].double() / math.hypot(1.0, 0.01))
    assert hard is not None
    assert float((answer.log_p.double() - wanted).abs().max()) < 2e-4  # the temperature is not quite 0


def test_an_end_too_near_is_told_and_mended():
    """Ends drawn in by hand: the terms there say so; the second look, a quarter wider, is right again."""
    inputs = rows("ordinary", 0.5, 10)
    made = rapid.columns(*inputs)
    found = rapid.find(made, 15.0)
    near = rapid.integrate(made, rapid.Stretch(found.centre, found.left / 1.6, found.right), rapid.NODES)
    assert bool((near.error > 2e-5).all())
    exact, _ = solve(*(x.double() for x in inputs[:3]), inputs[3], 1e-9)
    assert bool(((near.log_p.double() - exact.log_p).abs() <= near.error).all())
    far = rapid.Stretch(found.centre, found.left / 1.15, found.right / 1.15)
    wider = rapid.Stretch(far.centre, far.left * rapid._WIDER, far.right * rapid._WIDER)
    again = rapid.integrate(made, wider, 2 * rapid.NODES - 1)
    assert bool((again.error <= 2e-5).all())
