"""A forest as a network: what its trees say, what they may not say of rows they have seen, and how it is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier

from dubito.backbones import Forest
from dubito.backbones.forest import BAG, DOUBT, _bags
from dubito.errors import DubitoError


@pytest.fixture(scope="module")
def steps() -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes by two thresholds, a fifth of the labels drawn anew."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    y = (x[:, 0] > 0.2).astype(int) + (x[:, 1] > -0.3)
    y = np.where(rng.random(400) < 0.2, rng.integers(0, 3, 400), y)
    return torch.from_numpy(x), torch.from_numpy(y)


def test_it_is_the_mean_of_its_trees(steps) -> None:
    x, y = steps
    forest = Forest.grow(x, y, 4, trees=7, leaf=3, generator=torch.Generator().manual_seed(5)).eval()
    seeds = torch.randint(2**31 - 1, (7,), generator=torch.Generator().manual_seed(5)).tolist()
    p = np.zeros((len(x), 4))  # of a fourth class there are no labels
    for seed, bag in zip(seeds, _bags(x, 7, BAG).T.numpy()):
        tree = DecisionTreeClassifier(min_samples_leaf=3, max_features=3, random_state=seed)
        p[:, :3] += tree.fit(x.numpy()[bag], y.numpy()[bag]).predict_proba(x.numpy()) / 7
    np.testing.assert_allclose(forest(x).exp(), (1 - DOUBT) * p + DOUBT / 4, atol=1e-6)
    np.testing.assert_allclose(forest.double()(x.double()).exp().sum(1), 1, atol=1e-6)


def test_in_training_no_tree_judges_what_it_has_seen() -> None:
    """Labels by the toss of a coin: known by heart to all trees, unknown to those that have not seen them."""
    rng = np.random.default_rng(1)
    x, y = torch.from_numpy(rng.normal(size=(600, 4))).float(), torch.from_numpy(rng.integers(0, 2, 600))
    forest = Forest.grow(x, y, 2, leaf=1)
    heart, honest = (
        float((forest.train(training)(x).argmax(1) == y).double().mean()) for training in (False, True)
    )
    assert heart > 0.95
    assert abs(honest - 0.5) < 4 * 0.5 / 600**0.5


def test_who_has_seen_a_row_is_told_by_the_row_alone(steps) -> None:
    x, _ = steps
    seen = _bags(x, 60, BAG)
    assert torch.equal(_bags(x[100:101], 60, BAG)[0], seen[100])
    assert torch.equal(_bags(torch.zeros(1, 5), 60, BAG), _bags(-torch.zeros(1, 5), 60, BAG))
    share = seen.double().mean(0)
    assert abs(float(share.mean()) - BAG) < 0.01
    assert float(share.std()) < 0.05
    apart = np.corrcoef(seen.double().T.numpy())[np.triu_indices(60, 1)]
    assert abs(apart.mean()) < 0.01  # trees know different rows
    assert abs(apart).max() < 0.25


def test_leaves_are_larger_where_many_labels_are_wrong() -> None:
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.normal(size=(800, 4))).float()
    true = (x[:, 0] > 0).long()
    wrong = torch.from_numpy(rng.random(800) < 0.35)
    good, bad = (Forest.grow(x, y, 2) for y in (true, torch.where(wrong, 1 - true, true)))
    few = Forest.grow(x, torch.where(wrong, 1 - true, true), 2, leaf=4)
    assert len(good.value) < len(few.value)  # pure leaves need no more splits
    assert len(bad.value) < len(few.value) / 2


def test_a_saved_forest_is_the_same_whatever_its_size(steps) -> None:
    x, y = steps
    forest = Forest.grow(x, y, 3, trees=9).eval()
    empty = Forest(5, 3)
    empty.load_state_dict(forest.state_dict())
    assert torch.equal(empty.eval()(x), forest(x))
    assert empty.depth == forest.depth > 1


def test_an_empty_forest_and_one_without_labels_are_refused(steps) -> None:
    x, y = steps
    with pytest.raises(DubitoError, match="needs labels"):
        Forest.grow(x, torch.full_like(y, -1), 3)
    with pytest.raises(DubitoError, match="no trees"):
        Forest(5, 3)(x)


def test_weights_decide_which_labels_count(steps) -> None:
    x, y = steps
    both, labels = torch.cat([x, x + 1e-3]), torch.cat([y, (y + 1) % 3])
    heavy = torch.cat([torch.ones(400), torch.full((400,), 0.01)])
    said = Forest.grow(both, labels, 3, weight=heavy).eval()(x).argmax(1)
    alone = Forest.grow(x, y, 3).eval()(x).argmax(1)
    assert float((said == alone).double().mean()) > 0.85


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        ([0, 1, 2, 0], {}, "labels do not fit at labels: expected 4 classes below 2, got 4 up to 2"),
        ([0, 1, 0], {}, "labels do not fit at labels: expected 4 classes below 2, got 3 up to 1"),
        ([0, 1, 1, 0], {"trees": 0}, "trees is too small"),
        ([0, 1, 1, 0], {"leaf": 0}, "leaf is too small"),
    ],
)
def test_what_cannot_grow_is_refused(labels, options, sentence):
    with pytest.raises(DubitoError, match=sentence):
        Forest.grow(torch.zeros(4, 3), torch.tensor(labels), 2, **options)


def test_a_forest_has_features_and_classes():
    for sizes in ((0, 2), (3, -1)):
        with pytest.raises(DubitoError, match="is too small"):
            Forest(*sizes)
