"""Weight decay of small networks: what is taken in doubt, and what a default saves on a small noisy table."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine, make_blobs, make_classification
from sklearn.model_selection import train_test_split

from dubito._decay import FEWEST, SMALL, last_near_best
from dubito.backbones import Forest
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.sklearn import NoisyLabelClassifier


def test_the_last_within_one_standard_error_is_taken() -> None:
    """100 examples; b is 4 points behind a by 10 lost and 6 won, c is 9 behind by 9 lost."""
    a = np.r_[np.ones(60), np.zeros(40)]
    b, c = a.copy(), a.copy()
    b[:10], b[60:66] = 0, 1
    c[:9] = 0
    error_b = math.sqrt((16 / 100 - 0.04**2) / 100)  # of a - b, which is 1 ten times and -1 six times
    error_c = math.sqrt((9 / 100 - 0.09**2) / 100)
    assert error_b < 0.04
    assert error_c < 0.09
    assert last_near_best({"a": a, "b": b, "c": c}) == "a"
    b[66] = 1  # now 3 behind
    assert math.sqrt((17 / 100 - 0.03**2) / 100) > 0.03
    assert last_near_best({"a": a, "b": b, "c": c}) == "b"
    assert last_near_best({"c": c, "b": b, "a": a}) == "a"
    assert last_near_best({"a": a, "same": a.copy()}) == "same"


def test_a_small_noisy_table_is_not_learned_by_heart() -> None:
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(1)
    noisy = np.where(rng.random(len(y)) < 0.4, (y + rng.integers(1, 3, len(y))) % 3, y)
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=0, stratify=y)
    default = NoisyLabelClassifier(random_state=0, device="cpu").fit(X[train], noisy[train])
    free = NoisyLabelClassifier(weight_decay=0.0, random_state=0, device="cpu").fit(X[train], noisy[train])
    assert default.weight_decay_ > 0
    assert free.weight_decay_ == 0
    # A network that has learned its labels by heart gives them back.
    assert free.score(X[train], noisy[train]) > default.score(X[train], noisy[train]) + 0.2
    assert default.score(X[test], y[test]) > free.score(X[test], y[test]) + 0.1


def test_a_network_is_not_held_back_where_it_is_needed_whole() -> None:
    """Four corners, opposite ones alike, with good labels: strong decay leaves nothing of the product."""
    X, corner = make_blobs(200, centers=[[0, 0], [1, 1], [0, 1], [1, 0]], cluster_std=0.15, random_state=0)
    y = corner // 2
    fitted = NoisyLabelClassifier(random_state=0, device="cpu").fit(X, y)
    assert fitted.score(X, y) > 0.95


def trained_sizes(n: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many examples each network of a fit to n examples is trained on."""
    from dubito import sklearn as module

    sizes: list[int] = []
    real = module.train_method
    monkeypatch.setattr(module, "train_method", lambda *a, **k: sizes.append(len(a[3])) or real(*a, **k))
    X = np.random.default_rng(0).normal(size=(n, 2))
    fitted = NoisyLabelClassifier(epochs=1, device="cpu", random_state=0).fit(X, X[:, 0] > 0)
    assert len(sizes) > 1 or (fitted.network_, fitted.weight_decay_) == ("perceptron", 0)
    return sizes


@pytest.mark.parametrize("n", [FEWEST - 1, 2500])
def test_too_few_and_very_many_examples_are_trained_once(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dubito._decay.LARGE", 2500)
    assert trained_sizes(n, monkeypatch) == [n]


def test_many_examples_are_judged_by_a_thousand_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2,000 three folds of 400 are left out, of 5,000 one of 1,000, each under three decays and for a forest."""
    assert SMALL == 2000
    assert trained_sizes(SMALL, monkeypatch) == [1600] * 12 + [2000]
    assert trained_sizes(5000, monkeypatch) == [4000] * 4 + [5000]


def test_a_larger_noisy_table_is_not_learned_by_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a forest is no help: here it knows one class."""

    def of_one_class(data: LabelledData, K: int, source: torch.Generator) -> Forest:
        return Forest.grow(data.batch(torch.arange(len(data))), torch.zeros_like(data.labels), K, trees=3)

    monkeypatch.setattr("dubito.sklearn.forest_of", of_one_class)
    X, y = make_classification(3500, 20, n_informative=8, n_classes=3, class_sep=1.2, random_state=5)
    rng = np.random.default_rng(1)
    noisy = np.where(rng.random(len(y)) < 0.4, (y + rng.integers(1, 3, len(y))) % 3, y)
    default = NoisyLabelClassifier(random_state=0, device="cpu").fit(X[:2500], noisy[:2500])
    free = NoisyLabelClassifier(weight_decay=0.0, random_state=0, device="cpu").fit(X[:2500], noisy[:2500])
    assert default.weight_decay_ > 0
    assert default.score(X[2500:], y[2500:]) > free.score(X[2500:], y[2500:]) + 0.05


def test_weight_decay_below_nothing_is_refused() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(DubitoError, match="weight decay"):
        NoisyLabelClassifier(weight_decay=-0.1).fit(X, X[:, 0] > 0)
