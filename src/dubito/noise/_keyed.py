"""Drawing classes with random numbers that belong to examples, so that no order of drawing can change them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .. import _random

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# At most this many numbers are gathered at once when labels are drawn.
_BLOCK = 1 << 22


def draw_seed(generator: torch.Generator) -> int:
    """63 random bits from the caller's generator: the seed of everything keyed by example."""
    return int(torch.randint(0, (1 << 63) - 1, (), generator=generator, device=generator.device))


def uniform(seed: int, purpose: str, ids: Array) -> Array:
    """A uniform number in [0, 1) for each id, a function of (seed, purpose, id) alone."""
    drawn = _random.uniform(seed, purpose, torch.from_numpy(ids.astype(np.int64)), dtype=torch.float64)
    return np.asarray(drawn.numpy())


def draw_classes(rows: Tensor, which: Array, u: Array) -> Array:
    """Classes by inversion: the first class whose cumulative probability exceeds u.

    rows (M, K) hold distributions, which (n,) says whose row each number in u (n,) is for. A class of
    probability zero is never drawn, and a row with a single class always gives it.
    """
    cumulative = rows.numpy().cumsum(-1)
    cumulative /= cumulative[:, -1:]
    classes = np.empty(len(u), dtype=np.int64)
    step = max(1, _BLOCK // cumulative.shape[1])
    for start in range(0, len(u), step):
        part = slice(start, start + step)
        classes[part] = (cumulative[which[part]] > u[part, None]).argmax(-1)
    return classes
