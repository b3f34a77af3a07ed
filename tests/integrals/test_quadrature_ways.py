"""Who solves which rows: kernels, the quick rule, its second look, the thorough rule; with stand-ins for each."""

from __future__ import annotations

import math

import pytest
import softmax_rows as families
import torch

from dubito.integrals import quadrature as module
from dubito.integrals.likelihood import Answer, tanh_sinh_nodes
from dubito.integrals.search import Support

F64 = torch.float64


def answer(value, error, settled=None, classes=3, dtype=F64):
    """An answer whose gradients repeat the value."""
    value, error = torch.as_tensor(value, dtype=dtype), torch.as_tensor(error, dtype=dtype)
    settled = torch.ones_like(error, dtype=torch.bool) if settled is None else torch.tensor(settled)
    wide = value.unsqueeze(-1).expand(-1, classes)
    return Answer(value, error, settled, wide, 2 * wide, 3 * wide[:, :1])


def inputs(count, classes=3, dtype=F64, device="cpu"):
    """Means that number the rows."""
    mean = torch.arange(count, dtype=dtype, device=device).unsqueeze(-1).expand(count, classes)
    return mean, mean + 100, mean[:, :1] + 1, torch.zeros(count, dtype=torch.int64, device=device)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_kernels_come_first(monkeypatch, count):
    """With rows to work on; those they miss are solved in float64 and put in place, the others left alone."""
    mean, scale, tau, target = families.rows("ordinary", 0.5, 1 if count == 1 else 3, count)
    made = tuple(torch.full(shape, 7.0) for shape in ((count,), (count,), mean.shape, mean.shape, (count, 1)))
    missed = torch.tensor([False, True, False, True]) if count == 4 else None
    monkeypatch.setattr(module.fused, "ready", lambda *_: True)
    monkeypatch.setattr(module.fused, "quadrature", lambda *_: (made, missed))
    monkeypatch.setattr(
        module.fused, "missed", lambda *given: missed if given == (made[0], made[1], 1e-3) else None
    )

    def later(*given):
        assert [x.dtype for x in given[:3]] == [F64] * 3
        return answer([1.0, 2.0], [0.1, 0.2]), None

    if missed is not None:
        whole = module.solve
        monkeypatch.setattr(module, "solve", later)
        found, hard = whole(mean, scale, tau, target, 1e-3)
        assert hard is missed
        assert found.settled.tolist() == [True, False, True, False]
        assert found.log_p.tolist() == [7.0, 1.0, 7.0, 2.0]
        assert found.error.tolist() == pytest.approx([7.0, 0.1, 7.0, 0.2])
        assert found.d_mean[:, 0].tolist() == [7.0, 1.0, 7.0, 2.0]
        assert found.d_scale[:, 2].tolist() == [7.0, 2.0, 7.0, 4.0]
        assert found.d_temperature[:, 0].tolist() == [7.0, 3.0, 7.0, 6.0]
    elif count:
        found, hard = module.solve(mean, scale, tau, target, 1e-3)
        assert hard is None
        assert bool(found.settled)
        for part, kernel in zip((found.log_p, found.error, *found[3:]), made):
            assert part is kernel
    else:
        found, hard = module.solve(mean, scale, tau, target, 1e-3)
        assert hard is None
        assert [x.shape for x in found] == [(0,), (0,), (0,), (0, 3), (0, 3), (0, 1)]
        assert found.settled.dtype == torch.bool


def test_rows_without_any_spread():
    """At temperature 0 classes of scale 0 are compared: the lost row, the shared one, and one that is ordinary."""
    mean = torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.5, 2.0, 1.0], [0.3, 0.1, -1.0]], dtype=F64)
    none = module.spread_points(mean, mean.exp(), 0 * mean[:, :1], torch.zeros(4, dtype=torch.int64))
    assert (none.ties.tolist(), none.lost.tolist()) == ([1.0] * 4, [False] * 4)
    equal = torch.tensor(
        [[2.0, 2.0, 3.0]], dtype=F64
    )  # as high as a class that is spread out, below another such
    alone = module.spread_points(
        equal, torch.tensor([[0.0, 0.5, 0.5]], dtype=F64), 0 * equal[:, :1], torch.tensor([0])
    )
    assert (alone.ties.tolist(), alone.lost.tolist(), alone.mean.tolist()) == ([1.0], [False], equal.tolist())
    scale = torch.tensor([[0.0, 0.0, 0.5], [0.0, 0.0, 0.7], [1.0, 0.0, 0.25], [0.0, 0.5, 1.0]], dtype=F64)
    tau, target = torch.tensor([[0.0], [0.0], [0.0], [1.0]], dtype=F64), torch.zeros(4, dtype=torch.int64)
    found, _ = module.solve(mean, scale, tau, target, 1e-7)
    below = lambda z: 0.5 * math.erfc(-z / math.sqrt(2))  # noqa: E731
    assert float(found.log_p[0]) == -math.inf
    assert float(found.error[0]) == 0.0
    assert not any(bool(d[0].any()) for d in found[3:])
    assert float(found.log_p[1]) == pytest.approx(math.log(below(2.0 / 0.7) / 2), abs=1e-6)
    assert found.d_mean[1].tolist()[0] > 0
    assert found.d_scale[1].tolist()[:2] == [0.0, 0.0]
    assert found.d_scale[1].tolist()[2] < 0
    # the target is spread out: it wins above both
    t = torch.linspace(2.0, 9.0, 20001, dtype=F64)
    f = torch.distributions.Normal(0.5, 1.0).log_prob(t).exp() * torch.distributions.Normal(1.0, 0.25).cdf(t)
    assert float(found.log_p[2].exp()) == pytest.approx(float(torch.trapezoid(f, t)), rel=1e-5)
    alone, _ = module.solve(mean[3:], scale[3:], tau[3:], target[3:], 1e-7)
    for whole, part in zip(found, alone):
        torch.testing.assert_close(whole[3:], part, rtol=1e-9, atol=1e-12)
    assert float(found.d_scale[3, 0].abs()) > 0 or float(alone.d_scale[0, 0]) == 0


@pytest.mark.parametrize(("dtype", "rounding"), [(F64, 3e-9), (torch.float32, 2**-24)])
def test_error_has_room_for_the_table_and_rounding(monkeypatch, dtype, rounding):
    """error + |log p| max(3e-9, eps / 2) + 3e-9; gradients below 1e-30 are none."""
    made = answer([-10.0, -2e-31], [1e-6, 0.0], dtype=dtype)
    monkeypatch.setattr(module, "_quick", lambda *_: made)
    found, hard = module._spread_out(*inputs(2, dtype=dtype), 1e-3)
    assert hard is None
    assert found.error.tolist() == pytest.approx([1e-6 + 10 * rounding + 3e-9, 3e-9], rel=1e-4)
    assert found.d_mean.tolist() == [[-10.0] * 3, [0.0] * 3]
    assert torch.equal(found.log_p, made.log_p)


@pytest.mark.parametrize("lost", [None, [False, False, True, False]])
def test_rows_that_are_not_good_go_on(monkeypatch, lost):
    """An error above the tolerance or gradients that have not settled; exactly the tolerance is good."""
    seen = []

    def thorough(mean, scale, tau, target, tol):
        seen.append((mean[:, 0].tolist(), scale[:, 0].tolist(), tau[:, 0].tolist(), len(target), tol))
        return answer(torch.full((len(mean),), 5.0), torch.zeros(len(mean)))

    quick = answer([1.0, 2.0, 3.0, 4.0], [0.5, 0.1, 0.6, 0.1], [True, False, True, True])
    monkeypatch.setattr(module, "_quick", lambda *_: quick)
    monkeypatch.setattr(module, "_thorough", thorough)
    found, hard = module._spread_out(*inputs(4), 0.5, None if lost is None else torch.tensor(lost))
    who = [1.0, 2.0] if lost is None else [1.0]
    assert seen == [(who, [100 + i for i in who], [1 + i for i in who], len(who), 0.5)]
    assert hard.tolist() == [False, True, lost is None, False]
    assert found.log_p.tolist() == [1.0, 5.0, 5.0 if lost is None else 3.0, 4.0]


class Looks:
    """Stands in for rows, supports, nodes and sums; notes what was asked for."""

    def __init__(self, monkeypatch, errors):
        self.errors, self.rows, self.drops, self.sums = errors, [], [], []
        for name in ("make_rows", "scan_support", "find_support", "mend", "integrate"):
            monkeypatch.setattr(module, name, getattr(self, name))
        monkeypatch.setattr(module, "laplace_nodes", lambda support, count: ("laplace", count))
        monkeypatch.setattr(module, "tanh_sinh_nodes", lambda support, shoulder, count: ("tanh-sinh", count))

    def make_rows(self, mean, scale, tau, target):
        self.rows.append((len(mean), mean.dtype))
        return Picked(mean[:, 0])

    def scan_support(self, rows, drop):
        self.drops.append(drop)
        return Support(*(rows.who for _ in range(5)))

    def find_support(self, rows, drop, shoulder):
        self.drops.append((drop, shoulder))
        return Support(*(rows.who for _ in range(5))), rows.who

    def mend(self, rows, support, shoulder, drop, height):
        assert (drop, height) == (38.0, module.height)
        return support, shoulder

    def integrate(self, rows, mode, nodes, pieces, exact):
        self.sums.append((nodes, pieces, exact, mode.shape[0]))
        if rows.who.device.type == "meta":
            return answer(torch.zeros(len(rows.who)), torch.zeros(len(rows.who)))
        assert torch.equal(rows.who, mode)
        error = torch.tensor([self.errors[int(w)].pop(0) for w in rows.who], dtype=F64)
        return answer(rows.who + len(self.sums) / 100, error)


class Picked:
    def __init__(self, who):
        self.who = who

    def take(self, index):
        return Picked(self.who[index])


def test_quick_rule_and_its_second_look(monkeypatch):
    looks = Looks(monkeypatch, {0: [0.2], 1: [0.3, 0.2], 2: [0.2], 3: [0.3, 0.4]})
    found = module._quick(*inputs(4), 0.2)
    assert looks.sums == [(("laplace", 33), 1, False, 4), (("laplace", 65), 1, False, 2)]
    assert looks.drops == [pytest.approx(4 - math.log(1e-2))]
    assert found.log_p.tolist() == pytest.approx([0.01, 1.02, 2.01, 3.02])
    assert found.error.tolist() == pytest.approx([0.2, 0.2, 0.2, 0.4])


@pytest.mark.parametrize(
    ("tol", "drop"), [(1e-3, 4 - math.log(1e-3)), (1e-30, 38.0), (0.5, 4 - math.log(1e-2))]
)
def test_how_far_down_the_quick_rule_looks(monkeypatch, tol, drop):
    looks = Looks(monkeypatch, {0: [0.0]})
    module._quick(*inputs(1), tol)
    assert looks.drops == [pytest.approx(drop)]


def test_quick_rule_in_parts(monkeypatch):
    """2^18 rows x classes x nodes at a time, one row at least; float32 elsewhere has fewer nodes."""
    looks = Looks(monkeypatch, {i: [0.0] for i in range(40)})
    found = module._quick(*inputs(40, 300), 1e-3)
    assert [rows for rows, _ in looks.rows] == [26, 14]
    assert found.log_p.shape == (40,)
    assert float(found.log_p[39]) == pytest.approx(39.02)
    looks.rows.clear()
    monkeypatch.setattr(module, "_ELEMENTS", 50)
    looks.errors = {0: [0.0], 1: [0.0]}
    module._quick(*inputs(2), 1e-3)
    assert [rows for rows, _ in looks.rows] == [1, 1]
    monkeypatch.setattr(module, "_ELEMENTS", 1 << 18)
    looks.rows.clear(), looks.drops.clear(), looks.sums.clear()
    module._quick(*inputs(60, 300, dtype=torch.float32, device="meta"), 1e-3)
    assert [rows for rows, _ in looks.rows] == [41, 19]
    assert looks.drops[0] == pytest.approx(1 - math.log(1e-3))
    assert looks.sums[0][0] == ("laplace", 21)


def test_float32_on_a_cpu_has_its_own_rule(monkeypatch):
    made = answer([1.0], [0.0])
    monkeypatch.setattr(module, "rapid", lambda *_: made)
    looks = Looks(monkeypatch, {0: [0.0]})
    assert module._quick(*inputs(1, dtype=torch.float32), 1e-3) is made
    assert module._quick(*inputs(1), 1e-3) is not made
    assert len(looks.sums) == 1


def test_thorough_rule_doubles_its_nodes(monkeypatch):
    """32, 64, 128, 256 per piece, in float64 with full precision, each time for those that are left."""
    looks = Looks(monkeypatch, {0: [0.1], 1: [0.3, 0.1], 2: [0.3, 0.3, 0.3, 0.3], 3: [0.3, 0.3, 0.1]})
    found = module._thorough(*inputs(4, dtype=torch.float32), 0.1)
    nodes = [((("tanh-sinh", n)), 4, True, left) for n, left in ((32, 4), (64, 3), (128, 2), (256, 1))]
    assert looks.sums == nodes
    assert looks.rows == [(4, F64)]
    assert looks.drops == [(38.0, 2.0)]
    assert [x.dtype for x in found] == [torch.float32] * 2 + [torch.bool] + [torch.float32] * 3
    assert found.log_p.tolist() == pytest.approx([0.01, 1.02, 2.04, 3.03])
    support = Support(*(torch.ones(1, 2, dtype=F64) for _ in range(5)))
    monkeypatch.undo()
    assert tanh_sinh_nodes(support, support.reach / 2, 256).offset.shape[1] == module.MOST_NODES


def test_thorough_rule_in_parts(monkeypatch):
    looks = Looks(monkeypatch, {i: [0.0] for i in range(20)})
    found = module._thorough(*inputs(20, 100), 0.1)
    assert [rows for rows, _ in looks.rows] == [10, 10]
    assert float(found.log_p[19]) == pytest.approx(19.02)
    looks.rows.clear()
    monkeypatch.setattr(module, "_ELEMENTS", 50)
    looks.errors = {0: [0.0], 1: [0.0]}
    module._thorough(*inputs(2), 0.1)
    assert [rows for rows, _ in looks.rows] == [1, 1]


def test_how_much_at_a_time_elsewhere():
    """Twice the inputs, between 2^18 and 2^23."""
    on = lambda *shape: module._elements(torch.zeros(*shape, device="meta"))  # noqa: E731
    assert module._elements(torch.zeros(1000, 1000)) == 1 << 18
    assert [on(10, 10), on(1000, 500), on(10000, 1000)] == [1 << 18, 1_000_000, 1 << 23]
