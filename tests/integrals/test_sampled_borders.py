"""Sampled forms at the ends of their ranges: no draws, one factor, temperature 0 and 1, a floor."""

from __future__ import annotations

import math

import pytest
import torch

from dubito import DubitoError
from dubito.integrals import (
    BoundedTemperature,
    expected_log_softmax,
    sampled,
    sampled_log_softmax,
    sampled_variance,
)
from dubito.integrals.noise import random_blocks

F64 = torch.float64
MEAN = torch.tensor([[1.0, 0.0, -0.5], [0.0, 0.0, -2.0]], dtype=F64)
SCALE = torch.tensor([[0.5, 1.0, 2.0], [0.3, 0.2, 1.0]], dtype=F64)


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=F64)


@pytest.mark.parametrize("function", [sampled_log_softmax, sampled_variance])
def test_no_draw_and_half_a_latent(function):
    for noise in (torch.tensor(0.3, dtype=F64), draw(0, 2, 3)):
        with pytest.raises(DubitoError, match="no draw"):
            function(MEAN, SCALE, noise)
    for part in ({"factors": draw(2, 3, 1)}, {"factor_noise": draw(4, 2, 1)}):
        with pytest.raises(DubitoError, match="go together"):
            function(MEAN, SCALE, draw(4, 2, 3), **part)
    for factors, extra in ((draw(2, 4, 1), draw(4, 2, 1)), (draw(2, 3, 2), draw(4, 2, 3))):
        with pytest.raises(DubitoError, match="fit together"):
            function(MEAN, SCALE, draw(4, 2, 3), factors=factors, factor_noise=extra)


def test_one_draw_is_a_softmax():
    noise = draw(1, 2, 3)
    wanted = (MEAN + SCALE * noise[0]).log_softmax(-1)
    torch.testing.assert_close(sampled_log_softmax(MEAN, SCALE, noise), wanted)
    assert not bool(sampled_variance(MEAN, SCALE, noise).any())


def test_floor():
    noise = draw(40, 2, 3)
    plain = sampled_log_softmax(MEAN, SCALE, noise)
    raised = sampled_log_softmax(MEAN, SCALE, noise, floor=0.3)
    torch.testing.assert_close(raised.exp(), plain.exp().clamp(min=0.3))
    assert float(raised.min()) == pytest.approx(math.log(0.3))


@pytest.mark.parametrize("as_tensor", [True, False])
def test_temperature_zero_is_the_share_of_wins(as_tensor):
    """Ties are shared, zeros among the scores included; nothing has a slope."""
    mean = MEAN.clone().requires_grad_()
    noise = torch.stack([torch.zeros(2, 3, dtype=F64), draw(2, 3), draw(2, 3).neg()])
    tau = torch.tensor(0.0, dtype=F64) if as_tensor else 0.0
    log_p = sampled_log_softmax(mean, SCALE, noise, temperature=tau)
    u = MEAN + SCALE * noise
    wins = (u == u.amax(-1, keepdim=True)).double()
    wanted = (wins / wins.sum(-1, keepdim=True)).mean(0)
    torch.testing.assert_close(log_p.exp(), wanted)
    log_p[wanted > 0].sum().backward()
    assert not bool(mean.grad.any())


@pytest.mark.parametrize("tau", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_slopes_of_blocks_are_those_of_the_draws(tau, rank):
    """The backward pass that draws again, at temperature 1 and at others, with and without factors."""
    mean, scale = MEAN.clone().requires_grad_(), SCALE.clone().requires_grad_()
    temperature = torch.tensor(tau, dtype=F64, requires_grad=True)
    factors = draw(2, 3, rank).requires_grad_() if rank else None
    blocks = list(random_blocks(MEAN, rank, 50, 0))
    noise = torch.cat([b[0] for b in blocks])
    extra = torch.cat([b[1] for b in blocks]) if rank else None
    more = {"factors": factors, "temperature": temperature}
    whole = sampled_log_softmax(mean, scale, noise, factor_noise=extra, **more)
    again = expected_log_softmax(mean, scale, method="mc", samples=50, **more)
    torch.testing.assert_close(again, whole)
    weight = draw(2, 3)
    inputs = [x for x in (mean, scale, temperature, factors) if x is not None]
    slopes = [torch.autograd.grad((weight * x).sum(), inputs) for x in (whole, again)]
    for a, b in zip(*slopes):
        assert bool(a.abs().max() > 1e-3)
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_temperature_zero_has_no_slope_in_blocks():
    mean, tau = MEAN.clone().requires_grad_(), torch.tensor([[0.0], [1.0]], dtype=F64)
    log_p = expected_log_softmax(mean, SCALE, temperature=tau, method="mc", samples=64)
    (slope,) = torch.autograd.grad(log_p[:, 0].sum(), mean)
    assert not bool(slope[0].any())
    assert bool(slope[1].any())


def test_ends_of_a_learned_temperature():
    for lo, hi in ((0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (-1.0, 1.0)):
        with pytest.raises(DubitoError, match="no such range"):
            BoundedTemperature(lo, hi)
    assert float(BoundedTemperature(1e-3, 1.0)().detach()) == pytest.approx(0.5005)


def test_a_floor_is_not_for_the_kernels(monkeypatch):
    """They take the draws where nothing is raised to a floor."""
    taken = torch.tensor(7.0)
    monkeypatch.setattr(sampled.draws, "fit", lambda *_: True)
    monkeypatch.setattr(sampled.draws, "average", lambda *_: taken)
    mean, noise = torch.tensor([1.0, 0.0, -0.5]), torch.zeros(2, 3)
    assert sampled_log_softmax(mean, mean, noise) is taken
    for floor in (0.1, 1.0):
        found = sampled_log_softmax(mean, mean, noise, floor=floor)
        wanted = torch.log_softmax(mean, -1).exp().clamp(min=floor)
        torch.testing.assert_close(found.exp(), wanted)


def test_a_single_class_with_factors():
    one, noise = torch.ones(1), torch.zeros(4, 1)
    found = sampled_log_softmax(one, one, noise, factors=torch.ones(1, 2), factor_noise=torch.ones(4, 2))
    assert found.tolist() == [0.0]


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("ties", [False, True])
def test_streamed_draws_have_no_gradient_at_temperature_zero(tau, ties):
    """The argmax does not move with the latent, shared or not; at another temperature the same draws have one."""
    mean, scale = (torch.tensor([[0.5, 0.5 if ties else 0.2, -1.0]], requires_grad=True) for _ in range(2))
    temperature = torch.full((1, 1), tau, requires_grad=True)
    noise = torch.randn(8, 1, 3, generator=torch.Generator().manual_seed(0))
    if ties:
        noise[..., 1] = noise[..., 0]
    log_p = sampled.average_blocks(mean, scale, None, temperature, lambda: iter([(noise, None)]), 8)
    inputs = (mean, scale, temperature)
    for grad in torch.autograd.grad(log_p[0, 0], inputs):
        assert bool(grad.any()) is (tau > 0)
        assert bool(grad.isfinite().all())
