"""Explanations of labels that are weighed against each other, by hand-made problems with a known answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dubito._audit import audit, shares
from dubito._audit import likelihood as f


def fitted(problem):
    x = f.centred_logs(problem.probs)
    return x, f.fit(x, problem.labels, f.start(problem.probs, problem.labels))


@pytest.mark.parametrize("heated", [False, True])
def test_chances_are_those_of_the_equation(heated):
    rng = np.random.default_rng(0)
    K, N = 3, 12
    T = 0.7 * np.eye(K) + 0.1
    labels = rng.integers(0, K, N)
    heat = rng.uniform(0.3, 2.5, N) if heated else None
    found = np.exp(f.chances(T.T[labels], labels, heat))
    for n in range(N):
        h = heat[n] if heated else 1.0
        T_n = np.eye(K) + h * (T - np.eye(K))
        np.testing.assert_allclose(found[n], T_n[:, labels[n]], atol=1e-12)


def test_gradient_with_heat_is_the_slope_of_the_value():
    rng = np.random.default_rng(1)
    probs, y = rng.dirichlet(np.ones(3), 80), rng.integers(0, 3, 80)
    begin = replace(f.start(probs, y), heat=np.exp(0.2 * rng.normal(size=80)))
    problem = f._Problem(f.centred_logs(probs), y, begin, None)
    theta = problem.pack() + 0.1 * rng.normal(size=problem.pack().shape)
    _, gradient = problem.value(theta)
    for i in range(len(theta)):
        step = 1e-6 * np.eye(len(theta))[i]
        slope = (problem.value(theta + step)[0] - problem.value(theta - step)[0]) / 2e-6
        assert gradient[i] == pytest.approx(slope, abs=1e-7)


def test_noise_that_grows_with_doubt_is_found_and_even_noise_is_not_heated(problem, symmetric):
    even = problem(np.eye(4), N=4000, seed=3)
    rng = np.random.default_rng(4)
    doubt = -(even.probs * np.log(even.probs)).sum(1)
    u = (doubt - doubt.mean()) / doubt.std()
    wrong = rng.random(len(u)) < np.minimum(0.12 * np.exp(0.9 * u) / np.exp(0.9 * u).mean(), 0.9)
    labels = np.where(wrong, (even.true + rng.integers(1, 4, len(u))) % 4, even.true)
    x = f.centred_logs(even.probs)
    best = f.fit(x, labels, f.start(even.probs, labels))
    hot = shares.heated(x, labels, best)
    assert hot.heat is not None
    assert hot.log_likelihood > best.log_likelihood + np.log(len(u)) / 2
    assert np.corrcoef(hot.heat, u)[0, 1] > 0.5
    parts = shares.explain(x, labels, best).parts
    assert sum(w for w, part in parts if part.heat is not None) > 0.9
    x, best = fitted(symmetric)
    parts = shares.explain(x, symmetric.labels, best).parts
    assert sum(w for w, part in parts if part.heat is not None) < 0.5


def test_weights_sum_to_one_and_few_labels_leave_more_open(problem):
    spread = []
    for N in (120, 3000):
        x, best = fitted(p := problem(np.eye(4) * 0.72 + 0.07, N=N, seed=2))
        found = shares.weigh(x, p.labels, best)
        assert sum(w for w, _ in found.parts) == pytest.approx(1)
        for _, part in found.parts:
            np.testing.assert_allclose(part.T.sum(1), 1, atol=1e-9)
        spread.append(len(found.parts))
    assert spread[0] > spread[1]


def test_nothing_is_surer_than_the_number_of_labels_allows(problem):
    p = problem(np.eye(4) * 0.72 + 0.07, N=80, sharp=9.0)
    found = audit(p.labels, p.probs, bootstrap=0)
    least = 1 / (80 / 4 + 2)
    assert found.p_wrong.max() < 1 - least * 0.2
    np.testing.assert_allclose(found.probabilities.sum(1), 1, atol=1e-9)
    assert found.p_wrong[p.labels != p.true].mean() > found.p_wrong[p.labels == p.true].mean() + 0.3
    many = problem(np.eye(4) * 0.72 + 0.07, N=4000, sharp=9.0)
    assert audit(many.labels, many.probs, bootstrap=0).p_wrong.max() > 0.99


def test_intervals_of_many_labels_come_from_fewer(problem, monkeypatch):
    """Drawing a part and scaling the spread gives about the interval that drawing all gives."""
    import dubito._audit as module

    p = problem(np.eye(4) * 0.72 + 0.07, N=4000, seed=6)
    x, best = fitted(p)
    wide = []
    for most in (4000, 1000):
        monkeypatch.setattr(module, "MOST_DRAWN", most)
        draws, matrices = module._refits(x, p.labels, best, 1.0, 20, 0)
        assert draws.shape == (20, 4000)
        wide.append((draws.mean(1).std(ddof=1), matrices.std(0, ddof=1).mean()))
    for all_, part in zip(*wide):
        assert 0.4 < part / all_ < 2.5
