"""The estimator and its inputs: values far beyond all others, copies of an example, groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.model_selection import GroupKFold

from dubito.backbones import MLP
from dubito.errors import DubitoError
from dubito.sklearn import NoisyLabelClassifier

QUICK = {"epochs": 10, "batch_size": 32, "random_state": 0}


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(120, centers=[[-4, 0], [4, 0], [0, 6]], random_state=0)


@pytest.mark.parametrize("far", [1e3, 1e9, 1e30])
def test_a_slip_of_the_keyboard_sets_no_scale(blobs: tuple[np.ndarray, np.ndarray], far: float) -> None:
    X, y = blobs
    X2, y2 = np.concatenate([X, [[far, far]]]), np.append(y, 0)
    assert NoisyLabelClassifier(**QUICK | {"epochs": 40}).fit(X2, y2).score(X, y) > 0.95
    with pytest.raises(DubitoError, match=r"numbers too large to be told apart at X.*power of ten"):
        NoisyLabelClassifier(**QUICK).fit(X * 1e200, y)


def test_standardised_features_are_drawn_in() -> None:
    X = np.random.default_rng(0).normal(size=(50, 2)) * [1, 100]
    m, s = X.mean(0), X.std(0)
    fitted = NoisyLabelClassifier("ce", epochs=1).fit(X, np.arange(50) % 2)
    z = (X - m) / s
    np.testing.assert_allclose(fitted._inputs(X).numpy(), np.log(z + np.sqrt(z**2 + 1)), atol=1e-12)
    plain = NoisyLabelClassifier("ce", epochs=1, standardize=False).fit(X, np.arange(50) % 2)
    np.testing.assert_array_equal(plain._inputs(X).numpy(), X)


def test_copies_and_groups_are_judged_by_models_that_saw_none_of_them(
    blobs: tuple[np.ndarray, np.ndarray],
) -> None:
    """Cross-entropy learns copies by heart: a wrong label is found only if its copy is left out with it."""
    X, y = blobs
    given = y.copy()
    given[::10] = (given[::10] + 1) % 3
    hearty = NoisyLabelClassifier("ce", cv=3, **QUICK | {"epochs": 150})
    X2, given2, wrong = np.concatenate([X, X]), np.concatenate([given, given]), np.tile(given != y, 2)
    quality = hearty.fit(X2, given2).label_quality_
    assert np.median(quality[wrong]) < 0.05
    patients = np.array([f"patient {i % 30}" for i in range(120)])
    seen: list[set[str]] = []
    by_row = {tuple(x): p for x, p in zip(X.astype(np.float32).tolist(), patients)}

    def backbone(shape: tuple[int, ...], source: torch.Generator) -> torch.nn.Module:
        net = MLP(shape[0], (4,), generator=source)
        seen.append(set())
        net.register_forward_pre_hook(
            lambda m, x, mine=seen[-1]: (
                mine.update(by_row[tuple(r)] for r in x[0].tolist()) if m.training else None
            )
        )
        return net

    options = {"backbone": backbone, "standardize": False, "random_state": 0, "epochs": 1, "device": "cpu"}
    for cv in (3, GroupKFold(3)):
        seen.clear()
        NoisyLabelClassifier("ce", cv=cv, **options).fit(X, given, groups=patients)
        assert [len(s) for s in seen] == [30, 20, 20, 20]
    seen.clear()
    NoisyLabelClassifier("ce", validation_fraction=0.2, **options).fit(X, given, groups=patients)
    assert [len(s) for s in seen] == [24]
    with pytest.raises(ValueError, match="inconsistent"):
        NoisyLabelClassifier("ce", cv=3, **options).fit(X, given, groups=patients[:50])


def test_gaps_are_filled_by_medians_and_marked(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    rng = np.random.default_rng(0)
    holes = X.copy()
    holes[rng.random(len(X)) < 0.3, 0] = np.nan
    noise = rng.normal(size=(len(X), 1))
    holes = np.concatenate([holes, noise], axis=1)  # the last feature has gaps in new data only
    fitted = NoisyLabelClassifier(**QUICK | {"epochs": 40}).fit(holes, y)
    assert fitted.n_features_in_ == 3
    middle = np.nanmedian(holes[:, 0])
    by_hand = np.stack(
        [np.nan_to_num(holes[:, 0], nan=middle), X[:, 1], noise[:, 0], np.isnan(holes[:, 0])], 1
    )
    z = (by_hand - by_hand.mean(0)) / by_hand.std(0)
    torch.testing.assert_close(fitted._inputs(fitted._whole(holes)).numpy(), np.arcsinh(z))
    new = np.array([[np.nan, 6.0, np.nan], [np.nan, 6.0, np.median(noise)]])
    assert np.ptp(fitted.predict_proba(new), axis=0).max() == 0
    assert fitted.score(holes, y) > 0.85
    with pytest.raises(ValueError, match="infinity"):
        NoisyLabelClassifier(**QUICK).fit(np.where(np.isnan(holes), np.inf, holes), y)


def test_a_network_of_ones_own_takes_no_gaps(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    X = np.where(np.arange(len(X))[:, None] == 3, np.nan, X)
    with pytest.raises(ValueError, match="NaN"):
        NoisyLabelClassifier(backbone=lambda shape, g: MLP(shape[0], (4,), generator=g), **QUICK).fit(X, y)


def test_missing_labels_are_told_with_their_place(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    words = np.array(["a", "b", "c"], dtype=object)[y]
    words[[7, 9]] = None
    with pytest.raises(DubitoError, match=r"no label given at y\[7\]: got 2 of 120 missing; leave those"):
        NoisyLabelClassifier(**QUICK).fit(X, words)
