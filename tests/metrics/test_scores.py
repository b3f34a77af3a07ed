"""Accuracy, log-likelihood, Brier: naive loops, image layouts, precision, hostile input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito import metrics
from dubito.errors import DubitoError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def case(seed, n=50, K=4, dtype=torch.float64):
    logits = 2 * torch.randn(n, K, generator=seeded(seed), dtype=torch.float64)
    y = torch.randint(K, (n,), generator=seeded(seed + 100))
    y[::7] = -100
    return logits.to(dtype), y


@pytest.mark.rel
@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_a_loop(seed):
    """Scorecard 1: naive transcriptions over the kept examples."""
    logits, y = case(seed)
    p = logits.softmax(-1)
    rows = [(p[n].tolist(), int(y[n])) for n in range(50) if y[n] != -100]
    right = sum(max(range(4), key=lambda k: q[k]) == c for q, c in rows) / len(rows)
    likelihood = sum(math.log(q[c]) for q, c in rows) / len(rows)
    squares = sum(sum((q[k] - (k == c)) ** 2 for k in range(4)) for q, c in rows) / len(rows)
    assert metrics.accuracy(p, y) == pytest.approx(right, rel=1e-12)
    assert metrics.accuracy(logits, y) == metrics.accuracy(p, y)
    assert metrics.accuracy(p.argmax(-1), y) == metrics.accuracy(p, y)
    assert metrics.log_likelihood(logits.log_softmax(-1), y) == pytest.approx(likelihood, rel=1e-12)
    assert metrics.brier(p, y) == pytest.approx(squares, rel=1e-12)


def test_torch_numpy_and_image_layouts_agree():
    logits, y = case(1, n=60)
    p = logits.softmax(-1)
    image, labels = p.view(3, 4, 5, 4).movedim(-1, 1), y.view(3, 4, 5)
    for metric, scores in ((metrics.accuracy, p), (metrics.brier, p), (metrics.ece, p)):
        value = metric(scores, y)
        assert metric(scores.numpy(), y.numpy()) == value
        assert metric(image, labels, dim=1) == pytest.approx(value, rel=1e-12)
    value = metrics.log_likelihood(p.log(), y)
    assert metrics.log_likelihood(p.log().numpy(), y.numpy().astype(np.int32)) == value
    kept = y != -100
    short = y[kept].numpy().astype(np.uint16)
    assert metrics.log_likelihood(p.log()[kept], short) == pytest.approx(value, rel=1e-12)
    assert metrics.log_likelihood(image.log(), labels, dim=1) == pytest.approx(value, rel=1e-12)
    assert isinstance(value, float)


def test_extremes():
    sure = torch.tensor([[0.0, -1e4], [0.0, -1e4]])
    assert metrics.log_likelihood(sure, torch.tensor([0, 1])) == pytest.approx(-5e3)
    impossible = torch.tensor([[0.0, -math.inf]])
    assert metrics.log_likelihood(impossible, torch.tensor([0])) == 0.0
    assert metrics.log_likelihood(impossible, torch.tensor([1])) == -math.inf
    assert metrics.brier(torch.tensor([[1.0, 0.0]]), torch.tensor([0])) == 0.0
    assert metrics.brier(torch.tensor([[1.0, 0.0]]), torch.tensor([1])) == 2.0
    assert metrics.accuracy(torch.tensor([[1.0, 1.0]]), torch.tensor([0])) == 1.0
    assert metrics.accuracy(torch.tensor([[1.0, 1.0]]), torch.tensor([1])) == 0.0


@pytest.mark.rel
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 5e-3), (torch.float32, 1e-5)]
)
def test_half_precision_by_value(dtype, tolerance):
    """Scorecard 5: against float64."""
    logits, y = case(2, n=500)
    p = logits.softmax(-1)
    assert metrics.log_likelihood(p.log().to(dtype), y) == pytest.approx(
        metrics.log_likelihood(p.log(), y), rel=tolerance
    )
    assert metrics.brier(p.to(dtype), y) == pytest.approx(metrics.brier(p, y), rel=tolerance)


def test_inputs_keep_their_values_and_gradients_are_not_tracked():
    logits, y = case(3)
    p = logits.softmax(-1).requires_grad_()
    kept = p.detach().clone(), y.clone()
    metrics.accuracy(p, y)
    metrics.brier(p, y)
    metrics.ece(p, y)
    assert torch.equal(p, kept[0])
    assert torch.equal(y, kept[1])


P, Y = torch.tensor([[0.7, 0.3], [0.2, 0.8]]), torch.tensor([0, 1])


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: metrics.accuracy(P, torch.tensor([0, 2])), r"labels\[1\].*0 to 1.*2"),
        (lambda: metrics.accuracy(P, torch.tensor([0, -1])), r"labels\[1\]"),
        (lambda: metrics.accuracy(P, torch.tensor([0.0, 1.0])), "integer"),
        (lambda: metrics.accuracy(P, torch.tensor([0])), "do not match"),
        (lambda: metrics.accuracy(P, torch.tensor([-100, -100])), "no labelled example"),
        (lambda: metrics.accuracy(P[:0], Y[:0]), "no labelled example"),
        (lambda: metrics.accuracy(P.argmax(-1), torch.tensor([-100, -100])), "no labelled example"),
        (lambda: metrics.accuracy(P * math.nan, Y), "not a number"),
        (lambda: metrics.accuracy(P, Y, dim=2), "class axis"),
        (lambda: metrics.accuracy(np.array([["a", "b"]]), Y), "array of numbers"),
        (lambda: metrics.log_likelihood(P, Y), "log_softmax"),
        (lambda: metrics.log_likelihood(P.log() + 1, Y), "sum to 1"),
        (lambda: metrics.brier(P * 2, Y), "sum to 1"),
        (lambda: metrics.brier(P.log(), Y), "negative"),
        (lambda: metrics.ece(P.logit(), Y), "softmax"),
        (lambda: metrics.brier(Y, Y), "floating"),
        (lambda: metrics.ece(P, Y, bins=0), "bins"),
        (lambda: metrics.ece(P, Y, bins=2.5), "bins"),
        (lambda: metrics.ece(P, Y, closed="both"), "closed"),
    ],
)
def test_bad_input_is_refused(call, word):
    """Scorecard 13 and 16: one sentence each, and never a NaN."""
    with pytest.raises(DubitoError, match=word):
        call()
