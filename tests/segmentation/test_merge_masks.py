"""`merge_masks` against EM written out over single pixels, and against the vote where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito import CrowdLabels, DubitoError
from dubito.crowd import aggregate
from dubito.segmentation import BorderHabits, merge_masks, simulate_masks, vote
from dubito.segmentation.shapes import shapes

PSEUDO, DIAGONAL = 1.0, 0.9


def naive(masks, K, steps):
    """EM pixel by pixel in float64, from shares of votes, with a pseudo-pixel of each class."""
    y = masks.movedim(1, -1).reshape(-1, masks.shape[1]).numpy()
    y = y[(y >= 0).any(1)]
    R = y.shape[1]
    q = np.stack([(y == k).sum(1) for k in range(K)], 1) / (y >= 0).sum(1, keepdims=True)
    start = np.full((K, K), (1 - DIAGONAL) / (K - 1))
    np.fill_diagonal(start, DIAGONAL)
    for _ in range(steps):
        counts = np.zeros((R, K, K))
        for n in range(len(y)):
            for r in range(R):
                if y[n, r] >= 0:
                    counts[r, :, y[n, r]] += q[n]
        pooled = counts.sum(0) + PSEUDO * start
        pooled /= pooled.sum(1, keepdims=True)
        A = counts + PSEUDO * pooled
        A /= A.sum(2, keepdims=True)
        prior = q.sum(0) + PSEUDO
        prior /= prior.sum()
        q = np.stack(
            [
                prior * np.prod([A[r][:, c] if c >= 0 else np.ones(K) for r, c in enumerate(row)], 0)
                for row in y
            ]
        )
        q /= q.sum(1, keepdims=True)
    return q, A, prior


@pytest.fixture(scope="module")
def small():
    generator = torch.Generator().manual_seed(3)
    truth = torch.randint(3, (2, 5, 7), generator=generator)
    wrong = torch.rand(2, 4, 5, 7, generator=generator) < torch.tensor([0.1, 0.2, 0.4, 0.3]).view(1, 4, 1, 1)
    masks = torch.where(wrong, torch.randint(3, wrong.shape, generator=generator), truth.unsqueeze(1))
    masks[0, 1] = -100
    masks[:, 2, 0] = -1
    masks[1, :, 4, 6] = -100
    return masks


@pytest.mark.parametrize("steps", [1, 7])
def test_the_numbers_are_those_of_em_over_pixels(small, steps):
    q, A, prior = naive(small, 3, steps)
    found = merge_masks(small, 3, iterations=steps, tolerance=0.0)
    assert np.allclose(found.matrices, A, atol=1e-6)
    assert np.allclose(found.prior, prior, atol=1e-6)
    some = (small >= 0).any(1)
    assert np.allclose(found.confidence[some], q.max(1), atol=1e-6)
    assert (found.labels[some].numpy() == q.argmax(1)).all()
    assert (found.labels[~some] == -100).all()
    assert (found.confidence[~some] == 0).all()


def test_it_agrees_with_dawid_skene_of_a_crowd():
    """Another implementation, with another small prior: pixels are items, and there are many of them."""
    scenes = shapes(3, size=(40, 50))
    masks = simulate_masks(
        scenes.labels, [BorderHabits(grow=(-1, 2)), BorderHabits(shift=2), BorderHabits()], seed=0
    )
    n, r = torch.meshgrid(torch.arange(3 * 2000), torch.arange(3), indexing="ij")
    labels = masks.movedim(1, -1).reshape(-1, 3)
    crowd = CrowdLabels(n.flatten(), r.flatten(), labels.flatten(), classes=range(4))
    other = aggregate(crowd, "dawid-skene", tolerance=1e-9, iterations=500)
    found = merge_masks(masks, 4, tolerance=1e-10, iterations=500)
    same = other.codes.view(3, 40, 50) == found.labels
    assert float(same.double().mean()) > 0.999
    assert float((other.probabilities.amax(-1).view(3, 40, 50) - found.confidence).abs().mean()) < 2e-3


def test_an_annotator_who_misses_a_class_is_outvoted():
    scenes = shapes(12, size=(40, 56))
    habits = [
        BorderHabits(grow=(1.0, 3.0), shift=1.0),
        BorderHabits(grow=(-2.0, 0.0), missing=0.3),
        BorderHabits(),
    ]
    masks = simulate_masks(scenes.labels, habits, seed=0)
    masks[:, 2] = torch.where(masks[:, 2] == 3, 0, masks[:, 2])
    truth = scenes.labels

    def iou(labels, k):
        return float(((labels == k) & (truth == k)).sum() / ((labels == k) | (truth == k)).sum())

    merged = merge_masks(masks, 4)
    assert iou(merged.labels, 3) > iou(vote(masks, 4), 3) + 0.05
    assert float(merged.matrices[2, 3, 3]) < 0.05  # he never draws it
    assert float(merged.matrices[2, 1, 1]) > 0.9


def test_shapes_and_corners(small):
    each = merge_masks(small, 3, per_image=True)
    assert each.matrices.shape == (2, 4, 3, 3)
    alone = merge_masks(small[1:], 3)
    assert torch.equal(each.labels[1], alone.labels[0])
    assert torch.allclose(each.matrices[1], alone.matrices)
    for per_image in (False, True):
        empty = merge_masks(small[:0], 3, per_image=per_image)
        assert empty.labels.shape == (0, 5, 7)
        nothing = merge_masks(torch.full((2, 2, 3, 3), -100), 4, per_image=per_image)
        assert (nothing.labels == -100).all()
        assert nothing.matrices.isfinite().all()
    one = merge_masks(small[:, :1], 3)
    assert torch.equal(one.labels, vote(small[:, :1], 3))
    many = small.repeat(1, 12, 1, 1)  # codes of 48 annotators do not fit into 64 bits
    assert merge_masks(many, 3, iterations=2).matrices.shape == (48, 3, 3)
    assert torch.equal(merge_masks(small.to(torch.int16), 3).labels, merge_masks(small, 3).labels)


def test_refusals(small):
    with pytest.raises(DubitoError, match=r"label out of range at masks\[0, 0, .*0 to 1"):
        merge_masks(small, 2)
    with pytest.raises(DubitoError, match="whole numbers"):
        merge_masks(small.float(), 3)
    with pytest.raises(DubitoError, match="iterations"):
        merge_masks(small, 3, iterations=0)
