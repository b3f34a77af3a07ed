"""Transition matrices: naive transcriptions, named confusions, the ceilings they imply, hostile input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito import noise
from dubito.errors import DubitoError
from dubito.noise.transitions import CIFAR100_SUPERCLASSES

MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
SVHN_TEST = [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]


def naive(K, cell):
    return torch.tensor([[cell(i, j) for j in range(K)] for i in range(K)], dtype=torch.float64)


def close(a, b):
    assert a.dtype == torch.float64
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 eq. 3")
@pytest.mark.parametrize("K", [2, 3, 10, 100])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.7, 1.0])
def test_symmetric_noise_of_both_kinds(K, rate):
    """Scorecard 1: builders equal a transcription, and the two kinds are one matrix at alpha = rate K/(K-1)."""
    close(noise.resample(K, rate), naive(K, lambda i, j: (1 - rate) * (i == j) + rate / K))
    close(noise.flip_to_other(K, rate), naive(K, lambda i, j: 1 - rate if i == j else rate / (K - 1)))
    if rate * K / (K - 1) <= 1:
        close(noise.flip_to_other(K, rate), noise.resample(K, rate * K / (K - 1)))


def test_rates_per_class():
    rates = [0.0, 0.3, 0.9]
    close(noise.resample(3, rates), naive(3, lambda i, j: (1 - rates[i]) * (i == j) + rates[i] / 3))
    close(noise.flip_to_other(3, rates), naive(3, lambda i, j: 1 - rates[i] if i == j else rates[i] / 2))


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("mnist", {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}),
        ("cifar10", {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}),
        ("cifar10-printed", {2: 0, 3: 5, 5: 3, 4: 7}),
        ("cifar100", {c: c + 1 for c in range(99)} | {99: 0}),
    ],
)
def test_named_confusions(name, moves):
    T = noise.asymmetric(name, 0.3)
    close(
        T,
        naive(
            len(T), lambda i, j: 1.0 * (i == j) + 0.3 * (moves.get(i) == j) - 0.3 * (i in moves and i == j)
        ),
    )


def test_truck_makes_the_overall_rate_half_of_the_nominal_one():
    assert noise.ceiling(noise.asymmetric("cifar10", 0.4)).mislabelled == pytest.approx(0.5 * 0.4)
    assert noise.ceiling(noise.asymmetric("cifar10-printed", 0.4)).mislabelled == pytest.approx(0.4 * 0.4)


def test_superclasses_are_twenty_groups_of_five():
    assert [len(group) for group in CIFAR100_SUPERCLASSES] == [5] * 20
    assert sorted(sum(CIFAR100_SUPERCLASSES, ())) == list(range(100))


def test_superclass_noise_stays_inside_its_superclass(shared_data):
    T = noise.asymmetric("cifar100-superclass", 0.4)
    assert torch.equal(T.diagonal(), torch.full((100,), 0.6, dtype=torch.float64))
    pairs = {(int(i), int(j)) for i, j in (T - torch.diag(T.diagonal())).nonzero()}
    assert len(pairs) == len({j for _, j in pairs}) == 100
    labels = np.load(shared_data / "crowd" / "cifar100n" / "cifar100n.npz")
    coarse = dict(zip(labels["clean"].tolist(), labels["clean_coarse"].tolist()))
    assert all(coarse[i] == coarse[j] for i, j in pairs)


def test_pair_flip():
    close(noise.pair_flip(4, 0.45), naive(4, lambda i, j: 0.55 * (i == j) + 0.45 * (j == (i + 1) % 4)))


@pytest.mark.paper("collier2020 table 1", "collier2020 table 5", "collier2020 table 6")
@pytest.mark.parametrize(
    ("name", "wrong", "accuracies", "likelihoods"),
    [
        ("main", 0.180, (0.820, 0.823, 0.873), (-0.704, -0.691, -0.503)),
        ("reduced", 0.090, (0.910, 0.911, 0.937), (-0.426, -0.419, -0.303)),
        ("increased", 0.288, (0.712, 0.717, 0.779), (-1.074, -1.055, -0.853)),
    ],
)
def test_ceilings_of_class_dependent_noise(name, wrong, accuracies, likelihoods):
    T = noise.class_dependent(name)
    assert noise.ceiling(T).mislabelled == pytest.approx(wrong, abs=6e-4)
    for prior, accuracy, likelihood in zip((None, MNIST_TEST, SVHN_TEST), accuracies, likelihoods):
        best = noise.ceiling(T, prior)
        assert best.accuracy == pytest.approx(accuracy, abs=6e-4)
        assert best.log_likelihood == pytest.approx(likelihood, abs=6e-4)


@pytest.mark.paper("collier2020 table 4")
def test_ceiling_of_uniform_noise():
    best = noise.ceiling(noise.resample(10, 0.2))
    assert best == pytest.approx((0.180, 0.820, -0.867), abs=6e-4)
    expected = 0.82 * math.log(0.82) + 9 * 0.02 * math.log(0.02)
    assert best.log_likelihood == pytest.approx(expected, rel=1e-12)


def test_the_ceiling_of_a_matrix_with_zeros_is_finite_and_that_of_no_noise_is_perfect():
    assert noise.ceiling(torch.eye(3)) == (0.0, 1.0, 0.0)


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: noise.resample(10, -0.1), "probability"),
        (lambda: noise.resample(10, 1.1), "probability"),
        (lambda: noise.resample(10, math.nan), "probability"),
        (lambda: noise.resample(10, "0.2"), "rate"),
        (lambda: noise.resample(10, [0.1] * 9), "one rate per class"),
        (lambda: noise.resample(0, 0.1), "num_classes"),
        (lambda: noise.resample(2.0, 0.1), "num_classes"),
        (lambda: noise.flip_to_other(1, 0.1), "num_classes"),
        (lambda: noise.pair_flip(1, 0.1), "num_classes"),
        (lambda: noise.asymmetric("cifar", 0.1), "did you mean"),
        (lambda: noise.class_dependent("mian"), "did you mean 'main'"),
        (lambda: noise.flip_map(3, {0: 3}, 0.1), "out of range"),
        (lambda: noise.flip_map(3, {0: 2}, "0.1"), "rate must be a number"),
        (lambda: noise.flip_map(3, {0: 2}, True), "rate must be a number"),
        (lambda: noise.ceiling(torch.eye(3), [1.0, 2.0]), "prior"),
        (lambda: noise.ceiling(torch.eye(3), [0.0, 0.0, 0.0]), "prior"),
        (lambda: noise.ceiling(torch.eye(3), [-1.0, 1.0, 1.0]), "prior"),
    ],
)
def test_bad_settings_are_refused(call, word):
    """Scorecard 13: one sentence each."""
    with pytest.raises(DubitoError, match=word):
        call()
