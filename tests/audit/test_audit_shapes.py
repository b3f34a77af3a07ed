"""A free matrix against symmetric noise: which the labels speak for, and what each says of a label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB

from dubito._audit import audit, shapes
from dubito._audit import likelihood as f


def first(problem):
    x = f.centred_logs(problem.probs)
    return x, f.first_fit(x, problem.labels, problem.probs)


def test_errors_where_classes_meet_are_ranked_as_well_as_by_the_model_alone():
    """People err at the border: a free matrix takes their pattern for a rule, and misjudges the rest."""
    x, true = make_blobs(1500, 8, centers=5, cluster_std=3.5, random_state=0)
    p = LogisticRegression(max_iter=200).fit(x, true).predict_proba(x)
    rows, other = np.arange(len(true)), p.copy()
    other[rows, true] = -1
    weight = np.exp(-2 * (p[rows, true] - other.max(1)))
    wrong = np.random.default_rng(1).random(len(true)) < np.minimum(0.25 * weight / weight.mean(), 0.9)
    labels = np.where(wrong, other.argmax(1), true)
    probs = cross_val_predict(GaussianNB(), x, labels, cv=5, method="predict_proba")
    found = audit(labels, probs, bootstrap=5)
    alone = average_precision_score(wrong, 1 - probs[rows, labels])
    assert alone > 0.97
    assert average_precision_score(wrong, found.p_wrong) > alone - 0.02
    assert (
        found.noise_rate.high < wrong.mean() < found.unseen + 0.05
    )  # the interval misses, and the audit says so
    assert "if people err on hard items" in repr(found)
    known = [int(k) if i % 10 == 0 else None for i, k in enumerate(true)]
    assert audit(labels, probs, bootstrap=0, checked=known).unseen is None


def test_patterned_errors_keep_their_matrix_and_even_ones_need_none(problem, symmetric, pairwise):
    assert shapes.odds_of_free(*_with_labels(pairwise)) > 0.999
    assert shapes.odds_of_free(*_with_labels(symmetric)) < 0.2
    many = problem(0.7 * np.eye(20) + 0.3 * np.roll(np.eye(20), 1, axis=1), N=3000, sharp=5.0)
    assert shapes.odds_of_free(*_with_labels(many)) > 0.999  # of 380 entries 20 are needed


def _with_labels(problem):
    x, free = first(problem)
    return x, problem.labels, free


def test_symmetric_noise_has_one_rate_and_it_is_the_right_one(symmetric):
    x, free = first(symmetric)
    plain = shapes.symmetric(x, symmetric.labels, free)
    off = plain.T[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(off, off[0])
    assert 3 * off[0] == pytest.approx((symmetric.labels != symmetric.true).mean(), abs=0.03)


def test_evening_keeps_the_mean_rate(pairwise):
    x, free = first(pairwise)
    even = shapes.spread(x, free)
    share = np.exp(f.clean(free, x)).mean(0)
    assert even.alike
    assert share @ (1 - even.T.diagonal()) == pytest.approx(share @ (1 - free.T.diagonal()))


@pytest.mark.parametrize("heated", [False, True])
def test_gradient_of_one_rate_is_the_slope_of_the_value(heated):
    rng = np.random.default_rng(1)
    probs, y = rng.dirichlet(np.ones(3), 80), rng.integers(0, 3, 80)
    T = f.blend(np.full(3, 0.3), f.even(3))
    heat = np.exp(0.2 * rng.normal(size=80)) if heated else None
    begin = replace(f.start(probs, y), T=T, alike=True, heat=heat)
    problem = f._Problem(f.centred_logs(probs), y, begin, None)
    theta = problem.pack() + 0.1 * rng.normal(size=problem.pack().shape)
    assert len(theta) == 9 + 3 + 1
    _, gradient = problem.value(theta)
    for i in range(len(theta)):
        step = 1e-6 * np.eye(len(theta))[i]
        slope = (problem.value(theta + step)[0] - problem.value(theta - step)[0]) / 2e-6
        assert gradient[i] == pytest.approx(slope, abs=1e-7)


def test_one_number_of_many_classes_is_calibrated_as_its_matrix():
    rng = np.random.default_rng(2)
    x, c = rng.normal(size=(7, 5)), rng.normal(size=5)
    np.testing.assert_allclose(f.calibrated(x, 1.7 * np.eye(5), c), x @ (1.7 * np.eye(5)).T + c)
    W = 1.7 * np.eye(5) + np.eye(5, k=1)
    np.testing.assert_allclose(f.calibrated(x, W, c), x @ W.T + c)
    probs, y = rng.dirichlet(np.ones(60), 40), rng.integers(0, 60, 40)  # so many classes share one number
    problem = f._Problem(f.centred_logs(probs), y, f.start(probs, y), None)
    theta = problem.pack()
    step = 1e-6 * np.eye(len(theta))[0]
    slope = (problem.value(theta + step)[0] - problem.value(theta - step)[0]) / 2e-6
    assert problem.value(theta)[1][0] == pytest.approx(slope, abs=1e-6)
