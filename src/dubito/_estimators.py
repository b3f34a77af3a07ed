"""What the estimators share: a seed, standardised features, a network by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from ._batches import WEIGHT
from ._decay import FOREST
from ._outliers import near
from .backbones import Forest, build
from .data import LabelledData
from .errors import DubitoError

Array = np.ndarray[Any, Any]

FEWEST_EPOCHS, FEWEST_STEPS = 50, 400
FOREST_STEPS, FOREST_BATCH = 100, 256


def seed_of(random_state: Any) -> int:
    """An integer is the seed; a RandomState is asked for one; None asks the system, not numpy's global state."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if hasattr(random_state, "randint"):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def check_positive(value: Any, name: str) -> None:
    """Refuse what is no number above 0."""
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) > 0:
        raise DubitoError(f"{name} must be above 0", got=repr(value))


def coded(y: Array) -> tuple[Array, Array]:
    """The classes, sorted, and the number of each label's class."""
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError:
        missing = [i for i, value in enumerate(y.tolist()) if value is None or value != value]
        if missing:
            raise DubitoError(
                "no label given",
                where=f"y[{missing[0]}]",
                got=f"{len(missing):,} of {len(y):,} missing",
                remedy="leave those examples out",
            ) from None
        kinds = sorted({type(v).__name__ for v in y.tolist()})
        raise DubitoError(
            "labels of one kind are needed, to be sorted",
            where="y",
            got=", ".join(kinds),
            remedy="make them all text",
        ) from None
    return classes, codes


def medians(X: Array) -> tuple[Array, Array]:
    """The median of each feature, gaps (NaN) apart, and which features have gaps; 0 where there is nothing else."""
    gappy = np.flatnonzero(np.isnan(X).any(0))
    middle = np.zeros(X.shape[1])
    for j in range(X.shape[1]):
        known = X[~np.isnan(X[:, j]), j]
        middle[j] = np.median(known) if len(known) else 0.0
    return middle, gappy


def filled(X: Array, middle: Array, gappy: Array) -> Array:
    """Medians in the gaps, and behind the features one more for each of `gappy`, which is 1 where it had a gap.

    Example:
        >>> filled(np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([1.5, 3.0]), np.array([1])).tolist()
        [[1.0, 3.0, 1.0], [2.0, 3.0, 0.0]]
    """
    gap = np.isnan(X)
    return np.concatenate([np.where(gap, middle, X), gap[:, gappy]], axis=1)


def statistics(X: Array) -> tuple[Array, Array]:
    """Mean and deviation per feature or channel (axis 1), shaped to broadcast; 1 where nothing varies.

    Features heed no single value far beyond all others.
    """
    axes = (0, *range(2, X.ndim))
    some = near(X) if X.ndim == 2 else X
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = some.mean(axes, keepdims=True), some.std(axes, keepdims=True)
    if not np.isfinite(scale).all():
        raise DubitoError(
            "numbers too large to be told apart",
            where="X",
            got=f"{np.abs(X).max():.3g}",
            remedy="divide them by a power of ten",
        )
    # A constant feature keeps a rounding error of its mean as deviation.
    return mean, np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)


def standardised(X: Array, mean: Array | float, scale: Array | float, draw_in: bool) -> Tensor:
    """Inputs brought to mean 0 and deviation 1; features, if asked, drawn in by asinh."""
    X = (X - mean) / scale
    return torch.from_numpy(np.arcsinh(X) if draw_in and X.ndim == 2 else X)


def length(network: str, n: int, batch_size: int) -> tuple[int, int]:
    """Epochs and examples per step: a head on a forest, which is nearly right at the start, needs few steps."""
    if network == FOREST:
        batch_size = max(batch_size, FOREST_BATCH)
        return math.ceil(FOREST_STEPS / math.ceil(n / batch_size)), batch_size
    return max(FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / math.ceil(n / batch_size))), batch_size


def forest_of(data: LabelledData, num_classes: int, source: Generator) -> Forest:
    """A forest of the inputs as networks see them, and of their noisy labels."""
    inputs = data.batch(torch.arange(len(data), device=data.device))
    weight = data.extra.get(WEIGHT)
    return Forest.grow(inputs, data.labels, num_classes, weight=weight, generator=source)


def network(backbone: str | Callable[..., nn.Module], shape: tuple[int, ...], source: Generator) -> nn.Module:
    """A network by its name for `backbones.build`, or by a function ``(shape, generator) -> network``."""
    if isinstance(backbone, str):
        return build(backbone, shape, generator=source)
    return backbone(shape, source)
