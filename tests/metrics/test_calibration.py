"""Calibration error: loops over bins, values on edges, limits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dubito import metrics


def binary(confidences, right, dtype=torch.float64):
    """Predictions for class 0 with the given confidences, labelled so that `right` of them hold."""
    c = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([c, 1 - c], -1).to(dtype), torch.tensor([0 if r else 1 for r in right])


def naive(confidences, right, bins, closed):
    """Bins by exact fractions: confidences are given in hundredths."""
    total = 0.0
    for b in range(bins):
        if closed == "right":
            inside = [100 * b < c * bins <= 100 * (b + 1) or (b == c == 0) for c in confidences]
        else:
            inside = [
                100 * b <= c * bins < 100 * (b + 1) or (b == bins - 1 and c == 100) for c in confidences
            ]
        chosen = [i for i, there in enumerate(inside) if there]
        if chosen:
            accuracy = sum(right[i] for i in chosen) / len(chosen)
            confidence = sum(confidences[i] / 100 for i in chosen) / len(chosen)
            total += len(chosen) / len(confidences) * abs(accuracy - confidence)
    return total


@pytest.mark.rel
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(51, 100), st.booleans()), min_size=1, max_size=40),
    st.sampled_from([1, 2, 5, 10, 15, 20, 50, 100]),
    st.sampled_from(["right", "left"]),
    st.sampled_from([torch.float64, torch.float32]),
)
def test_ece_equals_a_loop_with_exact_edges(examples, bins, closed, dtype):
    """Scorecard 1: hundredths lie on the edges of 100 bins; floor(c * bins) would put 0.29 into bin 28."""
    confidences, right = [c for c, _ in examples], [r for _, r in examples]
    probs, labels = binary([c / 100 for c in confidences], right, dtype)
    expected = naive(confidences, right, bins, closed)
    assert metrics.ece(probs, labels, bins, closed=closed) == pytest.approx(expected, abs=1e-6)


@pytest.mark.paper("lukasik2020 table 4")
def test_the_side_of_the_edge_matters_on_toy_data():
    probs, labels = binary([0.8, 0.8, 0.75, 0.9], [True, False, True, True])
    # (0.7, 0.8] holds the first three, or [0.8, 0.9) the first two and [0.7, 0.8) the third.
    assert metrics.ece(probs, labels, 10) == pytest.approx(0.75 * abs(2 / 3 - 2.35 / 3) + 0.25 * 0.1)
    assert metrics.ece(probs, labels, 10, closed="left") == pytest.approx(
        0.5 * 0.3 + 0.25 * 0.25 + 0.25 * 0.1
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("hundredth", [57, 58, 63, 69, 81, 93, 100])
def test_a_value_on_an_edge_lies_on_it_in_every_precision(hundredth, dtype):
    probs, labels = binary([hundredth / 100], [True], dtype)
    right = metrics.reliability_curve(probs, labels, 100)
    left = metrics.reliability_curve(probs, labels, 100, closed="left")
    assert right.size.argmax() == hundredth - 1
    assert left.size.argmax() == min(hundredth, 99)


@pytest.mark.rel
def test_limits():
    """Scorecard 3: perfect, one bin, constant predictor."""
    sure = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    for closed in ("right", "left"):
        assert metrics.ece(sure, torch.tensor([0, 1]), 10, closed=closed) == 0.0
        assert metrics.ece(sure, torch.tensor([1, 0]), 10, closed=closed) == 1.0
    p = torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = p / p.sum(-1, keepdim=True)
    y = torch.arange(200) % 3
    expected = abs(metrics.accuracy(p, y) - float(p.max(-1).values.mean()))
    assert metrics.ece(p, y, 1) == pytest.approx(expected, abs=1e-12)
    constant = torch.tensor([[0.6, 0.4]]).expand(10, 2)
    assert metrics.ece(constant, torch.tensor([0] * 6 + [1] * 4)) == pytest.approx(0.0, abs=1e-7)
    assert metrics.ece(constant, torch.zeros(10).long()) == pytest.approx(0.4, abs=1e-7)


def test_reliability_curve_adds_up():
    p = torch.rand(500, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(-1)
    y = torch.arange(500) % 4
    curve = metrics.reliability_curve(p, y, 20)
    assert curve.edges.tolist() == [b / 20 for b in range(21)]
    assert int(curve.size.sum()) == 500
    assert float((curve.size * curve.accuracy).sum() / 500) == pytest.approx(metrics.accuracy(p, y))
    assert float((curve.size * curve.confidence).sum() / 500) == pytest.approx(float(p.max(-1).values.mean()))
    filled = curve.size > 0
    assert bool((curve.confidence[filled] > curve.edges[:-1][filled]).all())
    assert bool((curve.confidence[filled] <= curve.edges[1:][filled]).all())
    assert float(curve.confidence[~filled].abs().sum()) == 0.0


def test_ignored_labels_do_not_count():
    p = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]])
    y = torch.tensor([0, 255, 0])
    assert metrics.ece(p, y, ignore_index=255) == metrics.ece(p[[0, 2]], y[[0, 2]])
