"""Models that know nothing and models without doubt: neither tells who is wrong, and an audit says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dubito._audit import audit
from dubito._audit.likelihood import centred_logs, tempered
from dubito._report.audits import from_audit


def some_labels(K, N, rate, seed, rare=False):
    rng = np.random.default_rng(seed)
    share = np.geomspace(1, 0.05, K) if rare else np.ones(K)
    true = rng.choice(K, N, p=share / share.sum())
    return np.where(rng.random(N) < rate, (true + rng.integers(1, K, N)) % K, true), true, rng


def ignorant(kind, labels, K, rng):
    """Probabilities that have nothing to do with the items."""
    share, N = np.bincount(labels, minlength=K) / len(labels), len(labels)
    if kind == "tree":
        return np.eye(K)[rng.choice(K, N, p=share)]
    if kind == "neighbours":
        return rng.multinomial(5, share, N) / 5
    logits = np.log(share + 1e-9) + {"shares": 0.0, "network": 3.0}[kind] * rng.standard_normal((N, K))
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


@pytest.mark.parametrize("kind", ["shares", "network", "neighbours", "tree"])
@pytest.mark.parametrize(
    ("K", "N", "rate", "rare"), [(2, 600, 0.0, False), (3, 150, 0.2, True), (10, 400, 0.2, False)]
)
def test_a_model_that_knows_nothing_is_told_of(kind, K, N, rate, rare):
    labels, true, rng = some_labels(K, N, rate, 3, rare)
    found = audit(labels, ignorant(kind, labels, K, rng), bootstrap=4)
    wrong = (labels != true).mean()
    assert found.noise_rate.low <= wrong <= found.noise_rate.high < 1
    assert found.p_wrong.max() < 0.5
    assert found.informed < 0.5
    assert found.noise == "unclear"
    assert "the model cannot tell which are wrong" in repr(found)
    assert [n for n in found.notes if "no better than how frequent" in n]
    assert from_audit(found).summary[0].startswith("The model cannot tell which of the")


def test_checks_of_a_model_that_knows_nothing_tell_how_many_are_wrong():
    labels, true, rng = some_labels(4, 1000, 0.1, 0)
    probs = ignorant("network", labels, 4, rng)
    known = [None] * len(labels)
    for row in audit(labels, probs, bootstrap=0).spot_check(100):
        known[row] = int(true[row])
    seen = audit(labels, probs, checked=known, bootstrap=4).noise_rate
    assert seen.low <= (labels != true).mean() <= seen.high
    assert abs(seen.value - (labels != true).mean()) < 0.1


@pytest.mark.parametrize(
    ("K", "skill", "rate"), [(2, 0.7, 0.0), (2, 0.85, 0.1), (3, 0.6, 0.2), (10, 0.5, 0.0), (10, 0.5, 0.2)]
)
def test_predictions_without_probabilities_leave_open_who_is_wrong(K, skill, rate):
    """Where model and label differ, either may be wrong, and one-hot predictions say nothing about which."""
    labels, true, rng = some_labels(K, 1000, rate, 0)
    named = np.where(rng.random(1000) < skill, true, rng.integers(0, K, 1000))
    found = audit(labels, np.eye(K)[named], bootstrap=4)
    assert found.informed > 0.99
    assert found.noise_rate.low <= (labels != true).mean() <= found.noise_rate.high
    assert found.p_wrong.max() < 0.9
    assert (found.p_wrong[named != labels].min()) > found.p_wrong[named == labels].max()


def test_a_model_far_too_sure_of_itself_is_judged_as_its_calm_twin(symmetric):
    logs = np.log(symmetric.probs)
    hot = np.exp(6 * (logs - logs.max(1, keepdims=True)))
    calm, sure = (
        audit(symmetric.labels, p / p.sum(1, keepdims=True), bootstrap=0) for p in (symmetric.probs, hot)
    )
    assert abs(sure.noise_rate.value - calm.noise_rate.value) < 0.01
    assert np.corrcoef(sure.p_wrong, calm.p_wrong)[0, 1] > 0.99


def test_the_temperature_is_the_likeliest_and_no_gain_comes_from_chance():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((4000, 3))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = np.array([rng.choice(3, p=row) for row in p])
    b, gain = tempered(centred_logs(p**2 / (p**2).sum(1, keepdims=True)), y)
    assert abs(b - 0.5) < 0.05
    share = np.bincount(y) / len(y)
    assert abs(gain - (np.log(p[np.arange(len(y)), y]).sum() - np.log(share[y]).sum())) < 5
    assert tempered(centred_logs(p), rng.integers(0, 3, 4000))[1] < 5
    assert tempered(centred_logs(p[:, [1, 2, 0]]), y)[0] < 0.01, (
        "columns in a wrong order speak against the labels"
    )


@pytest.mark.parametrize("strength", [1e-2, 1.0])
def test_classes_of_a_small_table_keep_their_places_under_pairwise_errors(strength):
    """40 % pairwise errors in iris: a fit with two classes exchanged is likelier, but by less than it is odd."""
    x, true = load_iris(return_X_y=True)
    wrong = np.random.default_rng(4).random(len(true)) < 0.4
    labels = np.where(wrong, (true + 1) % 3, true)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength))
    probs = cross_val_predict(model, x, labels, cv=3, method="predict_proba")
    assert roc_auc_score(wrong, audit(labels, probs, bootstrap=0).p_wrong) > 0.8


def test_a_report_says_how_far_to_check(symmetric):
    """As long as most of the labels that a step adds are wrong, checking goes on: half of the errors is no end."""
    found = audit(symmetric.labels, symmetric.probs, bootstrap=0)
    said = from_audit(found).summary[2]
    checked = int(said.split()[2].replace(",", ""))
    steps = [p.checked for p in found.plan]
    assert checked in steps
    before = steps[steps.index(checked) - 1]
    assert found.p_wrong[found.order[before:checked]].mean() >= 0.5
    after = steps[steps.index(checked) + 1]
    assert found.p_wrong[found.order[checked:after]].mean() < 0.5


def test_a_report_of_a_blind_model_lists_nothing():
    labels, _, rng = some_labels(3, 300, 0.1, 0)
    made = from_audit(audit(labels, ignorant("network", labels, 3, rng), bootstrap=4))
    assert not made.suspicions
    assert not made.plan
    assert next(f.value for f in made.noise if f.name == "wrong labels") == "not known"


def test_the_first_sentence_says_what_the_interval_may_miss(symmetric):
    found = audit(symmetric.labels, symmetric.probs, bootstrap=4)
    assert found.beyond is None
    assert "show as wrong" not in from_audit(found).summary[0]
    found = replace(found, unseen=2 * found.noise_rate.high)
    assert "show as wrong" in from_audit(found).summary[0]
    assert f"up to {100 * found.unseen:.0f} % are" in from_audit(found).summary[0]


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_neighbours_that_see_little_are_not_taken_for_noise(rate):
    """Digits by their first axis: a third of the neighbours' votes are right, and none of fifteen is no proof."""
    x, true = load_digits(return_X_y=True)
    axis = PCA(1, random_state=0).fit_transform(x)
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(len(true)) < rate, (true + rng.integers(1, 10, len(true))) % 10, true)
    probs = cross_val_predict(KNeighborsClassifier(15), axis, labels, cv=5, method="predict_proba")
    found = audit(labels, probs, bootstrap=2)
    assert found.noise_rate.value < 0.3
    assert found.noise_rate.low <= (labels != true).mean() <= found.noise_rate.high
    assert (found.p_wrong > 0.9).sum() <= 5


def test_half_of_the_least_count_stands_for_a_zero():
    probs = np.array([[0.0, 0.2, 0.8], [0.0, 0.0, 1.0], [0.4, 0.4, 0.2]])
    x = centred_logs(probs)
    np.testing.assert_allclose(x[0] - x[0, 1], np.log([0.5, 1, 4]), rtol=0.05)
    one = centred_logs(np.eye(4))
    np.testing.assert_allclose(one[0, 0] - one[0, 1], np.log(8))
