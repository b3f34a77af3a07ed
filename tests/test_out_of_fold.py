"""Cross-fitting: no example is judged by a model that saw it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dubito import heads, noise
from dubito._random import permutation
from dubito.data import LabelledData
from dubito.data._alike import alike
from dubito.data._labelled import Triplets
from dubito.errors import DubitoError
from dubito.estimate import anchor_transition, fold_numbers, label_log_quality, out_of_fold
from dubito.model import Model


def numbered(labels: list[int] | Tensor, **more) -> LabelledData:
    """Examples whose only feature is their number."""
    y = torch.as_tensor(labels)
    return LabelledData(torch.arange(len(y), dtype=torch.float32).unsqueeze(1), y, **more)


def seen(data: LabelledData) -> set[int]:
    return set(data.batch(torch.arange(len(data))).flatten().int().tolist())


@pytest.mark.parametrize("folds", [2, 3, 10])
def test_every_example_is_judged_once_by_a_model_that_did_not_see_it(folds: int) -> None:
    data = numbered(torch.arange(10) % 3)
    asked: list[set[int]] = []

    def predict(trained_on: set[int], held_out: LabelledData) -> Tensor:
        asked.append(seen(held_out))
        assert not asked[-1] & trained_on
        assert asked[-1] | trained_on == set(range(10))
        return held_out.batch(torch.arange(len(held_out)))

    found = out_of_fold(seen, data, folds=folds, predict=predict)
    assert found.flatten().tolist() == list(range(10))  # in the order of the data
    assert len(asked) == folds
    assert sum(map(len, asked)) == 10


def test_folds_are_stratified_and_keyed_by_the_seed() -> None:
    data = numbered(torch.tensor([0] * 31 + [1] * 7 + [2] * 15)[torch.randperm(53)])
    number = fold_numbers(data, folds=5, seed=1)
    for k in range(3):
        counts = torch.bincount(number[data.labels == k], minlength=5)
        assert int(counts.max() - counts.min()) <= 1
    sizes = torch.bincount(number)
    assert int(sizes.max() - sizes.min()) <= 1
    assert torch.equal(number, fold_numbers(data, folds=5, seed=1))
    assert not torch.equal(number, fold_numbers(data, folds=5, seed=2))


def test_crowd_items_are_left_out_whole() -> None:
    item = torch.arange(12).repeat_interleave(3)
    crowd = Triplets(item, torch.arange(3).repeat(12), (item % 2).long())
    data = numbered([-1] * 12, crowd=crowd)

    def predict(rest: LabelledData, held_out: LabelledData) -> Tensor:
        assert len(rest.crowd.item) == 3 * len(rest)
        assert len(held_out.crowd.item) == 3 * len(held_out)
        assert not seen(rest) & seen(held_out)
        return torch.zeros(len(held_out), 2)

    out_of_fold(lambda rest: rest, data, folds=4, predict=predict)
    number = fold_numbers(data, folds=3)
    for k in range(2):  # by the most frequent label
        assert torch.bincount(number[torch.arange(12) % 2 == k]).tolist() == [2, 2, 2]


def test_folds_may_be_given() -> None:
    number = torch.tensor([0, 0, 1, 2, 1, 2])
    parts = []
    out_of_fold(seen, numbered([0, 1] * 3), folds=number, predict=lambda rest, part: parts.append(seen(part)) or
                torch.zeros(len(part), 2))  # fmt: skip
    assert parts == [{0, 1}, {2, 4}, {3, 5}]


def test_a_class_that_a_fold_lacks_keeps_its_column() -> None:
    data = numbered([0, 0, 0, 1, 1, 2])
    sizes = []

    def train(rest: LabelledData) -> Model:
        sizes.append(rest.num_classes)
        return Model(nn.Identity(), heads.Point(1, rest.num_classes))

    found = out_of_fold(train, data, folds=3)
    assert sizes == [3, 3, 3]
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(6))


def test_a_memoriser_betrays_the_noise_only_out_of_fold() -> None:
    """In sample a nearest neighbour calls every label right; out of fold it shows the transition matrix."""
    source = torch.Generator().manual_seed(0)
    truth = torch.arange(4000) % 2
    T = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    x = truth.double() + 0.2 * torch.rand(4000, generator=source)
    data = LabelledData(x.unsqueeze(1), noise.corrupt(truth, T, generator=source))

    def neighbours(rest: LabelledData, held_out: LabelledData, count: int) -> Tensor:
        a, b = (part.batch(torch.arange(len(part))).flatten() for part in (held_out, rest))
        nearest = (a[:, None] - b[None, :]).abs().topk(count, largest=False).indices
        return nn.functional.one_hot(rest.labels[nearest], 2).double().mean(1).log()

    out = out_of_fold(lambda rest: rest, data, predict=lambda a, b: neighbours(a, b, 400))
    torch.testing.assert_close(anchor_transition(out.exp(), 75.0), T, atol=0.06, rtol=0)
    in_sample = neighbours(data, data, 1)
    assert torch.equal(anchor_transition(in_sample.exp()), torch.eye(2, dtype=torch.float64))


def test_quality_is_bayes_rule() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    T = np.array([[0.8, 0.2, 0.0], [0.1, 0.9, 0.0], [0.0, 0.5, 0.5]])
    labels = torch.tensor([1, 2])
    log_p = torch.from_numpy(p).log()
    expected = [p[i, y] * T[y, y] / sum(p[i, k] * T[k, y] for k in range(3)) for i, y in enumerate([1, 2])]
    found = label_log_quality(log_p, labels, torch.from_numpy(T)).exp()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(label_log_quality(log_p, labels).exp().numpy(), [0.2, 0.8], rtol=1e-12)
    assert label_log_quality(log_p, torch.tensor([-1, 2])).isnan().tolist() == [True, False]
    with pytest.raises(DubitoError, match="T does not fit"):
        label_log_quality(log_p, labels, torch.eye(2))


def test_refusals() -> None:
    data = numbered([0, 1, 0, 1])
    for folds in (0, 1, 5):
        with pytest.raises(DubitoError, match="2 to 4"):
            out_of_fold(seen, data, folds=folds)
    with pytest.raises(DubitoError, match="folds do not fit"):
        out_of_fold(seen, data, folds=torch.zeros(4, dtype=torch.int64))
    with pytest.raises(DubitoError, match="expected 2, got 1"):
        out_of_fold(seen, data, folds=2, predict=lambda *_: torch.zeros(1, 2))
    with pytest.raises(DubitoError, match="pass predict="):
        out_of_fold(seen, data, folds=2)


def test_labels_that_were_not_given_and_several_masks() -> None:
    item = torch.arange(12).repeat_interleave(2)
    label = torch.where(item % 2 == 1, 0, 1)
    label[1::2] = -1  # the second label of each item was not given
    data = numbered(
        [-1] * 12, crowd=Triplets(item, torch.arange(2).repeat(12), label), classes=("a", "b", "c")
    )
    number = fold_numbers(data, folds=3, seed=0)
    assert [int((number[::2] == f).sum()) for f in range(3)] == [2, 2, 2]  # items of one class, dealt evenly
    masks = torch.zeros(24, 4, 4, dtype=torch.int64)
    pictures = LabelledData(
        torch.zeros(12, 1, 4, 4),
        torch.full((12, 4, 4), -1),
        crowd=Triplets(item, torch.arange(2).repeat(12), masks),
        classes=("a", "b"),
    )
    assert torch.bincount(fold_numbers(pictures, folds=4, seed=0)).tolist() == [3, 3, 3, 3]


def copied(times: Tensor, seed: int = 0) -> tuple[LabelledData, Tensor]:
    """Inputs that occur so many times each, in any order, and which of them each example has."""
    source = torch.Generator().manual_seed(seed)
    which = torch.arange(len(times)).repeat_interleave(times)
    which = which[torch.randperm(len(which), generator=source)]
    x = torch.randn(len(times), 3, generator=source)
    return LabelledData(x[which], which % 3), which


@pytest.mark.parametrize("upsampled", [False, True])
def test_copies_of_an_input_are_in_one_fold_and_folds_stay_even(upsampled: bool) -> None:
    times = torch.full((120,), 2)
    if upsampled:
        times[::3] = 7  # all of class 0
    data, which = copied(times)
    number = fold_numbers(data, folds=4, seed=3)
    for w in range(120):
        assert len(number[which == w].unique()) == 1
    for k in range(3):  # 40 inputs per class, ten in every fold
        assert torch.bincount(number[data.labels == k]).tolist() == [10 * int(times[k])] * 4

    def predict(rest: LabelledData, held_out: LabelledData) -> Tensor:
        a, b = (set(map(tuple, p.batch(torch.arange(len(p))).tolist())) for p in (rest, held_out))
        assert not a & b
        return torch.zeros(len(held_out), 3)

    out_of_fold(lambda rest: rest, data, folds=4, predict=predict)


def test_data_without_copies_keeps_the_folds_it_had() -> None:
    """Dealt as before copies were looked for, here written out."""
    y = torch.arange(90) % 4
    order = permutation(90, 5, purpose="folds")
    expected = torch.empty(90, dtype=torch.int64)
    expected[order[torch.sort(y[order], stable=True).indices]] = torch.arange(90) % 4
    assert torch.equal(fold_numbers(numbered(y), folds=4, seed=5), expected)


def test_groups_stay_together_and_few_patterns_are_no_copies() -> None:
    group = torch.arange(60) % 12
    data = numbered(torch.arange(60) % 2, extra={"group": group})
    number = fold_numbers(data, folds=3)
    assert all(len(number[group == g].unique()) == 1 for g in range(12))
    assert torch.bincount(number).tolist() == [20, 20, 20]
    with pytest.raises(DubitoError, match=r"fewer groups than folds.*2 to 12 folds"):
        fold_numbers(data, folds=13)
    patterns = LabelledData((torch.arange(200) % 4).float().unsqueeze(1), torch.arange(200) % 2)
    number = fold_numbers(patterns, folds=2)
    assert len(number[patterns.inputs[:, 0] == 0].unique()) == 2


def test_images_and_zeros_of_either_sign_are_alike() -> None:
    pictures = torch.randint(0, 256, (60, 1, 4, 4), dtype=torch.uint8)
    twice = LabelledData(torch.cat([pictures, pictures]), torch.arange(120) % 2)
    assert torch.equal(alike(twice), torch.arange(60).repeat(2))
    x = torch.arange(60.0).unsqueeze(1)
    signed = LabelledData(torch.cat([x, -x[:1]]), torch.arange(61) % 2)
    assert alike(signed).tolist()[-1] == 0
    assert alike(twice.subset(torch.arange(60))) is None
