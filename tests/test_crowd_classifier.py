"""CrowdClassifier: three forms of y; annotators, items and labels; the contract of scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.utils import column_or_1d
from sklearn.utils.estimator_checks import check_estimator

from dubito import noise
from dubito.crowd import CrowdLabels
from dubito.errors import DubitoError
from dubito.procedures import CrossFittedEM
from dubito.sklearn import CrowdClassifier

QUICK = {"epochs": 12, "batch_size": 64, "learning_rate": 0.03, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def crowd():
    source = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (300,), generator=source)
    X = (torch.randn(300, 4, generator=source) + 2.5 * torch.eye(4)[y]).numpy()
    A = torch.stack([(1 - s) * torch.ones(3, 3) / 3 + s * torch.eye(3) for s in (0.9, 0.8, 0.7, 0.0)])
    items, annotators, labels = noise.simulate(y, A.double(), source, 3)
    return X, y.numpy(), CrowdLabels(items, annotators, labels), A


@pytest.fixture(scope="module")
def fitted(crowd):
    X, _, labels, _ = crowd
    return CrowdClassifier(**QUICK).fit(X, labels)


def test_everything_that_it_says(crowd, fitted):
    X, y, labels, A = crowd
    assert (fitted.predict(X) == y).mean() > 0.9
    assert (fitted.consensus_ == y).mean() > 0.93
    np.testing.assert_allclose(fitted.consensus_proba_.sum(1), 1, atol=1e-6)
    assert fitted.confusion_matrices_.shape == (4, 3, 3)
    np.testing.assert_allclose(fitted.confusion_matrices_.sum(-1), 1, atol=1e-6)
    true = A.diagonal(dim1=1, dim2=2).mean(-1).numpy()
    np.testing.assert_allclose(fitted.skills_, true, atol=0.1)
    low, high = fitted.skill_intervals_.T
    assert ((low < fitted.skills_) & (fitted.skills_ < high)).all()
    assert (high - low < 0.3).all()
    right = labels.label.numpy() == y[labels.item.numpy()]
    assert fitted.label_quality_[right].mean() > fitted.label_quality_[~right].mean() + 0.5


@pytest.mark.parametrize("method", ["crossfit-em:rounds=2", "trace", "wdn"])
def test_a_few_epochs_are_enough_for_a_linear_model(method):
    """Two hundred items, eight passes, a small step: the start must not be what the model says."""
    for seed in range(3):
        source = torch.Generator().manual_seed(seed)
        y = torch.randint(0, 3, (200,), generator=source)
        X = (torch.randn(200, 10, generator=source) + 2.5 * torch.eye(10)[y]).numpy()
        crowd = CrowdLabels(*noise.simulate(y, noise.flip_to_other(3, 0.2).expand(5, 3, 3), source, 3))
        clf = CrowdClassifier(method, epochs=8, random_state=seed, device="cpu").fit(X, crowd)
        assert (clf.predict(X) == y.numpy()).mean() > 0.7


def test_groups_stay_in_one_fold(crowd, monkeypatch):
    """All rows of a patient are judged by a network that saw none of them."""
    X, _, labels, _ = crowd
    patients = np.array([f"patient {i // 7}" for i in range(len(X))])
    seen = []
    begin = CrossFittedEM.begin
    monkeypatch.setattr(CrossFittedEM, "begin", lambda em, data: (begin(em, data), seen.append(em.fold))[0])
    CrowdClassifier(**{**QUICK, "epochs": 1}).fit(X, labels, groups=patients)
    folds = {p: set(seen[0][torch.from_numpy(patients == p)].tolist()) for p in patients}
    assert all(len(f) == 1 for f in folds.values())
    assert len(set.union(*folds.values())) == 5
    with pytest.raises(ValueError, match="inconsistent numbers"):
        CrowdClassifier(**QUICK).fit(X, labels, groups=patients[:-1])


def test_whom_to_ask_about_what(fitted):
    asked = fitted.ask_next(12, per_annotator=5)
    assert len(asked) == 12
    assert len(set(asked.items.tolist())) == 12
    pairs = set(zip(fitted.crowd_.item.tolist(), fitted.crowd_.annotator.tolist()))
    assert not pairs & set(zip(asked.item_codes.tolist(), asked.annotator_codes.tolist()))
    assert np.bincount(asked.annotator_codes).max() <= 5
    assert 3 not in asked.annotators  # the one who guesses tells nothing
    assert bool((asked.gain[:-1] >= asked.gain[1:]).all())


def test_three_forms_of_the_same_labels(crowd, fitted):
    X, _, labels, _ = crowd
    table = np.asarray(labels.to_dense(), dtype=float)
    for y in (table.astype(int), np.where(table < 0, np.nan, table)):
        other = CrowdClassifier(**QUICK).fit(X, y)
        np.testing.assert_allclose(other.predict_proba(X), fitted.predict_proba(X), atol=1e-6)
        np.testing.assert_array_equal(other.consensus_, fitted.consensus_)


def test_one_label_per_example_is_one_annotator(crowd):
    X, y, _, _ = crowd
    names = np.array(["cat", "dog", "eel"])
    clf = CrowdClassifier("trace", **QUICK).fit(X, names[y])
    assert clf.crowd_.num_annotators == 1
    assert (clf.predict(X) == names[y]).mean() > 0.9
    assert set(clf.consensus_) <= set(names)


@pytest.mark.parametrize("method", ["trace", "wdn", "ce", "mbem:rounds=2", "trace:matrices=pooled"])
def test_other_methods(crowd, method):
    X, y, labels, _ = crowd
    clf = CrowdClassifier(method, **{**QUICK, "weight_decay": 0.001}).fit(X, labels)
    assert (clf.predict(X) == y).mean() > 0.88
    assert clf.skills_[0] > clf.skills_[3] + 0.3
    assert len(clf.ask_next(3)) == 3


def test_annotators_beyond_a_thousand_are_updated_row_by_row():
    source = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (600,), generator=source)
    X = (torch.randn(600, 2, generator=source) + 3 * torch.eye(2)[y]).numpy()
    crowd = CrowdLabels(np.arange(600).repeat(2), np.arange(1200), y.repeat_interleave(2))
    clf = CrowdClassifier("trace", **{**QUICK, "epochs": 3}).fit(X, crowd)
    assert clf.model_.channel.sparse
    assert (clf.predict(X) == y.numpy()).mean() > 0.9


def test_what_is_refused(crowd):
    X, _, labels, _ = crowd
    with pytest.raises(DubitoError, match="other items"):
        CrowdClassifier(**QUICK).fit(X[:-1], labels)
    with pytest.raises(DubitoError, match="one class"):
        CrowdClassifier(**QUICK).fit(X, np.zeros(len(X), int))
    with pytest.raises(DubitoError, match="annotators"):
        CrowdClassifier("gce", **QUICK).fit(X, labels)


@pytest.mark.rel
def test_scikit_learn_contract(scorecard):
    """Scorecard 19: check_estimator, 0 failed, y with one label per example."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(CrowdClassifier(**{**QUICK, "epochs": 10}), on_fail=None)
    failed = [f["check_name"] for f in found if f["status"] == "failed"]
    scorecard(19, failed_checks=len(failed), expected_failures=sum(f["status"] == "xfail" for f in found))
    assert failed == []


class FromArray(CrowdClassifier):
    """The same estimator, given an items x annotators array for every y that scikit-learn hands it."""

    def fit(self, X, y):
        kind = np.asarray(y).dtype.kind
        if y is None or kind not in "iuUO":
            return super().fit(X, y)
        one = column_or_1d(np.asarray(y, dtype=int if kind in "iu" else object), warn=True)
        array = np.stack([one, one, one], axis=1)
        array[::3, 1] = array[1::3, 2] = self.missing if kind in "iu" else np.nan
        return super().fit(X, array)


def test_negative_classes_where_something_else_is_missing(crowd):
    X, y, _, _ = crowd
    signs = np.where(y == 0, -1, 1)
    table = np.stack([signs, signs, signs], axis=1)
    table[::2, 1] = -99
    fitted = CrowdClassifier(**QUICK, missing=-99).fit(X, table)
    assert fitted.classes_.tolist() == [-1, 1]
    assert (fitted.predict(X) == signs).mean() > 0.9
    table[table == -99] = -1
    assert (
        CrowdClassifier(**QUICK).fit(X, np.where(table == -1, -1, 1 + (y == 1)[:, None])).classes_ >= 0
    ).all()


@pytest.mark.rel
def test_scikit_learn_contract_of_an_array(scorecard):
    """Scorecard 19: check_estimator, 0 failed, y an items x annotators array with labels that are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(FromArray(**{**QUICK, "epochs": 10}, missing=-99), on_fail=None)
    failed = {f["check_name"]: f["exception"] for f in found if f["status"] == "failed"}
    scorecard(19, failed_checks=len(failed), expected_failures=sum(f["status"] == "xfail" for f in found))
    assert not failed
    assert sum(f["status"] == "passed" for f in found) >= 50


@pytest.mark.nightly
@pytest.mark.rel
def test_labelme_without_any_clean_label(shared_data):
    """Test accuracy and consensus on LabelMe; the figures of five seeds are in results/labelme."""
    path = shared_data / "crowd" / "labelme" / "labelme.npz"
    with np.load(path) as z:
        arrays = {name: z[name] for name in z.files}
    labels = CrowdLabels(
        *(arrays[n].astype(int) for n in ("item", "worker", "label")), item_ids=np.arange(1000), classes=8
    )
    clf = CrowdClassifier(random_state=0, device="cpu").fit(arrays["x_train"].astype(float), labels)
    assert (clf.predict(arrays["x_test"].astype(float)) == arrays["y_test"]).mean() >= 0.87
    assert (clf.consensus_ == arrays["y_train"]).mean() >= 0.85


def test_score_is_the_share_of_labels_that_agree(crowd, fitted):
    X, y, labels, _ = crowd
    predicted = fitted.predict(X)
    agree = predicted[labels.item.numpy()] == labels.label.numpy()
    assert fitted.score(X, labels) == pytest.approx(agree.mean())
    assert fitted.score(X, labels.to_dense()) == pytest.approx(agree.mean())
    gaps = np.where(labels.to_dense() < 0, np.nan, labels.to_dense())
    assert fitted.score(X, gaps) == pytest.approx(agree.mean())
    assert fitted.score(X, y) == pytest.approx((predicted == y).mean())
    weights = np.arange(len(X))
    wanted = np.average(agree, weights=weights[labels.item.numpy()])
    assert fitted.score(X, labels, sample_weight=weights) == pytest.approx(wanted)
    assert fitted.score(X[:2], [[7, 7], [7, -1]]) == 0.0  # a class that the fit did not meet
    with pytest.raises(DubitoError, match="other items"):
        fitted.score(X[:5], labels)
    with pytest.raises(DubitoError, match="no labels to compare"):
        fitted.score(X[:1], CrowdLabels([], [], [], classes=3, item_ids=1))


def test_a_grid_is_searched_by_crowd_labels(crowd):
    X, _, labels, _ = crowd
    grid = GridSearchCV(CrowdClassifier(**QUICK), {"weight_decay": [0.01, 0.1]}, cv=2, error_score="raise")
    grid.fit(X, labels.to_dense())
    assert (grid.cv_results_["mean_test_score"] > 0.5).all()


def test_rows_meet_the_labels_of_their_own_items(crowd):
    """Text ids sort as img0, img1, img10: an array says nothing of its rows, a frame does by its index."""
    X, y, labels, _ = crowd
    names = [f"img{n}" for n in range(len(X))]
    said = CrowdLabels([names[n] for n in labels.item.tolist()], labels.annotator, labels.label)
    with pytest.raises(DubitoError, match="item_ids=, one per row of X"):
        CrowdClassifier(**QUICK).fit(X, said)
    frame = pd.DataFrame(X, index=names)
    fitted = CrowdClassifier(**QUICK).fit(frame, said)
    assert fitted.crowd_.item_ids.tolist() == names
    assert (fitted.consensus_ == y).mean() > 0.9
    expected = CrowdClassifier(**QUICK).fit(X, labels)
    np.testing.assert_array_equal(fitted.predict(frame), expected.predict(X))
    assert fitted.score(frame, said) == expected.score(X, labels)
    given = CrowdLabels(
        [names[n] for n in labels.item.tolist()], labels.annotator, labels.label, item_ids=names
    )
    np.testing.assert_array_equal(CrowdClassifier(**QUICK).fit(X, given).predict(X), expected.predict(X))


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": 0}, {"batch_size": "a"}, {"epochs": 2.5}])
def test_lengths_that_are_no_counts(crowd, wrong):
    X, _, labels, _ = crowd
    with pytest.raises(DubitoError, match=f"{next(iter(wrong))} must be a whole number"):
        CrowdClassifier(**{**QUICK, **wrong}).fit(X, labels)


def test_gaps_of_tables_of_one_annotator_and_of_classes_with_a_sign(crowd):
    X, y, _, _ = crowd
    one = np.where(np.arange(len(y)) % 3 == 0, -1, y)[:, None]
    assert CrowdClassifier(**QUICK).fit(X, one).classes_.tolist() == [0, 1, 2]
    signs = np.where(y == 0, -1.0, 1.0)[:, None].repeat(3, 1)
    signs[::4, 1] = np.nan
    fitted = CrowdClassifier(**QUICK, missing=np.nan).fit(X, signs)
    assert fitted.classes_.tolist() == [-1, 1]
    assert len(fitted.crowd_) == 3 * len(y) - len(y[::4])
    with pytest.raises(DubitoError, match=r"one class.*missing=np.nan"):
        CrowdClassifier(**QUICK).fit(X, signs)
