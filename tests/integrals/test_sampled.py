"""The sampled form: equal to its equation, to itself in blocks, and slowly right."""

from __future__ import annotations

import math

import pytest
import torch

from dubito import DubitoError
from dubito.integrals import (
    BoundedTemperature,
    expected_log_softmax,
    expected_softmax_nll,
    sampled_log_softmax,
)
from dubito.integrals.noise import random_blocks, sobol_bank

F64 = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def naive(mean, scale, noise, tau, factors=None, factor_noise=None):
    """Equation 7 as it is printed: an average of softmaxes, sample by sample."""
    total = torch.zeros_like(mean)
    for s in range(len(noise)):
        u = mean + scale * noise[s]
        if factors is not None:
            u = u + torch.einsum("...kr,...r->...k", factors, factor_noise[s])
        e = ((u - u.max(-1, keepdim=True).values) / tau).exp()
        total = total + e / e.sum(-1, keepdim=True)
    return (total / len(noise)).log()


@pytest.mark.rel
@pytest.mark.paper("collier2020 eq. 2", "collier2020 eq. 7", "englesson2023 eq. 13")
@pytest.mark.parametrize("tau", [0.2, 1.0, 5.0])
def test_core_equals_the_equation(tau):
    """Scorecard 1: the sampled link equals a naive transcription."""
    mean, scale = draw(3, 4, 6), draw(3, 4, 6, seed=1).abs()
    noise, factors, extra = draw(45, 3, 4, 6, seed=2), draw(3, 4, 6, 2, seed=3), draw(45, 3, 4, 2, seed=4)
    got = sampled_log_softmax(mean, scale, noise, temperature=tau)
    torch.testing.assert_close(got, naive(mean, scale, noise, tau), rtol=1e-12, atol=1e-12)
    got = sampled_log_softmax(mean, scale, noise, temperature=tau, factors=factors, factor_noise=extra)
    torch.testing.assert_close(got, naive(mean, scale, noise, tau, factors, extra), rtol=1e-12, atol=1e-12)


@pytest.mark.rel
@pytest.mark.paper("englesson2023 eq. 14")
def test_gradient_identity():
    """Scorecard 2: d(-log p_y)/d mean = -(e_y - sum_s w_s softmax(u^s)), with w_s the share of draw s in p_y."""
    mean = draw(5, 4).requires_grad_()
    scale, noise, y = draw(5, 4, seed=1).abs(), draw(40, 5, 4, seed=2), torch.tensor([0, 1, 2, 3, 0])
    rows = torch.arange(5)
    loss = -sampled_log_softmax(mean, scale, noise)[rows, y].sum()
    (grad,) = torch.autograd.grad(loss, mean)
    p = torch.softmax(mean.detach() + scale * noise, -1)
    w = p[:, rows, y] / p[:, rows, y].sum(0)
    wanted = -(torch.nn.functional.one_hot(y, 4) - (w.unsqueeze(-1) * p).sum(0))
    torch.testing.assert_close(grad, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.rel
@pytest.mark.parametrize("samples", [1, 31, 32, 100])
def test_blocks_equal_the_core_bit_for_bit(samples):
    """Scorecard 9: chunked = unchunked bit for bit, in value; gradients to rounding."""
    mean, scale, factors = (
        draw(4, 5).requires_grad_(),
        draw(4, 5, seed=1).abs().requires_grad_(),
        draw(4, 5, 2, seed=2),
    )
    tau = torch.tensor(0.7, dtype=F64, requires_grad=True)
    blocks = list(random_blocks(mean.detach(), 2, samples, 0))
    noise, extra = (torch.cat(part) for part in zip(*blocks))
    whole = sampled_log_softmax(mean, scale, noise, factors=factors, factor_noise=extra, temperature=tau)
    chunked = expected_log_softmax(
        mean, scale, factors=factors, temperature=tau, method="mc", samples=samples
    )
    assert torch.equal(whole, chunked)
    weights = draw(4, 5, seed=3)
    for a, b in zip(
        torch.autograd.grad((whole * weights).sum(), (mean, scale, tau)),
        torch.autograd.grad((chunked * weights).sum(), (mean, scale, tau)),
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.rel
def test_error_falls_as_the_root_of_the_samples(scorecard):
    """Scorecard 9: slope of log error against log S is -0.5 +- 0.05."""
    mean, scale = torch.tensor([1.0, 0.0, -0.5]), torch.tensor([0.5, 1.0, 2.0])
    truth = expected_log_softmax(mean.double(), scale.double(), tol=1e-8).exp()
    g = torch.Generator().manual_seed(0)
    many = (4000, 3)
    sizes, errors = (32, 128, 512), []
    for size in sizes:
        got = expected_log_softmax(
            mean.expand(many), scale.expand(many), method="mc", samples=size, generator=g
        ).exp()
        errors.append(float((got - truth).square().mean().sqrt()))
    slope = math.log(errors[-1] / errors[0]) / math.log(sizes[-1] / sizes[0])
    scorecard(9, slope_off=abs(slope + 0.5))
    assert abs(slope + 0.5) < 0.05, slope


@pytest.mark.rel
def test_gradcheck():
    """Scorecard 2: gradcheck of the sampled link, in blocks and as the core."""
    inputs = (draw(2, 3), draw(2, 3, seed=1).abs(), draw(2, 3, 2, seed=2), torch.tensor(0.8, dtype=F64))
    inputs = tuple(x.requires_grad_() for x in inputs)
    for method in ("mc", "qmc"):
        assert torch.autograd.gradcheck(
            lambda m, s, f, t, method=method: expected_log_softmax(
                m, s, factors=f, temperature=t, method=method, samples=40
            ),
            inputs,
        )


@pytest.mark.rel
def test_compiles_as_one_graph():
    """Scorecard 12: the pure core compiles with fullgraph=True."""
    mean, scale, noise = draw(3, 5), draw(3, 5, seed=1).abs(), draw(40, 3, 5, seed=2)
    tau = torch.tensor(0.6, dtype=F64)
    compiled = torch.compile(sampled_log_softmax, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(mean, scale, noise, temperature=tau),
        sampled_log_softmax(mean, scale, noise, temperature=tau),
    )


def test_works_under_vmap():
    mean, scale, noise = draw(6, 5), draw(6, 5, seed=1).abs(), draw(40, 5, seed=2)
    mapped = torch.vmap(lambda m, s: sampled_log_softmax(m, s, noise))(mean, scale)
    torch.testing.assert_close(mapped, sampled_log_softmax(mean, scale, noise.unsqueeze(1)))


@pytest.mark.parametrize("method", ["mc", "qmc", "quadrature", "auto"])
@pytest.mark.parametrize("tau", [0.0, torch.tensor(0.0)])
def test_argmax_limit_shares_ties_without_gradient(method, tau):
    mean = torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]], requires_grad=True)
    log_p = expected_log_softmax(mean, torch.zeros(2, 3), temperature=tau, method=method, samples=8)
    torch.testing.assert_close(
        log_p.exp(), torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), rtol=1e-6, atol=1e-6
    )
    (log_p[0, :2].sum() + log_p[1, 0]).backward()
    torch.testing.assert_close(mean.grad, torch.zeros(2, 3))


@pytest.mark.parametrize("method", ["mc", "qmc"])
def test_logistic_and_gumbel_noise(method):
    """Gumbel noise at temperature 0 is a softmax; one logistic utility against a point is a sigmoid."""
    mean = torch.tensor([1.0, 0.2, -0.7])
    g = torch.Generator().manual_seed(1)
    options = {"temperature": 0.0, "method": method, "samples": 1 << 15, "generator": g}
    got = expected_log_softmax(mean, torch.ones(3), noise="gumbel", **options).exp()
    torch.testing.assert_close(got, torch.softmax(mean, -1), rtol=0, atol=0.012)
    got = expected_log_softmax(mean[:2], torch.tensor([1.0, 0.0]), noise="logistic", **options).exp()
    torch.testing.assert_close(got[0], torch.sigmoid(torch.tensor(0.8)), rtol=0, atol=0.012)


def test_banks():
    """Shared Sobol banks have many axes, no infinite point, and are the same for the same seed."""
    bank, _ = sobol_bank(64, 30_000, 0, 5, "normal", torch.device("cpu"), torch.float32)
    assert bank.shape == (64, 30_000)
    assert bool(torch.isfinite(bank).all())
    assert abs(float(bank.mean())) < 0.01
    assert abs(float(bank.std()) - 1) < 0.02
    again, factors = sobol_bank(64, 10, 3, 5, "normal", torch.device("cpu"), torch.float64)
    assert factors is not None
    assert factors.shape == (64, 3)
    assert torch.equal(
        again, sobol_bank.__wrapped__(64, 10, 3, 5, "normal", torch.device("cpu"), torch.float64)[0]
    )


def test_global_generators_are_left_alone():
    before = torch.random.get_rng_state()
    mean, scale, y = torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([0, 1])
    for method in ("mc", "qmc", "quadrature"):
        expected_log_softmax(mean, scale, method=method)
        expected_softmax_nll(mean, scale, y, method=method, factors=torch.ones(2, 3, 1))
    assert torch.equal(before, torch.random.get_rng_state())


def test_floor_is_for_parity():
    log_p = expected_log_softmax(
        torch.tensor([0.0, 60.0]), torch.zeros(2), method="mc", samples=4, floor=1e-7
    )
    assert float(log_p[0]) == pytest.approx(math.log(1e-7), rel=1e-6)


def test_learned_temperature_is_bounded():
    tau = BoundedTemperature()
    assert float(tau().detach()) == pytest.approx(1.65)
    mean, scale, y = torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([0, 1])
    expected_softmax_nll(mean + torch.eye(3)[:2], scale, y, temperature=tau()).backward()
    assert float(tau.weight.grad.abs()) > 0
    with torch.no_grad():
        tau.weight.fill_(50.0)
    assert float(tau().detach()) == pytest.approx(3.0)
    with pytest.raises(DubitoError, match="0 < lo < hi"):
        BoundedTemperature(2.0, 1.0)
