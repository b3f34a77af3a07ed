"""Corruption of labels: empirical matrices, exact counts, independence of order, hygiene, hostile input."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from dubito import noise
from dubito.errors import DubitoError

MATRICES = {
    "resample": noise.resample(10, 0.4),
    "flip": noise.flip_to_other(10, 0.2),
    "mnist": noise.asymmetric("mnist", 0.4),
    "cifar10": noise.asymmetric("cifar10", 0.3),
    "main": noise.class_dependent("main"),
    "increased": noise.class_dependent("increased"),
    "pair": noise.pair_flip(10, 0.45),
}
FORMS = [False, True, "changed"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def some_labels(n=40_000, K=10, seed=7):
    return torch.randint(K, (n,), generator=seeded(seed))


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 eq. 2")
@pytest.mark.parametrize("exact", FORMS)
@pytest.mark.parametrize("name", MATRICES)
def test_empirical_transition_matrix(name, exact):
    """Scorecard 10: within four standard errors of T in every entry; what T forbids never happens."""
    T, y = MATRICES[name], some_labels()
    seen = noise.corrupt(y, T, seeded(), exact=exact)
    counts = torch.bincount(y * 10 + seen, minlength=100).reshape(10, 10).double()
    size = counts.sum(-1, keepdim=True)
    share, error = counts / size, (T * (1 - T) / size).sqrt()
    # A count rounded up shifts a share by at most one label.
    assert bool(((share - T).abs() <= 4 * error + 1.5 / size).all())
    assert bool((counts[T == 0] == 0).all())
    fixed = T.diagonal()[y] == 1
    assert torch.equal(seen[fixed], y[fixed])


@pytest.mark.parametrize("exact", FORMS)
def test_pairs_of_draws_are_independent(exact):
    """Neighbouring examples, and the choice of an example and its new class, do not move together."""
    n = 40_000
    seen = noise.corrupt(torch.zeros(n, dtype=torch.long), noise.resample(4, 1.0), seeded(3), exact=exact)
    if exact == "changed":
        assert int((seen != 0).sum()) == 3 * n // 4
        return
    pairs = torch.bincount(seen[:-1] * 4 + seen[1:], minlength=16).double() / (n - 1)
    assert bool(((pairs - 1 / 16).abs() < 4 * math.sqrt(1 / 16 / n)).all())


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6, 0.8])
def test_exact_resampling_draws_a_fixed_number_of_labels_anew(rate):
    """The whole set is one group: ceil(r N) are drawn over all classes, so about a tenth of those stay."""
    n = 10_001
    y, chosen = some_labels(n), math.ceil(rate * n)
    seen = noise.corrupt(y, noise.resample(10, rate), seeded(1), exact=True)
    wrong = int((seen != y).sum())
    assert wrong <= chosen
    assert abs(wrong - 0.9 * chosen) < 4 * math.sqrt(0.09 * chosen)
    # With a rate of 1 on one label of many, only the count can tell: every label that moved was chosen.
    again = [
        int((noise.corrupt(y, noise.resample(10, rate), seeded(s), exact=True) != y).sum()) for s in range(8)
    ]
    assert len(set(again)) > 1
    assert np.std(again) < 3 * math.sqrt(0.09 * chosen)


@pytest.mark.parametrize(
    ("name", "rate"), [("mnist", 0.1), ("mnist", 0.4), ("cifar10", 0.3), ("cifar100", 0.2)]
)
def test_exact_asymmetric_noise_moves_a_fixed_number_in_each_class(name, rate):
    T = noise.asymmetric(name, rate)
    y = some_labels(7_919, len(T))
    seen = noise.corrupt(y, T, seeded(2), exact=True)
    for c in range(len(T)):
        own = y == c
        expected = math.ceil(rate * int(own.sum()) - 1e-9) if T[c, c] < 1 else 0
        assert int((seen[own] != c).sum()) == expected


def test_exact_class_dependent_noise_draws_per_class():
    y = torch.arange(10).repeat_interleave(1000)
    seen = noise.corrupt(y, noise.class_dependent("main"), seeded(), exact=True)
    for c, rate in enumerate((0, 0, 0, 0, 0, 0.2, 0.3, 0.4, 0.5, 0.6)):
        wrong = int((seen[y == c] != c).sum())
        assert wrong <= round(rate * 1000)
        assert abs(wrong - 900 * rate) <= 4 * math.sqrt(90 * rate)


@pytest.mark.parametrize(
    ("T", "rate"),
    [
        (noise.flip_to_other(10, 0.2), 0.2),
        (noise.resample(10, 0.2), 0.18),
        (noise.flip_to_other(2, 0.3), 0.3),
    ],
)
def test_exact_number_of_wrong_labels(T, rate):
    y = some_labels(10_001, len(T))
    assert int((noise.corrupt(y, T, seeded(), exact="changed") != y).sum()) == math.ceil(rate * 10_001)


@pytest.mark.rel
@pytest.mark.parametrize("exact", FORMS)
def test_an_example_meets_the_same_fate_in_every_order_and_batch(exact):
    """Scorecard 21: the noise of an example is a function of seed and identity."""
    y, T = some_labels(5_000), MATRICES["increased"]
    whole = noise.corrupt(y, T, seeded(5), exact=exact)
    order = torch.randperm(5_000, generator=seeded(6))
    shuffled = noise.corrupt(y[order], T, seeded(5), exact=exact, index=order)
    assert torch.equal(shuffled, whole[order])
    assert not torch.equal(noise.corrupt(y, T, seeded(6), exact=exact), whole)
    if exact is False:
        parts = [noise.corrupt(y[rows], T, seeded(5), index=rows) for rows in order.split(77)]
        assert torch.equal(torch.cat(parts), whole[order])
        assert torch.equal(noise.corrupt(y[:10], T, seeded(5)), whole[:10])


@pytest.mark.parametrize("exact", FORMS)
def test_types_shapes_and_sizes(exact):
    T, y = noise.resample(10, 0.5), some_labels(60)
    expected = noise.corrupt(y, T, seeded(), exact=exact)
    for dtype in (torch.uint8, torch.int32, torch.int64):
        seen = noise.corrupt(y.to(dtype), T, seeded(), exact=exact)
        assert seen.dtype == dtype
        assert torch.equal(seen.long(), expected)
    for dtype in (np.uint8, np.int16, np.int64):
        array = noise.corrupt(y.numpy().astype(dtype), T, seeded(), exact=exact)
        assert isinstance(array, np.ndarray)
        assert array.dtype == dtype
        assert (array == expected.numpy()).all()
    assert torch.equal(noise.corrupt(y.view(3, 4, 5), T, seeded(), exact=exact), expected.view(3, 4, 5))
    assert noise.corrupt(y[:0], T, seeded(), exact=exact).shape == (0,)
    assert noise.corrupt(y[:1], T, seeded(), exact=exact).shape == (1,)
    assert noise.corrupt(torch.tensor(3), T, seeded(), exact=exact).shape == ()
    assert torch.equal(noise.corrupt(y, T.float(), seeded(), exact=exact), expected)
    assert torch.equal(
        noise.corrupt(torch.zeros(4).long(), torch.eye(1), seeded(), exact=exact), torch.zeros(4).long()
    )


def test_extreme_matrices():
    y = some_labels(1_000, 3)
    assert torch.equal(noise.corrupt(y, torch.eye(3), seeded()), y)
    wheel = torch.eye(3).roll(1, 1)
    for exact in FORMS:
        assert torch.equal(noise.corrupt(y, wheel, seeded(), exact=exact), (y + 1) % 3)


@pytest.mark.rel
def test_nothing_but_the_given_generator_is_touched():
    """Scorecard 24: inputs and global generators stay as they are; the given generator moves on."""
    y, T, g = some_labels(100), noise.resample(10, 0.5), seeded()
    kept, matrix = y.clone(), T.clone()
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first, second = noise.corrupt(y, T, g), noise.corrupt(y, T, g)
    assert not torch.equal(first, second)
    assert torch.equal(y, kept)
    assert torch.equal(T, matrix)
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
    assert states[2] == random.getstate()


GOOD = torch.tensor([0, 1, 2])


@pytest.mark.rel
@pytest.mark.parametrize(
    ("labels", "T", "word"),
    [
        (torch.tensor([0, 3]), torch.eye(3), r"labels\[1\].*0 to 2.*3"),
        (torch.tensor([-1, 0]), torch.eye(3), r"labels\[0\]"),
        (torch.tensor([0.0, 1.0]), torch.eye(3), "integer"),
        (torch.tensor([True, False]), torch.eye(2), "integer"),
        (np.array(["a", "b"]), torch.eye(2), "integer"),
        (GOOD, torch.ones(3, 4) / 4, "square"),
        (GOOD, torch.ones(3) / 3, "axes"),
        (GOOD, torch.eye(3).expand(2, 3, 3), "axes"),
        (GOOD, torch.full((3, 3), 0.3), "sum of 1"),
        (GOOD, torch.tensor([[1.2, -0.2, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "negative"),
        (GOOD, torch.full((3, 3), math.nan), "finite"),
        (GOOD, torch.full((3, 3), math.inf), "finite"),
        (GOOD, torch.empty(0, 0), "square"),
        (GOOD, "identity", "array of numbers"),
        (GOOD, torch.eye(3, dtype=torch.bool), "real"),
    ],
)
def test_bad_labels_and_matrices_are_refused(labels, T, word):
    """Scorecard 13 and 15: labels and matrices that cannot be, one sentence each."""
    with pytest.raises(DubitoError, match=word):
        noise.corrupt(labels, T, seeded())


@pytest.mark.rel
def test_other_bad_arguments_are_refused():
    """Scorecard 13: generator, form and index."""
    for bad in (None, 0, np.random.default_rng(0)):
        with pytest.raises(DubitoError, match="torch generator"):
            noise.corrupt(GOOD, torch.eye(3), bad)
    with pytest.raises(DubitoError, match="exact"):
        noise.corrupt(GOOD, torch.eye(3), seeded(), exact="roughly")
    with pytest.raises(DubitoError, match="index"):
        noise.corrupt(GOOD, torch.eye(3), seeded(), index=torch.arange(2))
    with pytest.raises(DubitoError, match="integers"):
        noise.corrupt(GOOD, torch.eye(3), seeded(), index=torch.rand(3))
