"""What an audit is given by mistake: one sentence that says what it is, and nothing that only warns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from dubito._audit import audit
from dubito.errors import DubitoError

RNG = np.random.default_rng(0)
TRUE = RNG.integers(0, 3, 60)
LOGITS = RNG.normal(size=(60, 3)) + 3 * np.eye(3)[TRUE]
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
LABELS = np.where(np.arange(60) < 6, (TRUE + 1) % 3, TRUE)


@pytest.mark.parametrize(
    ("probs", "said"),
    [
        (LOGITS, "pass softmax"),
        (np.log(PROBS), "log-probabilities: pass exp"),
        (100 * PROBS, "divide by 100"),
        (1.1 * PROBS, "each row must sum to one, these to 1.1 to 1.1"),
        (np.where(np.arange(60)[:, None] == 4, np.nan, PROBS), "at probs[4]"),
        (np.where(np.arange(60)[:, None] == 4, np.nan, PROBS), "leave them out"),
        (PROBS + 0j, "must hold numbers"),
        (scipy.sparse.csr_matrix(PROBS), "must not be sparse"),
    ],
)
def test_tables_that_hold_no_probabilities_are_told_apart(probs, said):
    with pytest.raises(DubitoError) as refused:
        audit(LABELS, probs)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checked": 3}, "checked must be a column"),
        ({"seed": -1}, "seed must be a count"),
        ({"seed": "x"}, "seed must be a count"),
        ({"features": scipy.sparse.csr_matrix(np.eye(60))}, "features must not be sparse"),
    ],
)
def test_options_of_the_wrong_kind(options, said):
    with pytest.raises(DubitoError) as refused:
        audit(LABELS, PROBS, **options)
    assert said in str(refused.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("features", [np.ones((60, 2)), 1e300 * RNG.normal(size=(60, 2)), np.eye(3)[LABELS]])
def test_features_that_say_nothing_or_are_huge_do_not_warn(features):
    found = audit(LABELS, PROBS, features=features, bootstrap=0)
    assert np.isfinite(found.p_wrong).all()


def test_missing_values_of_pandas_and_half_precision_are_read():
    known = pd.array([int(k) for k in TRUE[:5]] + [None] * 55, dtype="Int64")
    assert audit(LABELS, PROBS, checked=known, bootstrap=0).unchecked == 55
    half = audit(torch.tensor(LABELS), torch.tensor(PROBS).bfloat16(), bootstrap=0)
    assert (half.order[:4] == audit(LABELS, PROBS, bootstrap=0).order[:4]).mean() > 0.4


def test_a_model_that_agrees_with_every_label_is_told_of():
    said = "agrees with every label"
    assert said in " ".join(audit(TRUE, 0.97 * np.eye(3)[TRUE] + 0.01, bootstrap=0).notes)
    assert said not in " ".join(audit(LABELS, PROBS, bootstrap=0).notes)


def test_the_interval_of_an_entry_that_is_never_used_reaches_zero():
    """A fifth of the labels are moved on by one class: all other entries are zero, and may be."""
    rng, K, N = np.random.default_rng(3), 5, 1500
    true = rng.integers(0, K, N)
    labels = np.where(rng.random(N) < 0.2, (true + 1) % K, true)
    logits = rng.normal(size=(N, K)) + 4 * np.eye(K)[true]
    probs = np.exp(logits) @ (0.8 * np.eye(K) + 0.2 * np.roll(np.eye(K), 1, axis=1))
    found = audit(labels, probs / probs.sum(1, keepdims=True), bootstrap=10)
    T = np.stack([np.bincount(labels[true == k], minlength=K) / (true == k).sum() for k in range(K)])
    low, high = np.moveaxis(found.transition_interval, -1, 0)
    assert ((low <= T + 1e-9) & (high + 1e-9 >= T)).mean() > 0.9
    assert (high - low).max() < 0.2
