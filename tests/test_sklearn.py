"""The estimator: scikit-learn's own contract, and what noisy labels add to it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

from dubito import audit, noise
from dubito.backbones import MLP, Forest
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.sklearn import NoisyLabelClassifier

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "weights scale losses, while repeated examples also change "
    "which examples share a batch: the two are equal in expectation, not digit for digit"
}
QUICK = {"epochs": 10, "batch_size": 32, "random_state": 0}


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(120, centers=[[-4, 0], [4, 0], [0, 6]], random_state=0)


def check(estimator: NoisyLabelClassifier, scorecard: Callable[..., None]) -> None:
    found = check_estimator(estimator, expected_failed_checks=EXPECTED, on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in found if r["status"] == "failed"}
    expected = sum(r["status"] == "xfail" for r in found)
    scorecard(19, failed_checks=len(failed), expected_failures=expected)
    assert not failed
    assert {r["check_name"] for r in found if r["status"] == "xfail"} == set(EXPECTED)
    assert sum(r["status"] == "passed" for r in found) >= 55


@pytest.mark.rel
def test_contract_of_scikit_learn(scorecard: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scorecard 19: check_estimator with no failure, and one expected failure with its reason.

    Every fit searches, as by default; the forests in it have five trees, to save time.
    """

    def small(data: LabelledData, K: int, source: torch.Generator) -> Forest:
        inputs = data.batch(torch.arange(len(data)))
        return Forest.grow(inputs, data.labels, K, trees=5, weight=data.extra.get("weight"), generator=source)

    monkeypatch.setattr("dubito.sklearn.forest_of", small)
    check(NoisyLabelClassifier(epochs=30, batch_size=32), scorecard)


@pytest.mark.rel
@pytest.mark.nightly
@pytest.mark.parametrize("method", ["ln", "ce", "gce", "forward", "single-cm", "distill"])
def test_contract_by_method(method: str, scorecard: Callable[..., None]) -> None:
    """Scorecard 19: the same for several methods, with one network per fit; the test above searches."""
    check(NoisyLabelClassifier(method, weight_decay=0.0), scorecard)


@pytest.mark.rel
@pytest.mark.nightly
def test_contract_of_a_forest(scorecard: Callable[..., None]) -> None:
    """Scorecard 19: the same for the other network that the default may choose."""
    check(NoisyLabelClassifier(backbone="forest"), scorecard)


def test_importing_dubito_does_not_import_scikit_learn() -> None:
    code = "import sys, dubito, dubito.compose; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_frames_and_text_labels(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    frame = pd.DataFrame(X, columns=["width", "height"])
    names = pd.Series(np.array(["ant", "bee", "cat"])[y])
    fitted = NoisyLabelClassifier(**QUICK).fit(frame, names)
    assert fitted.feature_names_in_.tolist() == ["width", "height"]
    assert fitted.classes_.tolist() == ["ant", "bee", "cat"]
    assert fitted.score(frame, names) > 0.95
    p = fitted.predict_proba(frame)
    assert p.shape == (120, 3)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert (fitted.predict(frame) == fitted.classes_[p.argmax(1)]).all()
    assert [record["epoch"] for record in fitted.history_] == list(range(1, 11))


def test_repeatable_and_quiet_about_global_state(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = NoisyLabelClassifier(**QUICK).fit(X, y).predict_proba(X)
    NoisyLabelClassifier(epochs=1).fit(X, y)  # a new seed, from nobody's global generator
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()
    again = clone(NoisyLabelClassifier(**QUICK)).fit(X, y)
    assert (again.predict_proba(X) == first).all()
    other = clone(again).set_params(random_state=1).fit(X, y).predict_proba(X)
    assert not (other == first).all()
    # pickled as scikit-learn's users do; by us nothing is ever unpickled
    assert (pickle.loads(pickle.dumps(again)).predict_proba(X) == first).all()


def test_units_of_features_do_not_matter(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    units = np.array([1e6, 1e-6])
    plain = NoisyLabelClassifier(**QUICK).fit(X, y).predict_proba(X)
    scaled = NoisyLabelClassifier(**QUICK).fit(X * units + 5, y).predict_proba(X * units + 5)
    np.testing.assert_allclose(plain, scaled, atol=1e-3)


def test_weights_decide_which_labels_count(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """Every example twice, with its label and with a wrong one: the weighted copy wins."""
    X, y = blobs
    XX, yy = np.concatenate([X, X]), np.concatenate([y, (y + 1) % 3])
    weight = np.repeat([1.0, 0.01], len(X))
    quick = NoisyLabelClassifier("ce", **QUICK)
    assert quick.fit(XX, yy, sample_weight=weight).score(X, y) > 0.95
    assert quick.fit(XX, yy, sample_weight=weight[::-1]).score(X, (y + 1) % 3) > 0.95
    scaled = clone(quick).fit(XX, yy, sample_weight=8 * weight)  # only ratios matter
    np.testing.assert_array_equal(
        scaled.predict_proba(X), quick.fit(XX, yy, sample_weight=weight).predict_proba(X)
    )


def test_pipelines_searches_and_cross_validation(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    pipe = make_pipeline(MinMaxScaler(), NoisyLabelClassifier(**QUICK))
    found = cross_val_predict(pipe, X, y, cv=3, method="predict_proba")
    assert (found.argmax(1) == y).mean() > 0.9
    grid = GridSearchCV(pipe, {"noisylabelclassifier__method": ["ce", "gce:q=0.5"]}, cv=2).fit(X, y)
    assert grid.best_score_ > 0.9
    params = NoisyLabelClassifier("gce", cv=4, device="cpu").get_params()
    assert NoisyLabelClassifier(**params).get_params() == params


def test_works_inside_cleanlab(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    cleanlab = pytest.importorskip("cleanlab.classification")
    X, y = blobs
    given = y.copy()
    given[::10] = (given[::10] + 1) % 3
    learner = cleanlab.CleanLearning(NoisyLabelClassifier("ce", **QUICK), cv_n_folds=3, seed=0).fit(X, given)
    issues = learner.get_label_issues()
    assert (issues["is_label_issue"].to_numpy() == (given != y)).mean() > 0.97
    assert (learner.predict(X) == y).mean() > 0.95


def test_label_quality_finds_wrong_labels(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    given = y.copy()
    given[::10] = (given[::10] + 1) % 3
    fitted = NoisyLabelClassifier("gce", cv=4, **QUICK | {"epochs": 25}).fit(X, given)
    wrong = given != y
    assert fitted.label_quality_.shape == (120,)
    assert fitted.label_quality_[wrong].max() < 0.3 < 0.9 < fitted.label_quality_[~wrong].mean()
    by_splitter = clone(fitted).set_params(cv=KFold(3)).fit(X, given).label_quality_
    assert by_splitter[wrong].max() < 0.3 < 0.9 < by_splitter[~wrong].mean()
    with pytest.raises(DubitoError, match="held out once"):
        clone(fitted).set_params(cv=[(np.arange(60), np.arange(60, 120))]).fit(X, given)
    with pytest.raises(ValueError, match="groups"):
        clone(fitted).set_params(cv=GroupKFold(3)).fit(X, given)


@pytest.mark.parametrize("method", ["gce", "ln"])
def test_label_quality_is_a_probability(method: str) -> None:
    """The mean over labels is the share of them that is right, whatever the confidence of the method."""
    X, y = make_blobs(300, centers=[[-4, 0], [4, 0], [0, 6]], random_state=1)
    wrong = np.random.default_rng(0).random(len(y)) < 0.3
    for given in (y, np.where(wrong, (y + 1) % 3, y)):
        quality = NoisyLabelClassifier(method, cv=3, **QUICK).fit(X, given).label_quality_
        assert ((quality >= 0) & (quality <= 1)).all()
        assert abs(quality.mean() - (given == y).mean()) < 0.03


def test_label_quality_where_classes_cannot_be_told_apart_is_the_models_own_probability() -> None:
    from dubito._estimator_splits import label_quality

    rng = np.random.default_rng(0)
    labels, p = rng.integers(0, 2, 40), rng.uniform(0.3, 0.7, 40)  # pure chance
    probs = np.stack([p, 1 - p], 1)
    assert audit(labels, probs, bootstrap=0).informed < 0.5
    assert (label_quality(labels, probs) == np.where(labels == 0, p, 1 - p)).all()
    many = rng.dirichlet(np.ones(101), 202)
    assert (label_quality(np.arange(202) % 101, many) == [many[i, i % 101] for i in range(202)]).all()


def test_what_a_fit_does_not_have_is_said(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    fitted = NoisyLabelClassifier("ce", epochs=1).fit(*blobs)
    assert not hasattr(fitted, "label_quality_")
    with pytest.raises(DubitoError, match="pass cv=5"):
        _ = fitted.label_quality_
    with pytest.raises(DubitoError, match="no transition matrix"):
        _ = fitted.transition_matrix_
    given = NoisyLabelClassifier("backward:alpha=0.3", epochs=1).fit(*blobs)
    K = len(given.classes_)
    assert np.allclose(given.transition_matrix_, 0.7 * np.eye(K) + 0.3 / K)


def test_refusals(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    for options, message in (
        ({"method": "gcee"}, "gce"),
        ({"method": "coteaching"}, "rate"),
        ({"validation_fraction": 1.5}, "validation_fraction"),
        ({"cv": 1}, "number of folds"),
        ({"batch_size": 0}, "batch_size must be above 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0"),
        ({"backbone": "lenet5"}, "reads images"),
    ):
        with pytest.raises(DubitoError, match=message):
            NoisyLabelClassifier(epochs=1, **options).fit(X, y)
    with pytest.raises(DubitoError, match="epochs must be above 0"):
        NoisyLabelClassifier(epochs=0).fit(X, y)
    with pytest.raises(DubitoError, match="epochs must be above 0: got '5'"):
        NoisyLabelClassifier(epochs="5").fit(X, y)
    with pytest.raises(DubitoError, match="no method called 'auto'; auto is for `dubito fit`"):
        NoisyLabelClassifier("auto").fit(X, y)
    for mixed in (["a", 1] * 60, [1, "a"] * 60):
        with pytest.raises(
            DubitoError, match=r"one kind are needed.* at y: got int, str; make them all text"
        ):
            NoisyLabelClassifier().fit(X, np.array(mixed, dtype=object))
    with pytest.raises(DubitoError, match="one class"):
        NoisyLabelClassifier().fit(X, np.zeros(120))
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        NoisyLabelClassifier().fit(X, y, sample_weight=np.zeros(120))


def test_own_backbone_validation_and_images() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:200], y[:200]
    sizes = []

    def backbone(shape: tuple[int, ...], source: torch.Generator) -> torch.nn.Module:
        sizes.append(shape)
        return MLP(shape[0], (16,), generator=source)

    fitted = NoisyLabelClassifier(backbone=backbone, validation_fraction=0.2, **QUICK).fit(X, y)
    assert sizes == [(64,)]
    assert {"valid_accuracy", "loss"} <= fitted.history_[0].keys()
    images = X.reshape(-1, 1, 8, 8)
    fitted = NoisyLabelClassifier("ce", backbone="lenet5", **QUICK).fit(images, y)
    assert fitted.predict_proba(images).shape == (200, 10)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Digits with 40 % asymmetric noise on the training labels: X, noisy y, X of test, clean y of test."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    T = noise.asymmetric("mnist", 0.4)
    noisy = noise.corrupt(torch.tensor(y), T, generator=torch.Generator().manual_seed(0))
    return X, noisy.numpy(), X_test, y_test


def test_digits_with_asymmetric_noise(digits: tuple[np.ndarray, ...]) -> None:
    X, noisy, X_test, y_test = digits
    same = {"weight_decay": 0.0, "random_state": 0}  # the methods alone
    plain = NoisyLabelClassifier("ce", **same).fit(X, noisy).score(X_test, y_test)
    robust = NoisyLabelClassifier("ln:temperature=0.5", **same).fit(X, noisy).score(X_test, y_test)
    assert robust > plain + 0.05


@pytest.mark.nightly
@pytest.mark.parametrize(
    "method",
    [
        "smooth",
        "gce",
        "truncated-gce:start=10",
        "bi-tempered",
        "forward:percentile=97,at=below",
        "backward",
        "nan",
    ]
    + ["bootstrap", "coteaching:rate=0.2", "mentornet:rate=0.2", "distill", "single-cm", "het", "ln"],
)
def test_every_method_learns_digits(digits: tuple[np.ndarray, ...], method: str) -> None:
    X, noisy, X_test, y_test = digits
    fitted = NoisyLabelClassifier(method, validation_fraction=0.1, random_state=0).fit(X, noisy)
    assert fitted.score(X_test, y_test) > 0.6
