"""Logistic-normal NLL: printed values, the dense Gaussian, the density on the simplex, target logits."""

from __future__ import annotations

import math

import naive_losses as naive
import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from dubito.losses import logistic_normal_nll
from dubito.testing import check_loss

MEAN = torch.tensor([[0.5, -0.2, 1.0], [2.0, 0.0, -1.0]], dtype=torch.float64)
ROOT = torch.tensor([[0.3, -0.6, 0.9], [1.0, 0.5, 0.0]], dtype=torch.float64)
Y = torch.tensor([0, 2])
PRINTED = {"lam": 0.5, "temperature": 0.5, "smoothing": 0.01, "reduction": "none"}


def target_logit(size, label, *, dummy, temperature=1.0, smoothing=0.01):
    """The mean at which the quadratic term vanishes, found from the loss: with Sigma = I, l = |y - mean|^2 / 2."""
    mean = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    options = {"lam": 1.0, "covariance": "identity", "temperature": temperature, "smoothing": smoothing}
    value = logistic_normal_nll(mean, None, torch.tensor(label), dummy=dummy, **options)
    return -torch.autograd.grad(value, mean)[0]


@pytest.mark.paper("englesson2023 eq. 5", "englesson2023 eq. 4")
def test_printed_values():
    found = logistic_normal_nll(MEAN, ROOT, Y, **PRINTED)
    np.testing.assert_allclose(found.numpy(), [13.570547, 33.167390], atol=1e-6)
    density = logistic_normal_nll(MEAN, ROOT, Y, normalized=True, **PRINTED)
    np.testing.assert_allclose(density.numpy(), [0.424883, 20.021725], atol=1e-6)
    # another volume on the simplex shifts it by log(K + 1)/2
    np.testing.assert_allclose(density.numpy() + math.log(4) / 2, [1.118030, 20.714872], atol=1e-6)


@pytest.mark.rel
@pytest.mark.paper("englesson2023 eq. 9", "englesson2023 eq. 5")
def test_equals_the_dense_gaussian():
    """Scorecard 3: the rank-one identities are torch's dense Gaussian with covariance (cc' + lam I)^2."""
    for lam, tau, t in ((0.1, 1.0, 0.01), (0.5, 0.5, 0.1), (2.0, 3.0, 0.3)):
        options = {"lam": lam, "temperature": tau, "smoothing": t, "reduction": "none"}
        found = logistic_normal_nll(MEAN, ROOT, Y, **options)
        R = ROOT[:, :, None] * ROOT[:, None, :] + lam * torch.eye(3, dtype=torch.float64)
        y = tau * math.log(((1 - t) * 4 + t) / t) * torch.eye(3, dtype=torch.float64)[Y]
        expected = -MultivariateNormal(MEAN, covariance_matrix=R @ R).log_prob(y) - 1.5 * math.log(
            2 * math.pi
        )
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
        for wrong in (
            R,
            R + (lam**2 - lam) * torch.eye(3, dtype=torch.float64),
        ):  # cc' + lam I, cc' + lam^2 I
            other = -MultivariateNormal(MEAN, covariance_matrix=wrong).log_prob(y) - 1.5 * math.log(
                2 * math.pi
            )
            assert float((found - other).abs().min()) > 1e-2


@pytest.mark.paper(
    "englesson2023 eq. 4", "englesson2023 eq. 15", "englesson2023 eq. 16", "englesson2023 eq. 10"
)
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_density_on_the_simplex_integrates_to_one(temperature):
    """Two classes without dummy: s = ((1-t) w + t/2, ...) runs over the whole simplex as t -> 0."""
    t = 1e-12
    x = torch.linspace(-25, 25, 20001, dtype=torch.float64)
    s = x.sigmoid()
    w = (torch.stack([s, 1 - s], -1) - t / 2) / (1 - t)
    mean, root = (
        torch.full((len(x), 1), 0.4, dtype=torch.float64),
        torch.full((len(x), 1), 0.8, dtype=torch.float64),
    )
    options = {"lam": 0.3, "temperature": temperature, "smoothing": t, "dummy": False, "normalized": True}
    density = (-logistic_normal_nll(mean, root, w.clamp(min=0), reduction="none", **options)).exp()
    assert float(torch.trapezoid(density * s * (1 - s), x)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.paper(
    "englesson2023 eq. 11", "englesson2023 eq. 24", "englesson2023 eq. 25", "englesson2023 eq. 26"
)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_target_logits(temperature):
    t, size = 0.01, 4
    for dummy in (True, False):
        outcomes = size + 1
        C = temperature * math.log(((1 - t) * outcomes + t) / t)
        for label in range(size):
            expected = C * torch.eye(size, dtype=torch.float64)[label]
            found = target_logit(size, label, dummy=dummy, temperature=temperature)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    last = target_logit(size, size, dummy=False, temperature=temperature)
    torch.testing.assert_close(last, torch.full((size,), -C, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert float(last.square().sum()) == pytest.approx(size * C**2)  # (K - 1) C^2 instead of C^2


def test_length_of_target_logits():
    for classes, t, expected in ((10, 0.01, 6.993933), (100, 0.01, 9.210340), (14, 0.1, 4.912655)):
        assert float(target_logit(classes, 0, dummy=True, smoothing=t)[0]) == pytest.approx(
            expected, abs=1e-6
        )


@pytest.mark.paper("englesson2023 eq. 12")
def test_temperature_scales_the_residual():
    """Identity covariance, mean at another class's target logit: the quadratic term is tau^2 times that at 1."""

    def at_other_class(tau):
        mean = target_logit(4, 1, dummy=True, temperature=tau)
        options = {"lam": 1.0, "covariance": "identity", "temperature": tau}
        return float(logistic_normal_nll(mean, None, torch.tensor(0), **options))

    for tau in (0.1, 0.5, 3.0):
        assert at_other_class(tau) == pytest.approx(tau**2 * at_other_class(1.0), rel=1e-12)


@pytest.mark.rel
@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic", "identity"])
@pytest.mark.parametrize("dummy", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
def test_equals_transcription(covariance, dummy, normalized):
    """Scorecard 1: logistic_normal_nll for every covariance, with and without dummy class."""
    source = torch.Generator().manual_seed(0)
    for size in (1, 2, 5):
        classes = size + (not dummy)
        mean, root = torch.randn(2, 12, size, generator=source, dtype=torch.float64)
        root = root[:, :1] if covariance == "isotropic" else root
        labels = torch.randint(classes, (12,), generator=source)
        soft = torch.randn(12, classes, generator=source, dtype=torch.float64).softmax(-1)
        one_hot = torch.eye(classes, dtype=torch.float64)[labels]
        for target, weights in ((labels, one_hot), (soft, soft)):
            found = logistic_normal_nll(
                mean, root, target, lam=0.3, temperature=0.7, smoothing=0.05, dummy=dummy,
                covariance=covariance, normalized=normalized, reduction="none",
            )  # fmt: skip
            expected = [
                naive.logistic_normal(m, c, w, 0.3, 0.7, 0.05, dummy, covariance, normalized)
                for m, c, w in zip(mean.numpy(), root.numpy(), weights.numpy())
            ]
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)


@pytest.mark.rel
@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic"])
def test_gradients_of_mean_and_root(covariance):
    """Scorecard 2: gradcheck in both parameters."""
    root = ROOT[:, :1] if covariance == "isotropic" else ROOT
    inputs = MEAN.clone().requires_grad_(), root.clone().requires_grad_()
    torch.autograd.gradcheck(
        lambda m, c: logistic_normal_nll(m, c, Y, lam=0.4, covariance=covariance, normalized=True), inputs
    )


@pytest.mark.rel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lam", [0.1, 1.0])
def test_extreme_means_and_roots(dtype, lam):
    """Scorecard 4: means and roots of 0, +-1e4, finite value and gradient, whatever the covariance."""
    values = torch.tensor([[1, -1, 0], [0, 0, 0], [-1, -1, 1], [1, 1, 1], [1e-4, 1, -1]]) * 1e4
    for covariance in ("full", "diagonal", "isotropic"):
        mean = values.repeat_interleave(5, 0).to(dtype).requires_grad_()
        root = values.repeat(5, 1)[:, : 1 if covariance == "isotropic" else 3].to(dtype).requires_grad_()
        y = torch.arange(25) % 3
        value = logistic_normal_nll(mean, root, y, lam=lam, covariance=covariance, reduction="none")
        assert bool(value.isfinite().all())
        for gradient in torch.autograd.grad(value.sum(), [mean, root]):
            assert bool(gradient.isfinite().all())


def test_images_and_vectorised_hyper_parameters():
    mean, root = torch.randn(2, 2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.randint(3, (2, 4, 5), generator=torch.Generator().manual_seed(1))
    images = logistic_normal_nll(mean, root, y, lam=0.5, dim=1, reduction="none")
    last = logistic_normal_nll(mean.movedim(1, -1), root.movedim(1, -1), y, lam=0.5, reduction="none")
    torch.testing.assert_close(images, last)
    without = logistic_normal_nll(mean, root, y + 1, lam=0.5, dim=1, dummy=False, reduction="none")
    assert without.shape == (2, 4, 5)

    from dubito.losses.logistic_normal import _logistic_normal

    def one(lam, tau):
        return _logistic_normal(MEAN, ROOT, Y, lam=lam, temperature=tau, normalized=True)

    lams, taus = torch.tensor([0.1, 1.0]).double(), torch.tensor([0.5, 2.0]).double()
    many = torch.func.vmap(one)(lams, taus)
    for i in range(2):
        torch.testing.assert_close(many[i], one(float(lams[i]), float(taus[i])))


def without_dummy(logits, target, dim=-1, **options):
    """Without dummy class the last of the K scores is the reference."""
    last = logits.shape[dim] - 1
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    mean = logits.narrow(dim, 0, last) - logits.narrow(dim, last, 1)
    return logistic_normal_nll(
        mean, torch.full_like(mean, 0.5), target, lam=1.0, dummy=False, dim=dim, **options
    )


@pytest.mark.rel
def test_contract_without_dummy():
    """Scorecard 7: without the dummy class all promises hold but one, equal treatment of the classes."""
    assert min(check_loss(without_dummy, largest=1e3, equivariant=False, compiled=False).values()) > 0
    with pytest.raises(AssertionError, match="classes are treated alike"):
        check_loss(without_dummy, largest=1e3, compiled=False)
