"""Rules over few factors, one step at a time: points, proposals, weighted means and their errors, written out.

In the place of the integral stands a likelihood whose logarithm is known in closed form.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from dubito.integrals import climb, quadrature
from dubito.integrals import factors as module
from dubito.integrals.border import as_latent
from dubito.integrals.likelihood import Answer

F64 = torch.float64
LIKE = torch.zeros(1, dtype=F64)


def close(found, wanted, rtol=1e-9, atol=1e-11):
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=F64), rtol=rtol, atol=atol)


def closed(mean, scale, tau, target):
    """A stand-in for log p, (B,)."""
    own = mean.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return own - 0.3 * (scale * mean.square()).sum(-1) - 0.2 * (tau.squeeze(-1) + 1) * mean.sum(-1)


class Stand:
    """`solve` of the stand-in; it notes how it is called."""

    def __init__(self, error=0.0):
        self.error, self.rows, self.tols = error, [], []

    def __call__(self, mean, scale, tau, target, tol):
        self.rows.append(len(mean))
        self.tols.append(tol)
        given = [x.detach().clone().requires_grad_() for x in (mean, scale, tau)]
        with torch.enable_grad():
            log_p = closed(*given, target)
            slopes = torch.autograd.grad(log_p.sum(), given)
        error = self.error * (1 + mean.detach()[:, 0].abs())
        return Answer(log_p.detach(), error, error == error, *slopes), None


@pytest.fixture
def stand(monkeypatch):
    made = Stand()
    monkeypatch.setattr(module, "solve", made)
    monkeypatch.setattr(climb, "solve", made)
    return made


def make(rows=3, classes=4, rank=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    mean = torch.randn(rows, classes, generator=g, dtype=F64)
    scale = torch.rand(rows, classes, generator=g, dtype=F64) + 0.1
    factors = torch.randn(rows, classes, rank, generator=g, dtype=F64)
    tau = torch.rand(rows, 1, generator=g, dtype=F64)
    return mean, scale, factors, tau, torch.arange(rows) % classes


def test_the_integral_at_points():
    """Every point and every row by itself: value, error and the gradients of all inputs."""
    mean, scale, factors, tau, target = make()
    at = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    log_p, error, parts = module._at_points(mean, scale, factors, tau, target, at, 1e-5)
    for s in range(5):
        for b in range(3):
            one = [
                x[b : b + 1] for x in (mean + (factors @ at[s].unsqueeze(-1)).squeeze(-1), scale, tau, target)
            ]
            answer, _ = quadrature.solve(*one, 1e-5)
            close(log_p[s, b], answer.log_p[0], 1e-6, 1e-6)
            assert float(error[s, b]) <= 1e-5
            wanted = (answer.d_mean[0], answer.d_scale[0], answer.d_temperature[0])
            for found, part in zip(parts, (*wanted, torch.outer(answer.d_mean[0], at[s, b]))):
                close(found[s, b], part, 1e-3, 1e-4)


def mixed(mean, scale, factors, tau, target, proposal, rule):
    """The weighted mean, term by term, for autograd."""
    terms = []
    for x, log_w in zip(rule.points, rule.log_weight):
        z = proposal.place + (proposal.root @ x.unsqueeze(-1)).squeeze(-1)
        log_p = closed(mean + (factors @ z.unsqueeze(-1)).squeeze(-1), scale, tau, target)
        ratio = (x.square().sum() - z.square().sum(-1)) / 2 + proposal.log_det
        terms.append(log_p + log_w + ratio)
    return torch.stack(terms)


@pytest.mark.parametrize("rows_at_a_time", [1, 6, 4096])
def test_the_weighted_mean_and_its_gradients(rows_at_a_time, stand, monkeypatch):
    """Whatever the proposal and however many points at a time."""
    monkeypatch.setattr(module, "_ROWS", rows_at_a_time)
    stand.error = 1e-3
    *inputs, target = make()
    g = torch.Generator().manual_seed(2)
    proposal = module.Proposal(
        torch.randn(3, 2, generator=g, dtype=F64),
        torch.randn(3, 2, 2, generator=g, dtype=F64),
        torch.randn(3, generator=g, dtype=F64),
    )
    rule = module.hermite_rule(2, 4, LIKE)
    rule.log_weight[5] -= 900.0  # a point that does not count
    given = [x.clone().requires_grad_() for x in inputs]
    wanted = mixed(*given, target, proposal, rule)
    log_p, errors, terms = module.Mixed.apply(*given, target, proposal, rule, 1e-5)
    close(terms, wanted.detach())
    close(log_p.detach(), wanted.detach().exp().sum(0).log())
    at = proposal.place + torch.einsum("brq,sq->sbr", proposal.root, rule.points)
    first = inputs[0][:, 0] + torch.einsum("br,sbr->sb", inputs[2][:, 0], at)
    close(errors, 1e-3 * (1 + first.abs()).amax(0))
    assert max(stand.rows) <= max(3, rows_at_a_time)
    if rows_at_a_time < 4096:
        assert len(stand.rows) == 16 // max(1, rows_at_a_time // 3)
    weights = torch.tensor([0.5, 2.0, -1.0], dtype=F64)
    found = torch.autograd.grad((weights * log_p).sum(), given)
    for a, b in zip(found, torch.autograd.grad((weights * wanted.logsumexp(0)).sum(), given)):
        close(a, b)


def test_an_infinite_gradient_makes_no_nan_of_a_zero(stand):
    *inputs, target = make(rows=1)
    inputs[2] = torch.zeros_like(inputs[2]).requires_grad_()
    proposal = module.Proposal(torch.zeros(1, 2, dtype=F64), torch.eye(2, dtype=F64)[None], LIKE)
    rule = module.Rule(torch.zeros(1, 2, dtype=F64), LIKE, False)
    log_p, _, _ = module.Mixed.apply(*inputs, target, proposal, rule, 1e-5)
    (grad,) = torch.autograd.grad(log_p, inputs[2], torch.tensor([math.inf], dtype=F64))
    assert torch.equal(grad, torch.zeros_like(grad))


def test_a_lost_row_has_no_gradient(monkeypatch):
    """Where no point has any probability the value is -inf, and nothing is asked of the inputs."""

    def lost(mean, scale, tau, target, tol):
        none = torch.full_like(mean[:, 0], -math.inf)
        return Answer(none, none.exp(), none < 0, mean.new_ones(mean.shape), scale, tau), None

    monkeypatch.setattr(module, "solve", lost)
    monkeypatch.setattr(module, "_ROWS", 1)
    *inputs, target = make(rows=2)
    inputs[0].requires_grad_()
    proposal = module.Proposal(
        torch.zeros(2, 2, dtype=F64), torch.eye(2, dtype=F64).expand(2, 2, 2), torch.zeros(2, dtype=F64)
    )
    log_p, _, _ = module.Mixed.apply(*inputs, target, proposal, module.hermite_rule(2, 3, LIKE), 1e-5)
    assert log_p.tolist() == [-math.inf] * 2
    (grad,) = torch.autograd.grad(log_p.sum(), inputs[0])
    assert torch.equal(grad, torch.zeros_like(grad))


def climbed(uphill, rank, steps=5):
    """Barzilai-Borwein steps in plain numpy, from 0."""
    z, length = np.zeros(rank), 0.5
    slope = uphill(z)
    for _ in range(steps):
        new = z + length * slope
        after = uphill(new)
        moved, turned = new - z, slope - after
        length = min(max(moved @ moved / max(moved @ turned, 1e-12), 0.02), 1.0)
        z, slope = new, after
    return z


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("size", [0.05, 0.7, 6.0])
def test_place_and_shape_of_the_points(rank, size, stand):
    """Five steps uphill; then 1.3 over the root of each curvature, never more than that of the prior.

    Beside large factors five steps lose their way: then by lines, with one factor to the mode itself.
    """
    mean, scale, factors, tau, target = make(rank=rank, seed=4)
    factors = size * factors
    found = module.find_proposal(mean, scale, factors, tau, target)
    assert set(stand.tols) == {1e-2}
    assert len(stand.tols) == 6 + 2 * rank or size == 6.0
    start = climb.Climb(mean, scale, factors, tau, target)
    for b in range(3):
        load, own = factors[b].numpy(), np.eye(4)[int(target[b])]

        def uphill(z, b=b, load=load, own=own):
            u = mean[b].numpy() + load @ z
            return load.T @ (own - 0.6 * scale[b].numpy() * u - 0.2 * (float(tau[b]) + 1)) - z

        curvature = np.eye(rank) + 0.6 * load.T @ np.diag(scale[b].numpy()) @ load
        if np.linalg.norm(uphill(climbed(uphill, rank))) <= 1:
            close(found.place[b], climbed(uphill, rank))
        elif rank == 1:
            close(found.place[b], np.linalg.solve(curvature, uphill(np.zeros(1))), 1e-5, 1e-5)
        else:
            assert float(start.value(found.place)[b]) > float(start.value(0 * found.place)[b])
        values, vectors = np.linalg.eigh(curvature)
        spread = np.minimum(1.3 / np.sqrt(values), 1.0)
        square = vectors @ np.diag(spread**2) @ vectors.T
        close(found.root[b] @ found.root[b].T, square, 1e-6, 1e-8)
        close(found.log_det[b], np.log(spread).sum(), 1e-6, 1e-8)


def test_a_curvature_that_is_not_one(monkeypatch):
    """Below that of the prior or no number at all: the prior's own shape; of two halves that differ, their mean."""
    unit = torch.eye(2, dtype=F64)[None]
    zero, label = torch.zeros(1, 2, dtype=F64), torch.tensor([0])

    def of(slope, factors=unit):
        def solve(mean, *_):
            none = -10 * mean.square().sum(-1)
            return Answer(none, none, none == none, slope(mean), mean, none.unsqueeze(-1)), None

        monkeypatch.setattr(climb, "solve", solve)
        return module.find_proposal(zero, zero + 1, factors, zero[:, :1], label)

    close(of(lambda u: 3.0 * u).root.abs(), unit)
    skew = of(lambda u: u @ torch.tensor([[-8.0, 2.0], [0.0, -3.0]], dtype=F64))
    values, vectors = np.linalg.eigh(np.array([[9.0, -1.0], [-1.0, 4.0]]))
    close((skew.root @ skew.root.mT)[0], vectors @ np.diag(1.69 / values) @ vectors.T, 1e-6, 1e-8)
    nothing = of(lambda u: u * math.nan)
    close(nothing.place, zero)
    close(nothing.root.abs(), unit)
    steep = of(lambda u: 3.0 * u + 1.0)  # rising ever faster, which no likelihood does: it ends all the same
    assert torch.isfinite(steep.place).all()
    both = torch.tensor([[[1.0, 1.0], [1.0, -1.0]]], dtype=F64)
    first = torch.tensor([True, False])
    for sign in (math.inf, -math.inf):
        end = of(lambda u, sign=sign: torch.where((u < -0.02) & (u > -0.06) & first, sign, 0.0 * u), both)
        close(end.place, zero)
        close(end.root @ end.root.mT, unit)


def test_one_rule_after_the_other(stand, monkeypatch):
    """Until the change is within the tolerance; never fewer than two; none with more points than allowed."""
    mean, scale, factors, tau, target = make(rank=1)
    latent = as_latent(mean, scale, factors, tau)
    monkeypatch.setattr(module, "find_proposal", lambda *given: prior)
    prior = module.Proposal(
        torch.zeros(3, 1, dtype=F64), torch.ones(3, 1, 1, dtype=F64), torch.zeros(3, dtype=F64)
    )
    sizes = [len(rule.points) for rule in module.rules(1, 0, LIKE)]
    values = [
        mixed(mean, scale, factors, tau, target, prior, rule).logsumexp(0)
        for rule in module.rules(1, 0, LIKE)
    ]
    changes = [float((b - a).abs().max()) for a, b in itertools.pairwise(values)]
    for tol, most, last in (
        (10.0, math.inf, 1),
        (1.001 * changes[1], math.inf, 2),
        (0.999 * changes[1], math.inf, 3),
        (1e-30, math.inf, 3),
        (1e-30, 0, 1),
        (1e-30, sizes[2], 2),
        (1e-30, sizes[2] - 1, 1),
    ):
        log_p, error, points = module.factor_log_likelihood(latent, target, tol, 0, most=most)
        assert points == sizes[last]
        close(log_p, values[last])
        close(error, (values[last] - values[last - 1]).abs(), atol=1e-10)
        exactly = float(error.max())
        assert module.factor_log_likelihood(latent, target, exactly, 0, most=most)[2] == sizes[last]
    stand.tols.clear()
    module.factor_log_likelihood(latent, target, 1e-3, 0)
    module.factor_log_likelihood(latent, target, 1e-7, 0)
    assert set(stand.tols) == {1e-4, 1e-6}
    _, error, points = module.factor_log_likelihood(latent, target, 1e9, 0, module.sobol_rule(16, 1, 0, LIKE))
    assert points == 16
    stand.error = 0.5
    _, more, _ = module.factor_log_likelihood(latent, target, 1e9, 0, module.sobol_rule(16, 1, 0, LIKE))
    assert bool((more - error >= 0.5).all())


def test_leading_shapes_and_none(stand):
    mean, scale, factors, tau, target = make(rows=6, rank=2)
    flat = module.factor_log_likelihood(as_latent(mean, scale, factors, tau), target, 1e-3, 0)
    shaped = [x.reshape(2, 3, *x.shape[1:]) for x in (mean, scale, factors, tau, target)]
    cubic = module.factor_log_likelihood(as_latent(*shaped[:4]), shaped[4], 1e-3, 0)
    for a, b in zip(flat[:2], cubic[:2]):
        close(b, a.reshape(2, 3))
    none = [x[:0] for x in (mean, scale, factors, tau, target)]
    log_p, error, points = module.factor_log_likelihood(as_latent(*none[:4]), none[4], 1e-3, 0)
    assert (log_p.shape, error.shape, points) == ((0,), (0,), len(module.rules(2, 0, LIKE)[0].points))
