"""Labels from simulated annotators as triplets, and annotators whose errors depend on the input."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._checks import class_indices, count, item_distributions, probability, stochastic, torch_generator
from ._keyed import Array, draw_classes, draw_seed, uniform
from ._scores import feature_matrix, rising, standardised

Triplets = tuple[Tensor, Tensor, Tensor]
PerItem = int | Literal["all"] | None


def simulate(
    labels: Tensor | np.ndarray[Any, Any],
    matrices: Tensor,
    generator: torch.Generator,
    labels_per_item: PerItem = None,
) -> Triplets:
    """Labels that annotators with the given confusion matrices give to the items, as triplets.

    ``label ~ A[r, y_n, .]``. What annotator r says about item n depends on the generator's state alone, not on
    who else was asked: the sparse labels are a part of the dense ones. Nothing of size items x annotators is
    built unless everyone labels everything.

    Arguments:
        labels: (N,) true classes.
        matrices: A (R, K, K), rows sum to one.
        labels_per_item: k for k different annotators drawn uniformly for each item; "all" or None for everyone.

    Returns:
        (items, annotators, labels), int64, sorted by item and then by annotator.

    Reference:
        tanno2019 eq. 1, eq. 2

    Example:
        >>> A = torch.eye(3).expand(4, 3, 3)
        >>> items, annotators, given = simulate(torch.tensor([2, 0]), A, torch.Generator().manual_seed(0), 1)
        >>> items.tolist(), given.tolist()
        ([0, 1], [2, 0])
    """
    A = stochastic(matrices, "matrices", 3)
    R, K, _ = A.shape
    true = class_indices(labels, K)
    if true.ndim != 1:
        raise DubitoError("labels must be one class per item", expected="(N,)", got=true.shape)
    seed = draw_seed(torch_generator(generator))
    items, annotators = _who(len(true), R, labels_per_item, seed)
    given = draw_classes(
        A.reshape(-1, K), annotators * K + true[items], uniform(seed, "label", items * R + annotators)
    )
    return _tensors(items, annotators, given)


def simulate_from(probs: Tensor, generator: torch.Generator, labels_per_item: PerItem = None) -> Triplets:
    """Labels drawn from a distribution for each item and annotator, as triplets.

    ``label ~ P[n, r, .]``; otherwise as `simulate`.

    Arguments:
        probs: P (N, R, K), as from `input_dependent_annotators`.
        labels_per_item: k for k different annotators drawn uniformly for each item; "all" or None for everyone.

    Returns:
        (items, annotators, labels), int64, sorted by item and then by annotator.

    Reference:
        tanno2019 eq. 1

    Example:
        >>> P = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
        >>> simulate_from(P, torch.Generator().manual_seed(0))[2].tolist()
        [1, 0]
    """
    P = item_distributions(probs)
    N, R, K = P.shape
    seed = draw_seed(torch_generator(generator))
    items, annotators = _who(N, R, labels_per_item, seed)
    cells = items * R + annotators
    return _tensors(items, annotators, draw_classes(P.reshape(-1, K), cells, uniform(seed, "label", cells)))


def input_dependent_annotators(
    features: Tensor | np.ndarray[Any, Any],
    labels: Tensor | np.ndarray[Any, Any],
    num_annotators: int,
    num_classes: int,
    skill: float,
    generator: torch.Generator,
    *,
    strength: float = 2.0,
) -> Tensor:
    """Annotators who err more often on some inputs than on others, each with a taste of their own.

    Annotator r finds an item difficult by ``z_r(x)``, a random linear projection of x standardised over the items.
    The label is wrong with probability ``e_r(x) = sigmoid(b_r + strength z_r(x))``, all wrong classes alike, where
    b_r makes the mean of ``1 - e_r`` over the items equal to `skill`. With strength 0 nobody looks at the input
    and the annotators are the hammer-spammers of kind "tanno" without jitter.

    Arguments:
        features: (N, ...) inputs, flattened per item.
        labels: (N,) true classes.
        num_annotators: R.
        num_classes: K, at least 2.
        skill: each annotator's mean probability of a right label.
        strength: how much the log-odds of an error rise per standard deviation of difficulty.

    Returns:
        P (N, R, K) in float64: the distribution of the label that annotator r gives to item n.

    Reference:
        collier2020 fig. 5
        tanno2019 eq. 1

    Example:
        >>> x, y = torch.randn(100, 3, generator=torch.Generator().manual_seed(1)), torch.zeros(100).long()
        >>> P = input_dependent_annotators(x, y, 2, 4, 0.7, torch.Generator().manual_seed(0))
        >>> P.shape, P[:, 0, 0].mean().item()
        (torch.Size([100, 2, 4]), 0.7...)
    """
    x = feature_matrix(features)
    R, K = count(num_annotators, "num_annotators", 1), count(num_classes, "num_classes", 2)
    true = class_indices(labels, K)
    if true.shape != (len(x),):
        raise DubitoError("labels must be one class per item", expected=(len(x),), got=true.shape)
    right = probability(skill, "skill")
    shape, device = (x.shape[1], R), torch_generator(generator).device
    taste = torch.randn(shape, generator=generator, device=device, dtype=torch.float64).cpu()
    mean_error = torch.full((R,), 1 - right, dtype=torch.float64)
    error = rising(standardised(x @ taste), mean_error, strength).unsqueeze(-1)
    own = torch.nn.functional.one_hot(torch.from_numpy(true), K).to(torch.float64).unsqueeze(1)
    return (1 - error) * own + error * (1 - own) / (K - 1)


def _who(N: int, R: int, per_item: PerItem, seed: int) -> tuple[Array, Array]:
    """Who labels what. k different annotators of R by Floyd's method: k numbers per item, no table of N x R."""
    if per_item is None or per_item == "all":
        return np.repeat(np.arange(N), R), np.tile(np.arange(R), N)
    k = count(per_item, "labels_per_item", 1)
    if k > R:
        raise DubitoError("more labels per item than annotators", expected=f"at most {R}", got=k)
    chosen = np.empty((N, k), dtype=np.int64)
    for step, last in enumerate(range(R - k, R)):
        pick = (uniform(seed, f"annotator {step}", np.arange(N)) * (last + 1)).astype(np.int64)
        taken = (chosen[:, :step] == pick[:, None]).any(-1)
        chosen[:, step] = np.where(taken, last, pick)
    return np.repeat(np.arange(N), k), np.sort(chosen, axis=-1).ravel()


def _tensors(*arrays: Array) -> Triplets:
    items, annotators, labels = (torch.from_numpy(a.astype(np.int64)) for a in arrays)
    return items, annotators, labels
