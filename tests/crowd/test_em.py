"""EM climbs the true marginal likelihood, whatever the model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate
from dubito.crowd._layout import e_step, lay_out

MATRIX = ("hierarchical", "dawid-skene", "one-coin", "skill")
SETTINGS = [*((m, None) for m in MATRIX), ("glad", None), *((m, 0.0) for m in MATRIX[1:])]


def brute_force(crowd, prior, A):
    """sum over every assignment of true classes of the joint probability of labels and classes."""
    total = 0.0
    for z in itertools.product(range(crowd.num_classes), repeat=crowd.num_items):
        p = math.prod(prior[k] for k in z)
        for n, r, y in zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()):
            p *= A[r, z[n], y]
        total += p
    return math.log(total)


@pytest.mark.rel
@pytest.mark.paper("tanno2019 alg. 2")
def test_objective_never_falls(simulate, scorecard):
    """Scorecard 8: 0 decreases > 1e-9 in at least 200 random problems (all models, with and without priors)."""
    problems, falls = 0, []
    for seed in range(26):
        rng = np.random.default_rng(seed)
        crowd, *_ = simulate(
            seed,
            items=int(rng.integers(3, 40)),
            annotators=int(rng.integers(3, 12)),
            classes=int(rng.integers(2, 5)),
            each=int(rng.integers(1, 4)),
        )
        for method, strength in SETTINGS:
            result = aggregate(crowd, method, strength=strength, iterations=40, tolerance=0)
            problems += 1
            drop = float(result.trace.diff().min()) if len(result.trace) > 1 else 0.0
            if drop < -1e-9:
                falls.append((seed, method, strength, drop))
    scorecard(8, problems=problems, decreases=len(falls))
    assert problems >= 200
    assert not falls


@pytest.mark.rel
@pytest.mark.parametrize(("method", "strength"), SETTINGS[:4] + SETTINGS[5:])
def test_log_likelihood_equals_brute_force(simulate, method, strength, scorecard):
    """Scorecard 8: the marginal log-likelihood equals brute force on tiny problems to 1e-8."""
    for seed in range(4):
        crowd, *_ = simulate(seed, items=6, annotators=4, classes=3, each=2)
        result = aggregate(crowd, method, strength=strength, iterations=15)
        expected = brute_force(crowd, result.class_prior.tolist(), result.confusion_matrices.numpy())
        scorecard(8, brute_force_error=abs(result.log_likelihood - expected))
        assert abs(result.log_likelihood - expected) < 1e-8


def test_maximum_likelihood_traces_the_likelihood_itself(simulate):
    crowd, *_ = simulate(0)
    result = aggregate(crowd, "dawid-skene", strength=0)
    assert result.objective == "log-likelihood"
    assert abs(float(result.trace[-1]) - result.log_likelihood) < 1e-9


@pytest.mark.parametrize("K", [2, 3])
def test_glad_likelihood_equals_brute_force(simulate, K):
    from dubito.crowd._glad import glad

    crowd, *_ = simulate(1, items=5, annotators=4, classes=K, each=3)
    fit = glad(crowd, dtype=torch.float64, iterations=20, tolerance=0, gold=None)
    total = 0.0
    for n in range(5):
        rows = [(r, y) for i, r, y in zip(crowd.item, crowd.annotator, crowd.label) if i == n]
        p = 0.0
        for k in range(K):
            term = 1 / K
            for r, y in rows:
                s = 1 / (1 + math.exp(-float(fit.ability[r]) * math.exp(float(fit.easiness[n]))))
                term *= s if y == k else (1 - s) / (K - 1)
            p += term
        total += math.log(p)
    assert abs(total - fit.log_likelihood) < 1e-10


def naive_dawid_skene(crowd, steps):
    """Maximum likelihood in loops: vote shares, then M and E."""
    N, R, K = crowd.num_items, crowd.num_annotators, crowd.num_classes
    rows = list(zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()))
    q = np.zeros((N, K))
    for n, _, y in rows:
        q[n, y] += 1
    q /= q.sum(1, keepdims=True)
    for _ in range(steps):
        A = np.zeros((R, K, K))
        for n, r, y in rows:
            A[r, :, y] += q[n]
        total = A.sum(2, keepdims=True)
        A = np.where(total > 0, A / np.where(total > 0, total, 1), 1 / K)
        prior = q.mean(0)
        q = np.tile(prior, (N, 1))
        for n, r, y in rows:
            q[n] *= A[r, :, y]
        q /= q.sum(1, keepdims=True)
    return q, A, prior


@pytest.mark.rel
@pytest.mark.paper("tanno2019 alg. 2")
def test_equals_a_naive_transcription(simulate):
    """Scorecard 1: Dawid-Skene, against loops over the labels."""
    crowd, *_ = simulate(3, items=40, annotators=6, classes=3, each=4)
    # Steps are counted from the M-step after the vote; the last E-step gives the posteriors.
    result = aggregate(crowd, "dawid-skene", strength=0, iterations=4, tolerance=0)
    q, A, prior = naive_dawid_skene(crowd, 5)
    np.testing.assert_allclose(result.probabilities.numpy(), q, atol=1e-12)
    np.testing.assert_allclose(result.confusion_matrices.numpy(), A, atol=1e-12)
    np.testing.assert_allclose(result.class_prior.numpy(), prior, atol=1e-12)


def test_blocks_do_not_change_the_sums(simulate):
    crowd, *_ = simulate(4, items=50)
    table = torch.randn(len(lay_out(crowd, dtype=torch.float64).key_label), 3, dtype=torch.float64)
    prior = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    one, many = (
        e_step(lay_out(crowd, dtype=torch.float64, block=b), table, prior, keep=True, squares=True)
        for b in (10**6, 7)
    )
    torch.testing.assert_close(one.counts, many.counts)
    torch.testing.assert_close(one.squares, many.squares)
    torch.testing.assert_close(one.posterior, many.posterior)
    assert abs(one.log_likelihood - many.log_likelihood) < 1e-10


def test_order_of_rows_does_not_matter(simulate):
    crowd, *_ = simulate(5)
    order = np.random.default_rng(0).permutation(len(crowd))
    mixed = CrowdLabels(
        crowd.item.numpy()[order], crowd.annotator.numpy()[order], crowd.label.numpy()[order], classes=3
    )
    for method in MATRIX:
        a, b = aggregate(crowd, method), aggregate(mixed, method)
        torch.testing.assert_close(a.probabilities, b.probabilities, atol=1e-9, rtol=0)


def test_float32_agrees_with_float64(simulate):
    crowd, *_ = simulate(6, items=300, annotators=20)
    for method in MATRIX:
        a = aggregate(crowd, method, dtype=torch.float32, iterations=30)
        b = aggregate(crowd, method, dtype=torch.float64, iterations=30)
        assert a.probabilities.dtype == torch.float32
        torch.testing.assert_close(a.probabilities.double(), b.probabilities, atol=2e-3, rtol=0)
        torch.testing.assert_close(a.skills, b.skills, atol=2e-3, rtol=0)
