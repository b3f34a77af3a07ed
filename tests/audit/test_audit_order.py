"""Classes that must not change places: the likelihood of labels does not know the names of the true classes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dubito._audit import audit

PLACES = "classes can change places"


@pytest.mark.parametrize("seed", [0, 6])
def test_rare_classes_under_much_noise_are_not_exchanged(seed):
    """One item in ten is of the second class, 40 % of all labels are wrong, and the model tells both apart."""
    rng, N = np.random.default_rng(seed), 2000
    true = (rng.random(N) < 0.1).astype(int)
    wrong = rng.random(N) < 0.4
    p = 0.4 + 0.2 / (1 + np.exp(2.6 - 4 * true - 1.5 * rng.normal(size=N)))  # of the second label
    p = 1 / (1 + np.exp(-2 * np.log(p / (1 - p)) - 0.3 * rng.normal(size=N)))
    labels, probs = np.where(wrong, 1 - true, true), np.stack([1 - p, p], 1)
    found = audit(labels, probs, bootstrap=0)
    alone = roc_auc_score(wrong, 1 - probs[np.arange(N), labels])
    assert alone > 0.9
    assert roc_auc_score(wrong, found.p_wrong) > alone
    assert found.transition.diagonal().min() > 0.5
    assert found.noise_rate.value < 0.5


@pytest.mark.parametrize(("strength", "seed"), [(1e-3, 0), (1e-2, 2)])
def test_a_start_with_exchanged_classes_is_left(strength, seed):
    """A model so weak that the labels it is sure of belong to another class: 30 % pairwise errors in iris."""
    x, true = load_iris(return_X_y=True)
    wrong = np.random.default_rng(seed).random(len(true)) < 0.3
    labels = np.where(wrong, (true + 1) % 3, true)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength))
    probs = cross_val_predict(model, x, labels, cv=3, method="predict_proba")
    found = audit(labels, probs, bootstrap=0)
    assert roc_auc_score(wrong, found.p_wrong) > 0.99
    assert (found.transition.argmax(1) == np.arange(3)).all()


def test_classes_that_may_have_changed_places_are_told_of(problem, symmetric, pairwise):
    shifted = np.roll(np.eye(4), 1, axis=1)
    most = problem(0.45 * np.eye(4) + 0.55 * shifted, sharp=6.0)
    assert PLACES in " ".join(audit(most.labels, most.probs, bootstrap=0).notes)
    known = [int(k) if i % 10 == 0 else None for i, k in enumerate(most.true)]
    checked = audit(most.labels, most.probs, bootstrap=0, checked=known)
    assert PLACES not in " ".join(checked.notes)
    for p in (symmetric, pairwise):
        assert PLACES not in " ".join(audit(p.labels, p.probs, bootstrap=0).notes)
