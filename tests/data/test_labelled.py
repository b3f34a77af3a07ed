"""The in-memory set: sharing, subsets, splits, normalisation, noise by index."""

from __future__ import annotations

import math

import pytest
import torch

from dubito import DubitoError
from dubito._batches import Batches
from dubito.data import LabelledData, Triplets, normalise, with_noise
from dubito.noise import resample


def small(n=20, **more):
    return LabelledData(
        torch.arange(n * 12, dtype=torch.uint8).view(n, 3, 2, 2),
        torch.arange(n) % 4,
        clean=(torch.arange(n) + 1) % 4,
        ids=[f"row {i}" for i in range(n)],
        mean=(0.1, 0.2, 0.3),
        std=(0.5, 0.6, 0.7),
        extra={"photo": torch.arange(n) // 3},
        **more,
    )


def test_subset_shares_inputs_and_keeps_everything_aligned():
    data = small()
    part = data.subset([7, 3, 3]).subset(torch.tensor([1, 0]))
    assert part.inputs is data.inputs
    assert part.rows.tolist() == [3, 7]
    assert part.labels.tolist() == [3, 3]
    assert part.clean.tolist() == [0, 0]
    assert part.ids == ["row 3", "row 7"]
    assert part.extra["photo"].tolist() == [1, 2]
    assert torch.equal(part.gather(torch.tensor([1])), data.inputs[7:8])


def test_a_mask_keeps_the_examples_where_it_is_true():
    data = small()
    for mask in (data.labels == 2, (data.labels == 2).numpy(), (data.labels == 2).tolist()):
        assert data.subset(mask).ids == ["row 2", "row 6", "row 10", "row 14", "row 18"]
    assert len(data.subset(torch.zeros(20, dtype=torch.bool))) == 0


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (torch.ones(3, dtype=torch.bool), "each example at data: expected 20, got 3"),
        (torch.tensor([0.0, 1.0]), "no positions of examples at data: .* got torch.float32"),
        (torch.tensor([[0], [1]]), r"no positions of examples at data: .* of shape \(2, 1\)"),
        (3, "no positions of examples"),
        ([0, 20], r"no such example at data, positions\[1\]: expected 0 to 19, got 20"),
        ([-1], "no such example at data, .*got -1"),
    ],
)
def test_refuses_positions_that_name_no_example(positions, message):
    with pytest.raises(DubitoError, match=message):
        small().subset(positions)


def test_batch_normalises_images_and_features():
    data = small()
    expected = (data.inputs[[4]].double() / 255 - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor(
        [0.5, 0.6, 0.7]
    ).view(3, 1, 1)
    assert torch.allclose(data.batch(torch.tensor([4])).double(), expected, atol=1e-6)
    raw = data.with_statistics(None, None)
    assert torch.equal(raw.batch(torch.tensor([4])), data.inputs[[4]] / 255)
    features = LabelledData(torch.tensor([[1.0, 4.0]]), torch.zeros(1), mean=(1.0, 2.0), std=(1.0, 4.0))
    assert features.batch(torch.tensor([0])).tolist() == [[0.0, 0.5]]
    assert normalise(torch.zeros(2, 3, dtype=torch.float64)).dtype == torch.float64
    assert normalise(torch.zeros(2, 3, dtype=torch.float16)).dtype == torch.float32


def test_split_is_disjoint_deterministic_and_keyed():
    data = small()
    a, b = data.split(15, 5, seed=1)
    assert sorted(a.rows.tolist() + b.rows.tolist()) == list(range(20))
    assert a.rows.tolist() == data.split(15, 5, seed=1)[0].rows.tolist()
    assert a.rows.tolist() != data.split(15, 5, seed=2)[0].rows.tolist()
    assert a.rows.tolist() != data.split(15, 5, seed=1, purpose="other")[0].rows.tolist()
    assert [len(p) for p in data.split(0.5, 0.25, 0.25, seed=0)] == [10, 5, 5]
    assert len(data.split(3, seed=0)[0]) == 3


def test_grouped_split_cuts_no_group():
    data = small(200)
    a, b = data.split(150, 50, seed=0, groups=data.extra["photo"])
    assert not set(a.extra["photo"].tolist()) & set(b.extra["photo"].tolist())
    assert len(a) + len(b) == 200
    assert abs(len(a) - 150) < 3
    only = data.split(100, seed=0, groups=data.extra["photo"])[0]
    assert abs(len(only) - 100) < 3


def test_crowd_triplets_follow_their_items():
    crowd = Triplets(torch.tensor([0, 0, 2, 5]), torch.tensor([0, 1, 1, 0]), torch.tensor([3, 2, 1, 0]))
    part = small(crowd=crowd, annotators=("ann", "bob")).subset([5, 0])
    assert [t.tolist() for t in part.crowd] == [[1, 1, 0], [0, 1, 0], [3, 2, 0]]


def test_every_copy_of_an_example_has_its_crowd_labels():
    crowd = Triplets(torch.tensor([2, 0, 2, 5]), torch.tensor([0, 1, 1, 0]), torch.tensor([3, 2, 1, 0]))
    positions = [5, 2, 2, 7, 2, 0]
    part = small(crowd=crowd).subset(positions)
    wanted = [
        (place, int(who), int(label))
        for place, position in enumerate(positions)
        for item, who, label in zip(*crowd)
        if int(item) == position
    ]
    assert sorted(zip(*(t.tolist() for t in part.crowd))) == wanted


def test_other_labels_take_the_place_of_the_crowd():
    """A fit reads the crowd's labels where there are any, so it would not see the new ones."""
    crowd = Triplets(*(torch.tensor([v]) for v in (0, 0, 1)))
    new = torch.zeros(20, dtype=torch.int64)
    relabelled = small(crowd=crowd).with_labels(new)
    assert relabelled.crowd is None
    seen = Batches(relabelled)(torch.arange(20))
    assert torch.equal(seen.y, new)
    assert seen.annotators is None


@pytest.mark.rel
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clean": torch.zeros(3)}, "clean and labels differ in length"),
        ({"inputs": torch.zeros(3, 2)}, "inputs and labels differ in length"),
        ({"ids": ["a"]}, "ids and labels differ in length"),
        ({"extra": {"photo": torch.zeros(3)}}, "photo and labels differ in length"),
        ({"clean": torch.zeros(20, 2)}, "clean labels differ in shape"),
        ({"std": (1.0,)}, "mean and std go together"),
        (
            {"mean": (0.0, math.nan), "std": (1.0, 1.0)},
            r"the mean is not finite at data\.mean: got \(0.0, nan\)",
        ),
        ({"mean": (0.0, math.inf), "std": (1.0, 1.0)}, r"the mean is not finite at data\.mean"),
        ({"mean": (0.0, 0.0), "std": (math.nan, 1.0)}, r"the std is not finite at data\.std"),
    ],
)
def test_refuses_what_does_not_fit(change, message):
    """Scorecard 13: wrong lengths are refused before the first step."""
    parts = {"inputs": torch.zeros(20, 2), "labels": torch.zeros(20)} | change
    with pytest.raises(DubitoError, match=message):
        LabelledData(**parts)


@pytest.mark.parametrize("sizes", [(), (21,), (10, 0.5), (-1, 5), (0.7, 0.5)])
def test_refuses_split_sizes_that_do_not_fit(sizes):
    with pytest.raises(DubitoError, match="split sizes"):
        small().split(*sizes, seed=0)


def test_number_of_classes():
    assert small().num_classes == 4
    assert small(classes=tuple("abcdef")).num_classes == 6
    crowd = Triplets(*(torch.tensor([v]) for v in (0, 0, 6)))
    none_given = LabelledData(torch.zeros(1, 1), torch.tensor([-1]), crowd=crowd)
    assert none_given.num_classes == 7


def test_moving_keeps_everything():
    crowd = Triplets(*(torch.tensor([v]) for v in (0, 0, 1)))
    moved = small(crowd=crowd).subset([1, 0]).to("cpu")
    assert moved.gather(torch.tensor([0])).shape == (1, 3, 2, 2)
    assert moved.crowd.item.tolist() == [1]


class Squares:
    """Inputs made when asked for."""

    def __len__(self):
        return 20

    def __getitem__(self, rows):
        return (rows**2).float().unsqueeze(-1)


def test_lazy_inputs():
    data = LabelledData(Squares(), torch.zeros(20, dtype=torch.int64)).to("cpu").subset([5, 3])
    assert data.batch(torch.tensor([1, 0])).flatten().tolist() == [9.0, 25.0]


def test_noise_belongs_to_the_example():
    T = resample(4, 0.5)
    data = LabelledData(torch.zeros(4000, 1), torch.arange(4000) % 4)
    noisy = with_noise(data, T, seed=1)
    assert torch.equal(noisy.clean, data.labels)
    assert 0.30 < float((noisy.labels != noisy.clean).double().mean()) < 0.45
    part = data.subset(torch.arange(3999, -1, -7))
    assert torch.equal(with_noise(part, T, seed=1).labels, noisy.labels[part.rows])
    assert not torch.equal(with_noise(data, T, seed=2).labels, noisy.labels)
    assert not torch.equal(with_noise(data, T, seed=1, purpose="test").labels, noisy.labels)
    twice = with_noise(noisy, T, seed=3)
    assert torch.equal(twice.clean, data.labels)


def test_noise_on_pixels_leaves_void_alone():
    labels = torch.randint(0, 4, (10, 8, 9), generator=torch.Generator().manual_seed(0))
    labels[:, 0] = -100
    data = LabelledData(torch.zeros(10, 3, 8, 9, dtype=torch.uint8), labels)
    noisy = with_noise(data, resample(4, 1.0), seed=0)
    assert (noisy.labels[:, 0] == -100).all()
    changed = noisy.labels[:, 1:] != labels[:, 1:]
    assert 0.6 < float(changed.double().mean()) < 0.9
    assert torch.equal(with_noise(data.subset([4]), resample(4, 1.0), 0).labels[0], noisy.labels[4])


def test_noise_on_nothing():
    data = LabelledData(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64))
    assert len(with_noise(data, resample(4, 0.5), seed=0)) == 0
