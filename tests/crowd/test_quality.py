"""Quality of single labels, and whom to ask."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate, ask_next, expected_gain, label_quality, with_model
from dubito.errors import DubitoError


def test_quality_is_the_posterior_of_the_label(simulate):
    crowd, truth, _ = simulate(0, items=500, annotators=12, each=5)
    result = aggregate(crowd)
    quality = label_quality(crowd, result)
    rows = zip(crowd.item.tolist(), crowd.label.tolist())
    expected = torch.stack([result.probabilities[n, y] for n, y in rows])
    torch.testing.assert_close(quality, expected)
    right = crowd.label.numpy() == truth[crowd.item.numpy()]
    # A probability, not only a score: its mean is the share of right labels.
    assert abs(float(quality.mean()) - right.mean()) < 0.05
    assert quality[right].mean() > quality[~right].mean() + 0.4


def test_a_good_model_helps_and_a_useless_one_does_not_harm(simulate):
    crowd, truth, _ = simulate(1, items=800, annotators=30, each=2)
    result = aggregate(crowd)
    right = crowd.label.numpy() == truth[crowd.item.numpy()]
    rng = np.random.default_rng(0)
    said = np.where(rng.random(800) < 0.9, truth, rng.integers(3, size=800))
    good = np.full((800, 3), 0.05)
    good[np.arange(800), said] = 0.9
    noise = rng.dirichlet(np.ones(3), size=800)

    def loss(quality):
        q = quality.clamp(1e-9, 1 - 1e-9).numpy()
        return -np.mean(np.where(right, np.log(q), np.log1p(-q)))

    alone = loss(label_quality(crowd, result))
    assert loss(label_quality(crowd, result, probs=good)) < alone - 0.05
    assert loss(label_quality(crowd, result, probs=noise)) < alone + 0.02
    overconfident = np.where(good > 0.5, 1 - 2e-9, 1e-9)
    assert loss(label_quality(crowd, result, probs=overconfident)) < alone


def test_with_model_equals_the_formula():
    result = aggregate(CrowdLabels.from_dense([[0, 1], [1, 1], [0, 0], [1, 0]]))
    uniform = with_model(result, torch.full((4, 2), 0.5))
    flat = result.probabilities / result.class_prior
    torch.testing.assert_close(uniform, flat / flat.sum(1, keepdim=True))


def test_quality_refusals(simulate):
    crowd, *_ = simulate(0)
    result = aggregate(crowd)
    for probs in (np.ones((60, 2)) / 2, np.ones((60, 3)), np.full((60, 3), [1.5, -0.5, 0.0])):
        with pytest.raises(DubitoError):
            label_quality(crowd, result, probs=probs)
    with pytest.raises(DubitoError, match="other items"):
        label_quality(crowd.append([999], [0], [0]), result)


def test_gain_is_mutual_information():
    q = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    A = torch.tensor([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.0, 0.5, 0.5]], dtype=torch.float64)
    joint = q[:, None] * A
    expected = sum(
        float(joint[k, j]) * math.log(float(joint[k, j] / (q[k] * joint[:, j].sum())))
        for k in range(3)
        for j in range(3)
        if joint[k, j] > 0
    )
    assert float(expected_gain(q, A)) == pytest.approx(expected, abs=1e-12)


def test_ask_next_is_the_best_of_all_pairs(simulate):
    crowd, *_ = simulate(2, items=40, annotators=8, each=3)
    result = aggregate(crowd)
    table, A = crowd.to_dense(), result.confusion_matrices
    gains = torch.stack([expected_gain(result.probabilities, A[r]) for r in range(8)], 1)
    gains[torch.from_numpy(table) >= 0] = -1
    asked = ask_next(crowd, result, 6)
    assert float(asked.gain[0]) == pytest.approx(float(gains.max()), abs=1e-12)
    assert bool((asked.gain.diff() <= 1e-12).all())
    assert len(set(asked.items.tolist())) == 6
    for n, r, g in zip(asked.item_codes, asked.annotator_codes, asked.gain):
        assert table[n, r] < 0
        assert float(gains[n].max()) == pytest.approx(float(g), abs=1e-12)


def test_ask_next_limits(simulate):
    crowd, *_ = simulate(2, items=40, annotators=8, each=3)
    result = aggregate(crowd)
    asked = ask_next(crowd, result, 12, per_annotator=2)
    assert int(torch.bincount(asked.annotator_codes).max()) <= 2
    dense = CrowdLabels.from_dense([[0, 1], [1, 1]])
    assert len(ask_next(dense, aggregate(dense), 5)) == 0
    for bad in ({"n": 0}, {"per_annotator": 0}, {"candidates": 0}):
        with pytest.raises(DubitoError):
            ask_next(crowd, result, **bad)
    for method in ("vote", "glad", "one-coin"):
        assert len(ask_next(crowd, aggregate(crowd, method), 3)) == 3
