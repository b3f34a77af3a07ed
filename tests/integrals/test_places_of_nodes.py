"""Where nodes are put: the search for mode and ends, the maps of nodes with their weights, and their promise."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import softmax_reference as reference
import softmax_rows as families
import torch

from dubito.integrals.fixed import NODES, _ends, _mode, _tanh_sinh
from dubito.integrals.likelihood import _error, laplace_nodes, tanh_sinh_nodes
from dubito.integrals.quadrature import default_tolerance, quick_nodes, spread_points
from dubito.integrals.rows import make_rows, rough_log_integrand, rough_value_and_slope
from dubito.integrals.scan import scan_support
from dubito.integrals.search import Side, Support, find_mode, find_support, narrow

F64 = torch.float64
FAMILIES = [("ordinary", 0.05, 5), ("ordinary", 1.0, 10), ("lognormal", 0.3, 6), ("far", 2.0, 4)]


def column(*values):
    return torch.tensor(values, dtype=F64)


def truth(kind, tau, classes, count=3):
    """The rows, and for each the log-integrand as a function of the distance from the target's mean.

    The Gumbel mean, common to all classes, is dropped from the code's coordinates.
    """
    mean, scale, temperature, target = families.rows(kind, tau, classes, count)
    rows = make_rows(mean, scale, temperature, target)
    shift = np.euler_gamma * tau

    def of(i):
        m = (mean[i] - mean[i, target[i]]).numpy()
        return lambda t: reference.log_integrand(
            np.asarray(t, float) + shift, m, scale[i].numpy(), tau, int(target[i])
        )

    return rows, [of(i) for i in range(count)]


@pytest.mark.parametrize(("kind", "tau", "classes"), FAMILIES)
def test_mode_and_ends(kind, tau, classes):
    """The mode to a tenth of a nat; the ends where `drop` to 1.33 times as much is lost; the slope there."""
    rows, functions = truth(kind, tau, classes)
    support, shoulder = find_support(rows, 30.0, 2.0)
    assert find_support(rows, 30.0)[1] is None
    for i, f in enumerate(functions):
        mode = float(support.mode[i])
        near = np.linspace(mode - float(support.reach[i, 0]), mode + float(support.reach[i, 1]), 41)
        top = float(f([mode])[0])
        assert float(f(near).max()) - top < 0.1
        h = 0.02 * float(shoulder[i].min())
        around = f([mode - h, mode, mode + h])
        bend = -(around[0] - 2 * around[1] + around[2]) / h**2
        assert float(support.bend[i]) == pytest.approx(bend, rel=0.3)
        for k, sign in enumerate((-1, 1)):
            end = mode + sign * float(support.reach[i, k])
            lost = top - float(f([end])[0])
            assert 29.0 < lost < 41.0
            assert float(support.root[i, k]) ** 2 == pytest.approx(lost, abs=1.0)
            step = 1e-3 * float(support.reach[i, k])
            slope = (f([end + step])[0] - f([end - step])[0]) / (2 * step)
            assert float(support.slope[i, k]) == pytest.approx(slope, rel=0.1)
            assert 1.7 < top - float(f([mode + sign * float(shoulder[i, k])])[0]) < 3.0


@pytest.mark.parametrize(("kind", "tau", "classes"), FAMILIES)
def test_scan_finds_the_same(kind, tau, classes):
    """One look at many places: the mode to a third of a nat, ends that lose what they say, at least nearly all."""
    rows, functions = truth(kind, tau, classes)
    support = scan_support(rows, 20.0)
    for i, f in enumerate(functions):
        mode = float(support.mode[i])
        top = float(f([mode])[0])
        reach = support.reach[i].tolist()
        assert float(f(np.linspace(mode - reach[0], mode + reach[1], 41)).max()) - top < 0.3
        for k, sign in enumerate((-1, 1)):
            lost = top - float(f([mode + sign * reach[k]])[0])
            assert 18.0 < lost < 30.0
            assert float(support.root[i, k]) ** 2 == pytest.approx(lost, abs=1.0)


@pytest.mark.parametrize(("kind", "tau", "classes"), FAMILIES)
def test_rough_integrand_and_its_derivatives(kind, tau, classes):
    """Value to a twentieth of a nat, slope and bend to a few per cent, wherever nodes are looked for."""
    rows, functions = truth(kind, tau, classes)
    support, _ = find_support(rows, 12.0)
    t = support.mode + torch.linspace(-0.9, 0.9, 7, dtype=F64) * support.reach.amin(-1, keepdim=True)
    value, first, second = rough_log_integrand(rows, t)
    for found in (rough_log_integrand(rows, t, branchless=True), (*rough_value_and_slope(rows, t), second)):
        for a, b in zip(found, (value, first, second)):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    for i, f in enumerate(functions):
        h = 0.01 * float(support.reach[i].min())
        low, middle, high = (f(t[i].numpy() + d) for d in (-h, 0.0, h))
        bend = (low - 2 * middle + high) / h**2
        np.testing.assert_allclose(value[i].numpy(), middle, atol=0.05)
        np.testing.assert_allclose(
            first[i].numpy(), (high - low) / (2 * h), rtol=0.03, atol=0.03 * np.abs(bend).max() ** 0.5
        )
        np.testing.assert_allclose(second[i].numpy(), bend, rtol=0.1, atol=0.1 * np.abs(bend).max())


@pytest.mark.parametrize(("kind", "tau", "classes"), FAMILIES)
def test_mode_and_ends_in_so_many_steps(kind, tau, classes):
    rows, functions = truth(kind, tau, classes)
    mode = _mode(rows)
    peak, _, second = rough_log_integrand(rows, mode, branchless=True)
    reach = _ends(rows, mode, peak, -second)
    for i, f in enumerate(functions):
        at = float(mode[i])
        top = float(f([at])[0])
        assert float(f(np.linspace(at - float(reach[i, 0]), at + float(reach[i, 1]), 41)).max()) - top < 0.3
        for k, sign in enumerate((-1, 1)):
            assert 16.0 < top - float(f([at + sign * float(reach[i, k])])[0]) < 24.0
    torch.testing.assert_close(find_mode(rows), mode, rtol=0, atol=0.3 * float(rows.width.max()))


def one_step(inner, outer, outer_root, outer_slope, reach, fallen, slope, root, halve):
    """One side of `narrow` in plain numbers."""
    beyond = fallen >= root
    if beyond and reach <= outer:
        outer, outer_root, outer_slope = reach, fallen, slope
    if not beyond:
        inner = max(inner, reach)
    done = outer_root < 1.15 * root or outer - inner < 1e-3 * inner
    newton = reach + (1.06 * root - fallen) * 2 * fallen / abs(slope)
    if done:
        following = outer
    elif inner < newton < min(outer, 8 * reach) and not halve:
        following = newton
    else:
        following = 2 * reach if math.isinf(outer) else (inner + outer) / 2
    return inner, outer, outer_root, outer_slope, following, done


def test_one_step_of_the_search():
    """Shrinking the bracket, ending, Newton's step inside it, doubling and halving."""
    inf, dice = math.inf, np.random.default_rng(0)
    cases = [(0.0, inf, inf, 0.0, 1.0, fallen, 3.0) for fallen in (0.1, 3.9, 4.0, 4.2, 4.7, 9.0)]
    for _ in range(60):
        inner, length = dice.uniform(0, 2), dice.choice([1e-4, 0.5, 3.0])
        reach = inner + dice.uniform(0.1, 1.2) * length
        cases.append(
            (inner, inner + length, dice.uniform(4, 9), -1.0, reach, dice.uniform(0.01, 9), dice.normal())
        )
    for halve in (False, True):
        wanted = [one_step(*case, 4.0, halve) for case in cases]
        inner, outer, root, slope, reach, fallen, steep = (column(*part) for part in zip(*cases))
        side, done = narrow(Side(inner, outer, root, slope, reach), fallen, steep, 4.0, halve)
        for found, part in zip((*side, done), zip(*wanted)):
            torch.testing.assert_close(found.double(), column(*part), rtol=1e-12, atol=1e-12)


def quartic(v):
    """A map t = v exp(q(v)) of degree 4, and its derivative."""
    q = 0.2 + v * (0.1 + v * (-0.03 + v * (0.004 + 0.001 * v)))
    dq = 0.1 + v * (-0.06 + v * (0.012 + 0.004 * v))
    return v * np.exp(q), np.exp(q) * (1 + v * dq)


def test_map_of_degree_four_is_found_exactly():
    """From curvature, ends and slopes alone: t(v) and t'(v) at every node, and the step."""
    low, high = -3.1, 2.6
    (left, d_left), (right, d_right) = quartic(low), quartic(high)
    support = Support(
        mode=column(0.0).unsqueeze(0),
        bend=column(2 * math.exp(-2 * 0.2)).unsqueeze(0),
        reach=column(-left, right).unsqueeze(0),
        root=column(-low, high).unsqueeze(0),
        slope=column(2 * -low / d_left, -2 * high / d_right).unsqueeze(0),
    )
    nodes = laplace_nodes(support, 21)
    v = np.linspace(low, high, 21)
    t, d_t = quartic(v)
    np.testing.assert_allclose(nodes.offset[0].numpy(), t, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        nodes.log_weight[0].exp().numpy(), d_t * (high - low) / 20, rtol=1e-10, atol=1e-12
    )
    assert not bool(nodes.spoilt)


@pytest.mark.parametrize(("slope", "spoilt"), [(5.2, False), (0.01, True), (500.0, True), (math.nan, True)])
def test_maps_that_cannot_be_used(slope, spoilt):
    """Growth that falls below a twentieth or beyond fifty, or is no number."""
    flat = Support(
        column(0.0).unsqueeze(0),
        column(2.0).unsqueeze(0),
        column(2.6, 2.6).unsqueeze(0),
        column(2.6, 2.6).unsqueeze(0),
        column(5.2, slope).unsqueeze(0),
    )
    assert bool(laplace_nodes(flat, 33).spoilt) is spoilt


@pytest.mark.parametrize("form", ["four pieces", "two pieces"])
def test_tanh_sinh_integrates(form):
    """Weights and places: moments, and an integrand with a kink where pieces meet."""
    reach = torch.tensor([[2.0, 5.0], [1.0, 0.3]], dtype=F64)
    if form == "four pieces":
        support = Support(reach[:, :1], reach[:, :1], reach, reach, reach)
        nodes = tanh_sinh_nodes(support, torch.tensor([[0.5, 7.0], [0.2, 0.1]], dtype=F64), 128)
        assert nodes.offset.shape == (2, 4 * 129)
        close = 1e-9
    else:
        nodes = _tanh_sinh(reach)
        assert nodes.offset.shape == (2, 2 * (NODES + 1))
        close = 1e-7
    weight = nodes.log_weight.exp()
    assert not bool(nodes.spoilt.any())
    for power in range(4):
        found = (weight * nodes.offset**power).sum(-1)
        wanted = (reach[:, 1] ** (power + 1) - (-reach[:, 0]) ** (power + 1)) / (power + 1)
        torch.testing.assert_close(found, wanted, rtol=close, atol=close)
    torch.testing.assert_close(
        (weight * nodes.offset.abs().sqrt()).sum(-1), 2 / 3 * (reach**1.5).sum(-1), rtol=1e-6, atol=0
    )
    left, right = nodes.offset.amin(-1), nodes.offset.amax(-1)
    torch.testing.assert_close(torch.stack([-left, right], -1), reach, rtol=1e-9, atol=0)


def test_shoulders_part_the_pieces():
    reach, shoulder = column(2.0, 5.0).unsqueeze(0), column(0.5, 1.5).unsqueeze(0)
    support = Support(reach[:, :1], reach[:, :1], reach, reach, reach)
    nodes = tanh_sinh_nodes(support, shoulder, 32)
    pieces = nodes.offset.reshape(33, 4)
    for k, (begin, end) in enumerate([(0.0, -0.5), (0.0, 1.5), (-0.5, -2.0), (1.5, 5.0)]):
        assert float(pieces[0, k]) == pytest.approx(begin, abs=1e-9)
        assert float(pieces[-1, k]) == pytest.approx(end, abs=1e-9)
        assert float(pieces[16, k]) == pytest.approx((begin + end) / 2)


def error_of(terms, log_p, pieces):
    """For rows all of whose classes are wider than the distance of nodes, where the code asks for that."""
    asked = "steps" in inspect.signature(_error).parameters
    return _error(terms, log_p, pieces, *([torch.zeros(len(terms), dtype=torch.bool)] if asked else []))


def test_error_of_a_sum():
    """From the changes of the last two halvings: max(last^1.5, before^5), at most 1, and rounding."""
    dice = np.random.default_rng(1)
    for pieces in (1, 2):
        terms = torch.from_numpy(dice.normal(size=(4, 9 * pieces)) * [[1e-3], [0.05], [0.4], [4.0]])
        whole = torch.logsumexp(terms, -1)
        sums = []
        for step in (1, 2, 4):
            kept = [t for n in range(0, 9, step) for t in range(n * pieces, (n + 1) * pieces)]
            sums.append(terms[:, kept].exp().sum(-1).log() + math.log(step))
        last, before = (sums[0] - sums[1]).abs(), (sums[1] - sums[2]).abs()
        wanted = torch.maximum(last**1.5, before**5).clamp(max=1.0)
        wanted = wanted + 4 * 2.220446049250313e-16 * (1 + whole.abs())
        torch.testing.assert_close(error_of(terms, whole, pieces), wanted, rtol=1e-9, atol=1e-16)
    # Three sums that agree: 3 x + 2 y + 4 z = 2 (3 x + 2 y) = 4 (3 x), and rounding alone is left.
    for size in (-40.0, 30.0):
        terms = size + column(1.0, 1.5, 1.5, 1.5, 1.0, 1.5, 1.5, 1.5, 1.0).log().unsqueeze(0)
        log_p = size + math.log(12)
        rounding = 4 * 2.220446049250313e-16 * (1 + abs(log_p))
        assert float(error_of(terms, terms.logsumexp(-1), 1)) == pytest.approx(rounding, rel=0.01, abs=0.0)


def test_points_are_ranked_among_themselves():
    """Targets below another point have lost; ties share; a rival that is settled moves out of the way."""
    mean = torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 2.0, 1.0], [3.0, 2.0, 1.0]], dtype=F64)
    scale = torch.tensor([[0.0, 0.0, 0.5], [0.0, 0.0, 2.0], [1.0, 0.0, 0.25], [0.0, 0.0, 0.0]], dtype=F64)
    tau, target = torch.zeros(4, 1, dtype=F64), torch.zeros(4, dtype=torch.int64)
    points, narrowed, moved, ties, lost = spread_points(mean, scale, tau, target)
    assert torch.equal(points, scale == 0)
    assert lost.tolist() == [True, False, False, False]
    assert ties.tolist() == [1.0, 2.0, 1.0, 1.0]
    narrow_as = [0.5e-5, 2e-5, 0.25e-5, 1e-5]
    torch.testing.assert_close(narrowed, torch.where(points, column(*narrow_as).unsqueeze(-1), scale))
    assert torch.equal(moved[2], mean[2])  # the target is spread out: nothing is settled beforehand
    assert moved[0].tolist() == [1.0, pytest.approx(1.0 - 1e3 * 0.5e-5), 0.0]
    assert moved[1].tolist() == [2.0, pytest.approx(2.0 - 1e3 * 2e-5), 0.0]
    assert moved[3].tolist() == [3.0, pytest.approx(3.0 - 1e-2), pytest.approx(3.0 - 1e-2)]
    warm = spread_points(mean, scale, tau + 0.1, target)
    assert warm.narrowed is scale
    assert not bool(warm.points.any())


def test_what_is_aimed_at():
    assert (quick_nodes(torch.float64), quick_nodes(torch.float32)) == (33, 21)
    assert (default_tolerance(torch.float64), default_tolerance(torch.float32)) == (1e-7, 2e-5)
