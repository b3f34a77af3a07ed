"""The quick rule of the CPU, one step at a time, against the same written out in float64 with exact functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_rows import F64, close, made

from dubito.integrals import grid, rapid
from dubito.integrals.gumbel_normal import ROOT_C, log_minus_log_cdf
from dubito.integrals.rows import log_slope_and_ratio


def naive(mean, scale, tau, target, stretch, count):
    """One row: log p and the gradients from all nodes and from every other one, (2, K), (2, K), (2,)."""
    mean = mean - mean[target]
    width = (scale**2 + (ROOT_C * tau) ** 2) ** 0.5
    sin, cos = ROOT_C * tau / width, scale / width
    centre, left, right = stretch
    bend = math.log(right / left) + 1e-4
    rise = right / math.expm1(bend)
    s = torch.linspace(-1, 1, count, dtype=F64)
    t, d_t = centre + rise * ((bend * s).exp() - 1), rise * bend * (bend * s).exp()
    x = (t[:, None] - mean) / width
    alpha = torch.atan2(sin, cos).expand_as(x)

    def exact(dx, da):
        return log_minus_log_cdf((x + dx).flatten(), (alpha + da).flatten()).reshape(x.shape)

    h, m = 1e-5, exact(0, 0)
    log_f = -m.exp()
    in_x, in_a = (log_f * (exact(a, b) - exact(-a, -b)) / (2 * h) for a, b in ((h, 0.0), (0.0, h)))
    rate = in_x / width
    terms = log_f.sum(1).exp() * rate[:, target] * d_t * 2 / (count - 1)
    d_scale = -(x * cos * in_x + sin * in_a) / width
    d_tau = ROOT_C * (cos * in_a - x * sin * in_x) / width
    d_mean = -rate.clone()
    rivals = rate.sum(1) - rate[:, target]
    for part in (d_mean, d_scale, d_tau):
        part[:, target] *= -rivals / rate[:, target]
    found = []
    for some in (terms, torch.where(torch.arange(count) % 2 == 0, 2 * terms, 0.0)):
        share = some / some.sum()
        found.append([(share[:, None] * part).sum(0) for part in (d_mean, d_scale, d_tau)])
    return terms.sum().log(), *(torch.stack(part) for part in zip(*found))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("tau", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("count", [29, 57])
def test_the_sum_over_nodes(tau, count):
    """Whatever the stretch, value and gradients are those of its nodes."""
    inputs = made(tau)
    rows = grid.columns(*inputs)
    width = rows.width.amax(0)
    stretch = rapid.Stretch(
        torch.tensor([0.3, -0.4, 0.9]),
        width * torch.tensor([2.0, 1.0, 3.0]),
        width * torch.tensor([2.5, 4.0, 1.5]),
    )
    answer = rapid.integrate(rows, stretch, count)
    for b in range(3):
        mean, scale = (x[b].double() for x in inputs[:2])
        given = [float(x[b]) for x in stretch]
        log_p, d_mean, d_scale, d_tau = naive(mean, scale, tau, int(inputs[3][b]), given, count)
        close(answer.log_p[b], log_p)
        close(answer.d_mean[b], d_mean[0])
        close(answer.d_scale[b], d_scale[0], atol=5e-5)
        close(answer.d_temperature[b], d_tau[0].sum()[None], rtol=2e-3, atol=2e-4)


def test_gradients_that_have_settled():
    """All nodes against every other one: to 3e-3 of the largest, or of 1e-8 / width; the temperature's also to 1e-4
    of the largest in a scale."""
    seen = set()
    for seed in range(2):
        inputs = made(0.3, seed=seed)
        rows = grid.columns(*inputs)
        for size, count in ((2.0, 13), (3.0, 13), (5.0, 13), (4.0, 29)):
            wide = size * rows.width.amin(0)
            stretch = rapid.Stretch(torch.zeros(3), wide, 1.1 * wide)
            answer = rapid.integrate(rows, stretch, count)
            for b in range(3):
                mean, scale = (x[b].double() for x in inputs[:2])
                given = [float(x[b]) for x in stretch]
                _, *gradients = naive(mean, scale, 0.3, int(inputs[3][b]), given, count)
                d_mean, d_scale = ((part[0], part[0] - part[1]) for part in gradients[:2])
                floor = 1e-8 / float(rows.width[:, b].max())
                ratios = [
                    float(change.abs().max() / (3e-3 * whole.abs().max() + floor))
                    for whole, change in (d_mean, d_scale)
                ]
                tau, other = gradients[2].sum(-1).tolist()
                bound = floor + 1e-4 * float(d_scale[0].abs().max()) + 3e-3 * abs(tau)
                ratios.append(abs(tau - other) / bound)
                if all(abs(r - 1) > 0.1 for r in ratios):
                    seen.add(tuple(r < 1 for r in ratios))
                    assert bool(answer.settled[b]) == all(r < 1 for r in ratios)
    assert {True, False} <= {all(s) for s in seen}
    assert len(seen) >= 3


def finish(mean_part, scale_part, tau_part):
    """What `_finish` says of one row of two classes without temperature: parts are gradients themselves."""
    rows = grid.columns(torch.zeros(1, 2), torch.tensor([[4.0, 2.0]]), torch.zeros(1, 1), torch.tensor([0]))
    sums = torch.empty(3, 2, 2, 1)
    for i, part in enumerate((mean_part, scale_part, tau_part)):
        sums[i, :, 1, 0] = torch.tensor(part) / (5.0 if i == 0 else 0.5)
    owns = torch.zeros(3, 2, 1)
    return rapid._finish(rows, torch.zeros(1), torch.zeros(1), sums, owns, torch.ones(1))


def test_each_gradient_has_to_settle_by_itself():
    """A change in the mean, in the scale or in the temperature, each alone, just within its bound and just not."""
    close(finish((1.0, 1.0), (0.5, 0.5), (0.0, 0.0)).d_mean, [[0.0, 1.0]])
    close(finish((1.0, 1.0), (0.5, 0.5), (0.0, 0.0)).d_scale, [[0.0, 0.5]])
    for change, settled in ((2.9e-3, True), (3.1e-3, False), (-2.9e-3, True), (-3.1e-3, False)):
        assert bool(finish((1.0, 1.0 + change), (0.0, 0.0), (0.0, 0.0)).settled) is settled
        assert bool(finish((0.0, 0.0), (1.0, 1.0 + change), (0.0, 0.0)).settled) is settled
        assert bool(finish((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)).settled)
    for change, settled in ((2.3e-9, True), (2.7e-9, False)):  # 1e-8 over the larger width
        assert bool(finish((0.0, change), (0.0, 0.0), (0.0, 0.0)).settled) is settled


def test_sum_weights_and_error():
    """max(last^1.75, before^4) of the last two halvings, at most 1; forty times both ends; 3.5e-6."""
    dice = np.random.default_rng(0)
    _, picks = rapid._nodes(13)
    for size, ends in ((1e-2, -20.0), (0.15, -20.0), (0.6, -20.0), (3.0, -20.0), (1e-2, -9.0)):
        terms = torch.from_numpy(dice.normal(size=(13, 5)) * size)
        terms[0], terms[-1] = ends, ends - 1
        sums = [terms[::step].exp().sum(0).log() + math.log(step) for step in (1, 2, 4)]
        last, before = (sums[0] - sums[1]).abs(), (sums[1] - sums[2]).abs()
        shares = (terms - sums[0]).exp()
        wanted = torch.maximum(last**1.75, before**4).clamp(max=1.0) + 40 * (shares[0] + shares[-1]) + 3.5e-6
        log_p, weight, error, half = rapid._summed(terms.float(), picks)
        close(log_p, sums[0])
        close(weight, shares)
        close(error, wanted, 2e-3, 1e-7)
        close(half, (sums[1] - sums[0]).exp())
    far = torch.zeros(13, 1)
    far[4] = 300.0
    assert float(rapid._summed(far, picks)[0]) == pytest.approx(300.0)


def test_a_class_narrower_than_half_the_distance_of_nodes():
    """The distance of nodes at its mean, t'(s) 2 / (N - 1); what lies left of all nodes does not count."""
    mean = torch.linspace(-6.0, 9.0, 61)
    for left, right in ((3.0, 5.0), (5.0, 3.0)):
        bend = math.log(right / left) + 1e-4
        rise = right / math.expm1(bend)
        share = torch.full((1,), bend * 0.5 * 2 / 28)
        distance = (mean.double() - (1.0 - rise)) * bend * 2 / 28
        for factor in (0.45, 0.55):
            rows = grid.columns(mean[:, None], torch.ones(61, 1), torch.zeros(61, 1), torch.zeros(61).long())
            rows = rows._replace(mean=mean[None], width=(factor * distance.abs()).float()[None])
            stretch = rapid.Stretch(torch.ones(1), torch.full((1,), left), torch.full((1,), right))
            found = rapid._too_narrow(rows, stretch, torch.full((1,), rise), share)
            assert found.tolist() == ((mean > 1.0 - left) & (distance > 0) & (factor < 0.5)).tolist()
    inputs = made(0.0, rows=1, classes=2)
    inputs[0][:] = 0.0
    inputs[1][:] = torch.tensor([[1.0, 1.0]])
    for width, known in ((0.211, False), (0.2165, True)):
        inputs[1][0, 1] = width
        rows = grid.columns(*inputs)
        answer = rapid.integrate(rows, rapid.Stretch(torch.zeros(1), *(torch.full((1,), 6.0),) * 2), 29)
        assert bool(answer.error.isfinite()) is known  # half the distance of nodes is 0.2143


def test_what_lies_outside_the_table_is_not_believed():
    """A part that counts and is too deep or too far has no known error; one without weight does no harm."""
    mean, scale, tau, target = torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1, 1), torch.tensor([0])
    rows = grid.columns(mean, scale, tau, target)

    def error(centre, left, right):
        ends = (torch.tensor([v]) for v in (centre, left, right))
        return float(rapid.integrate(rows, rapid.Stretch(*ends), 29).error)

    assert math.isinf(error(-14.5, 1.0, 1.0))
    assert math.isinf(error(-12.0, 0.2, 0.2))
    assert math.isinf(error(-10.64, 0.2, 0.2))  # 120 nats in the middle
    assert math.isfinite(error(-10.0, 0.2, 0.2))
    assert math.isinf(error(11.0, 0.9, 0.9))
    assert math.isfinite(error(0.5, 15.5, 4.0))
    assert math.isfinite(error(0.5, 4.0, 12.0))


def test_rounding_is_part_of_the_error(monkeypatch):
    """Four units in the last place of log p."""
    summed = rapid._summed
    monkeypatch.setattr(
        rapid, "_summed", lambda *given: [x if i != 2 else 0 * x for i, x in enumerate(summed(*given))]
    )
    rows = grid.columns(torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1, 1), torch.tensor([0]))
    answer = rapid.integrate(rows, rapid.Stretch(*(torch.tensor([v]) for v in (-8.0, 0.5, 0.5))), 29)
    assert float(answer.log_p) < -50
    assert float(answer.error) == pytest.approx(-4 * 2.0**-23 * float(answer.log_p), rel=1e-3)


def test_the_target_itself():
    """Far from nothing the short form; else that which knows the tail: the same where both hold."""
    inputs = made(0.4)
    rows = grid.columns(*inputs)
    _, cos, sin, turn = rows.target
    x = torch.linspace(-2.0, 4.0, 7).unsqueeze(-1).expand(-1, 3)
    t = x * rows.target[0]
    _, u, index = grid.places(rows, t)
    parts = [rows.of_target(part).clone() for part in grid.look_up(rows, u, index)]
    wanted = log_slope_and_ratio(x, parts[0], parts[1] / 0.1, parts[2] * turn, cos, sin, 1.0)
    log_slope, ratio, too_far = rapid._own(rows, x, *(p.clone() for p in parts))
    assert too_far is None
    close(log_slope, wanted[0].double())
    close(ratio, wanted[1].double())
    parts[0][6] = grid.NONE
    wanted = log_slope_and_ratio(x, parts[0], parts[1] / 0.1, parts[2] * turn, cos, sin, 1.0)
    for found, part in zip(rapid._own(rows, x, *(p.clone() for p in parts)), wanted):
        close(found, part.double())
