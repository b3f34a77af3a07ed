"""All classes of a latent with factors: at once over one factor, class by class over more."""

import math

import pytest
import torch

from dubito.integrals import expected_log_softmax, expected_softmax_nll

MEAN = torch.tensor([[1.0, 0.0, -0.5], [0.2, -1.0, 2.0]], dtype=torch.float64)
SCALE = torch.tensor([[0.5, 1.0, 2.0], [1.5, 0.1, 0.7]], dtype=torch.float64)
FACTORS = torch.tensor([[[0.7], [-0.4], [1.1]], [[0.0], [1.3], [-0.8]]], dtype=torch.float64)


def over_the_factor(tau, mean=MEAN, scale=SCALE, factors=FACTORS, step=0.04):
    """E_z of the probabilities of independent classes given z, by the trapezium rule."""
    z = torch.arange(-9, 9 + step / 2, step, dtype=torch.float64)
    weight = torch.softmax(-z.square() / 2, 0)
    at = mean + factors[..., 0] * z[:, None, None]
    p = expected_log_softmax(at, scale.expand_as(at), temperature=tau, tol=1e-9).exp()
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
        assert off.max() < 1e-6


@pytest.mark.rel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0.3, 3.0])
def test_one_factor_at_a_low_temperature(size, dtype):
    """Steps in the factor: the default tolerance is reached, the error is no lie, and probabilities sum to 1."""
    g = torch.Generator().manual_seed(3)
    mean, scale = 2 * torch.randn(4, 5, generator=g), 0.3 * torch.rand(4, 5, generator=g)
    factors = size * torch.randn(4, 5, 1, generator=g)
    want = over_the_factor(0.05, mean.double(), scale.double(), factors.double(), 0.01)
    reports = []
    m, s, v = (x.to(dtype) for x in (mean, scale, factors))
    got = expected_log_softmax(m, s, factors=v, temperature=0.05, report=reports.append).exp().double()
    assert reports[0].reached
    assert ((got - want).abs().amax(-1) <= reports[0].error + 1e-7).all()
    assert torch.allclose(got.sum(-1), torch.ones(4, dtype=torch.float64), atol=5e-7)


def test_gradients_over_one_factor():
    """Against finite differences, in every input, with classes that hardly ever win among them."""
    g = torch.Generator().manual_seed(5)
    upstream = torch.randn(2, 3, generator=g, dtype=torch.float64)
    inputs = (MEAN, SCALE, FACTORS, torch.tensor([[0.2], [1.5]], dtype=torch.float64))

    def value(*x):
        log_p = expected_log_softmax(*x[:2], factors=x[2], temperature=x[3], tol=1e-9)
        return (log_p * upstream).sum()

    leaves = [x.clone().requires_grad_() for x in inputs]
    found = torch.autograd.grad(value(*leaves), leaves)
    for which, (x, slope) in enumerate(zip(inputs, found)):
        for at in range(x.numel()):
            move = torch.zeros(x.numel(), dtype=torch.float64)
            move[at] = 1e-4
            ends = [
                value(*(y + sign * move.reshape(x.shape) if i == which else y for i, y in enumerate(inputs)))
                for sign in (1, -1)
            ]
            assert float(slope.flatten()[at]) == pytest.approx(float(ends[0] - ends[1]) / 2e-4, abs=3e-6)


def test_one_factor_and_no_other_noise():
    """The third class wins between -1/2 and 1/2, and sharp borders cost no accuracy."""
    mean, factors = torch.tensor([0.0, 0.0, 0.5]).double(), torch.tensor([[1.0], [-1.0], [0.0]]).double()
    reports = []
    p = expected_log_softmax(
        mean, torch.zeros(3).double(), factors=factors, temperature=0.0, report=reports.append
    ).exp()
    side = math.erfc(0.5 / math.sqrt(2)) / 2
    assert p.tolist() == pytest.approx([side, side, 1 - 2 * side], abs=1e-5)
    assert reports[0].reached


def test_no_rows_over_one_factor():
    empty = torch.zeros(0, 3)
    assert expected_log_softmax(empty, empty, factors=torch.zeros(0, 3, 1)).shape == (0, 3)


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
    ("classes", "rank", "noise"), [(65, 1, "normal"), (3, 2, "normal"), (3, 1, "logistic")]
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
    for tol in (1e-2, 3e-3):
        expected_log_softmax(MEAN, SCALE, factors=FACTORS, tol=tol, report=reports.append)
    assert [r.method for r in reports] == ["qmc", "qmc"]
    assert all(r.reached for r in reports)
    assert 256 <= reports[0].points <= reports[1].points < 8192
