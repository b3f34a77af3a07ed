"""nll is F.cross_entropy wherever both are defined: random cases, images included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from dubito import DubitoError, losses
from dubito.targets import smooth


def case(seed, classes, shape):
    source = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(shape[0], classes, *shape[1:], generator=source, dtype=torch.float64)
    return logits, torch.randint(classes, shape, generator=source), source


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 7),
    shape=st.sampled_from([(5,), (1,), (2, 3), (2, 4, 3)]),
    alpha=st.sampled_from([0.0, 0.1, 0.37]),
    ignore=st.sampled_from([-100, 255, 1]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
)
def test_indices(seed, classes, shape, alpha, ignore, reduction):
    logits, labels, source = case(seed, classes, shape)
    labels[torch.rand(shape, generator=source) < 0.3] = ignore
    labels.flatten()[0] = 0  # torch gives NaN over nothing kept
    expected = F.cross_entropy(
        logits, labels, ignore_index=ignore, reduction=reduction, label_smoothing=alpha
    )
    if alpha == 0.0:
        found = losses.nll(logits, labels, dim=1, ignore_index=ignore, reduction=reduction)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        return
    kept = labels != ignore
    z, y = logits.movedim(1, -1)[kept], labels[kept]
    found = losses.nll(z, smooth(y, classes, alpha), reduction=reduction)
    torch.testing.assert_close(
        found, expected[kept] if reduction == "none" else expected, rtol=1e-12, atol=1e-12
    )


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 7),
    shape=st.sampled_from([(5,), (1,), (2, 3), (2, 4, 3)]),
    alpha=st.sampled_from([0.0, 0.2]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
)
def test_distributions(seed, classes, shape, alpha, reduction):
    logits, _, source = case(seed, classes, shape)
    weights = torch.randn(logits.shape, generator=source, dtype=torch.float64).softmax(1)
    expected = F.cross_entropy(logits, weights, reduction=reduction, label_smoothing=alpha)
    smoothed = smooth(weights.movedim(1, -1), classes, alpha).movedim(-1, 1)
    torch.testing.assert_close(losses.nll(logits, smoothed, dim=1, reduction=reduction), expected)


def test_dtypes():
    z, y = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
    assert losses.nll(z.half(), y).dtype == torch.float32
    assert losses.nll(z.bfloat16(), y).dtype == torch.float32
    assert losses.nll(z.double(), y).dtype == torch.float64
    assert losses.nll(z, y.to(torch.int16)) == losses.nll(z, y.to(torch.uint8)) == losses.nll(z, y)


BAD = [
    ({"target": torch.tensor([0, 3])}, "label out of range"),
    ({"target": torch.tensor([0, -1])}, "label out of range"),
    ({"target": torch.tensor([0.0, 1.0])}, "one weight per class"),
    ({"target": torch.tensor([True, False])}, "integers"),
    ({"target": torch.tensor([0, 1, 2])}, "does not match"),
    ({"target": torch.ones(2, 4)}, "one weight per class"),
    ({"logits": torch.zeros(2, 3, dtype=torch.long)}, "floating"),
    ({"dim": 2}, "no such class axis"),
    ({"reduction": "average"}, "unknown reduction"),
]
PUBLIC = [
    losses.nll,
    losses.gce,
    losses.truncated_gce,
    losses.bootstrap,
    losses.bi_tempered,
    lambda logits, target, **o: losses.logistic_normal_nll(logits, logits, target, lam=1.0, **o),
]


@pytest.mark.rel
@pytest.mark.parametrize("loss", PUBLIC)
@pytest.mark.parametrize(("change", "message"), BAD)
def test_refused_in_one_sentence(loss, change, message):
    """Scorecard 13: bad labels, shapes and dtypes are refused with our message."""
    given = {"logits": torch.zeros(2, 3), "target": torch.tensor([0, 1]), **change}
    with pytest.raises(DubitoError, match=message):
        loss(**given)


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z, y: losses.gce(z, y, q=-0.1), "q is out of range"),
        (lambda z, y: losses.gce(z, y, q=1.5), "q is out of range"),
        (lambda z, y: losses.gce(z, y, q=torch.ones(2)), "one number"),
        (lambda z, y: losses.truncated_gce(z, y, k=1.0), "k is out of range"),
        (lambda z, y: losses.bootstrap(z, y, kind="sofd"), "did you mean 'soft'"),
        (lambda z, y: losses.bootstrap(z, y, beta=1.1), "beta is out of range"),
        (lambda z, y: losses.bi_tempered(z, y, t1=2.0), "t1 is out of range"),
        (lambda z, y: losses.bi_tempered(z, y, t2=-1.0), "t2 is out of range"),
        (lambda z, y: losses.bi_tempered(z, y, t2=100.0), "t2 is too large for 3 classes"),
        (lambda z, y: losses.bi_tempered(z, y, iterations=0), "iterations"),
        (lambda z, y: losses.bi_tempered(z, torch.ones(2, 3)), "rows that sum to 1"),
        (lambda z, y: losses.logistic_normal_nll(z, z, y, lam=0.0), "lam is out of range"),
        (lambda z, y: losses.logistic_normal_nll(z, z, y, lam=1.0, temperature=-1.0), "temperature is out"),
        (lambda z, y: losses.logistic_normal_nll(z, z, y, lam=1.0, smoothing=0.0), "smoothing is out"),
        (lambda z, y: losses.logistic_normal_nll(z, z[:1], y, lam=1.0), "root does not match mean"),
        (lambda z, y: losses.logistic_normal_nll(z, None, y, lam=1.0), "root does not match mean"),
        (lambda z, y: losses.logistic_normal_nll(z, z, y, lam=1.0, covariance="isotropic"), "root does not"),
        (lambda z, y: losses.logistic_normal_nll(z, z, y, lam=1.0, covariance="ful"), "did you mean 'full'"),
        (lambda z, y: losses.distillation(z, z, temperature=0.0), "temperature is out of range"),
        (lambda z, y: losses.distillation(z, z, student_temperature=-1.0), "student_temperature is out"),
        (lambda z, y: losses.distillation(z, z, smoothing=2.0), "smoothing is out of range"),
        (lambda z, y: losses.distillation(z, z[:, :2]), "teacher and student differ in shape"),
        (lambda z, y: losses.distillation(z, z, dim=4), "no such class axis"),
        (lambda z, y: losses.distillation(z, z.long()), "teacher_logits must be a floating"),
        (lambda z, y: losses.nll(z, y, dim=-3), "no such class axis"),
        (lambda z, y: losses.gce(z, y, q=float("nan")), "q is out of range"),
    ],
)
def test_refused_parameters(call, message):
    """Scorecard 13: hyper-parameters out of range are refused with our message."""
    with pytest.raises(DubitoError, match=message):
        call(torch.zeros(2, 3), torch.tensor([0, 1]))
