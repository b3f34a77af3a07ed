"""Label noise that comes from features one does not see: missing not at random, and hidden altogether.

A label that is a plain function of all features becomes noisy once some of them are hidden. If the hidden
features x_m depend on the seen ones x and both act on the label y, the noise depends on x: this is the
heteroscedastic classifier's second reason to exist, beside bad annotators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._checks import class_indices, count, probability, torch_generator
from ._scores import feature_matrix, rising, standardised


def missing_not_at_random(
    features: Tensor | np.ndarray[Any, Any],
    rate: float,
    generator: torch.Generator,
    *,
    columns: Sequence[int] | None = None,
    strength: float = 2.0,
    fill: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Hide values of features, high ones more often than low ones, so that missing says something.

    Value ``x_nj`` is missing with probability ``sigmoid(b_j + strength z_nj)`` where z is x standardised over the
    items and b_j makes the expected share of missing values in each chosen column equal to `rate`. The
    probability depends on the hidden value itself: missing *not* at random. With strength 0 values are missing
    completely at random.

    Arguments:
        features: (N, D); not modified.
        rate: expected share of missing values in each chosen column.
        columns: the columns that can be missing, all by default.
        strength: rise of the log-odds of being missing per standard deviation of the value.
        fill: what stands in place of a missing value.

    Returns:
        (seen, missing): (N, D) float64 features with `fill` where missing, and the boolean mask.

    Reference:
        collier2020 fig. 5

    Example:
        >>> x = torch.arange(6.0).reshape(6, 1)
        >>> seen, missing = missing_not_at_random(x, 0.5, torch.Generator().manual_seed(0), strength=50.0)
        >>> seen[:, 0].tolist()
        [0.0, 1.0, 2.0, 0.0, 0.0, 0.0]
    """
    x = feature_matrix(features)
    share = torch.zeros(x.shape[1], dtype=torch.float64)
    chosen = np.arange(x.shape[1]) if columns is None else class_indices(list(columns), x.shape[1], "columns")
    share[torch.from_numpy(chosen)] = probability(rate, "rate")
    chance = rising(standardised(x), share, strength)
    device = torch_generator(generator).device
    draw = torch.rand(x.shape, generator=generator, device=device, dtype=torch.float64).cpu()
    missing = draw < chance
    return x.masked_fill(missing, fill), missing


class HiddenFeatureTask(NamedTuple):
    """A binary task with a feature that the classifier does not get to see."""

    features: Tensor
    hidden: Tensor
    labels: Tensor
    clean: Tensor
    noise: Tensor


def hidden_feature_task(
    num_items: int,
    generator: torch.Generator,
    *,
    num_features: int = 2,
    slope: float = 1.0,
    base: float = 0.25,
) -> HiddenFeatureTask:
    """A task whose label noise comes from a hidden feature alone, with the noise known exactly.

    ``x ~ N(0, I_D)``; the hidden feature depends on x in mean and in spread, ``x_m = x_1 + s(x) e`` with
    ``e ~ N(0, 1)`` and ``s(x) = base exp(slope x_2)``; the label is a plain function of all features,
    ``y = 1[x_1 + x_m > 0]``. Seen from x alone this is the binary heteroscedastic classifier with mean
    ``f(x) = 2 x_1`` and scale s(x): ``P(y = 1 | x) = Phi(f(x) / s(x))``.

    Arguments:
        num_items: N.
        num_features: D, at least 2; further features carry nothing.
        slope: how fast the spread grows along x_2; 0 makes the noise level of the latent constant.
        base: the spread at x_2 = 0, positive.

    Returns:
        features x (N, D), hidden x_m (N,), labels y (N,), the likelier label `clean` (N,) given x, and
        `noise` (N,), the probability given x that y differs from it.

    Reference:
        collier2020 eq. 8, fig. 5

    Example:
        >>> task = hidden_feature_task(1000, torch.Generator().manual_seed(0))
        >>> task.features.shape, bool(task.noise.max() < 0.5)
        (torch.Size([1000, 2]), True)
    """
    N, D = count(num_items, "num_items", 0), count(num_features, "num_features", 2)
    if not base > 0 or not np.isfinite(base) or not np.isfinite(slope):
        raise DubitoError(
            "the spread needs a positive base and a finite slope", got=f"base={base}, slope={slope}"
        )
    device = torch_generator(generator).device
    draws = torch.randn(N, D + 1, generator=generator, device=device, dtype=torch.float64).cpu()
    x, mean, scale = draws[:, :D], 2 * draws[:, 0], base * torch.exp(slope * draws[:, 1])
    hidden = draws[:, 0] + scale * draws[:, D]
    labels = (draws[:, 0] + hidden > 0).long()
    noise = torch.special.erfc(mean.abs() / scale * 0.5**0.5) / 2
    return HiddenFeatureTask(x.clone(), hidden, labels, (mean > 0).long(), noise)
