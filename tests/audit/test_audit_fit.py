"""The likelihood, its gradient and its posterior, against transcriptions by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dubito._audit import kinds
from dubito._audit import likelihood as f


def _naive(W, c, T, x, y):
    total = 0.0
    for n in range(len(y)):
        z = W @ x[n] + c
        p = np.exp(z) / np.exp(z).sum()
        total += np.log(sum(p[k] * T[k, y[n]] for k in range(len(c))))
    return total


def _small(K=3, N=60, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(K), N)
    return f.centred_logs(probs), rng.integers(0, K, N), probs


def test_log_likelihood_is_that_of_the_equation():
    x, y, probs = _small()
    found = f.fit(x, y, f.start(probs, y))
    assert found.log_likelihood == pytest.approx(_naive(found.W, found.c, found.T, x, y), rel=1e-10)
    np.testing.assert_allclose(found.T.sum(1), 1, atol=1e-9)


@pytest.mark.parametrize("N", [30, 60])  # one number, or a matrix, for the calibration
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_the_slope_of_the_value(N, weighted):
    x, y, probs = _small(N=N)
    begin = f.start(probs, y)
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float) if weighted else None
    problem = f._Problem(x, y, begin, weights)
    theta = problem.pack() + 0.1 * np.random.default_rng(2).normal(size=problem.pack().shape)
    _, gradient = problem.value(theta)
    for i in range(len(theta)):
        step = np.zeros_like(theta)
        step[i] = 1e-6
        slope = (problem.value(theta + step)[0] - problem.value(theta - step)[0]) / 2e-6
        assert gradient[i] == pytest.approx(slope, abs=1e-6)


def test_posterior_and_counts_by_hand():
    log_p = np.log([[0.5, 0.5], [0.9, 0.1]])
    T = np.array([[0.8, 0.2], [0.4, 0.6]])
    q, total = f.posterior(log_p, T, np.array([0, 1]))
    np.testing.assert_allclose(q, [[2 / 3, 1 / 3], [0.75, 0.25]])
    np.testing.assert_allclose(np.exp(total), [0.6, 0.24])
    np.testing.assert_allclose(f.counts(q, np.array([0, 1])), [[2 / 3, 0.75], [1 / 3, 0.25]])


def test_a_label_does_not_vouch_for_itself():
    """The only label of its kind of confusion is judged by the prior, not by the count it made itself."""
    log_p = np.log(np.array([[0.999, 0.001]] * 50 + [[0.5, 0.5]]))
    labels = np.array([0] * 50 + [1])
    T = f.counts(f.posterior(log_p, np.array([[0.9, 0.1], [0.1, 0.9]]), labels)[0], labels) + 1e-3
    T /= T.sum(1, keepdims=True)
    own = f.posterior(log_p, T, labels)[0][50]
    without = f.judge_without_own(log_p, T, labels, 0.1)[50]
    assert without[0] < own[0]
    np.testing.assert_allclose(without.sum(), 1)


def test_few_labels_calibrate_by_one_number(symmetric):
    rows = slice(0, 60)
    x = f.centred_logs(symmetric.probs[rows])
    found = f.fit(x, symmetric.labels[rows], f.start(symmetric.probs[rows], symmetric.labels[rows]))
    off = found.W - found.W[0, 0] * np.eye(4)
    assert np.abs(off).max() == 0


def test_weights_count_as_repetitions(symmetric):
    rows = np.arange(300)
    x, y = f.centred_logs(symmetric.probs[rows]), symmetric.labels[rows]
    begin = f.start(symmetric.probs[rows], y)
    weights = np.ones(300)
    weights[:100] = 2
    again = np.concatenate([rows, rows[:100]])
    a = f._Problem(x, y, begin, weights)
    b = f._Problem(x[again], y[again], begin, None)
    assert a.value(a.pack())[0] == pytest.approx(b.value(b.pack())[0], rel=1e-12)


@pytest.mark.parametrize(("shape", "free"), [("rate", 1), ("rates", 3)])
def test_restricted_matrices_reach_the_best_rates(shape, free):
    """EM against a search over the rates by brute force."""
    from scipy.optimize import minimize

    _, y, probs = _small(N=200)
    log_p = np.log(probs)

    def loss(z):
        rates = np.broadcast_to(1 / (1 + np.exp(-z)), (3,))
        return -f.posterior(log_p, f.blend(rates, f.even(3)), y)[1].sum()

    best = -min(minimize(loss, np.full(free, z)).fun for z in (-2.0, 0.0, 2.0))
    assert kinds._best(log_p, y, shape, f.even(3)) == pytest.approx(best, abs=0.1)
    assert kinds._best(log_p, y, shape, f.even(3)) <= best + 1e-6


def test_a_weak_model_is_not_taken_for_noisy_labels(problem):
    """Half of the noise that the best fit sees in a weak model's clean labels is given back to the model."""
    from dubito._audit.likelihood import centred_logs, fit, start
    from dubito._audit.shares import weigh

    weak = problem(np.eye(6), N=2500, sharp=1.0, seed=3)
    x = centred_logs(weak.probs)
    best = fit(x, weak.labels, start(weak.probs, weak.labels))
    judged = weigh(x, weak.labels, best)
    assert 0 < judged.share < 1
    assert (1 - np.diag(judged.fit.T)).mean() < (1 - np.diag(best.T)).mean()
    assert judged.error > 0.05


def test_a_strong_model_keeps_its_matrix(pairwise):
    from dubito._audit.likelihood import centred_logs, fit, start
    from dubito._audit.shares import weigh

    x = centred_logs(pairwise.probs)
    best = fit(x, pairwise.labels, start(pairwise.probs, pairwise.labels))
    judged = weigh(x, pairwise.labels, best)
    assert judged.share > 0.9
    assert np.abs(judged.fit.T - best.T).max() < 0.03
