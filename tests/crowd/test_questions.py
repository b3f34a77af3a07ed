"""Whom to ask, and labels beside a model, against loops over every pair and every weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate, ask_next, expected_gain, with_model
from dubito.crowd.ask import _gains
from dubito.errors import DubitoError


def greedy(gains: np.ndarray, n: int, limit: int | None) -> list[tuple[int, int]]:
    """The best pair left, n times; an item once, an annotator `limit` times, pairs below 0 never."""
    chosen: list[tuple[int, int]] = []
    while len(chosen) < n:
        best, pair = -1.0, None
        for i, r in np.ndindex(*gains.shape):
            full = limit is not None and sum(who == r for _, who in chosen) >= limit
            if gains[i, r] > best + 1e-11 and not full and i not in {item for item, _ in chosen}:
                best, pair = gains[i, r], (i, r)
        if pair is None:
            break
        chosen.append(pair)
    return chosen


def one_more(m, rho):
    """What the label after m of them is worth, from the formula."""
    total = [j / (1 + rho * max(j - 1, 0)) for j in range(int(m.max()) + 2)]
    return torch.tensor([total[j + 1] - total[j] for j in m.tolist()], dtype=torch.float64)


@pytest.mark.parametrize("candidates", [1, 3, 50])
@pytest.mark.parametrize("limit", [None, 1, 2])
def test_the_best_pairs_one_after_the_other(simulate, candidates, limit):
    crowd, *_ = simulate(5, items=30, annotators=7, each=3)
    result = aggregate(crowd)
    A, q = result.confusion_matrices, result.probabilities
    telling = torch.stack([expected_gain(result.class_prior, A[r]) for r in range(7)])
    people = telling.argsort(descending=True)[:candidates].tolist()
    gains = np.full((30, 7), -1.0)
    for r in people:
        gains[:, r] = expected_gain(q, A[r]).numpy()
    gains *= one_more(crowd.labels_per_item(), result.dependence).numpy()[:, None]
    gains[crowd.to_dense() >= 0] = -1.0
    asked = ask_next(crowd, result, 9, per_annotator=limit, candidates=candidates)
    wanted = greedy(gains, 9, limit)
    assert list(zip(asked.item_codes.tolist(), asked.annotator_codes.tolist())) == wanted
    np.testing.assert_allclose(asked.gain, [gains[pair] for pair in wanted], atol=1e-11)


def test_the_most_open_items_come_first_among_many():
    """More items than are looked at closely: the open ones are those looked at."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=400)
    table = np.repeat(truth[:, None], 4, 1)
    table[:, 3] = -1
    table[:20, 3] = truth[:20]
    table[-5:, 0] = 1 - truth[-5:]
    crowd = CrowdLabels.from_dense(table)
    asked = ask_next(crowd, aggregate(crowd, "one-coin"), 5)
    assert set(asked.item_codes.tolist()) == set(range(395, 400))
    assert set(asked.annotator_codes.tolist()) == {3}


def test_one_annotator_and_one_item_are_enough():
    alone = CrowdLabels([0, 1], ["a", "a"], [0, 1], item_ids=3)
    asked = ask_next(alone, aggregate(alone), 4)
    assert asked.item_codes.tolist() == [2]
    single = CrowdLabels([0, 0], ["a", "b"], [0, 1], annotator_ids=["a", "b", "c"])
    assert ask_next(single, aggregate(single), 4).annotators.tolist() == ["c"]
    for nobody in (
        CrowdLabels([], [], [], classes=2, item_ids=3),
        CrowdLabels([], [], [], classes=2, annotator_ids=3),
    ):
        assert len(ask_next(nobody, aggregate(nobody), 4)) == 0


@pytest.mark.parametrize(
    ("q", "A"),
    [
        (torch.ones(2) / 2, torch.ones(2)),
        (torch.ones(()), torch.ones(1, 1)),
        (torch.ones(2) / 2, torch.ones(2, 3) / 3),
        (torch.ones(2) / 2, torch.ones(3, 2) / 2),
        (torch.ones(2, dtype=torch.long), torch.eye(2)),
        (torch.ones(2) / 2, torch.eye(2, dtype=torch.long)),
        (torch.ones(3, 2) / 2, torch.ones(4, 2, 2) / 2),
    ],
)
def test_a_gain_needs_a_posterior_and_a_matrix_of_it(q, A):
    with pytest.raises(DubitoError):
        expected_gain(q, A)


def test_gains_of_many_pairs_equal_single_ones():
    generator = torch.Generator().manual_seed(0)
    q = torch.rand(4, 1, 3, dtype=torch.float64, generator=generator).log_softmax(-1).exp()
    A = torch.rand(5, 3, 3, dtype=torch.float64, generator=generator).softmax(-1)
    found = expected_gain(q, A)
    for i, r in np.ndindex(4, 5):
        joint = q[i, 0, :, None] * A[r]
        apart = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
        assert float(found[i, r]) == pytest.approx(float((joint * (joint / apart).log()).sum()), abs=1e-12)


GRID = [0.0, *(0.125 * 2 ** (i / 2) for i in range(11))]


@pytest.mark.parametrize(
    ("sharpness", "expected"), [(-1.0, 0.0), (0.2, 4.0), (2.0, None), (30.0, None), (1e4, None)]
)
def test_the_weight_of_a_model_is_the_one_that_explains_the_labels_best(simulate, sharpness, expected):
    crowd, truth, _ = simulate(7, items=150, annotators=9, each=2)
    crowd = crowd.select(torch.from_numpy(truth != 0)[crowd.item.long()] | (crowd.item < 60))
    result = aggregate(crowd)
    rng = np.random.default_rng(1)
    said = np.where(rng.random(150) < 0.85, truth, rng.integers(3, size=150))
    p = np.exp(sharpness * (np.eye(3)[said] - 1))
    p /= p.sum(1, keepdims=True)
    q, prior = result.probabilities.numpy(), result.class_prior.numpy()
    log_p = np.log(np.maximum(p, np.finfo(float).tiny))
    evidence = np.log(np.maximum(q, np.finfo(float).tiny)) - np.log(prior)

    def explained(b):
        total = 0.0
        for n in range(len(q)):
            share = np.exp(b * log_p[n]) / np.exp(b * log_p[n]).sum()
            total += np.log((np.exp(evidence[n]) * share).sum())
        return total

    b = max(GRID, key=explained)
    assert b == expected or (expected is None and 0 < b < 4)
    wanted = np.exp(evidence) * np.exp(b * log_p)
    np.testing.assert_allclose(with_model(result, p), wanted / wanted.sum(1, keepdims=True), atol=1e-10)


def test_items_that_all_have_labelled_do_not_hide_the_open_ones():
    """1,000 hard items labelled by everybody, 1,000 with a label to give: the best open pair comes first."""
    rng = np.random.default_rng(0)
    truth, rows = rng.integers(2, size=2000), []
    for n in range(2000):
        right = 0.55 if n < 1000 else 0.9
        for r in range(4) if n < 1000 else rng.choice(4, 3, replace=False):
            rows.append((n, int(r), int(truth[n] if rng.random() < right else 1 - truth[n])))
    crowd = CrowdLabels(*zip(*rows))
    result = aggregate(crowd)
    gain = expected_gain(result.probabilities.unsqueeze(1), result.confusion_matrices.unsqueeze(0))
    gain *= one_more(crowd.labels_per_item(), result.dependence).unsqueeze(1)
    gain[crowd.item.long(), crowd.annotator.long()] = -1
    for n in (1, np.int64(5), 100):
        asked = ask_next(crowd, result, n)
        assert len(asked) == n
        assert float(asked.gain[0]) == pytest.approx(float(gain.max()), abs=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_a_label_more_is_worth_less_the_more_there_are(simulate, rho):
    """Labels that err together: every gain is that of an independent label times what one more is worth."""
    crowd, *_ = simulate(3, items=40, annotators=12, each=3)
    crowd = crowd.select((crowd.item >= 20) | (torch.arange(len(crowd)) % 3 == 0))  # one label, or three
    result = replace(aggregate(crowd), dependence=rho)
    asked = ask_next(crowd, result, 40)
    alone = [
        float(expected_gain(result.probabilities[n], result.confusion_matrices[r]))
        for n, r in zip(asked.item_codes.tolist(), asked.annotator_codes.tolist())
    ]
    part = one_more(crowd.labels_per_item(), rho)[asked.item_codes]
    np.testing.assert_allclose(asked.gain, part * torch.tensor(alone), atol=1e-11)
    if rho in (0.0, 1.0):  # independent labels, and labels that all repeat the first
        assert set(part.tolist()) == {1.0 - rho}
    assert len(asked) == 40


def test_gains_are_what_one_more_label_brings():
    """Every second item looks like another class to many: promised information against what an answer brings."""
    promised, brought = {1: [], 8: []}, {1: [], 8: []}
    for seed in range(4):
        rng = np.random.default_rng([seed, 5])
        truth, N, R = rng.integers(3, size=400), 400, 20
        lure = np.where(rng.random(N) < 0.4, (truth + rng.integers(1, 3, N)) % 3, truth)
        named = np.where(rng.random((N, R)) < 0.5, lure[:, None], truth[:, None])
        given = np.where(rng.random((N, R)) < 0.85, named, rng.integers(3, size=(N, R)))
        order, m = rng.random((N, R)).argsort(1), np.where(np.arange(N) % 2, 8, 1)
        before = np.full((N, R), -1)
        for n in range(N):
            before[n, order[n, : m[n]]] = given[n, order[n, : m[n]]]
        crowd = CrowdLabels.from_dense(before)
        first = aggregate(crowd)
        asked = ask_next(crowd, first, 400)
        after = before.copy()
        n, r = asked.item_codes.numpy(), asked.annotator_codes.numpy()
        after[n, r] = given[n, r]
        second = aggregate(CrowdLabels.from_dense(after), start=first)
        for each in (1, 8):
            rows, here = np.flatnonzero(m == each), m[n] == each
            log_p = [a.probabilities.numpy()[rows, truth[rows]].clip(1e-6) for a in (first, second)]
            brought[each].append(np.log(log_p[1] / log_p[0]).mean())
            promised[each].append(float(asked.gain[torch.from_numpy(here)].mean()))
    assert np.mean(promised[1]) > 3 * np.mean(promised[8])
    assert abs(np.mean(promised[8]) - np.mean(brought[8])) < 0.02


def test_the_first_who_is_left_is_asked():
    """Two experts have labelled the item that is still open; only somebody worse is left, who is asked about it."""
    table = [[0, 1, -1], [0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]]
    crowd = CrowdLabels.from_dense(table)
    asked = ask_next(crowd, aggregate(crowd, "one-coin"), 1)
    assert (asked.items.tolist(), asked.annotators.tolist()) == ([0], [2])


def test_experts_who_answer_the_other_way_round_are_found_among_many():
    """40 of 400 people are wrong 98 times in 100, the others little better than a coin: the 40 tell most."""
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=4000)
    right = np.r_[np.full(360, 0.62), np.full(40, 0.02)]
    who = rng.integers(400, size=(4000, 6))
    item, who = np.repeat(np.arange(4000), 6), who.ravel()
    given = np.where(rng.random(len(who)) < right[who], truth[item], 1 - truth[item])
    crowd = CrowdLabels(item, who, given, duplicates="first", annotator_ids=range(400))
    result = aggregate(crowd, "one-coin")
    asked = ask_next(crowd, result, 10)
    assert all(r >= 360 for r in asked.annotators.tolist())


def test_many_classes_are_no_copies_of_matrices():
    """Posteriors of 300 classes meet 50 matrices: the gains are those of each pair alone."""
    g = torch.Generator().manual_seed(0)
    q = torch.rand(7, 300, generator=g, dtype=torch.float64).softmax(-1)
    A = (5 * torch.rand(3, 300, 300, generator=g, dtype=torch.float64)).softmax(-1)
    each = torch.tensor([[float(expected_gain(row, matrix)) for matrix in A] for row in q])
    torch.testing.assert_close(_gains(q, A).float(), each, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n", [0, True, 2.0, "3"])
def test_a_number_of_questions_is_a_count(simulate, n):
    crowd, *_ = simulate(0)
    with pytest.raises(DubitoError, match="n must be a count"):
        ask_next(crowd, aggregate(crowd), n)


@pytest.mark.parametrize("probs", ["x", [[0.5, 0.5], [1.0]], {"a": 1}])
def test_probabilities_that_are_no_table_are_refused(probs):
    result = aggregate(CrowdLabels.from_dense([[0, 1], [1, 1]]))
    with pytest.raises(DubitoError, match="probs must"):
        with_model(result, probs)


def test_probabilities_may_be_a_frame():
    result = aggregate(CrowdLabels.from_dense([[0, 1], [1, 1]]))
    table = [[0.9, 0.1], [0.2, 0.8]]
    torch.testing.assert_close(with_model(result, pd.DataFrame(table)), with_model(result, table))
