"""The support from one sweep, held against the same steps written down in plain numbers, one row at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import softmax_rows as families
import torch

from dubito.integrals import scan
from dubito.integrals.rows import make_rows, rough_log_integrand, rough_value_and_slope

F64 = torch.float64
CASES = [("ordinary", 0.05, 5), ("ordinary", 1.0, 10), ("lognormal", 0.3, 6), ("far", 2.0, 4)]


def plain_range(mean, scale, tau, target, drop):
    width = [math.hypot(s, math.pi / math.sqrt(6) * tau) for s in scale]
    far = math.sqrt(2.2 * drop)
    top = max(m - mean[target] + 2 * w for m, w in zip(mean, width))
    return -far * width[target], top + tau * (math.log(len(mean)) + drop) + far * scale[target]


def plain_mode(t, slope, best):
    """Where the line through the slopes at the highest place and at the next one uphill is zero."""
    ahead = min(max(best + int(np.sign(slope[best])), 0), len(t) - 1)
    here, there = slope[best], slope[ahead]
    if here == there:
        return t[best]
    return t[best] + min(max(here / (here - there), 0.0), 1.0) * (t[ahead] - t[best])


def plain_end(t, root, slope, inner, outer, aim):
    """t as Hermite's cubic in the root of the drop, with dt / d root = 2 root / |slope| at both places."""
    rise, length = max(root[outer] - root[inner], 1e-6), abs(t[outer] - t[inner])
    z = min(max((aim - root[inner]) / rise, 0.0), 1.0)
    begin, end = (min(2 * root[k] * rise / max(abs(slope[k]), 1e-30), 3 * length) for k in (inner, outer))
    way = (z**3 - 2 * z**2 + z) * begin + (3 * z**2 - 2 * z**3) * length + (z**3 - z**2) * end
    return t[inner] + np.sign(t[outer] - t[inner]) * min(max(way, 0.0), length)


def plain_between(t, value, slope, drop):
    best = int(np.argmax(value))
    inside = [k for k in range(len(t)) if value[k] > value[best] - drop]
    root = [math.sqrt(value[best] - v) for v in value]
    aim = 1.06 * math.sqrt(drop)
    pairs = [(inside[0], max(inside[0] - 1, 0)), (inside[-1], min(inside[-1] + 1, len(t) - 1))]
    return plain_mode(t, slope, best), [plain_end(t, root, slope, *pair, aim) for pair in pairs]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole_sweep(case):
    """24 places over the range, the mode and the ends between them, and what is found there."""
    mean, scale, tau, target = families.rows(*case, 12)
    rows, drop = make_rows(mean, scale, tau, target), 18.0
    support = scan.scan_support(rows, drop)
    for i in range(len(mean)):
        low, high = plain_range(mean[i].tolist(), scale[i].tolist(), float(tau[i]), int(target[i]), drop)
        t = np.linspace(low, high, 24)
        one = rows.take(torch.tensor([i]))
        value, slope = (x[0].tolist() for x in rough_value_and_slope(one, torch.from_numpy(t)[None]))
        mode, ends = plain_between(t, value, slope, drop)
        assert float(support.mode[i]) == pytest.approx(mode, rel=1e-9, abs=1e-12)
        assert support.reach[i].tolist() == pytest.approx([abs(end - mode) for end in ends], rel=1e-9)
        at, first, second = (
            x[0].tolist() for x in rough_log_integrand(one, torch.tensor([[mode, *ends]], dtype=F64))
        )
        lost = [at[0] - at[1], at[0] - at[2]]
        roots = [math.sqrt(x) if x >= drop else math.nan for x in lost]
        assert support.root[i].tolist() == pytest.approx(roots, rel=1e-9, nan_ok=True)
        assert support.slope[i].tolist() == pytest.approx(first[1:], rel=1e-6)
        assert float(support.bend[i]) == pytest.approx(-second[0], rel=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_range_is_wide_enough(case):
    mean, scale, tau, target = families.rows(*case, 40)
    rows = make_rows(mean, scale, tau, target)
    low, high = scan.search_range(rows, 15.0)
    for i in range(len(mean)):
        wanted = plain_range(mean[i].tolist(), scale[i].tolist(), float(tau[i]), int(target[i]), 15.0)
        assert (float(low[i]), float(high[i])) == pytest.approx(wanted, rel=1e-12)
    value, _ = rough_value_and_slope(rows, scan.spaced(low, high, 200))
    assert bool((value.amax(-1) - value[:, 0] > 15.0).all())
    assert bool((value.amax(-1) - value[:, -1] > 15.0).all())


def test_equally_spaced():
    low, high = torch.tensor([[-1.0], [2.0]], dtype=F64), torch.tensor([[5.0], [2.5]], dtype=F64)
    np.testing.assert_allclose(
        scan.spaced(low, high, 7).numpy(), np.linspace([-1.0, 2.0], [5.0, 2.5], 7, axis=1), rtol=1e-14
    )


def sweeps():
    """t, values and slopes: hills, hills cut off at one end or both, and numbers that are no hill at all."""
    t = np.linspace(-2.0, 3.0, 11)
    for top, steep in (
        (0.4, 3.0),
        (-2.0, 1.0),
        (3.0, 2.0),
        (-7.0, 1.0),
        (9.0, 1.0),
        (0.5, 0.01),
        (0.0, 40.0),
    ):
        yield t, -steep * (t - top) ** 2, -2 * steep * (t - top)
    dice = np.random.default_rng(3)
    for size in (0.01, 1.0, 30.0):
        for _ in range(12):
            yield t, size * dice.normal(size=11), dice.choice([0.0, 0.1, 3.0], size=11) * dice.normal(size=11)
    step = np.array([-9.0, -6.1, -5.9, *[0.0] * 5, -5.9, -6.1, -9.0])
    yield t, step, 1e3 * np.linspace(1, -1, 11)  # the outer place has lost enough, but less than is aimed at
    flat = np.zeros(11)
    flat[[0, 1, -1]] = -8.0, -6.0, -6.5
    yield t, flat, np.array([4.0, 1.0, *[0.0] * 8, -1.0])  # exactly the drop, and no slope to follow


def test_between_the_places_of_a_sweep():
    drop = 6.0
    t, value, slope = (torch.from_numpy(np.stack(part)) for part in zip(*sweeps()))
    mode, ends = scan.between(t, value, slope, drop)
    for i, sweep in enumerate(sweeps()):
        wanted, places = plain_between(*sweep, drop)
        assert float(mode[i]) == pytest.approx(wanted, rel=1e-12, abs=1e-12), i
        assert ends[i].tolist() == pytest.approx(places, rel=1e-9, abs=1e-9), i


def test_ends_that_have_not_lost_enough_are_no_ends(monkeypatch):
    """Exactly enough is enough; less, or a place above the mode, makes the row unusable."""
    value = torch.tensor([[0.0, -4.0, -9.0], [0.0, -3.9, 1.0]], dtype=F64)
    second = torch.tensor([[-5.0, 0.0, 0.0], [2.0, 0.0, 0.0]], dtype=F64)
    monkeypatch.setattr(scan, "rough_log_integrand", lambda rows, t: (value, 10 * t, second))
    mode, ends = torch.tensor([[1.0], [2.0]], dtype=F64), torch.tensor([[-1.0, 4.0], [0.0, 3.0]], dtype=F64)
    support = scan._at(None, mode, ends, 2.0)
    assert support.root.flatten().tolist() == pytest.approx([2.0, 3.0, math.nan, math.nan], nan_ok=True)
    assert support.reach.tolist() == [[2.0, 3.0], [2.0, 1.0]]
    assert support.slope.tolist() == [[-10.0, 40.0], [0.0, 30.0]]
    assert support.bend.flatten().tolist() == [5.0, 2.2250738585072014e-308]
    assert torch.equal(support.mode, mode)
