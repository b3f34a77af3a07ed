"""Values on the very edge of what is allowed, and details that only a change of one sign or constant would show.

Each was found by a mutant that no other test noticed (docs/mutation.md).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito import channels, crowd, estimate, heads, links, losses, metrics, penalties, targets, weights
from dubito._matrices import check_invertible
from dubito.crowd.vote import vote_counts
from dubito.errors import DubitoError

EYE = torch.eye(3, dtype=torch.float64)
SINGULAR = torch.full((3, 3), 1 / 3, dtype=torch.float64)


def crowd_of_five() -> crowd.CrowdLabels:
    return crowd.CrowdLabels([0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 1, 0], [1, 1, 0, 0, 1, 2], classes=3)


def test_the_worst_matrix_of_several_counts() -> None:
    check_invertible(torch.stack([EYE, EYE]))
    with pytest.raises(DubitoError, match="cannot be inverted"):
        check_invertible(torch.stack([EYE, SINGULAR]))


def test_only_heads_with_noise_need_an_integral() -> None:
    kinds = {kind: kind.noisy for kind in (heads.Point, heads.Diagonal, heads.LowRank, heads.PreLogit)}
    assert kinds == {heads.Point: False, heads.Diagonal: True, heads.LowRank: True, heads.PreLogit: True}


@pytest.mark.parametrize(
    "bad", [math.inf, math.nan, -1e-9, torch.tensor([1.0, -1.0]), torch.tensor([0.0, 1.0])]
)
def test_temperatures(bad: float | torch.Tensor) -> None:
    for link in (links.log_softmax, links.centred_log_softmax):
        with pytest.raises(DubitoError, match="temperature"):
            link(torch.zeros(2, 1), bad)
    assert links.log_softmax(torch.zeros(2), 0.0).exp().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, "3"])
def test_numbers_of_bins(bad: object) -> None:
    with pytest.raises(DubitoError, match="bins"):
        metrics.reliability_curve(torch.tensor([[0.9, 0.1]]), torch.tensor([0]), bins=bad)


def test_one_bin_and_certain_predictions() -> None:
    probs = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    curve = metrics.reliability_curve(probs, torch.tensor([0, 0, 0]), bins=1, closed="left")
    assert curve.size.tolist() == [3]
    assert curve.accuracy.tolist() == pytest.approx([2 / 3])
    first = metrics.reliability_curve(probs, torch.tensor([0, 0, 0]), bins=2)
    assert first.size.tolist() == [1, 2]


def test_one_value_that_is_not_finite() -> None:
    hurt = EYE.clone()
    hurt[2, 1] = math.nan
    for pair in ((hurt, EYE), (EYE, hurt)):
        with pytest.raises(DubitoError, match="not finite"):
            metrics.confusion_error(*pair)
    table = np.array([[0.5, 0.5], [0.5, math.nan]])
    with pytest.raises(DubitoError, match="probabilities"):
        estimate.anchor_transition(table)


def test_both_ends_of_percentiles() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)
    assert estimate.anchor_transition(probs, 0.0)[0].tolist() == pytest.approx([0.3, 0.7])
    assert estimate.anchor_transition(probs, 100.0)[0].tolist() == pytest.approx([0.9, 0.1])
    for bad in (-0.1, 100.1, math.nan):
        with pytest.raises(DubitoError, match="percentile"):
            estimate.anchor_transition(probs, bad)


@pytest.mark.parametrize(
    ("p", "stars"), [(0.06, ""), (0.04, "*"), (0.012, "*"), (0.008, "**"), (0.0012, "**")]
)
def test_stars_change_at_their_levels(p: float, stars: str) -> None:
    from scipy.stats import t as student

    n = 6
    wanted = student.ppf(1 - p / 2, n - 1) / math.sqrt(n)
    spread = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    spread = spread / spread.std(ddof=1)
    found = metrics.paired_t_test(list(spread + wanted), [0.0] * n)
    assert found.p == pytest.approx(p, rel=1e-6)
    assert found.stars == stars


def test_pairs_by_seed_and_pairs_by_place() -> None:
    by_seed = metrics.paired_t_test({0: 1.0, 1: 2.0, 2: 4.0}, {2: 1.0, 0: 0.5, 1: 1.0})
    assert by_seed.difference == pytest.approx((0.5 + 1.0 + 3.0) / 3)
    with pytest.raises(DubitoError, match="one of each"):
        metrics.paired_t_test({0: 1.0, 1: 2.0}, [0.5, 1.0])


def test_one_pixel_of_a_class_and_none() -> None:
    share, there = metrics.iou(torch.tensor([[1, 0, 0], [1, 0, 0], [0, 0, 0]]))
    assert share.tolist() == [0.5, 0.0, 0.0]
    assert there.tolist() == [True, True, False]
    assert metrics.iou(torch.tensor([[1, 0], [0, 0]]))[0].tolist() == [1.0, 0.0]


def test_weights_of_zero_and_ramps_of_one_are_allowed() -> None:
    for penalty in (penalties.trace, penalties.frobenius, penalties.log_det):
        assert float(penalty(EYE.expand(2, 3, 3), weight=0.0)) == 0.0
        with pytest.raises(DubitoError, match="weight"):
            penalty(EYE.expand(2, 3, 3), weight=-1e-9)
    assert weights.forget_rate(1, 0.4, ramp=1) == pytest.approx(0.4)
    with pytest.raises(DubitoError, match="ramp"):
        weights.forget_rate(1, 0.4, ramp=0)


def test_one_class_and_no_class() -> None:
    assert targets.smooth(torch.tensor([0]), 1, 0.3).tolist() == [[1.0]]
    with pytest.raises(DubitoError, match="num_classes"):
        targets.smooth(torch.tensor([0]), 0, 0.3)


def test_smoothing_keeps_the_mass_of_any_weights() -> None:
    found = targets.smooth(torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64), 3, 0.3)
    assert found[0].tolist() == pytest.approx([0.7 * 2 + 0.4, 0.7 + 0.4, 0.7 + 0.4])


def test_label_noise_is_added() -> None:
    source, again = (torch.Generator().manual_seed(3) for _ in range(2))
    drawn = torch.randn(1, 3, generator=again, dtype=torch.float64)
    found = targets.label_noise(torch.tensor([1]), 3, 0.5, source)
    assert torch.equal(found, torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64) + 0.5 * drawn)


def test_counts_and_priors_of_a_vote() -> None:
    labels = crowd_of_five()
    assert vote_counts(labels).tolist() == [[1.0, 2.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    found = crowd.aggregate(labels, "soft-vote")
    torch.testing.assert_close(found.probabilities.double(), vote_counts(labels).double() / torch.tensor([[3.0], [2.0], [1.0]]).double())  # fmt: skip # noqa: E501
    assert float(found.class_prior.sum()) == pytest.approx(1.0)
    assert found.class_prior.tolist() == pytest.approx([(1 / 3 + 1 / 2) / 3, (2 / 3 + 1 / 2) / 3, 1 / 3])
    skills = crowd.aggregate(labels, "vote", seed=1).skills
    assert bool(((skills >= 0) & (skills <= 1)).all())
    A = crowd.aggregate(labels, "vote", seed=1).confusion_matrices
    torch.testing.assert_close(A.sum(-1), torch.ones(3, 3, dtype=A.dtype))


def test_a_pool_of_low_rank_is_normalised_by_rows() -> None:
    channel = channels.PooledConfusion(2, 4, rank=2, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for p in channel.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=p.dtype))
    torch.testing.assert_close(channel.matrices().sum(-1), torch.ones(2, 4, dtype=torch.float64))
    assert not torch.allclose(channel.matrices().sum(-2), torch.ones(2, 4, dtype=torch.float64), atol=1e-3)


def test_ignored_labels_and_other_axes_by_default() -> None:
    z = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]], dtype=torch.float64)
    alone = losses.nll(z[:1], torch.tensor([2]))
    for loss in (losses.nll, losses.gce, losses.bootstrap, losses.bi_tempered, losses.truncated_gce):
        both, one = loss(z, torch.tensor([2, -100])), loss(z[:1], torch.tensor([2]))
        torch.testing.assert_close(both, one)
        torch.testing.assert_close(loss(z.T, torch.tensor([2, 1]), dim=0), loss(z, torch.tensor([2, 1])))
    assert float(alone) == pytest.approx(math.log(1 + math.exp(-1) + math.exp(-2)))


def test_the_first_class_and_missing_labels_in_label_quality() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.3, 0.2]], dtype=torch.float64)
    T = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.0, 0.3, 0.7]], dtype=torch.float64)
    y = torch.tensor([0, 2, -1])
    plain, through = estimate.label_log_quality(p.log(), y), estimate.label_log_quality(p.log(), y, T)
    assert plain.exp()[:2].tolist() == pytest.approx([0.7, 0.6])
    right = [p[i, c] * T[c, c] / sum(p[i, k] * T[k, c] for k in range(3)) for i, c in ((0, 0), (1, 2))]
    assert through.exp()[:2].tolist() == pytest.approx([float(r) for r in right])
    assert plain[2].isnan()
    assert through[2].isnan()
