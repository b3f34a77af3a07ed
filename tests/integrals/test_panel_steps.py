"""All classes on panels, one step at a time: nodes, halving, points among the classes, and which rule is taken."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito.integrals import all_classes as module
from dubito.integrals import panels as pieces
from dubito.integrals.gumbel_normal import ROOT_C, log_minus_log_cdf
from dubito.integrals.rows import make_rows

F64 = torch.float64


def close(found, wanted, rtol=1e-6, atol=1e-8):
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=F64), rtol=rtol, atol=atol)


def made(tau=0.5, rows=2, classes=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    mean = torch.randn(rows, classes, generator=g, dtype=F64)
    scale = torch.rand(rows, classes, generator=g, dtype=F64) + 0.3
    return mean, scale, torch.full((rows, 1), tau, dtype=F64)


def phi(z):
    return 0.5 * math.erfc(-z / math.sqrt(2))


def test_values_at_the_nodes_of_panels():
    """x, log r, dM/dv over dM/dx, G and the weights of Gauss and Legendre, class by class."""
    mean, scale, tau = made()
    rows = make_rows(mean, scale, tau, torch.zeros(2, dtype=torch.int64))
    panels = pieces.Panels(
        torch.tensor([1, 0]), torch.tensor([-0.5, 0.2], dtype=F64), torch.tensor([0.7, 1.1], dtype=F64)
    )
    found = pieces.evaluate(rows, panels)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    h = 1e-4
    for p, b in enumerate((1, 0)):
        left, length = float(panels.left[p]), float(panels.length[p])
        t = torch.from_numpy(left + length * (nodes + 1) / 2)
        total = torch.zeros(8, dtype=F64)
        for k in range(3):
            width = math.hypot(float(scale[b, k]), ROOT_C * 0.5)
            alpha = torch.full((8,), math.atan2(ROOT_C * 0.5, float(scale[b, k])), dtype=F64)
            x = (t - float(mean[b, k] - mean[b, 0])) / width
            m = log_minus_log_cdf(x, alpha)
            m_x = (log_minus_log_cdf(x + h, alpha) - log_minus_log_cdf(x - h, alpha)) / (2 * h)
            m_a = (log_minus_log_cdf(x, alpha + h) - log_minus_log_cdf(x, alpha - h)) / (2 * h)
            close(found.x[p, k], x)
            close(found.log_rate[p, k], (-m.exp() * m_x / width).abs().log(), atol=1e-6)
            close(found.in_v[p, k] * rows.turn[b, k], m_a / m_x, 1e-4, 1e-5)
            total -= m.exp()
        close(found.total[p], total)
        close(found.log_weight[p], np.log(weights / 2 * length))


@pytest.mark.parametrize("tau", [0.0, 0.05, 2.0])
def test_edges_of_panels(tau):
    """Where the sum of all log F is -80, -30, ..., -1e-15, roughly, for rows with narrow and wide classes."""
    levels = (-80.0, -30.0, -12.0, -5.0, -2.0, -0.7, -0.2, -0.03, -1e-3, -1e-6, -1e-10, -1e-15)
    mean, scale, temperature = made(tau, rows=3)
    mean[1] *= 20
    scale[2] = torch.tensor([0.02, 5.0, 0.5], dtype=F64)
    edges = pieces._edges(make_rows(mean, scale, temperature, torch.zeros(3, dtype=torch.int64)))
    assert edges.shape == (3, 12)
    width = (scale**2 + (ROOT_C * tau) ** 2).sqrt()
    alpha = torch.atan2(torch.full_like(scale, ROOT_C * tau), scale)
    for b in range(3):
        x = (edges[b, :, None] - (mean[b] - mean[b, 0])) / width[b]
        m = log_minus_log_cdf(x.flatten(), alpha[b].expand(12, 3).flatten()).reshape(12, 3)
        close(m.logsumexp(-1), np.log(-np.array(levels)), 0.0, 0.204)


@pytest.mark.parametrize(("depth", "tol"), [(1, 1e-3), (3, 1e-30), (3, 1e-5), (24, 1e-4)])
def test_panels_are_halved_where_they_miss(depth, tol, monkeypatch):
    """Each panel by itself, as often as allowed; the error is twice the sum of what is left."""
    monkeypatch.setattr(pieces, "_DEPTH", depth)
    mean, scale, tau = made(0.05, seed=3)
    scale[0, 1] = 1e-3
    rows = make_rows(mean, scale, tau, torch.zeros(2, dtype=torch.int64))
    found, error = pieces.refine(rows, tol)
    edges = pieces._edges(rows)
    limit = max(tol, 1e-10) / (4 * (edges.shape[1] - 1))
    for b in range(2):
        wanted, left = [], 0.0
        todo = [(float(a), float(c - a), 1) for a, c in zip(edges[b], edges[b, 1:])]
        while todo:
            begin, length, level = todo.pop()
            one = pieces.Panels(torch.tensor([b]), edges.new_tensor([begin]), edges.new_tensor([length]))
            miss = float(pieces._misses(rows, one))
            if (miss > limit or bool(pieces.hiding(rows, one))) and level < depth:
                todo += [(begin, length / 2, level + 1), (begin + length / 2, length / 2, level + 1)]
            else:
                wanted.append((begin, length))
                left += miss
        own = found.row == b
        got = sorted(zip(found.left[own].tolist(), found.length[own].tolist()))
        np.testing.assert_allclose(np.array(got), np.array(sorted(wanted)), rtol=1e-9, atol=1e-12)
        assert float(error[b]) == pytest.approx(2 * left, rel=1e-6, abs=1e-15)


def test_panels_of_no_length_do_no_harm(monkeypatch):
    """Edges that coincide."""
    rows = make_rows(*made(), torch.zeros(2, dtype=torch.int64))
    edges = pieces._edges(rows)
    twice = torch.cat([edges[:, :4], edges[:, 3:]], 1)
    wanted = pieces.refine(rows, 1e-6)[1]
    monkeypatch.setattr(pieces, "_edges", lambda _: twice)
    panels, error = pieces.refine(rows, 1e-6)
    assert bool((panels.length > 0).all())
    assert float(error.max()) <= 1e-6
    assert float(wanted.max()) <= 1e-6


def test_parts_do_not_matter(monkeypatch):
    """As many panels at a time as fit, there and back."""
    inputs = [x.requires_grad_() for x in made(rows=3)]
    panels = pieces.Panels(torch.arange(7), torch.zeros(7), torch.ones(7))
    given = make_rows(*(x.detach()[:2] for x in inputs), torch.zeros(2, dtype=torch.int64))

    def run():
        log_p, error = module._by_panels(*inputs, 1e-6)
        weights = torch.linspace(0.5, 2.0, 9, dtype=F64).reshape(3, 3)
        return log_p.detach(), error, *torch.autograd.grad((weights * log_p).sum(), inputs)

    whole = run()
    for elements, sizes in ((3 * 8 * 2, [2, 2, 2, 1]), (3 * 8 * 7 - 1, [6, 1]), (1, [1] * 7)):
        monkeypatch.setattr(pieces, "_ELEMENTS", elements)
        assert [len(part.row) for part in pieces.parts(panels, given)] == sizes
        if elements > 1:
            for a, b in zip(whole, run()):
                close(b, a, 1e-9, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_points_among_the_classes(dtype):
    """Without temperature: the highest point stands for its ties, lower ones have lost, wide classes decide."""
    mean = torch.tensor([[1.0, 1.0, 0.0, 0.5], [-1.0, 2.0, 3.0, 0.0], [0.0, 7.0, 2.0, 1.0]], dtype=dtype)
    scale = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 50.0, 0.0], [0.3, 0.0, 0.5, 0.0]], dtype=dtype)
    mean.requires_grad_()
    scale.requires_grad_()
    log_p, error = module.all_classes(mean, scale, torch.zeros(3, 1, dtype=dtype), 1e-6)
    high = [phi(1.0), phi((3.0 - 2.0) / 50.0)]
    wanted = [
        [high[0] / 2, high[0] / 2, 1 - high[0], 0.0],
        [0.0, 1 - high[1], high[1], 0.0],
        [0.0, 1.0, 0.0, 0.0],
    ]
    close(log_p.detach().exp().double(), wanted, 1e-4, 2e-6)
    assert log_p.isinf().tolist()[:2] == [[False, False, False, True], [True, False, False, True]]
    assert error.shape == (3,)
    (d_scale,) = torch.autograd.grad(log_p[0, 2] + 2 * log_p[1, 2], scale)
    assert d_scale[0, :2].tolist() == [0.0, 0.0]
    z, s = 1.0 / 50.0, 50.0
    slope = -2 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / phi(z) * z / s
    assert float(d_scale[1, 2]) == pytest.approx(slope, rel=1e-2)
    assert float(d_scale[0, 2]) == pytest.approx(
        math.exp(-0.5) / math.sqrt(2 * math.pi) / phi(-1.0), rel=1e-3
    )


def test_one_class_is_certain():
    for dtype in (torch.float32, torch.float64):
        for tau in (0.0, 0.7):
            for tol in (1e-4, 1e-7):
                mean = torch.tensor([[5.0]], dtype=dtype)
                log_p, _ = module.all_classes(mean, mean / 4, torch.full((1, 1), tau, dtype=dtype), tol)
                assert float(log_p) == pytest.approx(0.0, abs=1e-6)


def test_no_rows():
    mean = torch.zeros(0, 3, requires_grad=True)
    log_p, error = module.all_classes(mean, torch.ones(0, 3), torch.ones(0, 1), 1e-4)
    assert (log_p.shape, error.shape) == ((0, 3), (0,))
    assert log_p is not mean
    log_p.sum().backward()
    assert mean.grad.shape == (0, 3)


def test_which_rule_is_taken(monkeypatch):
    """float32 and a tolerance that it allows: equal steps first, and panels for the rows that these leave."""
    calls = []

    def quick(mean, scale, tau, tol):
        calls.append(tol)
        return torch.zeros_like(mean), torch.zeros_like(mean[:, 0]), hard

    monkeypatch.setattr(module, "quick", quick)
    inputs = made(rows=4)
    single = [x.float() for x in inputs]
    exact, _ = module._by_panels(*inputs, 1e-8)
    hard = None
    found, _ = module.all_classes(*single, 1e-4)
    assert bool((found == 0).all())
    for given, tol in ((inputs, 1e-4), (single, 9e-6), (inputs, 1e-8)):
        found, _ = module.all_classes(*given, tol)
        close(found.double(), exact, 1e-3, 1e-3)
    assert calls == [1e-4]
    hard = torch.tensor([1, 3])
    found, error = module.all_classes(*single, 2e-5)
    assert found[[0, 2]].abs().max() == 0
    close(found[hard].double(), exact[hard], 1e-3, 1e-3)
    assert (error > 0).tolist() == [False, True, False, True]


def test_rows_that_the_kernels_leave(monkeypatch):
    """They go on to the panels, points among them; a tolerance below that of float32 does not ask the kernels."""
    hard, asked = torch.tensor([2, 0]), []

    def by_kernels(mean, scale, tau, tol):
        asked.append(tol)
        return torch.zeros_like(mean), torch.full_like(mean[:, 0], 9.0), hard

    monkeypatch.setattr(module, "fitting", lambda *given: True)
    monkeypatch.setattr(module, "by_kernels", by_kernels)
    mean, scale, tau = made(0.0, rows=3)
    scale[0, :2] = 0.0
    found, error = module.all_classes(mean, scale, tau, 1e-5)
    exact, _ = module._ranked(mean, scale, tau, 1e-7, module._by_panels)
    close(found[hard], exact[hard], 1e-3, 1e-3)
    assert found[1].tolist() == [0.0] * 3
    assert (error < 1e-5).tolist() == [True, False, True]
    module.all_classes(mean, scale, tau, 9e-6)
    assert asked == [1e-5]
    hard = None
    assert module.all_classes(mean, scale, tau, 1e-4)[1].tolist() == [9.0] * 3
