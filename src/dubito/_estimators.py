"""What the estimators share: a seed, standardised features, a network by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Generator, nn

from .backbones import build

Array = np.ndarray[Any, Any]


def seed_of(random_state: Any) -> int:
    """An integer is the seed; a RandomState is asked for one; None asks the system, not numpy's global state."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if hasattr(random_state, "randint"):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def statistics(X: Array) -> tuple[Array, Array]:
    """Mean and deviation per feature or channel (axis 1), shaped to broadcast; 1 where nothing varies."""
    axes = (0, *range(2, X.ndim))
    mean, scale = X.mean(axes, keepdims=True), X.std(axes, keepdims=True)
    # A constant feature keeps a rounding error of its mean as deviation.
    return mean, np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)


def network(backbone: str | Callable[..., nn.Module], shape: tuple[int, ...], source: Generator) -> nn.Module:
    """A network by its name for `backbones.build`, or by a function ``(shape, generator) -> network``."""
    if isinstance(backbone, str):
        return build(backbone, shape, generator=source)
    return backbone(shape, source)
