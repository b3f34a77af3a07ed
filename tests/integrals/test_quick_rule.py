"""Equal steps for all classes, step by step: where they begin and end, what is summed, how the error is judged."""

from __future__ import annotations

import math

import numpy as np
import pytest
import softmax_reference as reference
import softmax_rows as families
import torch

from dubito.integrals import quick as module
from dubito.integrals.all_classes import AllClasses
from dubito.integrals.table import rough

F64 = torch.float64
CASES = [("ordinary", 0.05, 5), ("ordinary", 1.0, 8), ("far", 2.0, 4), ("lognormal", 0.4, 5)]


def plain_stretch(rows, i, nodes):
    """Two sweeps of 32 places: between log(-G) = log 75 and log(-G) = -18; the first node and the distance."""
    mean, width = rows.mean[i], rows.width[i]
    low, high = float((mean - 14 * width).max()), float((mean + 16 * width).max())
    for _ in range(2):
        step = (high - low) / 31
        value = []
        for k in range(32):
            x = (low + step * k - mean) / width
            m, _, _ = rough(rows.table, x, rows.cell[i], rows.offset[i])
            value.append(float(torch.logsumexp(m, 0)))
        first = max(sum(v >= math.log(75) for v in value) - 1, 0)
        last = min(32 - sum(v <= -18 for v in value), 31)
        low, high = low + step * first, low + step * last
    return low, (high - low) / (nodes - 1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_where_the_nodes_are(case):
    mean, scale, tau, _ = families.rows(*case, 6)
    rows = module._rows(mean, scale, tau)
    assert torch.equal(rows.mean, mean - mean.amax(-1, keepdim=True))
    for nodes in (64, 256):
        low, step = module._stretch(rows, nodes)
        for i in range(6):
            assert (float(low[i]), float(step[i])) == pytest.approx(plain_stretch(rows, i, nodes), rel=1e-9)


def test_ends_stay_inside_the_first_look(monkeypatch):
    """Where nothing is low or high enough the first and the last place are the ends."""
    mean, scale, tau, _ = families.rows("ordinary", 1.0, 4, 2)
    rows = module._rows(mean, scale, tau)
    for flat in (0.0, 9.0, -30.0):
        monkeypatch.setattr(module, "rough", lambda tab, x, cell, v, flat=flat: (x * 0 + flat, x, x))
        low, step = module._stretch(rows, 11)
        begin, end = ((rows.mean + c * rows.width).amax(-1) for c in (-14, 16))
        if flat > 5:  # all of it lies before the range: one step is left, twice
            wanted = (begin + 31 * (end - begin) / 31, 0 * end)
        elif flat < -18:
            wanted = (begin, 0 * end)
        else:
            wanted = (begin, (end - begin) / 10)
        torch.testing.assert_close((low, step), wanted)


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_values_at_the_nodes(case):
    """The log of d log F_k / dt of every class, and G plus the log of the step, by another integral."""
    mean, scale, tau, _ = families.rows(*case, 3)
    rows, temperature = module._rows(mean, scale, tau), float(tau[0])
    low, step = (-0.5 * rows.width.amin(-1), 0.11 * rows.width.amin(-1))
    v = module._values(rows, low, step, 9)
    for i in range(3):
        t = float(low[i]) + float(step[i]) * np.arange(9)
        place = t + np.euler_gamma * temperature  # the Gumbel mean, common to all, is dropped
        total = 0.0
        for k in range(mean.shape[1]):
            x = place - float(rows.mean[i, k])
            log_f = reference.log_cdf(x, float(scale[i, k]), temperature)
            rate = reference.log_density(x, float(scale[i, k]), temperature) - log_f
            total = total + log_f
            relevant = log_f > -60
            np.testing.assert_allclose(v.log_rate[i, k].numpy()[relevant], rate[relevant], atol=2e-6)
            np.testing.assert_allclose(
                v.x[i, k].numpy(), (t - float(rows.mean[i, k])) / float(rows.width[i, k])
            )
        relevant = total > -60
        wanted = (total + math.log(float(step[i])))[relevant]
        np.testing.assert_allclose(v.total[i].numpy()[relevant], wanted, rtol=1e-7, atol=1e-7)


def hides(rows, v, i, nodes):
    """Whether a class with its 7 widths above and 3 below where G is above -18 is narrower than half a step."""
    t = float(rows.mean[i, 0]) + v.x[i, 0] * float(rows.width[i, 0])
    step = float(t[1] - t[0])
    deep = sum(float(g) - math.log(step) < -18 for g in v.total[i])
    begin, end = float(t[0]) + step * (deep - 1), float(t[0]) + step * (nodes - 1)
    return any(
        m + 7 * w > begin and m - 3 * w < end and w < step / 2
        for m, w in zip(rows.mean[i].tolist(), rows.width[i].tolist())
    )


@pytest.mark.parametrize("case", [*CASES, ("extreme", 0.01, 5)], ids=str)
def test_sums_and_their_error(case):
    """p by adding terms; |sum p - 1| + (largest relative change of p > 1e-8 by every other node)^1.5."""
    mean, scale, tau, _ = families.rows(*case, 8)
    scale = scale.clamp(min=1e-3)
    for nodes in (16, 64):
        log_p, error, low, step = module._forward(nodes, mean, scale, tau)
        rows = module._rows(mean, scale, tau)
        torch.testing.assert_close((low, step), module._stretch(rows, nodes))
        v = module._values(rows, low, step, nodes)
        for i in range(8):
            terms = (v.log_rate[i] + v.total[i]).exp()
            p, half = terms.sum(1), 2 * terms[:, ::2].sum(1)
            torch.testing.assert_close(log_p[i].exp(), p, rtol=1e-9, atol=1e-300)
            moved = max(abs(float(h) / float(q) - 1) for h, q in zip(half, p) if q > 1e-8)
            wanted = abs(float(p.sum()) - 1) + moved**1.5
            assert float(error[i]) == pytest.approx(
                math.inf if hides(rows, v, i, nodes) else wanted, rel=1e-6, abs=1e-14
            )


def test_what_is_no_number_has_no_error_bound(monkeypatch):
    terms = torch.tensor([[[0.0, math.nan]], [[0.0, 0.0]]], dtype=F64)
    made = module._Values(terms, terms, terms, torch.zeros(2, 2, dtype=F64))
    monkeypatch.setattr(module, "_values", lambda *_: made)
    monkeypatch.setattr(module, "_stretch", lambda *_: (torch.zeros(2), torch.ones(2)))
    mean = torch.zeros(2, 1, dtype=F64)
    _, error, _, _ = module._forward(2, mean, mean + 1, mean + 1)
    assert error.tolist() == [math.inf, 1.0]


@pytest.mark.parametrize("case", [("ordinary", 0.3, 5), ("ordinary", 2.0, 4)], ids=str)
def test_gradients_of_every_input(case):
    """With nodes enough, to six digits those of the panels; weights may be zero in places."""
    mean, scale, tau, _ = families.rows(*case, 6)
    weights = torch.randn(6, case[2], generator=torch.Generator().manual_seed(2), dtype=F64)
    weights[:, 1], weights[3] = 0.0, 0.0
    found = []
    for rule in (lambda *x: module.QuickClasses.apply(*x, 256), lambda *x: AllClasses.apply(*x, 1e-10)):
        inputs = [x.clone().requires_grad_() for x in (mean, scale, tau)]
        log_p, _ = rule(*inputs)
        found.append(torch.autograd.grad((log_p * weights).sum(), inputs))
    for fast, slow in zip(*found):
        torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)
        assert not bool(fast[3].any())


def test_rows_without_a_gradient_are_not_read(monkeypatch):
    """Their nodes may be anywhere, and what comes of them no number."""
    mean, scale, tau, _ = families.rows("ordinary", 1.0, 3, 3)
    inputs = [x.clone().float().requires_grad_() for x in (mean, scale, tau)]
    log_p, error = module.QuickClasses.apply(*inputs, 64)
    assert not error.requires_grad
    spoilt = tuple(torch.full((3, n), math.nan, dtype=F64) for n in (3, 3, 1))
    monkeypatch.setattr(module, "_backward", lambda *_: spoilt)
    weights = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    for d in torch.autograd.grad((log_p * weights).sum(), inputs):
        assert d.dtype == torch.float32
        assert d.isnan().any(-1).tolist() == [False, True, False]
        assert not bool(d[[0, 2]].any())


def test_parts_of_what_is_worked_on():
    """At most 2^18 places at a time, one row at least."""
    sizes = [len(part) for (part,) in module._split(64, torch.zeros(1000, 10))]
    assert sizes == [409, 409, 182]
    assert [len(a) for a, b in module._split(1024, torch.zeros(2, 300), torch.zeros(2, 1))] == [1, 1]


def test_rows_that_miss_get_more_nodes(monkeypatch):
    """64, 256, 1,024: each time those rows alone whose error is above the tolerance; exactly it is good enough."""
    tol, seen = 0.5, []
    errors = {64: [0.5, 0.6, 0.7, math.nan], 256: [9, 0.5, 0.8, 0.9], 1024: [9, 9, 0.5, 0.51]}

    def apply(mean, scale, tau, nodes):
        who = mean[:, 0].long()
        seen.append((nodes, who.tolist(), scale[:, 0].tolist(), tau[:, 0].tolist()))
        return (nodes + torch.stack([who, -who], -1)).double(), torch.tensor(errors[nodes], dtype=F64)[who]

    monkeypatch.setattr(module.QuickClasses, "apply", apply)
    index = torch.arange(4, dtype=F64).unsqueeze(-1)
    log_p, error, hard = module.quick(index.expand(4, 2), index.expand(4, 2) + 10, index + 20, tol)
    assert [s[:2] for s in seen] == [(64, [0, 1, 2, 3]), (256, [1, 2, 3]), (1024, [2, 3])]
    assert seen[2][2:] == ([12.0, 13.0], [22.0, 23.0])
    assert hard.tolist() == [3]
    assert error.tolist() == [0.5, 0.5, 0.5, 0.51]
    wanted = torch.log_softmax(torch.cat([index, -index], -1), -1)
    torch.testing.assert_close(log_p, wanted)
    seen.clear()
    *_, none = module.quick(index[:1].expand(1, 2), index[:1].expand(1, 2), index[:1], tol)
    assert none is None
    assert len(seen) == 1
