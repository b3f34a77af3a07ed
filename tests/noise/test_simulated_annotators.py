"""Simulated annotators: naive matrices, dominance and where it breaks, hygiene, hostile input."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from dubito import noise
from dubito.errors import DubitoError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def stochastic(A):
    assert A.dtype == torch.float64
    torch.testing.assert_close(A.sum(-1), torch.ones_like(A.sum(-1)), rtol=0, atol=1e-12)
    assert bool((A >= 0).all())


@pytest.mark.paper("tanno2019 lemma 1")
def test_dominance_is_a_matter_of_columns():
    """Rows that look fine can hide a column in which another class gives the label more often."""
    by_row = torch.tensor([[0.6, 0.4], [0.9, 0.1]])
    assert not noise.is_dominant(by_row)
    assert noise.is_dominant(torch.tensor([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]]))
    assert not noise.is_dominant(torch.tensor([[0.5, 0.5], [0.5, 0.5]]))
    for seed in range(200):
        A = torch.rand(4, 4, generator=seeded(seed), dtype=torch.float64) + torch.eye(4)
        A = A / A.sum(-1, keepdim=True)
        naive = all(A[c, c] > A[i, c] for c in range(4) for i in range(4) if i != c)
        assert noise.is_dominant(A) == naive


def test_pairwise_flippers_have_one_wrong_class_per_true_class():
    A = noise.pairwise_flippers(200, 5, 0.35, seeded())
    stochastic(A)
    skill = A.diagonal(dim1=1, dim2=2)
    assert bool((skill == skill[:, :1]).all())
    assert float(skill.mean()) == pytest.approx(0.35, abs=4 * 0.01 / 200**0.5)
    assert float(skill[:, 0].std()) == pytest.approx(0.01, rel=0.3)
    wrong = A - torch.diag_embed(skill)
    assert bool(((wrong > 0).sum(-1) == 1).all())
    target = wrong.argmax(-1)
    for c in range(5):
        counts = torch.bincount(target[:, c], minlength=5).double()
        assert counts[c] == 0
        others = counts[torch.arange(5) != c]
        assert bool(((others - 50).abs() < 4 * (200 * 0.25 * 0.75) ** 0.5).all())


@pytest.mark.paper("tanno2019 fig. 4")
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_dominance_breaks_where_shared_confusions_say(m):
    """m of five annotators who share a (class, target) pair: dominant above m/(5 + m) and not below."""
    K, R = 10, 5

    def mean_matrix(p):
        A = torch.zeros(R, K, K, dtype=torch.float64)
        for r in range(R):
            for c in range(K):
                A[r, c, c] = p
                # Class 0 is mistaken for class 9 by the first m; all other targets are spread apart.
                A[r, c, 9 if c == 0 and r < m else (c + 1 + r) % K] += 1 - p
        return A.mean(0)

    limit = m / (R + m)
    assert noise.is_dominant(mean_matrix(limit + 0.005)) is (limit + 0.005 > 1 / 6)
    assert not noise.is_dominant(mean_matrix(limit - 0.005))


@pytest.mark.paper("tanno2019 theorem 1", "tanno2019 fig. 3")
@pytest.mark.parametrize(
    ("skill", "share"), [(0.25, 0.0), (0.28, 0.0), (0.30, 0.33), (0.35, 0.33), (0.39, 0.94), (0.45, 0.999)]
)
def test_how_often_five_flippers_are_dominant(skill, share):
    g, n = seeded(1), 300
    hits = sum(
        noise.is_dominant(noise.pairwise_flippers(5, 10, skill, g, jitter=0.0).mean(0)) for _ in range(n)
    )
    assert hits / n == pytest.approx(share, abs=4 * max(share * (1 - share), 0.001) ** 0.5 / n**0.5 + 0.01)


def test_dominant_groups_on_demand_and_the_sentence_when_there_are_none():
    for seed in range(10):
        assert noise.is_dominant(noise.pairwise_flippers(5, 10, 0.3, seeded(seed), dominant=True).mean(0))
    with pytest.raises(DubitoError, match=r"no dominant group.*skill 0.2.*raise the skill above 0.286"):
        noise.pairwise_flippers(5, 10, 0.2, seeded(), dominant=True)


def test_hammer_spammers_after_tanno():
    A = noise.hammer_spammers(3, 4, 0.7, seeded())
    p = A[:, 0, 0]
    assert len(set(p.tolist())) == 3
    naive = [[[float(q) if i == j else (1 - float(q)) / 3 for j in range(4)] for i in range(4)] for q in p]
    torch.testing.assert_close(A, torch.tensor(naive, dtype=torch.float64), rtol=1e-12, atol=0)
    B = noise.hammer_spammers(3, 4, 0.7, seeded(), kind="tanno-resample")
    torch.testing.assert_close(B[:, 0, 0], p + (1 - p) / 4, rtol=1e-12, atol=0)
    stochastic(A)
    stochastic(B)


def test_hammer_spammers_after_khetan():
    A = noise.hammer_spammers(2000, 4, 0.2, seeded(), kind="khetan")
    stochastic(A)
    hammer = (torch.eye(4, dtype=torch.float64) == A).all(-1).all(-1)
    assert float(hammer.double().mean()) == pytest.approx(0.2, abs=4 * (0.16 / 2000) ** 0.5)
    spam = torch.full((4, 4), 0.25, dtype=torch.float64) + 0.01 * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(A[~hammer][0], spam / spam.sum(-1, keepdim=True), rtol=1e-12, atol=0)


def test_hammer_spammers_after_khetan_by_class():
    A = noise.hammer_spammers(500, 4, 0.3, seeded(), kind="khetan-classwise")
    stochastic(A)
    own = A.diagonal(dim1=1, dim2=2)
    hammer = own == 1
    assert float(hammer.double().mean()) == pytest.approx(0.3, abs=4 * (0.21 / 2000) ** 0.5)
    assert 0 < int(hammer.all(-1).sum()) < int(hammer.any(-1).sum()) < 500
    # ones, and 1 + e on the diagonal with e within (0.1, 0.11): e = (K d - 1)/(1 - d)
    extra = (4 * own[~hammer] - 1) / (1 - own[~hammer])
    assert 0.1 <= float(extra.min()) < 0.101
    assert 0.109 < float(extra.max()) <= 0.11


@pytest.mark.paper("tanno2019 table 1", "tanno2019 fig. 2")
@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])
def test_four_annotators_of_cifar10(seed):
    A = noise.cifar10_annotators(None if seed is None else seeded(seed))
    stochastic(A)
    assert float(A.diagonal(dim1=1, dim2=2).mean()) == pytest.approx(0.45, abs=1e-15)
    assert noise.is_dominant(A.mean(0))
    mean = A.mean(0) - torch.diag(A.mean(0).diagonal())
    assert 0.25 < float(mean.max()) < 0.27
    assert A[1, 3, 5] == A[1, 5, 3] == A[1, 1, 9] == A[1, 9, 1] == 0.4
    assert A[2, 4, 3] == A[2, 4, 5] == A[2, 0, 9] == 0.2
    assert A[3].sum(0).tolist() == [1.0] * 10
    assert float(A[3].trace()) == 0.0


def test_groups_follow_the_generator():
    for draw in (
        lambda g: noise.pairwise_flippers(5, 10, 0.5, g),
        lambda g: noise.hammer_spammers(5, 10, 0.5, g),
        lambda g: noise.hammer_spammers(5, 10, 0.5, g, kind="khetan-classwise"),
        lambda g: noise.cifar10_annotators(g),
    ):
        assert torch.equal(draw(seeded(1)), draw(seeded(1)))
        assert not torch.equal(draw(seeded(1)), draw(seeded(2)))


@pytest.mark.rel
def test_no_global_generator_is_touched():
    """Scorecard 24."""
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    noise.pairwise_flippers(5, 10, 0.5, seeded(), dominant=True)
    for kind in ("tanno", "tanno-resample", "khetan", "khetan-classwise"):
        noise.hammer_spammers(5, 10, 0.5, seeded(), kind=kind)
    noise.cifar10_annotators()
    noise.cifar10_annotators(seeded())
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
    assert states[2] == random.getstate()


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: noise.pairwise_flippers(0, 10, 0.5, seeded()), "num_annotators"),
        (lambda: noise.pairwise_flippers(5, 1, 0.5, seeded()), "num_classes"),
        (lambda: noise.pairwise_flippers(5, 10, 1.5, seeded()), "skill"),
        (lambda: noise.pairwise_flippers(5, 10, 0.5, None), "torch generator"),
        (lambda: noise.pairwise_flippers(5, 10, 0.5, seeded(), jitter=-1.0), "jitter"),
        (lambda: noise.hammer_spammers(5, 10, 0.5, seeded(), kind="khetan2"), "did you mean 'khetan'"),
        (lambda: noise.hammer_spammers(5, 10, -0.5, seeded(), kind="khetan"), "skill"),
        (lambda: noise.cifar10_annotators(3), "torch generator"),
        (lambda: noise.is_dominant(torch.ones(2, 3)), "square"),
        (lambda: noise.is_dominant(torch.eye(3).expand(2, 3, 3)), "axes"),
    ],
)
def test_bad_settings_are_refused(call, word):
    """Scorecard 13 and 15."""
    with pytest.raises(DubitoError, match=word):
        call()
