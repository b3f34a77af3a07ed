"""The search for mode and ends, held against the same search written down in plain numbers, one row at a time."""

from __future__ import annotations

import math

import pytest
import softmax_rows as families
import torch

from dubito.integrals import search
from dubito.integrals.rows import make_rows, rough_log_integrand

F64 = torch.float64
TINY = 2.2250738585072014e-308
CASES = [
    ("ordinary", 0.05, 5),
    ("ordinary", 1.0, 10),
    ("lognormal", 0.3, 6),
    ("far", 2.0, 4),
    ("extreme", 0.5, 5),
]


def column(*values):
    return torch.tensor(values, dtype=F64).unsqueeze(-1)


def make(kind, tau, classes, count=12):
    return make_rows(*families.rows(kind, tau, classes, count))


def each_row(rows):
    """One row at a time: the log-integrand and its two derivatives as numbers."""
    for i in range(len(rows.mean)):
        one = rows.take(torch.tensor([i]))
        yield one, lambda t, one=one: [float(x) for x in search.rough_log_integrand(one, column(t))]


def plain_bracket(one):
    mean, width, target = one.mean[0].tolist(), one.width[0].tolist(), int(one.target)
    high, start = (max(m + c * w for m, w in zip(mean, width)) for c in (8, 0.5))
    return -0.46 * width[target], high, start


def plain_next(low, high, t, first, second):
    low, high = (t, high) if first > 0 else (low, t)
    guess = t + first / max(-second, TINY)
    return low, high, guess if low < guess < high else (low + high) / 2


def plain_mode(one, f):
    (low, high, t), narrow = plain_bracket(one), float(one.width.min())
    for _ in range(80):
        _, first, second = f(t)
        low, high, following = plain_next(low, high, t, first, second)
        if first**2 < 0.05 * -second or high - low < 1e-6 * narrow:
            break
        t = following
    return t


def plain_narrow(side, fallen, slope, root, halve):
    inner, outer, outer_root, outer_slope, reach = side
    if fallen >= root and reach <= outer:
        outer, outer_root, outer_slope = reach, fallen, slope
    if fallen < root:
        inner = max(inner, reach)
    done = outer_root < 1.15 * root or outer - inner < 1e-3 * inner
    newton = reach + (1.06 * root - fallen) * 2 * fallen / max(abs(slope), 1e-30)
    if done:
        following = outer
    elif inner < newton < outer and newton < 8 * reach and not halve:
        following = newton
    else:
        following = 2 * reach if math.isinf(outer) else (inner + outer) / 2
    return (inner, outer, outer_root, outer_slope, following), done


def plain_ends(one, f, mode, drop):
    """Distance, root and slope on the left and on the right."""
    peak, _, second = f(mode)
    root, most = math.sqrt(drop), 40 * float(one.width.max())
    start = min(root * math.sqrt(2 / max(-second, TINY)), most)
    sides = [(0.0, math.inf, math.inf, math.inf, start)] * 2
    for step in range(80):
        done = []
        for i, sign in enumerate((-1, 1)):
            value, slope, _ = f(mode + sign * sides[i][4])
            fallen = math.sqrt(max(peak - value, 0.0))
            sides[i], enough = plain_narrow(sides[i], fallen, slope, root, step % 4 == 3)
            done.append(enough)
        if all(done):
            break
    return [[side[k] for side in sides] for k in (1, 2, 3)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole_search(case):
    rows = make(*case)
    support, shoulder = search.find_support(rows, 20.0, 1.5)
    assert torch.equal(support.mode, search.find_mode(rows))
    for i, (one, f) in enumerate(each_row(rows)):
        mode = plain_mode(one, f)
        assert float(support.mode[i]) == pytest.approx(mode, rel=1e-9, abs=1e-12)
        assert float(support.bend[i]) == pytest.approx(-f(mode)[2], rel=1e-6)
        for found, wanted in zip(support[2:], plain_ends(one, f, mode, 20.0)):
            assert found[i].tolist() == pytest.approx(wanted, rel=1e-6)
        assert shoulder[i].tolist() == pytest.approx(plain_ends(one, f, mode, 1.5)[0], rel=1e-6)


def kinked(rows, t, *, branchless=False):
    """-s |t - a|: no curvature anywhere, so that only halving finds the mode."""
    a = 0.3 * rows.mean.amax(-1, keepdim=True) + 0.11 * rows.width.amax(-1, keepdim=True)
    steep = 1 + rows.width.amin(-1, keepdim=True)
    return -steep * (t - a).abs(), -steep * (t - a).sign(), torch.zeros_like(t)


def test_search_without_curvature(monkeypatch):
    """The bracket is halved to a millionth of the narrowest width; the ends begin at most 40 widths away."""
    monkeypatch.setattr(search, "rough_log_integrand", kinked)
    rows = make("lognormal", 0.3, 6)
    mode = search.find_mode(rows)
    support, _ = search.find_support(rows, 700.0)
    for i, (one, f) in enumerate(each_row(rows)):
        wanted = plain_mode(one, f)
        assert float(mode[i]) == pytest.approx(wanted, rel=1e-13, abs=1e-15)
        for found, plain in zip(support[2:], plain_ends(one, f, wanted, 700.0)):
            assert found[i].tolist() == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bracket_holds_the_mode(case):
    rows = make(*case)
    low, high, start = search.bracket(rows)
    for i, (one, _) in enumerate(each_row(rows)):
        assert [float(x[i]) for x in (low, high, start)] == pytest.approx(plain_bracket(one), rel=1e-12)
    assert bool((rough_log_integrand(rows, low)[1] > 0).all())
    assert bool((rough_log_integrand(rows, high)[1] < 0).all())
    assert bool(((low < start) & (start < high)).all())


def test_next_place_on_the_way_to_the_mode():
    """low, high, t, slope, second derivative: Newton's guess strictly inside the bracket, else its middle."""
    cases = [(0.0, 2.0, 1.0, 0.5, -1.0), (0.0, 2.0, 1.0, -0.5, -2.0), (0.0, 2.0, 1.0, 0.0, -1.0)]
    cases += [(0.0, 2.0, 1.0, 1.0, -1.0), (0.0, 2.0, 1.0, -1.0, -1.0), (0.0, 2.0, 1.0, 3.0, -1.0)]
    cases += [(0.0, 2.0, 1.0, 0.3, 0.0), (0.5, 2.0, 1.0, -0.3, 4.0), (-3.0, -1.0, -1.5, 0.1, -1.0)]
    found = search.nearer(*(column(*part) for part in zip(*cases)))
    for part, wanted in zip(found, zip(*(plain_next(*case) for case in cases))):
        assert part.flatten().tolist() == pytest.approx(list(wanted), rel=1e-14)


def test_bend_and_first_try():
    assert search.curvature(column(-2.0, 0.0, 3.0)).flatten().tolist() == [2.0, TINY, TINY]
    rows = make("ordinary", 1.0, 3, 2)
    side = search.both_sides(rows, column(0.5, 1e-9), 3.0)
    assert side.next[0].tolist() == pytest.approx([6.0, 6.0])
    assert side.next[1].tolist() == pytest.approx([40 * float(rows.width[1].max())] * 2)
    assert side.inner.tolist() == [[0.0, 0.0]] * 2
    assert all(bool(x.isinf().all()) for x in (side.outer, side.root, side.slope))


def test_narrowing_at_its_borders():
    """What is compared is compared as it says: at least, below, strictly inside."""
    root, inf = 4.0, math.inf
    cases = [
        (0.0, inf, inf, inf, 1.0, root, 3.0),  # exactly enough is enough
        (0.0, 3.0, 1.15 * root, 2.0, 1.0, 1.0, 50.0),  # the outer root is not below 1.15
        (0.0, 1001.0, 9.0, 2.0, 1000.0, 3.9, 1e9),  # a thousandth apart is not close enough
        (0.0, inf, inf, inf, 1.0, 0.5, 0.0),  # no slope: the guess is beyond any place
    ]
    low, far = 2.0, 6.0
    gain = (1.06 * root - low) * 2 * low
    cases += [(0.0, 2.0, 9.0, 2.0, 1.0, low, gain)]  # Newton's guess on the outer place
    cases += [(0.0, 40.0, 9.0, 2.0, 1.0, low, gain / k) for k in (6.9, 7.0, 7.1)]  # and at 8 times the reach
    back = (1.06 * root - far) * 2 * far
    cases += [(1.0, 5.0, 9.0, 2.0, 2.0, far, back)]  # and on the inner one
    for halve in (False, True):
        wanted = [plain_narrow(case[:5], *case[5:], root, halve) for case in cases]
        *known, fallen, slope = (column(*part) for part in zip(*cases))
        side, done = search.narrow(search.Side(*known), fallen, slope, root, halve)
        for i, (numbers, enough) in enumerate(wanted):
            assert [float(x[i]) for x in side] == pytest.approx(numbers, rel=1e-14), cases[i]
            assert bool(done[i]) is enough


@pytest.mark.parametrize("step", range(8))
def test_one_look_to_both_sides(monkeypatch, step):
    """The drop below the peak (0 where the place is higher) and the slope there; each fourth step halves."""

    def parabola(rows, t, *, branchless=False):
        assert branchless
        return 1.0 - t * t, -2 * t, t

    monkeypatch.setattr(search, "rough_log_integrand", parabola)
    mode, peak, root = column(0.5, 0.5, 2.0), column(0.75, 0.75, -3.0), 2.0
    known = torch.tensor(
        [[[0.1, 0.2], [0.3, 0.6]], [[0.0, 0.0], [9.0, 9.0]], [[0.0, 0.0], [9.0, 9.0]]], dtype=F64
    )
    reach = torch.tensor([[0.4, 0.5], [3.0, 1.9], [0.5, 0.1]], dtype=F64)
    side = search.Side(known[:, 0], known[:, 1], 3.1 + 0 * reach, 0 * reach, reach)
    found, done = search.look(None, mode, peak, side, root, step, branchless=True)
    for i in range(3):
        for k, sign in enumerate((-1, 1)):
            t = float(mode[i]) + sign * float(reach[i, k])
            fallen = math.sqrt(max(float(peak[i]) - (1 - t * t), 0.0))
            before = [float(part[i, k]) for part in side]
            wanted, enough = plain_narrow(before, fallen, -2 * t, root, step in (3, 7))
            assert [float(part[i, k]) for part in found] == pytest.approx(wanted, rel=1e-13)
            assert bool(done[i, k]) is enough
