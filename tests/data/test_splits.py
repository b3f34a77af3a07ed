"""The splits of the papers."""

from __future__ import annotations

import pytest
import torch

from dubito import DubitoError
from dubito.data import PROTOCOLS, LabelledData
from dubito.data.splits import englesson_mnist, lukasik_cifar


def empty_set(n, **extra):
    return LabelledData(torch.zeros(n, 0), torch.zeros(n, dtype=torch.int64), extra=extra)


@pytest.mark.paper("englesson2023 table 1", "collier2020 table 1", "tanno2019 table 1")
@pytest.mark.parametrize(
    ("name", "n", "train", "validation"),
    [
        ("englesson-mnist", 60_000, 45_000, 5_000),
        ("englesson-cifar", 50_000, 45_000, 5_000),
        ("collier-mnist", 60_000, 50_000, 10_000),
        ("collier-cifar10", 50_000, 40_000, 10_000),
        ("collier-svhn", 73_257, 63_257, 10_000),
        ("tanno", 60_000, 54_000, 6_000),
    ],
)
def test_sizes(name, n, train, validation):
    a, b = PROTOCOLS[name](empty_set(n), 3)
    assert (len(a), len(b)) == (train, validation)
    assert len(set(a.rows.tolist()) | set(b.rows.tolist())) == train + validation
    again = PROTOCOLS[name](empty_set(n), 3)[0]
    assert torch.equal(a.rows, again.rows)
    assert not torch.equal(a.rows, PROTOCOLS[name](empty_set(n), 4)[0].rows)


@pytest.mark.paper("englesson2023 table 1")
def test_englesson_mnist_never_looks_at_the_last_ten_thousand():
    a, b = englesson_mnist(empty_set(60_000), 0)
    assert int(torch.cat([a.rows, b.rows]).max()) == 49_999


@pytest.mark.paper("lukasik2020 sec. B.2")
def test_lukasik_trains_on_everything():
    data = empty_set(50_000)
    assert lukasik_cifar(data) == (data, None)


def test_digits_of_one_photo_stay_together():
    photo = torch.arange(1600) // 3
    a, b = PROTOCOLS["collier-svhn"](empty_set(1600, source_number=photo), 0)
    assert not set(a.extra["source_number"].tolist()) & set(b.extra["source_number"].tolist())
    assert abs(len(b) - 218) < 6


def test_refuses_a_part_of_the_set():
    with pytest.raises(DubitoError, match="expected 60000 examples, got 100"):
        englesson_mnist(empty_set(100), 0)
