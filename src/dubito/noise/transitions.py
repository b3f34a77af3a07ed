"""Transition matrices T[true, observed] of the label noise used in the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from ._checks import class_indices, count, probability, stochastic

Rate = float | Sequence[float]

# The twenty groups of five among CIFAR-100's classes, which are numbered in alphabetical order.
CIFAR100_SUPERCLASSES = (
    (4, 30, 55, 72, 95),
    (1, 32, 67, 73, 91),
    (54, 62, 70, 82, 92),
    (9, 10, 16, 28, 61),
    (0, 51, 53, 57, 83),
    (22, 39, 40, 86, 87),
    (5, 20, 25, 84, 94),
    (6, 7, 14, 18, 24),
    (3, 42, 43, 88, 97),
    (12, 17, 37, 68, 76),
    (23, 33, 49, 60, 71),
    (15, 19, 21, 31, 38),
    (34, 63, 64, 66, 75),
    (26, 45, 77, 79, 99),
    (2, 11, 35, 46, 98),
    (27, 29, 44, 78, 93),
    (36, 50, 65, 74, 80),
    (47, 52, 56, 59, 96),
    (8, 13, 48, 58, 90),
    (41, 69, 81, 85, 89),
)

# name -> (number of classes, {true class: the class it is mistaken for})
_CIFAR10_PRINTED = {2: 0, 3: 5, 5: 3, 4: 7}
MAPS: dict[str, tuple[int, dict[int, int]]] = {
    "mnist": (10, {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}),
    "cifar10": (10, {9: 1, **_CIFAR10_PRINTED}),
    "cifar10-printed": (10, _CIFAR10_PRINTED),
    "cifar100": (100, {c: (c + 1) % 100 for c in range(100)}),
    "cifar100-superclass": (
        100,
        {group[i]: group[(i + 1) % 5] for group in CIFAR100_SUPERCLASSES for i in range(5)},
    ),
}

CLASS_RATES = {
    "main": (0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.3, 0.4, 0.5, 0.6),
    "reduced": (0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.15, 0.2, 0.25, 0.3),
    "increased": (0.0, 0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75),
}


def resample(num_classes: int, rate: Rate) -> Tensor:
    """With probability `rate` the label is drawn anew from all classes, its own included.

    ``T = diag(1 - r) + (r / K) 1 1'``: a share ``r (K-1)/K`` ends up wrong.

    Arguments:
        num_classes: K.
        rate: r within [0, 1], one number or one for each true class.

    Reference:
        collier2020 table 4
        englesson2023 table 1
        lukasik2020 eq. 3

    Example:
        >>> resample(2, 0.2)
        tensor([[0.9000, 0.1000],
                [0.1000, 0.9000]], dtype=torch.float64)
    """
    r = _rates(num_classes, rate)
    return torch.diag(1 - r) + (r / num_classes).unsqueeze(-1)


def flip_to_other(num_classes: int, rate: Rate) -> Tensor:
    """With probability `rate` the label moves to another class, all others alike.

    ``T[i, i] = 1 - r``, ``T[i, j] = r / (K - 1)``; the same matrix as ``resample(K, r K / (K - 1))``.

    Arguments:
        num_classes: K, at least 2.
        rate: r within [0, 1], one number or one for each true class.

    Reference:
        lukasik2020 eq. 3
        Patrini et al. 2017; Han et al. 2018 (co-teaching)

    Example:
        >>> flip_to_other(3, 0.2)[0]
        tensor([0.8000, 0.1000, 0.1000], dtype=torch.float64)
    """
    count(num_classes, "num_classes", 2)
    r = _rates(num_classes, rate)
    others = 1 - torch.eye(num_classes, dtype=torch.float64)
    return torch.diag(1 - r) + (r / (num_classes - 1)).unsqueeze(-1) * others


def flip_map(num_classes: int, mapping: Mapping[int, int], rate: float) -> Tensor:
    """With probability `rate` a class of the mapping is mistaken for its target; other classes stay.

    ``T[i, i] = 1 - r`` and ``T[i, mapping[i]] = r`` for i in the mapping, ``T[i, i] = 1`` otherwise.

    Arguments:
        num_classes: K.
        mapping: true class -> observed class.
        rate: r within [0, 1].

    Example:
        >>> flip_map(3, {0: 2}, 0.25)[0]
        tensor([0.7500, 0.0000, 0.2500], dtype=torch.float64)
    """
    count(num_classes, "num_classes", 1)
    r = probability(rate, "rate")
    class_indices([*mapping.keys(), *mapping.values()], num_classes, "mapping")
    T = torch.eye(num_classes, dtype=torch.float64)
    for true, observed in mapping.items():
        T[true, true] -= r
        T[true, observed] += r
    return T


def asymmetric(name: str, rate: float) -> Tensor:
    """The class confusions of a well-known data set, each at the same rate.

    | name | confusions |
    |---|---|
    | `mnist` | 7 -> 1, 2 -> 7, 5 <-> 6, 3 -> 8 |
    | `cifar10` | truck -> automobile, bird -> airplane, cat <-> dog, deer -> horse (as in released code) |
    | `cifar10-printed` | the same without truck -> automobile (as printed in the paper) |
    | `cifar100` | c -> c + 1 mod 100 |
    | `cifar100-superclass` | the next class of the same superclass, cyclically |

    Arguments:
        name: one of the names above.
        rate: the probability of the confusion within [0, 1].

    Reference:
        englesson2023 table 1
        Patrini et al. 2017

    Example:
        >>> asymmetric("mnist", 0.4)[7, [1, 7]]
        tensor([0.4000, 0.6000], dtype=torch.float64)
    """
    if name not in MAPS:
        raise DubitoError(f"unknown confusion map {name!r}", remedy=nearest(str(name), MAPS))
    num_classes, mapping = MAPS[name]
    return flip_map(num_classes, mapping, rate)


def class_dependent(name: str) -> Tensor:
    """Ten classes, each drawn anew from all ten at a rate of its own.

    | name | rates of classes 0 to 9 |
    |---|---|
    | `main` | 0 0 0 0 0 .2 .3 .4 .5 .6 |
    | `reduced` | 0 0 0 0 0 .1 .15 .2 .25 .3 |
    | `increased` | 0 0 .05 .15 .25 .35 .45 .55 .65 .75 |

    For other rates call ``resample(num_classes, rates)``.

    Reference:
        collier2020 table 1, table 5, table 6

    Example:
        >>> class_dependent("main").diagonal()
        tensor([1.0000, 1.0000, 1.0000, 1.0000, 1.0000, 0.8200, 0.7300, 0.6400, 0.5500,
                0.4600], dtype=torch.float64)
    """
    if name not in CLASS_RATES:
        raise DubitoError(f"unknown class rates {name!r}", remedy=nearest(str(name), CLASS_RATES))
    return resample(10, CLASS_RATES[name])


def pair_flip(num_classes: int, rate: float) -> Tensor:
    """With probability `rate` class c is mistaken for class c + 1 mod K.

    Reference:
        Han et al. 2018 (co-teaching)

    Example:
        >>> pair_flip(3, 0.45)[2]
        tensor([0.4500, 0.0000, 0.5500], dtype=torch.float64)
    """
    count(num_classes, "num_classes", 2)
    return flip_map(num_classes, {c: (c + 1) % num_classes for c in range(num_classes)}, rate)


class Ceiling(NamedTuple):
    """What a classifier that knows every true label would score on noisy labels."""

    mislabelled: float
    accuracy: float
    log_likelihood: float


def ceiling(T: Tensor, prior: Sequence[float] | Tensor | None = None) -> Ceiling:
    """The best scores possible on labels corrupted by T, for a sanity check of measured ones.

    Wrong labels ``sum_i pi_i (1 - T_ii)``, accuracy ``sum_i pi_i max_j T_ij``, log-likelihood
    ``sum_i pi_i sum_j T_ij log T_ij``.

    Arguments:
        T: (K, K).
        prior: pi, the shares (or counts) of the true classes; all alike by default.

    Reference:
        collier2020 table 1

    Example:
        >>> round(ceiling(class_dependent("main")).accuracy, 3)
        0.82
    """
    T = stochastic(T, "T", 2)
    pi = torch.ones(len(T), dtype=torch.float64)
    if prior is not None:
        pi = torch.as_tensor(prior, dtype=torch.float64)
        if pi.shape != T.shape[:1] or not bool((pi >= 0).all()) or not 0 < float(pi.sum()) < float("inf"):
            raise DubitoError("prior must hold one share per class", expected=f"{len(T)} shares", got=prior)
    pi = pi / pi.sum()
    expected = torch.stack([1 - T.diagonal(), T.max(-1).values, torch.xlogy(T, T).sum(-1)]) @ pi
    return Ceiling(*expected.tolist())


def _rates(num_classes: int, rate: Rate) -> Tensor:
    count(num_classes, "num_classes", 1)
    each = [rate] * num_classes if isinstance(rate, int | float) else list(rate)
    if len(each) != num_classes:
        raise DubitoError("one rate per class is needed", expected=num_classes, got=len(each))
    return torch.tensor([probability(r, "rate") for r in each], dtype=torch.float64)
