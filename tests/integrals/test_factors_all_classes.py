"""All classes of a latent with factors: class by class inside a rule over the factors."""

import pytest
import torch

from dubito.integrals import expected_log_softmax, expected_softmax_nll

MEAN = torch.tensor([[1.0, 0.0, -0.5], [0.2, -1.0, 2.0]], dtype=torch.float64)
SCALE = torch.tensor([[0.5, 1.0, 2.0], [1.5, 0.1, 0.7]], dtype=torch.float64)
FACTORS = torch.tensor([[[0.7], [-0.4], [1.1]], [[0.0], [1.3], [-0.8]]], dtype=torch.float64)


def over_the_factor(tau):
    """E_z of the probabilities of independent classes given z, by the trapezium rule in steps of .04."""
    z = torch.arange(-9, 9.01, 0.04, dtype=torch.float64)
    weight = torch.softmax(-z.square() / 2, 0)
    at = MEAN + FACTORS[..., 0] * z[:, None, None]
    p = expected_log_softmax(at, SCALE.expand_as(at), temperature=tau, tol=1e-9).exp()
    return (weight[:, None, None] * p).sum(0)


@pytest.mark.rel
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 5.0])
def test_one_factor_exactly(tau):
    """Scorecard 1: as a fine rule around the exact integral, by name and by `auto`; or an estimate that says so."""
    want = over_the_factor(tau)
    for method in ("quadrature", "auto"):
        reports = []
        got = expected_log_softmax(
            MEAN, SCALE, factors=FACTORS, temperature=tau, method=method, tol=1e-6, report=reports.append
        ).exp()
        off = (got - want).abs().amax(-1)
        assert reports[0].method == "factors x quadrature"
        assert reports[0].error.shape == (2,)
        assert off.le(reports[0].error + 1e-12).all()
        assert off.max() < (
            1e-6 if tau > 0 else 2e-6
        )  # a step in the factor, .1 wide, for a rule of 48 nodes


def test_probabilities_sum_to_one_with_two_factors():
    factors = torch.cat([FACTORS, FACTORS.flip(0)], -1)
    got = expected_log_softmax(MEAN, SCALE, factors=factors, method="quadrature", tol=1e-5).exp()
    assert torch.allclose(got.sum(-1), torch.ones(2, dtype=torch.float64), atol=2e-5)


def test_classes_and_gradients_are_those_of_the_likelihood():
    leaves = [x.clone().requires_grad_() for x in (MEAN, SCALE, FACTORS)]
    log_p = expected_log_softmax(
        leaves[0].T, leaves[1].T, factors=leaves[2], dim=0, method="quadrature", tol=1e-7
    )
    assert log_p.shape == (3, 2)
    target = torch.tensor([2, 1])
    nll = expected_softmax_nll(*leaves[:2], target, factors=leaves[2], method="quadrature", tol=1e-7)
    mine = -log_p.T.gather(-1, target[:, None]).mean()
    assert torch.allclose(mine, nll, atol=1e-7)
    for a, b in zip(torch.autograd.grad(mine, leaves), torch.autograd.grad(nll, leaves)):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "rank", "noise"), [(17, 1, "normal"), (3, 2, "normal"), (3, 1, "logistic")]
)
def test_auto_keeps_to_points_elsewhere(classes, rank, noise):
    """Many classes, several factors, other noise: 8,192 points and an estimate that admits what is missing."""
    g = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(2, classes, generator=g), torch.rand(2, classes, generator=g)
    factors = torch.randn(2, classes, rank, generator=g)
    reports = []
    expected_log_softmax(mean, scale, factors=factors, noise=noise, tol=1e-7, report=reports.append)
    assert (reports[0].method, reports[0].points) == ("qmc", 8192)
    assert not reports[0].reached


def test_as_many_points_as_are_needed():
    reports = []
    for tol in (1e-2, 2e-3):
        expected_log_softmax(MEAN, SCALE, factors=FACTORS, tol=tol, report=reports.append)
    assert [r.method for r in reports] == ["qmc", "qmc"]
    assert all(r.reached for r in reports)
    assert 256 <= reports[0].points <= reports[1].points < 8192
