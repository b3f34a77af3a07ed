"""Votes as aggregates, against loops over labels."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from dubito.crowd import CrowdLabels, aggregate, render, summarise, update
from dubito.crowd.intervals import beta_interval, jeffreys
from dubito.crowd.vote import PIECE, cells, majority_vote, pieces, vote_counts
from dubito.errors import DubitoError


def naive(crowd: CrowdLabels, method: str, gold: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of items (no ties among them) and skills of annotators."""
    N, K, R = crowd.num_items, crowd.num_classes, crowd.num_annotators
    q = np.zeros((N, K))
    triplets = list(zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()))
    for n, _, y in triplets:
        q[n, y] += 1
    for n in range(N):
        if n in gold:
            q[n] = np.eye(K)[gold[n]]
        elif method == "vote":
            q[n] = np.eye(K)[q[n].argmax()]
        else:
            q[n] = q[n] / q[n].sum() if q[n].sum() else 1 / K
    hits: list[list[float]] = [[] for _ in range(R)]
    for n, r, y in triplets:
        hits[r].append(q[n, y])
    overall = np.mean([h for own in hits for h in own])
    return q, np.array([np.mean(own) if own else overall for own in hits])


TABLES = {
    2: [[0, 0, 1, -1], [1, 1, -1, -1], [1, 1, 0, -1], [0, -1, -1, -1], [1, 1, 1, -1]],
    3: [[0, 0, 1, -1], [2, 1, 2, -1], [1, 1, 1, -1], [0, -1, -1, -1], [2, 0, 0, -1], [1, -1, 1, -1]],
}


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("gold", [{}, {0: 0, 1: 0, 2: 1}])
@pytest.mark.parametrize("method", ["vote", "soft-vote"])
def test_an_aggregate_by_counting(K, gold, method):
    table = np.array(TABLES[K])
    item, who = np.nonzero(table >= 0)
    crowd = CrowdLabels(item, who, table[item, who], classes=K, item_ids=len(table), annotator_ids=4)
    result = aggregate(crowd, method, gold=gold or None)
    q, skill = naive(crowd, method, gold)
    np.testing.assert_allclose(result.probabilities, q, atol=1e-7)
    np.testing.assert_allclose(result.skills, skill, atol=1e-7)
    np.testing.assert_allclose(result.class_prior, q.mean(0), atol=1e-7)
    wanted = np.empty((4, K, K))
    for r, k, j in np.ndindex(4, K, K):
        wanted[r, k, j] = skill[r] if k == j else (1 - skill[r]) / (K - 1)
    np.testing.assert_allclose(result.confusion_matrices, wanted, atol=1e-7)
    given = table >= 0
    held = (given.sum(1) > 1) | np.isin(
        np.arange(len(table)), list(gold)
    )  # else a label agrees with itself alone
    labels = torch.from_numpy((given & held[:, None]).sum(0)).double()
    low, high = beta_interval(*jeffreys(result.skills, labels), 0.9).T
    wanted_interval = torch.stack([torch.minimum(low, result.skills), torch.maximum(high, result.skills)], 1)
    torch.testing.assert_close(result.skill_intervals(0.9), wanted_interval)
    assert result.converged
    assert len(result.trace) == 0
    assert np.isnan(result.log_likelihood)


def test_one_label_counts_whole():
    one = CrowdLabels([0], ["a"], [1], classes=3, annotator_ids=["a", "b"])
    for method in ("vote", "soft-vote"):
        result = aggregate(one, method)
        assert result.skills.tolist() == [1.0, 1.0]
        assert result.class_prior.tolist() == [0.0, 1.0, 0.0]


def test_without_items_every_class_is_as_likely():
    nothing = CrowdLabels([], [], [], classes=4, annotator_ids=2)
    for method in ("vote", "soft-vote"):
        assert aggregate(nothing, method).class_prior.tolist() == [0.25] * 4
    assert majority_vote(nothing)[0].shape == (0,)


def test_pieces_of_half_a_million():
    half = 524_288
    assert list(pieces(half + 1)) == [slice(0, half), slice(half, half + 1)]
    assert list(pieces(5, 2)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(pieces(0)) == []


def test_more_items_than_one_piece():
    """Counts and ties beyond the first piece of rows and of items."""
    N = PIECE // 8 + 5
    label = torch.arange(N) % 2
    crowd = CrowdLabels(np.arange(N), np.zeros(N, dtype=int), label.numpy())
    more = crowd.append(
        [N - 1, N - 2, 0], [1, 1, 1], [int(label[N - 1]), 1 - int(label[N - 2]), int(label[0])]
    )
    codes, tied = majority_vote(more)
    assert tied.nonzero().flatten().tolist() == [N - 2]
    kept = torch.arange(N) != N - 2
    assert torch.equal(codes[kept], label[kept])
    assert vote_counts(more).sum(1)[[0, 1, N - 2, N - 1]].tolist() == [2.0, 1.0, 2.0, 2.0]


def test_a_vote_leaves_nothing_to_go_on_from():
    crowd = CrowdLabels.from_dense([[0, 1], [1, 1]])
    with pytest.raises(DubitoError):
        update(aggregate(crowd, "vote"), crowd.append([0], [5], [0]))


def test_places_beyond_two_to_the_31():
    """Codes are 32 bits wide, places in the table of items and classes are not."""
    crowd = CrowdLabels([0, 1], ["a", "a"], [2, 1], classes=3)
    crowd.item_ids = range(2**30)
    crowd.item = torch.tensor([2**30 - 1, 5], dtype=torch.int32)
    assert cells(crowd).tolist() == [3 * (2**30 - 1) + 2, 16]


def test_a_lot_is_no_certainty():
    crowd = CrowdLabels.from_dense(
        [[0, 1, -1], [2, 2, 1], [-1, -1, -1], [0, 1, 2], [1, 0, -1]], classes=3, annotator_ids=["a", "b", "c"]
    )
    found = aggregate(crowd, "vote", gold={4: 1}, seed=3)
    third = [1 / 3] * 3
    wanted = torch.tensor([[0.5, 0.5, 0], [0, 0, 1], third, third, [0, 1, 0]], dtype=torch.float64)
    torch.testing.assert_close(found.probabilities, wanted)
    assert torch.equal(found.codes[[1, 4]], torch.tensor([2, 1]))
    assert found.codes[0] in (0, 1)
    torch.testing.assert_close(found.class_prior, wanted.double().mean(0))
    assert found.skills[0] == pytest.approx((0.5 + 1 + 1 / 3 + 1) / 4)
    page = summarise(crowd, found)
    assert page.unsure_items == 3
    assert "3 ties were drawn by lot" in page.notes


def test_questions_without_gain_are_not_listed():
    sure = CrowdLabels.from_dense([[0, 0, -1], [1, 1, -1], [1, -1, 1]])
    assert summarise(sure, aggregate(sure, "vote")).questions == ()
    tie = sure.append([7, 7], [0, 1], [0, 1])
    ((item, who, gain),) = summarise(tie, aggregate(tie, "vote")).questions
    assert (item, who) == ("7", "2")
    assert gain > 0
    page = summarise(tie, aggregate(tie, "vote"))
    for gain, shown in ((0.4, True), (0.0001, False)):
        console = Console(file=io.StringIO())
        console.print(render(replace(page, questions=(("7", "2", gain),))))
        assert ("Ask next" in console.file.getvalue()) == shown


def test_shares_of_a_vote_are_double():
    found = aggregate(CrowdLabels.from_dense([[0, 1, 1], [0, 0, 1]]), "soft-vote")
    assert found.probabilities.tolist() == [[1 / 3, 2 / 3], [2 / 3, 1 / 3]]
