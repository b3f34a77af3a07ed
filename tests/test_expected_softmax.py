"""The expected softmax as the papers state it: sampled core, limits, known values, gradients."""

import math

import pytest
import torch

from dubito import links

MEAN, SCALE = torch.tensor([1.0, 0.0, -0.5]).double(), torch.tensor([0.5, 1.0, 2.0]).double()
# Three classes at temperatures 1, 5 and 0, by an integral coded elsewhere.
KNOWN = {
    1.0: (0.523869, 0.239389, 0.236742),
    5.0: (0.386496, 0.318326, 0.295178),
    0.0: (0.633535, 0.149162, 0.217303),
}


def draws(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.paper("collier2020 eq. 2", "collier2020 eq. 7", "englesson2023 eq. 13")
@pytest.mark.parametrize("tau", [0.2, 1.0, 5.0])
def test_sampled_core_equals_the_average_of_softmaxes(tau):
    mean, scale, noise = draws(4, 6), draws(4, 6, seed=1).abs(), draws(50, 4, 6, seed=2)
    factors, factor_noise = draws(4, 6, 2, seed=3), draws(50, 4, 2, seed=4)
    naive = torch.zeros(4, 6, dtype=torch.float64)
    for s in range(50):
        u = mean + scale * noise[s] + (factors @ factor_noise[s].unsqueeze(-1)).squeeze(-1)
        naive += torch.softmax(u / tau, -1) / 50
    ours = links.sampled_log_softmax(
        mean, scale, noise, factors=factors, factor_noise=factor_noise, temperature=tau
    )
    torch.testing.assert_close(ours.exp(), naive, rtol=1e-10, atol=1e-12)


@pytest.mark.paper("collier2020 eq. 3", "collier2020 eq. 5", "collier2020 eq. 6")
@pytest.mark.parametrize("tau", sorted(KNOWN))
@pytest.mark.parametrize("method", ["quadrature", "qmc", "mc"])
def test_known_values(tau, method):
    generator = torch.Generator().manual_seed(0)
    found = links.expected_log_softmax(
        MEAN, SCALE, temperature=tau, method=method, samples=1 << 14, generator=generator
    ).exp()
    tolerance = {"quadrature": 2e-6, "qmc": 2e-3, "mc": 2e-2}[method]
    assert found.tolist() == pytest.approx(KNOWN[tau], abs=tolerance)
    if method == "quadrature":
        for y in range(3):
            nll = links.expected_softmax_nll(MEAN, SCALE, torch.tensor(y), temperature=tau, method=method)
            assert math.exp(-float(nll)) == pytest.approx(KNOWN[tau][y], abs=1e-6)


@pytest.mark.paper("collier2020 eq. 8")
@pytest.mark.parametrize(("tau", "p"), [(1.0, 0.587596), (0.5, 0.613247), (0.0, 0.630559)])
def test_binary_values(tau, p):
    found = links.expected_sigmoid(torch.tensor(0.5).double(), 1.5, temperature=tau)
    assert float(found) == pytest.approx(p, abs=1e-6)
    log_p = links.expected_log_sigmoid(torch.tensor(0.5).double(), 1.5, temperature=tau)
    assert math.exp(float(log_p)) == pytest.approx(p, abs=1e-6)


@pytest.mark.paper("collier2020 eq. 4")
def test_limits():
    """No noise is the softmax; (mean, scale, tau) scale together; no factors is the diagonal form."""
    zero = links.expected_log_softmax(MEAN, torch.zeros(3).double(), temperature=0.7, method="quadrature")
    torch.testing.assert_close(zero, torch.log_softmax(MEAN / 0.7, -1), rtol=1e-6, atol=1e-6)
    target = torch.tensor(1)
    one = links.expected_softmax_nll(MEAN, SCALE, target, temperature=0.5)
    other = links.expected_softmax_nll(3 * MEAN, 3 * SCALE, target, temperature=1.5)
    assert float(one) == pytest.approx(float(other), abs=1e-6)
    noise = draws(64, 3)
    plain = links.sampled_log_softmax(MEAN, SCALE, noise)
    none = torch.zeros(3, 2, dtype=torch.float64)
    with_none = links.sampled_log_softmax(MEAN, SCALE, noise, factors=none, factor_noise=draws(64, 2))
    torch.testing.assert_close(plain, with_none)


@pytest.mark.paper("englesson2023 eq. 14")
def test_gradient_of_the_loss_in_the_mean():
    """d(-log p_y)/d mean = -(e_y - E[S S_y] / E[S_y]) at tau = 1, for fixed noise."""
    mean, noise, y = MEAN.clone().requires_grad_(), draws(200, 3), 2
    loss = -links.sampled_log_softmax(mean, SCALE, noise)[y]
    (ours,) = torch.autograd.grad(loss, mean)
    samples = torch.softmax(MEAN + SCALE * noise, -1)
    share = (samples * samples[:, y : y + 1]).mean(0) / samples[:, y].mean()
    torch.testing.assert_close(ours, -(torch.eye(3, dtype=torch.float64)[y] - share))


def test_gradients_of_the_quadrature():
    mean, scale = draws(3, 4), draws(3, 4, seed=1).abs() + 0.1
    tau = torch.tensor(0.8, dtype=torch.float64)
    target = torch.tensor([0, 2, 3])

    def nll(mean, scale, tau):
        return links.expected_softmax_nll(
            mean, scale, target, temperature=tau, method="quadrature", reduction="sum"
        )

    inputs = [v.clone().requires_grad_() for v in (mean, scale, tau)]
    assert torch.autograd.gradcheck(nll, inputs, rtol=1e-4, atol=1e-6, eps=1e-5)


@pytest.mark.rel
def test_sampling_error_falls_with_the_root_of_the_samples():
    """Scorecard 9: the slope of log error against log S is -1/2."""
    exact = links.expected_log_softmax(MEAN, SCALE, method="quadrature").exp()
    sizes, errors = [64, 256, 1024, 4096], []
    for size in sizes:
        noise = draws(400, size, 3, seed=size).transpose(0, 1)  # 400 repetitions as a batch
        found = links.sampled_log_softmax(MEAN.expand(400, 3), SCALE.expand(400, 3), noise).exp()
        errors.append(float((found - exact).square().mean().sqrt()))
    slope = (math.log(errors[-1]) - math.log(errors[0])) / (math.log(sizes[-1]) - math.log(sizes[0]))
    assert slope == pytest.approx(-0.5, abs=0.05)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tau", [0.025, 1.0, 100.0])
def test_extreme_logits_stay_finite(dtype, tau):
    mean = torch.tensor([[0.0, 0, 0], [1e4, -1e4, 0], [50, 50, -50]], dtype=dtype, requires_grad=True)
    scale = torch.tensor([[1.0, 1, 1], [0.001, 5, 50], [0.1, 10, 0.5]], dtype=dtype, requires_grad=True)
    loss = links.expected_softmax_nll(mean, scale, torch.tensor([0, 0, 1]), temperature=tau)
    loss.backward()
    assert loss.isfinite()
    assert mean.grad.isfinite().all()
    assert scale.grad.isfinite().all()


def test_variance_equals_that_of_the_samples():
    noise = draws(1 << 15, 3)
    samples = torch.softmax(MEAN + SCALE * noise, -1)
    found = links.predictive_variance(
        MEAN, SCALE, samples=1 << 13, generator=torch.Generator().manual_seed(0)
    )
    torch.testing.assert_close(found, samples.var(0, correction=0), rtol=0.03, atol=1e-3)
