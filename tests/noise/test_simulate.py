"""Triplets from simulated annotators, and annotators who look at the input."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from dubito import noise
from dubito.errors import DubitoError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


A = noise.pairwise_flippers(6, 4, 0.6, seeded(9))
Y = torch.randint(4, (20_000,), generator=seeded(8))


@pytest.mark.rel
@pytest.mark.paper("tanno2019 eq. 1", "tanno2019 eq. 2")
@pytest.mark.parametrize("per_item", [None, "all", 1, 3, 6])
def test_labels_follow_each_annotators_matrix(per_item):
    """Scorecard 10: every entry of every annotator within four standard errors."""
    items, annotators, labels = noise.simulate(Y, A, seeded(), per_item)
    k = 6 if per_item in (None, "all") else per_item
    assert items.dtype == annotators.dtype == labels.dtype == torch.int64
    assert torch.equal(items, torch.arange(20_000).repeat_interleave(k))
    pairs = items * 6 + annotators
    assert bool((pairs.diff() > 0).all())
    load = torch.bincount(annotators, minlength=6).double()
    expected = 20_000 * k / 6
    assert bool(((load - expected).abs() <= 4 * math.sqrt(expected * (1 - k / 6)) + 1e-9).all())
    counts = torch.bincount((annotators * 4 + Y[items]) * 4 + labels, minlength=96).reshape(6, 4, 4).double()
    size = counts.sum(-1, keepdim=True)
    assert bool((((counts / size) - A).abs() <= 4 * (A * (1 - A) / size).sqrt() + 1e-12).all())


def test_who_labels_does_not_depend_on_the_item():
    """Pairs of annotators are drawn alike: each of the 15 pairs on a fifteenth of the items."""
    _, annotators, _ = noise.simulate(Y, A, seeded(2), 2)
    pairs = annotators.view(-1, 2)
    counts = torch.bincount(pairs[:, 0] * 6 + pairs[:, 1], minlength=36).double()
    counts = counts[counts > 0]
    assert len(counts) == 15
    assert bool(((counts - 20_000 / 15).abs() < 4 * math.sqrt(20_000 / 15)).all())


def test_sparse_labels_are_part_of_the_dense_ones():
    dense = torch.full((20_000, 6), -1)
    items, annotators, labels = noise.simulate(Y, A, seeded(3))
    dense[items, annotators] = labels
    items, annotators, labels = noise.simulate(Y, A, seeded(3), 2)
    assert torch.equal(dense[items, annotators], labels)
    assert torch.equal(noise.simulate(Y[:50], A, seeded(3))[2], dense[:50].flatten())


def test_many_annotators_need_no_table():
    """A million items times ten thousand annotators would not fit; their single labels do."""
    one = noise.hammer_spammers(1, 2, 1.0, seeded(), jitter=0.0)
    items, annotators, labels = noise.simulate(
        torch.ones(100_000).long(), one.expand(10_000, 2, 2), seeded(), 2
    )
    assert len(items) == 200_000
    assert bool((labels == 1).all())
    assert int(annotators.max()) > 9_900
    assert bool((annotators.view(-1, 2).diff() > 0).all())


def test_small_cases():
    for labels in (torch.empty(0).long(), np.array([], dtype=np.int64)):
        assert [t.shape for t in noise.simulate(labels, A, seeded())] == [(0,)] * 3
        assert [t.shape for t in noise.simulate(labels, A, seeded(), 1)] == [(0,)] * 3
    items, annotators, labels = noise.simulate(np.array([3], dtype=np.uint8), torch.eye(4)[None], seeded(), 1)
    assert (items.tolist(), annotators.tolist(), labels.tolist()) == ([0], [0], [3])


@pytest.mark.rel
def test_errors_depend_on_the_input_and_keep_their_mean():
    """Scorecard 1: the probability of an error is sigmoid(b + strength z) of the annotator's projection."""
    x = torch.randn(3_000, 5, generator=seeded(1), dtype=torch.float64)
    y = torch.randint(4, (3_000,), generator=seeded(2))
    P = noise.input_dependent_annotators(x, y, 3, 4, 0.7, seeded(3), strength=1.5)
    torch.testing.assert_close(P.sum(-1), torch.ones(3_000, 3, dtype=torch.float64))
    right = P.gather(-1, y.view(-1, 1, 1).expand(-1, 3, 1)).squeeze(-1)
    torch.testing.assert_close(right.mean(0), torch.full((3,), 0.7, dtype=torch.float64), rtol=1e-9, atol=0)
    # The log-odds of an error are linear in x, with a direction for each annotator and deviation `strength`.
    odds = torch.log((1 - right) / right)
    design = torch.cat([x, torch.ones(3_000, 1, dtype=torch.float64)], 1)
    fit = torch.linalg.lstsq(design, odds).solution
    assert float((design @ fit - odds).abs().max()) < 1e-6
    torch.testing.assert_close(odds.std(0, correction=0), torch.full((3,), 1.5, dtype=torch.float64))
    assert float(torch.corrcoef(odds.T).fill_diagonal_(0).abs().max()) < 0.999
    wrong = P.clone().scatter_(-1, y.view(-1, 1, 1).expand(-1, 3, 1), -1.0)
    others = wrong[wrong >= 0].view(3_000, 3, 3)
    torch.testing.assert_close(others, ((1 - right) / 3).unsqueeze(-1).expand_as(others))


def test_without_strength_nobody_looks_at_the_input():
    x, y = torch.randn(200, 5, generator=seeded(1)), torch.randint(4, (200,), generator=seeded(2))
    P = noise.input_dependent_annotators(x, y, 2, 4, 0.7, seeded(3), strength=0.0)
    expected = noise.hammer_spammers(2, 4, 0.7, seeded(), jitter=0.0)[:, y].transpose(0, 1)
    torch.testing.assert_close(P, expected, rtol=1e-9, atol=1e-12)


def test_perfect_and_hopeless_annotators_and_a_constant_input():
    x, y = torch.ones(50, 2), torch.zeros(50).long()
    for skill in (0.0, 0.4, 1.0):
        P = noise.input_dependent_annotators(x, y, 2, 3, skill, seeded())
        torch.testing.assert_close(P[..., 0], torch.full((50, 2), skill, dtype=torch.float64))


def test_labels_from_distributions_per_item():
    x, y = torch.randn(20_000, 3, generator=seeded(1)), torch.zeros(20_000).long()
    P = noise.input_dependent_annotators(x, y, 2, 3, 0.7, seeded(3), strength=3.0)
    items, annotators, labels = noise.simulate_from(P, seeded(4))
    wrong = (labels != 0).view(20_000, 2).double()
    for r in range(2):
        for part in P[:, r, 0].argsort().chunk(5):
            rate = 1 - P[part, r, 0]
            error = math.sqrt(float((rate * (1 - rate)).sum())) / len(part)
            assert float(wrong[part, r].mean()) == pytest.approx(float(rate.mean()), abs=4 * error)
    assert torch.equal(items * 2 + annotators, torch.arange(40_000))
    assert len(noise.simulate_from(P, seeded(4), 1)[0]) == 20_000


@pytest.mark.rel
def test_no_global_generator_is_touched_and_no_input_changed():
    """Scorecard 24."""
    x, y = torch.randn(20, 3, generator=seeded()), torch.zeros(20).long()
    kept = x.clone(), y.clone(), A.clone()
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    noise.simulate(y, A, seeded(), 2)
    noise.simulate_from(noise.input_dependent_annotators(x, y, 2, 3, 0.5, seeded()), seeded(), 1)
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
    assert states[2] == random.getstate()
    assert all(torch.equal(a, b) for a, b in zip(kept, (x, y, A)))


X3, Y3 = torch.zeros(3, 2), torch.zeros(3).long()


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: noise.simulate(Y3, torch.eye(4), seeded()), "axes"),
        (lambda: noise.simulate(Y3 + 4, A, seeded()), "out of range"),
        (lambda: noise.simulate(Y3.view(1, 3), A, seeded()), "one class per item"),
        (lambda: noise.simulate(Y3, A, seeded(), 7), "at most 6"),
        (lambda: noise.simulate(Y3, A, seeded(), 0), "labels_per_item"),
        (lambda: noise.simulate(Y3, A, seeded(), "some"), "labels_per_item"),
        (lambda: noise.simulate(Y3, A, seeded(), 1.5), "labels_per_item"),
        (lambda: noise.simulate(Y3, A * 0.5, seeded()), "stochastic"),
        (lambda: noise.simulate(Y3, A, None), "torch generator"),
        (lambda: noise.simulate_from(torch.eye(3), seeded()), "axes"),
        (lambda: noise.simulate_from(torch.zeros(2, 3, 4), seeded()), r"probs\[0, 0\]"),
        (lambda: noise.simulate_from(torch.full((2, 3, 4), math.nan), seeded()), r"probs\[0, 0\]"),
        (lambda: noise.input_dependent_annotators(X3, Y3[:2], 2, 3, 0.5, seeded()), "one class per item"),
        (lambda: noise.input_dependent_annotators(X3[:, 0], Y3, 2, 3, 0.5, seeded()), "axis of items"),
        (
            lambda: noise.input_dependent_annotators(X3 + math.nan, Y3, 2, 3, 0.5, seeded()),
            r"features\[0, 0\]",
        ),
        (lambda: noise.input_dependent_annotators(X3, Y3, 2, 3, 0.5, seeded(), strength=-1.0), "strength"),
    ],
)
def test_bad_input_is_refused(call, word):
    """Scorecard 13 and 15."""
    with pytest.raises(DubitoError, match=word):
        call()
