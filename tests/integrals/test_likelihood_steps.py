"""The sum over nodes of the likelihood, one step at a time, against the same written out with exact functions."""

from __future__ import annotations

import math

import pytest
import torch

from dubito.integrals import likelihood
from dubito.integrals.gumbel_normal import EULER, ROOT_C, log_minus_log_cdf
from dubito.integrals.likelihood import Nodes, integrate
from dubito.integrals.rows import make_rows
from dubito.integrals.search import Support

F64 = torch.float64
H = 1e-4


def close(found, wanted, rtol=1e-6, atol=1e-7):
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=F64), rtol=rtol, atol=atol)


def made(tau=0.5, rows=3, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    mean = torch.randn(rows, classes, generator=g, dtype=F64)
    scale = torch.rand(rows, classes, generator=g, dtype=F64) + 0.3
    return mean, scale, torch.full((rows, 1), tau, dtype=F64), torch.arange(rows) % classes


def exact(x, alpha):
    """M and its derivatives in x and in the angle."""

    def at(dx, da):
        return log_minus_log_cdf((x + dx).flatten(), (alpha + da).flatten()).reshape(x.shape)

    return at(0, 0), (at(H, 0) - at(-H, 0)) / (2 * H), (at(0, H) - at(0, -H)) / (2 * H)


def naive(mean, scale, tau, target, t, log_weight):
    """One row and its nodes: log of every term (N,), and derivatives of each node (N, K) in mean, scale and tau."""
    mean = mean - mean[target]
    width = (scale**2 + (ROOT_C * tau) ** 2) ** 0.5
    sin, cos = ROOT_C * tau / width, scale / width
    x = (t[:, None] - mean) / width
    m, m_x, m_a = exact(x, torch.atan2(sin, cos).expand_as(x))
    log_f = -m.exp()
    in_x, in_a = log_f * m_x, log_f * m_a
    rate = in_x / width
    terms = log_f.sum(1) + rate[:, target].log() + log_weight
    parts = [-rate, -(x * cos * in_x + sin * in_a) / width, ROOT_C * (cos * in_a - x * sin * in_x) / width]
    rivals = rate.sum(1) - rate[:, target]
    for part in parts:
        part[:, target] *= -rivals / rate[:, target]
    return terms, parts


def averages(terms, parts):
    share = torch.softmax(terms, 0).unsqueeze(-1)
    d_mean, d_scale, d_tau = ((share * part).sum(0) for part in parts)
    return d_mean, d_scale, d_tau.sum(-1, keepdim=True)


def spread(rows, count, width, seed=0, uneven=0.0):
    """Equally spaced nodes; the weights of every other one moved by some."""
    g = torch.Generator().manual_seed(seed)
    offset = torch.linspace(-1, 1, count, dtype=F64) * width
    log_weight = (2 * width / (count - 1)).log().expand(rows, count).clone()
    log_weight[:, 1::2] += uneven * torch.randn(rows, count // 2, generator=g, dtype=F64)
    return Nodes(offset.expand(rows, count), log_weight, torch.zeros(rows, dtype=torch.bool))


@pytest.mark.parametrize("tau", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("thorough", [True, False])
def test_value_and_gradients_are_those_of_the_nodes(tau, thorough):
    inputs = made(tau)
    rows = make_rows(*inputs)
    nodes = spread(3, 13, rows.width.amax(-1, keepdim=True) * 2.5, uneven=0.3)
    mode = torch.tensor([[0.4], [-0.2], [0.7]], dtype=F64)
    answer = integrate(rows, mode, nodes, 1, thorough)
    for b in range(3):
        given = (inputs[0][b], inputs[1][b], tau, int(inputs[3][b]))
        terms, parts = naive(*given, mode[b] + nodes.offset[b], nodes.log_weight[b])
        wanted = averages(terms, parts)
        close(answer.log_p[b], terms.logsumexp(0))
        for found, part in zip((answer.d_mean, answer.d_scale, answer.d_temperature), wanted):
            close(found[b], part, 1e-4, 1e-5)


@pytest.mark.parametrize("pieces", [1, 2])
def test_gradients_that_have_settled(pieces):
    """All nodes against every other step: each of the three to 2e-3 of its largest, by itself."""
    count, steps = 300, 41
    rows = make_rows(*made(0.4, count, 5, seed=7))
    nodes = spread(count, steps * pieces, 5 * rows.width.amax(-1, keepdim=True), 3, 1.2e-2)
    mode = torch.zeros(count, 1, dtype=F64)
    kept = [n for n in range(steps * pieces) if n // pieces % 2 == 0]
    some = Nodes(nodes.offset[:, kept], nodes.log_weight[:, kept], nodes.spoilt)
    fine, coarse = integrate(rows, mode, nodes, pieces, True), integrate(rows, mode, some, pieces, True)
    ratios = torch.stack(
        [
            (a - b).abs().amax(-1) / (2e-3 * a.abs().amax(-1))
            for a, b in (
                (getattr(x, name) for x in (fine, coarse)) for name in ("d_mean", "d_scale", "d_temperature")
            )
        ]
    )
    clear = ((ratios - 1).abs() > 0.01).all(0)
    assert torch.equal(fine.settled[clear], (ratios < 1).all(0)[clear])
    seen = {tuple(row) for row in (ratios < 1).t()[clear].tolist()}
    assert {(True, True, True), (False, True, True), (True, False, True), (True, True, False)} <= seen


def test_gradients_of_nothing_need_not_settle():
    """Below 1e-8 / width a change does not count."""
    for width, gap, settled in ((1.0, 20.0, True), (1.0, 3.0, False), (100.0, 5.2, False), (0.01, 5.8, True)):
        mean = torch.tensor([[0.0, -gap * width * math.sqrt(2)]], dtype=F64)
        inputs = mean, torch.full((1, 2), width, dtype=F64), torch.zeros(1, 1, dtype=F64), torch.tensor([0])
        nodes = spread(1, 41, torch.full((1, 1), 6 * width, dtype=F64), 1, 0.5)
        answer = integrate(make_rows(*inputs), torch.zeros(1, 1, dtype=F64), nodes, 1, True)
        assert bool(answer.settled) is settled
    inputs = torch.tensor([[0.0, -5.6]], dtype=F64), torch.tensor([[1.0, 0.05]], dtype=F64), *inputs[2:]
    nodes = spread(1, 401, inputs[2] + 6, 1, 0.5)
    answer = integrate(make_rows(*inputs), torch.zeros(1, 1, dtype=F64), nodes, 1, True)
    assert float(answer.d_mean.abs().max()) < 1e-7
    assert not bool(answer.settled)  # the larger width counts


def test_what_lies_outside_the_table():
    """Without `exact`: an infinite error where it has weight, and for a map that is spoilt."""
    flat = (torch.zeros(3, 2, dtype=F64), torch.ones(3, 2, dtype=F64), torch.zeros(3, 1, dtype=F64))
    rows = make_rows(*flat, torch.zeros(3, dtype=torch.int64))

    def errors(begin, end, spoilt=(False, False, False)):
        offset = torch.linspace(begin, end, 33, dtype=F64).expand(3, 33)
        nodes = Nodes(offset, torch.zeros(3, 33, dtype=F64), torch.tensor(spoilt))
        return integrate(rows, torch.zeros(3, 1, dtype=F64), nodes, 1, False).error

    assert bool(errors(-20.0, -15.5).isinf().all())
    assert bool(errors(9.5, 11.0).isinf().all())
    assert bool(errors(-16.5, 4.0).isfinite().all())
    assert bool(errors(-4.0, 10.5).isfinite().all())
    above = torch.tensor([[0.0, 6.0]], dtype=F64).expand(3, 2)
    rows = make_rows(
        above, *flat[1:], torch.zeros(3, dtype=torch.int64)
    )  # the rival is deeper than the target
    assert bool(errors(-10.2, -9.8).isinf().all())
    assert bool(errors(-9.55, -9.15).isinf().all())  # and passes the edge between two nodes
    assert bool(errors(-9.0, -8.6).isfinite().all())
    rows = make_rows(*flat, torch.zeros(3, dtype=torch.int64))
    assert errors(-4.0, 4.0, (False, True, False)).isinf().tolist() == [False, True, False]


@pytest.mark.parametrize(("tau", "begin", "end"), [(0.2, -22.0, -17.0), (0.02, 9.3, 9.8), (0.4, -18.0, 2.0)])
def test_outside_the_table_it_is_computed_in_full(tau, begin, end):
    """Far below, far above, and on both sides of an edge: value and gradients from exact functions."""
    mean = torch.tensor([[0.0, 0.1, -0.4], [0.0, -0.2, 0.3]], dtype=F64)
    scale = torch.tensor([[1.0, 0.9, 1.2], [1.1, 1.0, 0.8]], dtype=F64)
    inputs = mean, scale, torch.full((2, 1), tau, dtype=F64), torch.tensor([0, 0])
    rows = make_rows(*inputs)
    offset = torch.linspace(begin, end, 9, dtype=F64).expand(2, 9)
    nodes = Nodes(offset, torch.zeros(2, 9, dtype=F64), torch.zeros(2, dtype=torch.bool))
    answer = integrate(rows, torch.zeros(2, 1, dtype=F64), nodes, 1, True)
    assert bool(answer.error.isfinite().all())
    for b in range(2):
        terms, parts = naive(mean[b], scale[b], tau, 0, offset[b], torch.zeros(9, dtype=F64))
        close(answer.log_p[b], terms.logsumexp(0), 1e-6, 1e-6)
        found = (answer.d_mean[b], answer.d_scale[b], answer.d_temperature[b])
        for part, wanted in zip(found, averages(terms, parts)):
            size = float(wanted.abs().max())
            close(part, wanted, 1e-4, 1e-4 * size)


@pytest.mark.parametrize(
    ("growth", "spoilt"),
    [(50.4, True), (49.6, False), (0.052, False), (0.048, True), (0.07, False), (1.0, False)],
)
def test_maps_that_grow_too_much_or_too_little(growth, spoilt):
    """t = v exp(c v^4), whose growth t'(v) v / t is 1 in the middle and given at both ends."""
    end = 2.6
    c = (growth - 1) / (4 * end**4)
    reach = end * math.exp(c * end**4)
    both = [torch.tensor([[x, x]], dtype=F64) for x in (reach, end, 2 * end / (reach / end * growth))]
    middle = torch.tensor([[0.0]], dtype=F64)
    support = Support(middle, middle + 2.0, *both)
    assert bool(likelihood.laplace_nodes(support, 33).spoilt) is spoilt


def test_derivatives_change_their_variables():
    """From (t, sigma, tau) at width 1 to (x, alpha), by differences along the circle."""

    def f(t, sigma, tau):
        return t**2 * sigma + 0.7 * t * tau - sigma * tau**2

    x, turn = torch.tensor([0.3, -2.0, 1.1], dtype=F64), torch.tensor([2.0, 5.0, 0.5], dtype=F64)
    alpha = torch.tensor([0.2, 0.9, 1.4], dtype=F64)

    def g(x, alpha):
        tau = alpha.sin() / ROOT_C
        return f(x + EULER * tau, alpha.cos(), tau)

    sigma, tau = alpha.cos(), alpha.sin() / ROOT_C
    given = [v.clone().requires_grad_() for v in (x + EULER * tau, sigma, tau)]
    slopes = list(torch.autograd.grad(f(*given).sum(), given))
    d_x, d_v = likelihood._to_table(slopes, sigma, tau, turn)
    close(d_x, (g(x + H, alpha) - g(x - H, alpha)) / (2 * H), 1e-7)
    close(d_v, (g(x, alpha + H) - g(x, alpha - H)) / (2 * H) / turn, 1e-6)


def test_steps_between_nodes():
    """A class narrower than half the distance of the nodes around its mean, if anything is left there to cut."""
    t = torch.tensor([3.0, 0.0, 1.0, 2.5, -1.0], dtype=F64)  # in no order: pieces interleave
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4, 1e-12], dtype=F64)
    for place, width, step in (
        (1.6, 0.74, True),
        (1.6, 0.76, False),
        (2.7, 0.24, True),
        (2.7, 0.26, False),
        (-0.5, 0.4, True),
        (-0.5, 0.6, False),
        (-1.5, 1e-3, False),
        (3.5, 1e-3, False),
        (1.0, 1e-3, False),
        (-1.0, 1e-3, False),
    ):
        mean = torch.tensor([[0.3, place], [0.3, 0.4]], dtype=F64)
        rows = make_rows(
            mean, torch.ones(2, 2, dtype=F64), torch.zeros(2, 1, dtype=F64), torch.zeros(2).long()
        )
        rows = rows._replace(mean=mean, width=torch.tensor([[9.0, width], [9.0, 9.0]], dtype=F64))
        found = likelihood._with_steps(rows, t.expand(2, 5), weight.expand(2, 5))
        assert found.tolist() == [step, False]
    rows = rows._replace(
        mean=mean.new_tensor([[0.3, 0.5], [0.3, 0.4]]), width=rows.width.new_full((2, 2), 0.1)
    )
    none = torch.tensor([0.5, 0.3, 1e-10, 0.2, 0.1], dtype=F64)
    assert likelihood._with_steps(rows, t.expand(2, 5), none.expand(2, 5)).tolist() == [False, False]


def test_a_step_that_is_not_resolved_is_worth_the_change_itself():
    """Twice the larger of the last two changes, at most 1, and rounding."""
    terms = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=F64)
    terms *= torch.tensor([[1e-3], [0.05], [0.4], [4.0]], dtype=F64)
    sums = [terms[:, ::step].exp().sum(-1).log() + math.log(step) for step in (1, 2, 4)]
    changes = torch.maximum((sums[0] - sums[1]).abs(), (sums[1] - sums[2]).abs())
    steps = torch.tensor([True, True, False, True])
    plain = likelihood._error(terms, sums[0], 1)
    found = likelihood._error(terms, sums[0], 1, steps)
    close(found, torch.where(steps, (2 * changes).clamp(max=1.0), plain), 1e-9, 1e-12)


def test_the_halving_before_counts_too():
    """All nodes and every other one agree, every fourth does not: the fifth power of that change."""
    terms = torch.tensor([[1.0, 1.35, 1.2, 1.35, 1.0, 1.35, 1.2, 1.35, 1.0]], dtype=F64).log()
    found = likelihood._error(terms, terms.logsumexp(-1), 1)
    close(found, [math.log(12.0 / 10.8) ** 5], 1e-6, 0.0)


def test_the_error_asks_for_steps_between_nodes(monkeypatch):
    """A rival a hundred times narrower than the distance of nodes: its row is not believed, the other one is."""
    seen = []
    original = likelihood._with_steps
    monkeypatch.setattr(likelihood, "_with_steps", lambda *given: seen.append(given) or original(*given))
    mean = torch.tensor([[0.0, 0.13], [0.0, 0.13]], dtype=F64)
    scale = torch.tensor([[1.0, 1e-3], [1.0, 1.0]], dtype=F64)
    inputs = mean, scale, torch.zeros(2, 1, dtype=F64), torch.zeros(2, dtype=torch.int64)
    nodes = spread(2, 41, torch.full((2, 1), 6.0, dtype=F64))
    answer = integrate(make_rows(*inputs), torch.zeros(2, 1, dtype=F64), nodes, 1, True)
    assert float(answer.error[0]) > 1e-2
    assert float(answer.error[1]) < 1e-6
    moved = integrate(make_rows(*inputs), torch.full((2, 1), 0.05, dtype=F64), nodes, 1, True)
    assert bool(((answer.log_p - moved.log_p).abs() <= answer.error + moved.error + 1e-9).all())
    close(seen[1][1], 0.05 + nodes.offset)
    close(seen[1][2].sum(-1), [1.0, 1.0])
