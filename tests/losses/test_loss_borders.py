"""The ends of every range, the axis that is not there, half precision by value, bodies with their own defaults."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito import DubitoError, links, losses
from dubito.losses import BODIES, LATENT_BODIES, logistic_normal_nll, tempered_log_softmax
from dubito.losses.logistic_normal import _gaussian, _logistic_normal

F64 = torch.float64
Z = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]], dtype=F64)
ROOT = torch.tensor([[0.4, -0.2, 0.7], [0.3, 0.6, -0.5]], dtype=F64)
Y = torch.tensor([0, 2])


@pytest.mark.parametrize("function", BODIES)
def test_bodies_have_the_defaults_of_their_functions(function):
    z = Z.clone().requires_grad_()
    found, wanted = BODIES[function](z.log_softmax(-1), Y), function(z, Y, reduction="none")
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(x.sum(), z)[0] for x in (found, wanted)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)


def test_bodies_on_latents_have_the_defaults_of_their_functions():
    assert len(LATENT_BODIES) == 2
    torch.testing.assert_close(
        _logistic_normal(Z, ROOT, Y, lam=0.5), logistic_normal_nll(Z, ROOT, Y, lam=0.5, reduction="none")
    )
    torch.testing.assert_close(
        LATENT_BODIES[losses.bi_tempered](Z, Y), losses.bi_tempered(Z, Y, reduction="none")
    )


def test_identity_covariance_ignores_the_root():
    wanted = _gaussian(Z, None, 0.3, "identity")
    torch.testing.assert_close(wanted[0], (Z * Z).sum(-1))
    torch.testing.assert_close(wanted[1], torch.zeros(2, dtype=F64))
    for found in (_gaussian(Z, ROOT, 0.3, "identity"), _gaussian(Z, None, 0.3, "full")):
        torch.testing.assert_close(found, wanted)
    with_root, without = (
        logistic_normal_nll(Z, root, Y, lam=0.3, covariance="identity") for root in (ROOT, None)
    )
    assert torch.equal(with_root, without)


def test_identity_covariance_takes_any_root_along_any_axis():
    mean = torch.stack([Z, 2 * Z], -1)
    found = logistic_normal_nll(
        mean, torch.zeros(7), torch.stack([Y, Y], -1), lam=0.3, covariance="identity", dim=1, reduction="none"
    )
    for i in range(2):
        wanted = logistic_normal_nll(mean[..., i], None, Y, lam=0.3, covariance="identity", reduction="none")
        torch.testing.assert_close(found[:, i], wanted)


def test_distillation_along_the_first_of_two_axes():
    torch.testing.assert_close(losses.distillation(Z.T, ROOT.T, dim=-2), losses.distillation(Z, ROOT))


def steps_to_lambda(a, t, iterations):
    """The published iterations in plain numbers: bisection for t < 1, rescaling for t > 1; the largest a is 0."""
    s = 1 - t
    exp_t = lambda x: max(1 + s * x, 0.0) ** (1 / s)  # noqa: E731
    log_t = lambda x: (x**s - 1) / s  # noqa: E731
    if t < 1:
        low, high = 0.0, -log_t(1 / sum(s * v > -1 for v in a))
        for _ in range(iterations):
            middle = (low + high) / 2
            low, high = (low, middle) if sum(exp_t(v - middle) for v in a) < 1 else (middle, high)
        return (low + high) / 2
    scaled = a
    for _ in range(iterations):
        total = sum(map(exp_t, scaled))
        scaled = [v * total**s for v in a]
    return -log_t(1 / sum(map(exp_t, scaled)))


@pytest.mark.parametrize("iterations", [1, 2, 3, 6])
@pytest.mark.parametrize("t", [0.3, 0.7, 1.4, 2.5])
def test_published_iterations_step_by_step(t, iterations):
    a = [0.0, -0.3, -1.2, -1.6, -4.0]
    off = steps_to_lambda(a, t, iterations)
    p = [max(1 + (1 - t) * (v - off), 0.0) ** (1 / (1 - t)) for v in a]
    found = tempered_log_softmax(torch.tensor(a, dtype=F64) + 3.0, t, iterations).exp()
    torch.testing.assert_close(found, torch.tensor(p, dtype=F64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0, 3.0])
def test_softmax_at_whole_temperatures(tau):
    wanted = [[v / tau - math.log(sum(math.exp(w / tau) for w in row)) for v in row] for row in Z.tolist()]
    torch.testing.assert_close(links.log_softmax(Z, tau), torch.tensor(wanted, dtype=F64))


@pytest.mark.parametrize("dim", [2, 5, -3])
def test_no_such_axis(dim):
    calls = (
        lambda: links.log_softmax(Z, dim=dim),
        lambda: losses.distillation(Z, Z, dim=dim),
        lambda: logistic_normal_nll(Z, Z[:, :1], Y, lam=1.0, covariance="isotropic", dim=dim),
    )
    for call in calls:
        with pytest.raises(DubitoError, match="axis"):
            call()


def test_root_is_checked_on_every_axis():
    for dim in (-2, 0, 1):
        with pytest.raises(DubitoError, match="root does not match"):
            logistic_normal_nll(Z, ROOT[:1, :2], Y, lam=1.0, dim=dim)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda v: losses.distillation(Z, Z, smoothing=v), "smoothing"),
        (lambda v: logistic_normal_nll(Z, ROOT, Y, lam=1.0, smoothing=v), "smoothing"),
        (lambda v: losses.truncated_gce(Z, Y, q=v), "q"),
        (lambda v: losses.truncated_gce(Z, Y, k=v), "k"),
        (lambda v: losses.gce(Z, Y, q=v), "q"),
        (lambda v: losses.bootstrap(Z, Y, beta=v), "beta"),
    ],
)
def test_shares_are_at_most_one(call, name):
    for value in (1.2, -0.2):
        with pytest.raises(DubitoError, match=f"{name} is out of range"):
            call(value)


def test_a_target_that_is_no_distribution():
    for call in (
        lambda y: logistic_normal_nll(Z, ROOT, y, lam=1.0),
        lambda y: losses.bi_tempered(Z, y),
    ):
        with pytest.raises(DubitoError, match=r"distribution|sum"):
            call(torch.tensor([[0.5, 0.2, 0.1], [1.0, 0.0, 0.0]], dtype=F64))


def test_iterations_from_one_to_a_thousand():
    for iterations in (1, 1000):
        assert bool(torch.isfinite(tempered_log_softmax(Z, 1.2, iterations)).all())
    for iterations in (0, 1001):
        with pytest.raises(DubitoError, match="iterations out of range"):
            tempered_log_softmax(Z, 1.2, iterations)


def test_heaviest_tail_depends_on_the_classes_alone():
    """lambda ~ C^(t-1) must stay below 1e30: one or two classes allow 1 + 30 log 10 / log 2 = 100.66."""
    for shape in ((1,), (2,), (50, 2)):
        found = tempered_log_softmax(torch.zeros(shape, dtype=F64), 100.6)
        torch.testing.assert_close(found.exp().sum(-1), torch.ones(shape[:-1], dtype=F64))
        with pytest.raises(DubitoError, match="too large for 2 classes"):
            tempered_log_softmax(torch.zeros(shape, dtype=F64), 100.7)


@pytest.mark.parametrize(("dtype", "off"), [(torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
def test_gradient_of_half_precision_by_value(dtype, off):
    """Not only finite: the saturating conversion hands small gradients through as they are."""
    half = [x.to(dtype).requires_grad_() for x in (Z, ROOT)]
    whole = [x.detach().double().requires_grad_() for x in half]
    for inputs in (half, whole):
        logistic_normal_nll(*inputs, Y, lam=1.0).backward()
    for a, b in zip(half, whole):
        assert a.grad.dtype == dtype
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=off, atol=off)
    steep = (1e4 * Z).to(dtype).requires_grad_()
    logistic_normal_nll(steep, ROOT.to(dtype), Y, lam=0.01, covariance="diagonal").backward()
    assert bool(torch.isfinite(steep.grad).all())
    assert bool((steep.grad.sign().float() == steep.detach().sign().float()).all())


@pytest.mark.parametrize("dim", [-1, 1])
def test_without_a_dummy_the_last_class_is_the_reference(dim):
    """Equation 10 written out: y = tau (log s_k - log s_K) for the K - 1 others."""
    mean, t, tau = Z[:, :2], 0.03, 0.7
    s = (1 - t) * torch.eye(3, dtype=F64)[Y] + t / 3
    wanted = (tau * (s[:, :2] / s[:, 2:]).log() - mean).square().sum(-1) / 2
    options = {"lam": 1.0, "temperature": tau, "smoothing": t, "dummy": False, "covariance": "identity"}
    found = logistic_normal_nll(mean, None, Y, reduction="none", dim=dim, **options)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["nll", "gce", "bi_tempered", "bootstrap", "truncated_gce"])
def test_lists_and_arrays_are_refused(name):
    loss, z, y = getattr(losses, name), torch.zeros(4, 3), [0, 1, 2, 1]
    for target in (y, np.array(y)):
        with pytest.raises(DubitoError, match=r"target must be a tensor: got (list|ndarray); pass torch"):
            loss(z, target)
    with pytest.raises(DubitoError, match="logits must be a tensor: got ndarray"):
        loss(z.numpy(), torch.tensor(y))


@pytest.mark.parametrize("name", ["nll", "gce", "truncated_gce", "bootstrap"])
def test_one_score_with_real_labels_is_no_classifier(name):
    """As `binary_cross_entropy_with_logits` is called; the softmax of one score is 1, and so the loss was 0."""
    scores, labels = torch.randn(4, 1), torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    with pytest.raises(DubitoError, match="one score per example cannot tell classes apart"):
        getattr(losses, name)(scores, labels)
    two = torch.cat([torch.zeros(4, 1), scores], 1)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)
    torch.testing.assert_close(losses.nll(two, labels.squeeze(1).long()), expected)
