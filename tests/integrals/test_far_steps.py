"""The search by the integrand itself, and when gradients have settled, one step at a time."""

from __future__ import annotations

import pytest
import torch

from dubito.integrals import fused, likelihood, quadrature, search
from dubito.integrals.binary import _LogExpected
from dubito.integrals.likelihood import Answer
from dubito.integrals.rows import make_rows

F64 = torch.float64


def made(scale=(1.0, 1.0), gap=1.0, tau=0.5, count=1):
    inputs = (torch.tensor([x] * count, dtype=F64) for x in ([0.0, gap], list(scale), [tau]))
    return make_rows(*inputs, torch.zeros(count, dtype=torch.int64))


def test_height_holds_far_outside_the_table():
    """Normal classes 300 apart: the log-density of one and log Phi of the other, up to a constant."""
    rows = made(gap=300.0, tau=0.0)
    t = torch.tensor([[100.0, 150.0, 151.0, 299.0]], dtype=F64)
    wanted = -0.5 * t * t + torch.special.log_ndtr(t - 300.0)
    # d log F / dx stands for f / F of the target, whose log F is among the others
    found = likelihood.height(rows, t)
    torch.testing.assert_close(found - found[:, :1], wanted - wanted[:, :1], rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("place", [0.0, 0.31, 0.77, 1.0])
def test_highest_point(place):
    """A parabola anywhere in the bracket, to its last digits, and never outside it."""
    rows = made()
    low, high, _ = search.bracket(rows)
    aim = low + place * (high - low)

    def height(_, t):
        assert float(t.min()) >= float(low) - 1e-12
        assert float(t.max()) <= float(high) + 1e-12
        return -((t - aim) ** 2)

    found = search._highest(rows, height)
    assert float((found - aim).abs()) < 1e-12 * float(high - low)


@pytest.mark.parametrize("width", [0.01, 1.0, 30.0])
def test_distances_of_a_drop(width):
    """From outside, within a sixteenth, on either side by itself, whatever the scale of the drop is."""
    rows = made((width, 2 * width), tau=0.0)
    mode, top = torch.full((1, 1), 0.3, dtype=F64), torch.full((1, 1), 7.0, dtype=F64)
    for near in (3e-9, 1e-7, 1.1e-3, 0.37, 0.9, 1.7, 40.0):
        for far in (near, 2.9 * near):
            distance = torch.tensor([[near, far]], dtype=F64) * width

            def height(_, t, distance=distance):
                off = (t - mode) / torch.where(t < mode, distance[:, :1], distance[:, 1:])
                return top - 5 * off.abs()

            found = search._fallen(rows, mode, top, 5.0, height)
            ratio = found / distance
            tiny = distance < 1e-6 * width  # below the first step it is halved four times
            rounding = 1e-15 / distance
            assert bool((ratio >= 1 - 1e-6 - rounding).all())
            bound = torch.where(tiny, 1.07 + 1e-6 * width / 16 / distance, 1 + 1 / 16 + 1e-6)
            assert bool((ratio <= bound + rounding).all()), (near, far, ratio)


def test_a_support_that_almost_drops_enough_is_kept():
    rows = made()
    support, shoulder = search.find_support(rows, 22.0, 2.0)
    assert shoulder is not None
    kept, _ = search.mend(rows, support, shoulder, 30.0, likelihood.height)
    assert kept is support
    short, shoulder = search.find_support(rows, 14.0, 2.0)
    assert shoulder is not None
    mended, _ = search.mend(rows, short, shoulder, 30.0, likelihood.height)
    assert bool((mended.reach > short.reach).all())


def test_settled_gradients(monkeypatch):
    """Each of three kinds within 2e-3 of its largest, in absolute value, of what every other step gives."""
    good = ([1.0, 0.5], [1.0, 0.5])
    cases = [  # means, scales, temperature: all steps and every other one
        (good, good, (1.0, 1.0), True),
        (([1.0, 0.5], [1.001, 0.5]), good, (1.0, 1.0), True),
        (([1.0, 0.5], [1.01, 0.51]), good, (1.0, 1.0), False),
        (([-1.0, 0.001], [-1.0, 0.0025]), good, (1.0, 1.0), True),
        (([1.0, 0.5], [0.99, 0.5]), good, (1.0, 1.0), False),
        (good, ([1.0, 0.5], [1.01, 0.51]), (1.0, 1.0), False),
        (good, ([1.0, 0.001], [1.0, 0.0025]), (1.0, 1.0), True),
        (good, good, (100.0, 100.1), True),
        (good, good, (-100.0, -100.1), True),
        (good, good, (-100.0, -100.3), False),
        (good, good, (100.0, 99.7), False),
        (good, good, (1e-9, 3e-9), True),
    ]
    count, seen = len(cases), []

    def gradient(rows, x, parts, both, own, ratio):
        seen.append(both)
        means, scales = (torch.tensor([case[i] for case in cases], dtype=F64).transpose(1, 2) for i in (0, 1))
        return means, scales, torch.tensor([case[2] for case in cases], dtype=F64).unsqueeze(1)

    monkeypatch.setattr(likelihood, "_gradient", gradient)
    rows = made(count=count)
    support, shoulder = search.find_support(rows, 38.0, 2.0)
    assert shoulder is not None
    nodes = likelihood.tanh_sinh_nodes(support, shoulder, 8)
    answer = likelihood.integrate(rows, support.mode, nodes, 4, exact=True)
    assert answer.settled.tolist() == [case[3] for case in cases]
    every, some = seen[0].unbind(-1)
    assert float((every.sum(-1) - 1).abs().max()) < 1e-12
    steps = every.reshape(count, 9, 4).clone()
    steps[:, [1, 3, 5, 7]] = 0
    wanted = (steps / steps.sum((1, 2), keepdim=True)).flatten(1)
    torch.testing.assert_close(some, wanted)


def test_rows_that_a_kernel_left_state_their_rounding(monkeypatch):
    """In float32 half a unit in the last place of log p joins the error; a row that has lost stays finite."""
    log_p = torch.tensor([-3.0, -1000.0, -torch.inf], dtype=F64)
    error = torch.tensor([1e-9, 2e-7, 0.0], dtype=F64)
    rest = Answer(log_p, error, log_p.isnan(), *(torch.full((3, n), float(n), dtype=F64) for n in (2, 2, 1)))
    missed = torch.tensor([True, False, True, True])
    monkeypatch.setattr(fused, "missed", lambda log_p, error, tol: missed)
    monkeypatch.setattr(quadrature, "solve", lambda *_: (rest, None))
    found = [torch.full((4,), 7.0), torch.full((4,), 7.0), *(torch.full((4, n), 7.0) for n in (2, 2, 1))]
    given = [torch.zeros(4, n) for n in (2, 2, 1)]
    quadrature.finish_hard(found, *given, torch.zeros(4, dtype=torch.int64), 1e-5)
    torch.testing.assert_close(found[0], torch.tensor([-3.0, 7.0, -1000.0, -torch.inf]))
    wanted = torch.tensor([1e-9 + 3.0 * 2.0**-24, 7.0, 2e-7 + 1000.0 * 2.0**-24, 1e30 * 2.0**-24])
    torch.testing.assert_close(found[1], wanted, rtol=1e-6, atol=0)
    assert [float(x[0, 0]) for x in found[2:]] == [2.0, 2.0, 1.0]
    assert [float(x[1, 0]) for x in found[2:]] == [7.0] * 3


def test_derivatives_of_the_sigmoid_are_not_differentiated():
    given = [torch.tensor([x], dtype=F64, requires_grad=True) for x in (0.3, 1.0, 0.5)]
    value, *slopes = _LogExpected.apply(*given)
    assert value.requires_grad
    assert not any(slope.requires_grad for slope in slopes)
