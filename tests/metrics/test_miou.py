"""Mean intersection over union: sets of pixels by hand, accumulation, void, absent classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito import metrics
from dubito.errors import DubitoError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def naive(predictions, labels, K, void):
    pairs = [(p, y) for p, y in zip(predictions.flatten().tolist(), labels.flatten().tolist()) if y != void]
    values = []
    for c in range(K):
        mine = {n for n, (p, _) in enumerate(pairs) if p == c}
        true = {n for n, (_, y) in enumerate(pairs) if y == c}
        if mine | true:
            values.append(len(mine & true) / len(mine | true))
    return sum(values) / len(values)


@pytest.mark.rel
@pytest.mark.paper("collier2020 table 2")
@pytest.mark.parametrize("seed", range(6))
def test_miou_equals_sets_of_pixels(seed):
    """Scorecard 1: unions and intersections as sets; some class is absent in most draws."""
    K = 6
    y = torch.randint(K - 1, (2, 8, 9), generator=seeded(seed))
    p = torch.where(torch.rand(2, 8, 9, generator=seeded(seed + 50)) < 0.6, y, (y + seed) % (K - 1))
    y[0, :2] = 255
    p[0, 0] = K - 1
    expected = naive(p, y, K, 255)
    assert metrics.miou(p, y, K) == pytest.approx(expected, rel=1e-12)
    assert metrics.miou(p.numpy().astype(np.uint8), y.numpy().astype(np.uint8), K) == metrics.miou(p, y, K)
    counts = sum(metrics.confusion_counts(p[i], y[i], K, ignore_index=255) for i in range(2))
    assert metrics.mean_iou(counts) == pytest.approx(expected, rel=1e-12)


def test_accumulated_counts_are_not_a_mean_over_images():
    y = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1]])
    p = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0]])
    counts = metrics.confusion_counts(p, y, 2)
    assert counts.tolist() == [[7, 0], [1, 0]]
    assert metrics.mean_iou(counts) == pytest.approx((7 / 8 + 0) / 2)
    values, present = metrics.iou(counts)
    assert values.tolist() == [7 / 8, 0.0]
    assert present.tolist() == [True, True]


def test_absent_and_predicted_only_classes():
    y, p = torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1])
    assert metrics.miou(p, y, 5) == pytest.approx((2 / 3 + 0) / 2)
    assert metrics.iou(metrics.confusion_counts(p, y, 5))[1].tolist() == [True, True, False, False, False]
    assert metrics.miou(y, y, 5) == 1.0
    assert metrics.miou(y, y, 1) == 1.0


def test_counts_are_true_by_predicted():
    counts = metrics.confusion_counts(torch.tensor([2, 2, 1]), torch.tensor([0, 0, 1]), 3)
    assert counts.tolist() == [[0, 0, 2], [0, 1, 0], [0, 0, 0]]
    assert counts.dtype == torch.int64
    assert metrics.confusion_counts(torch.tensor([0]), torch.tensor([-100]), 2).sum() == 0
    assert metrics.confusion_counts(torch.empty(0).long(), torch.empty(0).long(), 2).sum() == 0


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: metrics.miou(torch.tensor([0]), torch.tensor([255]), 2), "void"),
        (lambda: metrics.miou(torch.tensor([0]), torch.tensor([3]), 2), r"labels\[0\]"),
        (lambda: metrics.miou(torch.tensor([2]), torch.tensor([0]), 2), r"predictions\[0\]"),
        (lambda: metrics.miou(torch.tensor([0.5]), torch.tensor([0]), 2), "integer"),
        (lambda: metrics.miou(torch.tensor([0, 1]), torch.tensor([0]), 2), "do not match"),
        (lambda: metrics.miou(torch.tensor([0]), torch.tensor([0]), 0), "num_classes"),
        (lambda: metrics.mean_iou(torch.ones(2, 3)), "square"),
    ],
)
def test_bad_input_is_refused(call, word):
    """Scorecard 13 and 16: all pixels void is refused, not NaN."""
    with pytest.raises(DubitoError, match=word):
        call()
