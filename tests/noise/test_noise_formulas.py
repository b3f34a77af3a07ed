"""The parts that noise is made of, against plain transcriptions."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from dubito.errors import DubitoError
from dubito.noise import (
    asymmetric,
    ceiling,
    cifar10_annotators,
    corrupt,
    flip_map,
    hammer_spammers,
    input_dependent_annotators,
    missing_not_at_random,
    pair_flip,
    pairwise_flippers,
    resample,
    simulate,
    simulate_from,
)
from dubito.noise._scores import feature_matrix, rising, standardised
from dubito.noise.corruption import _split

T3 = torch.tensor([[0.6, 0.3, 0.1], [0.05, 0.75, 0.2], [0.0, 0.0, 1.0]], dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("T", [T3, T3.T / T3.T.sum(1, keepdim=True), torch.eye(2).double(), resample(4, 1.0)])
def test_a_matrix_is_split_into_staying_and_drawing_anew(T):
    rates, q = _split(T)
    for i in range(len(T)):
        least = min(float(T[i, j]) for j in range(len(T)))
        rate = 1 - float(T[i, i]) + least
        assert float(rates[i]) == pytest.approx(rate, abs=1e-15)
        for j in range(len(T)):
            drawn = least if i == j else float(T[i, j])
            assert float(q[i, j]) == pytest.approx(drawn / rate if rate else float(i == j), abs=1e-15)
    whole = torch.diag(1 - rates) + rates.unsqueeze(1) * q
    torch.testing.assert_close(whole, T, atol=1e-15, rtol=0)


def test_one_class_stays_what_it_is():
    rates, q = _split(torch.ones(1, 1, dtype=torch.float64))
    assert (float(rates[0]), float(q[0, 0])) == (1.0, 1.0)
    for exact in (False, True, "changed"):
        assert corrupt(torch.zeros(5).long(), torch.ones(1, 1), seeded(), exact=exact).tolist() == [0] * 5


def test_a_class_that_never_moves_beside_others_that_do():
    labels = torch.arange(3).repeat(400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noisy = corrupt(labels, T3, seeded(), exact="changed")
    assert [int((noisy[labels == c] != c).sum()) for c in range(3)] == [160, 100, 0]
    moved = noisy[(labels == 0) & (noisy != 0)]
    assert 0.65 < float((moved == 1).double().mean()) < 0.85


def test_identities_may_be_given_as_any_array():
    labels, ids = torch.arange(3).repeat(20), torch.arange(60).flip(0) + 7
    wanted = corrupt(labels, T3, seeded(), index=ids)
    for given in (ids.numpy(), ids.tolist()):
        assert torch.equal(corrupt(labels, T3, seeded(), index=given), wanted)


def test_standardised_columns():
    x = torch.tensor([[1.0, 5.0, 1e-3], [2.0, 5.0, 2e-3], [6.0, 5.0, 6e-3]], dtype=torch.float64)
    found = standardised(x)
    for column in (0, 2):
        values = x[:, column].numpy()
        np.testing.assert_allclose(found[:, column], (values - values.mean()) / values.std(), rtol=1e-12)
    assert found[:, 1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_value_that_is_not_finite_is_one_too_many(bad):
    with pytest.raises(DubitoError, match=r"features\[1, 0\]"):
        feature_matrix([[1.0, 2.0], [bad, 3.0]])


@pytest.mark.parametrize("strength", [0.0, 0.7, 60.0])
@pytest.mark.parametrize("away", [-1.0, 1.0])
def test_probabilities_rise_with_a_score_and_have_their_mean(strength, away):
    """Also where the scores lie far to one side, as of standardised ones the rare do."""
    scores = away * torch.tensor([[9.0, 0.1], [9.5, 0.2], [10.0, 0.0]], dtype=torch.float64)
    mean = torch.tensor([0.3, 0.9], dtype=torch.float64)
    p = rising(scores, mean, strength)
    torch.testing.assert_close(p.mean(0), mean, atol=1e-12, rtol=0)
    odds = p.logit()
    for column in range(2):
        for i in range(3):
            if bool(p[[0, i], column].clamp(1e-9, 1 - 1e-9).eq(p[[0, i], column]).all()):
                gap = strength * float(scores[i, column] - scores[0, column])
                assert float(odds[i, column] - odds[0, column]) == pytest.approx(gap, abs=1e-5)


def test_a_mean_of_none_or_all_is_met_exactly():
    scores = torch.tensor([[-3.0, -3.0], [3.0, 3.0]], dtype=torch.float64)
    p = rising(scores, torch.tensor([0.0, 1.0], dtype=torch.float64), 5.0)
    assert p.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert rising(torch.zeros(0, 2).double(), torch.tensor([0.5, 0.0]).double(), 1.0).shape == (0, 2)


@pytest.mark.parametrize("strength", [-0.1, math.inf, math.nan])
def test_a_strength_without_sense_is_refused(strength):
    with pytest.raises(DubitoError, match="strength"):
        missing_not_at_random(torch.eye(3), 0.5, seeded(), strength=strength)


@pytest.mark.parametrize("per_item", [None, 2])
def test_labels_from_matrices_and_from_distributions_are_the_same_labels(per_item):
    A = torch.rand(3, 4, 4, generator=seeded(1), dtype=torch.float64).softmax(-1)
    true = torch.arange(4).repeat(50)
    P = A[:, true].movedim(0, 1)
    for ours, theirs in zip(simulate(true, A, seeded(2), per_item), simulate_from(P, seeded(2), per_item)):
        assert torch.equal(ours, theirs)


def test_labels_of_one_item_and_of_neighbours_are_independent():
    coin = torch.full((4, 2, 2), 0.5)
    given = simulate(torch.zeros(4000).long(), coin, seeded(3))[2].reshape(4000, 4).double() - 0.5
    for shift in range(3):
        apart = 4 * given[shift:].T @ given[: 4000 - shift] / (4000 - shift)
        if shift == 0:
            apart -= torch.eye(4)
        assert float(apart.abs().max()) < 0.08


def test_one_annotator_and_two_classes_are_enough():
    x = torch.randn(50, 3, generator=seeded(), dtype=torch.float64)
    P = input_dependent_annotators(x, torch.zeros(50).long(), 1, 2, 0.8, seeded(1))
    assert P.shape == (50, 1, 2)
    assert float(P[:, 0, 0].mean()) == pytest.approx(0.8, abs=1e-12)
    assert pair_flip(2, 0.3).tolist() == [[0.7, 0.3], [0.3, 0.7]]
    assert resample(1, 0.4).tolist() == flip_map(1, {}, 0.4).tolist() == [[1.0]]


def test_a_ceiling_weighs_classes_by_their_shares():
    counts = [2.0, 1.0, 5.0]
    wrong = accuracy = likelihood = 0.0
    for i, share in enumerate(c / 8 for c in counts):
        row = T3[i].tolist()
        wrong += share * (1 - row[i])
        accuracy += share * max(row)
        likelihood += share * sum(p * math.log(p) for p in row if p)
    for prior in (counts, [c / 8 for c in counts]):
        assert ceiling(T3, prior) == pytest.approx((wrong, accuracy, likelihood), abs=1e-14)
    flipped = torch.tensor([[0.1, 0.9], [0.5, 0.5]])
    assert ceiling(flipped, [1.0, 0.0]).accuracy == pytest.approx(0.9, abs=1e-7)
    for bad in ([0.0] * 3, [math.inf, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 1.0]):
        with pytest.raises(DubitoError):
            ceiling(T3, bad)


def test_the_next_class_of_the_superclass():
    T = asymmetric("cifar100-superclass", 0.25)
    beavers = [4, 30, 55, 72, 95]  # beaver, dolphin, otter, seal, whale
    for c, following in zip(beavers, [30, 55, 72, 95, 4]):
        assert (float(T[c, c]), float(T[c, following])) == (0.75, 0.25)
    assert float(asymmetric("cifar100", 0.25)[99, 0]) == 0.25
    assert T.shape == asymmetric("cifar100", 0.25).shape == (100, 100)


def test_four_annotators_written_out():
    """Airplane/ship, automobile/truck, bird/frog, cat/dog, deer/horse look alike."""
    A = cifar10_annotators()
    alike = {0: 8, 1: 9, 2: 6, 3: 5, 4: 7, 8: 0, 9: 1, 6: 2, 5: 3, 7: 4}
    for c, j in np.ndindex(10, 10):
        rest = [0.4 / 9, 0.4 * (alike[c] == j), 0.2 * ((c - j) % 10 in (1, 9)), float((c + 5) % 10 == j)]
        wanted = [0.6, 0.6, 0.6, 0.0] if c == j else rest
        assert A[:, c, j].tolist() == pytest.approx(wanted, abs=1e-15)


def test_skills_are_clipped_and_jitter_is_a_deviation():
    for make in (hammer_spammers, pairwise_flippers):
        for skill in (0.0, 1.0):
            A = make(200, 3, skill, seeded(), jitter=0.5)
            p = A.diagonal(dim1=1, dim2=2)[:, 0]
            assert float(A.min()) >= 0
            assert float(A.max()) <= 1
            assert 60 < int((p == skill).sum()) < 140
        for bad in (-0.1, math.inf, math.nan):
            with pytest.raises(DubitoError, match="jitter"):
                make(2, 3, 0.5, seeded(), jitter=bad)
        assert make(1, 2, 0.75, seeded(), jitter=0.0).tolist() == [[[0.75, 0.25], [0.25, 0.75]]]
        spread = make(4000, 2, 0.5, seeded(), jitter=0.05)[:, 0, 0].std()
        assert 0.047 < float(spread) < 0.053


def test_guessing_rows_of_khetan():
    A = hammer_spammers(900, 4, 0.0, seeded(), kind="khetan-classwise")
    extra = A.diagonal(dim1=1, dim2=2) / A[:, torch.arange(4), (torch.arange(4) + 1) % 4] - 1
    assert 0.1 <= float(extra.min()) < 0.1001
    assert 0.1099 < float(extra.max()) < 0.11
