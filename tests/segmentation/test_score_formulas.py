"""Scores of masks against loops over pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito.errors import DubitoError
from dubito.metrics import ece, reliability_curve
from dubito.segmentation import several_masks, vote
from dubito.segmentation.scores import SegmentationScores

K = 4  # the last class occurs nowhere


def masks() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(2)
    y = torch.randint(3, (3, 4, 5), generator=g).repeat_interleave(3, 1).repeat_interleave(3, 2)
    log_p = torch.randn(3, 12, 15, K, generator=g, dtype=torch.float64)
    log_p[..., 3] = -50.0
    log_p = (log_p + 2 * torch.nn.functional.one_hot(y, K)).log_softmax(-1)
    y[:, :2, :3] = -100
    return log_p, y


def border(mask: np.ndarray, k: int, d: int) -> set[tuple[int, ...]]:
    """Pixels of class k with another class, void or the outside within d steps in both directions."""
    H, W = mask.shape
    found = set()
    for i, j in np.ndindex(H, W):
        around = [(a, b) for a in range(i - d, i + d + 1) for b in range(j - d, j + d + 1)]
        if mask[i, j] == k and any(not (0 <= a < H and 0 <= b < W) or mask[a, b] != k for a, b in around):
            found.add((i, j))
    return found


@pytest.mark.parametrize(("share", "d"), [(0.02, 1), (0.1, 2)])
def test_boundary_iou_pixel_by_pixel(share, d):
    log_p, y = masks()
    scores = SegmentationScores(K, boundary=share)
    scores.add(log_p, y)
    guess = torch.where(y >= 0, log_p.argmax(-1), -100)
    ratios = []
    for k in range(3):
        pairs = [(border(a.numpy(), k, d), border(b.numpy(), k, d)) for a, b in zip(guess, y)]
        ratios.append(sum(len(a & b) for a, b in pairs) / sum(len(a | b) for a, b in pairs))
    assert round(share * math.hypot(12, 15)) == d or d == 1
    values, present = scores.boundary_iou()
    assert present.tolist() == [True, True, True, False]
    np.testing.assert_allclose(values[:3], ratios, atol=1e-12)
    assert scores.results()["boundary_iou"] == pytest.approx(np.mean(ratios), abs=1e-12)


def test_calibration_and_likelihood_pixel_by_pixel():
    log_p, y = masks()
    scores = SegmentationScores(K, bins=7, boundary=0)
    scores.add(log_p[:2], y[:2])
    scores.add(log_p[2:], y[2:])
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(7)]
    total, right = 0.0, 0
    for place in map(tuple, (y >= 0).nonzero().tolist()):
        p = log_p[place].exp()
        confidence, hit = float(p.max()), int(p.argmax()) == int(y[place])
        bins[math.ceil(confidence * 7) - 1].append((confidence, hit))
        total += float(log_p[place][y[place]])
        right += hit
    n = int((y >= 0).sum())
    ece = sum(abs(sum(h for _, h in b) - sum(c for c, _ in b)) for b in bins) / n
    found = scores.results()
    assert found["ece"] == pytest.approx(ece, abs=1e-6)
    assert found["log_likelihood"] == pytest.approx(total / n, abs=1e-6)
    assert found["accuracy"] == pytest.approx(right / n, abs=1e-15)
    assert "boundary_iou" not in found


def test_the_least_that_can_be_scored():
    scores = SegmentationScores(1, bins=1)
    scores.add(torch.zeros(1, 2, 2, 1), torch.zeros(1, 2, 2, dtype=torch.int64))
    assert scores.results() == {
        "mean_iou": 1.0, "accuracy": 1.0, "log_likelihood": 0.0, "ece": 0.0, "pixels": 4.0, "boundary_iou": 1.0
    }  # fmt: skip
    for bad in ({"num_classes": 0}, {"num_classes": 2, "bins": 0}, {"num_classes": 2, "boundary": 1.0}):
        with pytest.raises(DubitoError):
            SegmentationScores(**bad)
    with pytest.raises(DubitoError, match="no such sum"):
        scores.sums("nothing")
    with pytest.raises(DubitoError, match="do not fit"):
        scores.add(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64))


def test_scores_of_different_kinds_are_not_added():
    for other in (SegmentationScores(2, bins=3), SegmentationScores(2, boundary=0.1)):
        with pytest.raises(DubitoError, match="different kinds"):
            SegmentationScores(2).merge(other)


def test_pixels_of_each_bin():
    scores = SegmentationScores(2, bins=4)
    p = torch.tensor([0.5, 0.51, 0.74, 0.75, 0.76, 1.0], dtype=torch.float64)
    log_p = torch.stack([p, 1 - p], -1).log().view(1, 6, 2)
    log_p[0, 5, 0] = 1e-9  # a rounding above certainty
    scores.add(log_p, torch.tensor([[0, 1, 0, 0, 0, 1]]))
    size, right, confidence = scores.sums("bin")
    assert size.tolist() == [0, 1, 3, 2]
    assert right.tolist() == [0, 1, 2, 1]
    np.testing.assert_allclose(confidence / 2**20, [0, 0.5, 2.0, 1.76], atol=1e-5)


def test_the_lowest_bin_holds_those_who_know_nothing():
    scores = SegmentationScores(4, bins=4)
    scores.add(torch.full((1, 3, 4), 0.25, dtype=torch.float64).log(), torch.tensor([[0, 1, 2]]))
    assert scores.sums("bin")[0].tolist() == [3, 0, 0, 0]


def test_one_pixel_can_be_scored():
    scores = SegmentationScores(3)
    truth = torch.tensor([[2, -100], [-100, -100]])
    scores.add(torch.zeros(2, 2, 3).log_softmax(-1), truth)
    found = scores.results()
    assert (found["pixels"], found["accuracy"]) == (1.0, 0.0)
    assert scores.boundary_iou()[1].tolist() == [True, False, True]
    sure = torch.tensor([-9.0, -9.0, 0.0]).expand(2, 2, 3).log_softmax(-1)
    right = SegmentationScores(3)
    right.add(sure, truth)
    assert right.boundary_iou()[0].tolist() == [0.0, 0.0, 1.0]
    assert right.boundary_iou()[1].tolist() == [False, False, True]


def test_masks_of_several_annotators_pixel_by_pixel():
    g = torch.Generator().manual_seed(3)
    masks = torch.randint(-1, 3, (4, 3, 5, 6), generator=g)
    masks[1, 2] = -1
    masks[3] = -1
    voted, given = vote(masks, 3, void=-1), several_masks(masks, void=-1)
    for i, row, column in np.ndindex(4, 5, 6):
        counts = [int((masks[i, :, row, column] == k).sum()) for k in range(3)]
        assert int(voted[i, row, column]) == (counts.index(max(counts)) if any(counts) else -100)
    drawn = [(i, r) for i in range(4) for r in range(3) if bool((masks[i, r] >= 0).any())]
    assert list(zip(given.item.tolist(), given.annotator.tolist())) == drawn
    for mask, (i, r) in zip(given.label, drawn):
        assert torch.equal(mask, torch.where(masks[i, r] < 0, -100, masks[i, r]))
    assert vote(torch.zeros(1, 1, 2, 2).long(), 1).tolist() == [[[0, 0], [0, 0]]]
    for bad in (masks.double(), masks[0], masks.cfloat()):
        with pytest.raises(DubitoError):
            vote(bad, 3)
    for bad in (masks.double(), masks[0]):
        with pytest.raises(DubitoError):
            several_masks(bad)
    with pytest.raises(DubitoError):
        vote(masks, 0)


def test_a_pixel_without_a_label_is_void_after_the_vote():
    """-1 is no label whatever `void` is, and a number that is no class is not taken for one."""
    masks = torch.tensor([[[[255, 255], [1, -1]], [[255, 2], [1, -1]]]])
    assert vote(masks, 4, void=255).tolist() == [[[-100, 2], [1, -100]]]
    with pytest.raises(DubitoError, match=r"masks\[0, 0, 0, 0\]: expected 0 to 3, .* got 255; .*void="):
        vote(masks, 4)
    with pytest.raises(DubitoError, match="got -100"):
        vote(torch.full((1, 1, 1, 1), -100), 4, void=255)
    with pytest.raises(DubitoError, match=r"0 to 1, .* got 2"):
        vote(masks, 2, void=255)


def test_masks_in_bytes():
    """-100 does not fit into a byte: it would be class 156."""
    masks = torch.tensor([[[[255, 156]], [[1, 255]]]], dtype=torch.uint8)
    assert vote(masks, 157, void=255).tolist() == [[[1, 156]]]
    assert vote(masks[..., 1:], 157, void=255).tolist() == [[[156]]]
    assert several_masks(masks, void=255).label.tolist() == [[[-100, 156]], [[1, -100]]]
    assert vote(torch.tensor([[[[156]]]], dtype=torch.uint8), 157).tolist() == [[[156]]]


@pytest.mark.parametrize("bins", [10, 15, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_confidences_on_edges_fall_as_in_the_metrics(bins, dtype):
    """Size, hits and confidence of every bin are those of `reliability_curve`."""
    edge = (torch.arange(bins // 2 + 1, bins, dtype=torch.float64) / bins).to(dtype)
    log_p = torch.stack([edge, 1 - edge], -1).log()
    edge = log_p[:, 0].exp()  # what came back from the logarithm, on the edge or beside it
    p = torch.stack([edge, 1 - edge], -1)
    y = torch.arange(len(edge)) % 2
    scores = SegmentationScores(2, bins=bins, boundary=0)
    scores.add(log_p[:, None], y[:, None])
    curve = reliability_curve(p, y, bins)
    size, right, _ = scores.sums("bin")
    assert torch.equal(size, curve.size)
    assert torch.equal(right, (curve.accuracy * curve.size).round().long())
    assert scores.results()["ece"] == pytest.approx(ece(p, y, bins), abs=1e-6)
