"""The train and validation splits of the papers, each a function of the training set and the seed."""

from __future__ import annotations

import torch

from ..errors import DubitoError
from ._labelled import LabelledData


def englesson_mnist(train: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """45,000 / 5,000 of the first 50,000 training images, permuted with the seed; the other 10,000 unused.

    The released code takes one batch of 50,000 and never looks at the rest.

    Reference:
        englesson2023 table 1
    """
    _check(train, 60_000)
    return _pair(train.subset(torch.arange(50_000)), 45_000, 5_000, seed)


def englesson_cifar(train: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """45,000 / 5,000 of the 50,000 training images of CIFAR-10, CIFAR-100 or CIFAR-N.

    Reference:
        englesson2023 table 1
    """
    _check(train, 50_000)
    return _pair(train, 45_000, 5_000, seed)


def collier_mnist(train: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """50,000 / 10,000 of the 60,000 training images.

    Reference:
        collier2020 table 1
    """
    _check(train, 60_000)
    return _pair(train, 50_000, 10_000, seed)


def collier_cifar10(train: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """40,000 / 10,000 of the 50,000 training images.

    Reference:
        collier2020 table 1
    """
    _check(train, 50_000)
    return _pair(train, 40_000, 10_000, seed)


def collier_svhn(train: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """63,257 / 10,000 of the 73,257 training digits, or the same share of another number of digits.

    Where the photo of each digit is known (`extra["source_number"]`), digits of one photo stay together,
    which makes the sizes approximate.

    Reference:
        collier2020 table 1
    """
    held_out = round(len(train) * 10_000 / 73_257)
    return _pair(train, len(train) - held_out, held_out, seed, groups=train.extra.get("source_number"))


def lukasik_cifar(train: LabelledData, seed: int = 0) -> tuple[LabelledData, None]:
    """All 50,000 training images and no validation set; the seed changes nothing.

    Reference:
        lukasik2020 sec. B.2
    """
    _check(train, 50_000)
    return train, None


def tanno(train: LabelledData, seed: int) -> tuple[LabelledData, LabelledData]:
    """A tenth of the training images held out.

    Reference:
        tanno2019 table 1
    """
    held_out = len(train) // 10
    return _pair(train, len(train) - held_out, held_out, seed)


PROTOCOLS = {
    "collier-cifar10": collier_cifar10,
    "collier-mnist": collier_mnist,
    "collier-svhn": collier_svhn,
    "englesson-cifar": englesson_cifar,
    "englesson-mnist": englesson_mnist,
    "lukasik-cifar": lukasik_cifar,
    "tanno": tanno,
}


def _pair(
    data: LabelledData, a: int, b: int, seed: int, groups: torch.Tensor | None = None
) -> tuple[LabelledData, LabelledData]:
    train, validation = data.split(a, b, seed=seed, groups=groups)
    return train, validation


def _check(train: LabelledData, n: int) -> None:
    if len(train) != n:
        raise DubitoError(
            "this split is defined for the whole training set",
            where=train.name,
            expected=f"{n} examples",
            got=len(train),
            remedy="use data.split(...) for a part of it",
        )
