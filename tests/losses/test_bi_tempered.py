"""Bi-tempered loss: the normaliser, parity with the published iterations, continuity at 1, the gradient."""

from __future__ import annotations

import math

import naive_losses as naive
import numpy as np
import pytest
import torch

from dubito import losses
from dubito.losses import tempered_log_softmax, tempered_softmax

Z = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]], dtype=torch.float64)
Y = torch.tensor([0, 2])
A = torch.tensor([[-0.5, 0.1, 2.0], [0.1, 1.5, -5.0], [4.0, -3.0, -6.0]], dtype=torch.float64)
W = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.2, 0.8, 0.0]], dtype=torch.float64)
TEMPERATURES = (0.0, 0.1, 0.5, 0.8, 0.99, 1.0, 1.01, 1.2, 1.5, 2.0, 4.0, 8.0)


def near(found, expected, tolerance):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), rtol=0, atol=tolerance)


def test_printed_values():
    near(losses.bi_tempered(Z, Y, t1=0.8, t2=1.2, reduction="none"), [0.213143, 1.000504], 1e-6)
    near(losses.bi_tempered(Z, Y, t1=0.5, t2=4.0, iterations=5, reduction="none"), [0.531107, 0.569211], 1e-6)


def test_constants_of_the_published_code():
    options = {"t1": 0.5, "reduction": "none"}
    near(
        losses.bi_tempered(A, W, t2=1.5, iterations=5, **options), [0.02301914, 0.18972909, 0.93874922], 2e-6
    )
    near(
        losses.bi_tempered(A, W, t2=0.8, iterations=20, **options), [0.21646356, 0.41836615, 1.33997854], 2e-6
    )
    near(tempered_softmax(A[:1], 4.0, iterations=5), [[0.3205458, 0.32714278, 0.3523402]], 2e-6)
    one_off = (1 - 0.1 * 3 / 2) * torch.eye(3, dtype=torch.float64) + 0.1 / 2  # their smoothing keeps 1 - ls
    near(
        losses.bi_tempered(A, one_off, t2=1.5, iterations=5, **options),
        [0.76652711, 0.08627685, 1.35443510],
        1e-5,
    )
    target = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    for t1, t2, value in ((0.9, 1.1, 0.45677936), (0.8, 1.2, 0.34298314), (0.7, 1.3, 0.26295574)):
        near(losses.bi_tempered(A[:1], target, t1=t1, t2=t2, iterations=5), value, 1e-6)


def test_soft_labels_at_one_are_the_divergence_not_the_cross_entropy():
    """The limit of the formula is KL = 0.628705; cross-entropy would be 1.658358 and jump at t1 = t2 = 1."""
    target = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    near(losses.bi_tempered(A[:1], target, t1=1.0, t2=1.0), 0.628705, 1e-6)
    assert float(losses.nll(A[:1], target)) == pytest.approx(1.658358, abs=1e-6)


@pytest.mark.rel
@pytest.mark.parametrize("target", [Y, torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.4, 0.6]], dtype=torch.float64)])
def test_continuous_at_one(target):
    """Scorecard 3: bi-tempered at 1 is cross-entropy (KL), and is approached without a loss of digits."""
    at_one = losses.bi_tempered(Z, target, t1=1.0, t2=1.0, reduction="none")
    if not target.is_floating_point():
        torch.testing.assert_close(at_one, losses.nll(Z, target, reduction="none"), rtol=0, atol=1e-14)
    for step in (1e-4, 1e-6, 1e-9, 1e-12, -1e-12, -1e-9, -1e-6, -1e-4):
        nearby = losses.bi_tempered(Z, target, t1=1 - abs(step), t2=1 + step, reduction="none")
        torch.testing.assert_close(nearby, at_one, rtol=0, atol=10 * abs(step) + 1e-14)
    single = losses.bi_tempered(Z.float(), target, t1=1 - 1e-6, t2=1 + 1e-6, reduction="none")
    torch.testing.assert_close(single.double(), at_one, rtol=0, atol=1e-5)


@pytest.mark.rel
@pytest.mark.parametrize("t", TEMPERATURES)
def test_tempered_softmax_sums_to_one(t):
    """Scorecard 6: within 1e-5 in float32 and 1e-11 in float64, for 2 to 1,000 classes and any spread."""
    source = torch.Generator().manual_seed(0)
    for classes in (2, 10, 1000):
        if (t - 1) * math.log10(classes) > 20:
            continue
        for spread in (0.01, 1.0, 30.0, 1e4):
            a = spread * torch.randn(20, classes, generator=source, dtype=torch.float64)
            near(tempered_softmax(a, t).sum(-1), [1.0] * 20, 1e-11)
            if t >= 0.5:
                near(tempered_softmax(a.float(), t).sum(-1), [1.0] * 20, 1e-5)


@pytest.mark.parametrize("t", TEMPERATURES)
def test_tempered_softmax_equals_a_root_finder(t):
    a = 2 * torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = np.stack([naive.tempered_softmax(row, t) for row in a.numpy()])
    np.testing.assert_allclose(tempered_softmax(a, t).numpy(), expected, rtol=1e-10, atol=1e-12)


def test_tempered_softmax_at_one_is_softmax():
    torch.testing.assert_close(tempered_log_softmax(Z, 1.0), Z.log_softmax(-1), rtol=0, atol=1e-14)


def test_finite_support_is_exactly_zero_and_has_zero_gradient():
    a = torch.tensor([3.0, 0.0, 2.5], dtype=torch.float64, requires_grad=True)
    p = tempered_softmax(a, 0.5)
    assert float(p.detach()[1]) == 0.0
    (g,) = torch.autograd.grad(losses.bi_tempered(a, torch.tensor(1), t1=0.5, t2=0.5), a)
    assert bool(g.isfinite().all())
    assert float(g[1]) == 0.0


@pytest.mark.parametrize(
    ("t1", "t2"), [(0.5, 0.7), (0.8, 1.2), (0.5, 4.0), (1.0, 1.5), (0.3, 1.0), (1.4, 1.6)]
)
def test_gradient_is_the_published_one(t1, t2):
    """dL/da = delta - e sum(delta), delta = (p - w) p^(t2-t1), e the escort; twice differentiable too."""
    a = A.clone().requires_grad_()
    target = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], dtype=torch.float64)
    for iterations in (None, 3):
        p = tempered_softmax(A, t2, iterations)
        escort = p**t2 / (p**t2).sum(-1, keepdim=True)
        delta = torch.where(p > 0, (p - target) * p ** (t2 - t1), 0.0)
        expected = delta - escort * delta.sum(-1, keepdim=True)
        value = losses.bi_tempered(a, target, t1=t1, t2=t2, iterations=iterations, reduction="sum")
        torch.testing.assert_close(torch.autograd.grad(value, a)[0], expected, rtol=1e-9, atol=1e-9)
    inner = Z.clone().requires_grad_()
    torch.autograd.gradgradcheck(lambda a: losses.bi_tempered(a, Y, t1=t1, t2=t2, reduction="none"), inner)


def test_shift_invariance():
    shifted = losses.bi_tempered(A + 17.0, W, t1=0.5, t2=0.8, reduction="none")
    torch.testing.assert_close(shifted, losses.bi_tempered(A, W, t1=0.5, t2=0.8, reduction="none"))


@pytest.mark.rel
def test_first_term_is_gce_at_t2_one():
    """Scorecard 3: with t2 = 1 and t1 = 1 - q the first term is GCE."""
    q, p = 0.4, Z.softmax(-1)
    rest = (1 - (p ** (1 + q)).sum(-1)) / (1 + q)
    found = losses.bi_tempered(Z, Y, t1=1 - q, t2=1.0, reduction="none")
    torch.testing.assert_close(found, losses.gce(Z, Y, q=q, reduction="none") - rest)


def test_more_iterations_approach_the_exact_value():
    exact = losses.bi_tempered(A, W, t1=0.5, t2=2.0)
    errors = [abs(float(losses.bi_tempered(A, W, t1=0.5, t2=2.0, iterations=n) - exact)) for n in (2, 5, 60)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9


@pytest.mark.parametrize("target", [torch.tensor([0]), torch.tensor([[1.0, 0.0, 0.0]])])
def test_a_temperature_above_one_has_a_gradient_where_other_classes_overflow(target):
    logits = torch.tensor([[100.0, -100.0, 0.0]], requires_grad=True)
    losses.bi_tempered(logits, target, t1=1.5, t2=1.0).backward()
    assert logits.grad.isfinite().all()
