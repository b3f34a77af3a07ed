"""Random numbers keyed by what they belong to, so that no order of drawing can change them.

A key is drawn once from the caller's generator. The uniform number of example i is then a hash of (key, i)
(the output function of SplitMix64 at counter i): the same in every batch, for every number of examples.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
# At most this many numbers are gathered at once when labels are drawn.
_BLOCK = 1 << 22


def draw_key(generator: torch.Generator) -> np.uint64:
    """64 random bits from the generator."""
    halves = torch.randint(0, 1 << 32, (2,), generator=generator, device=generator.device).tolist()
    return np.uint64(halves[0] << 32 | halves[1])


def hashed(key: np.uint64, ids: Array) -> Array:
    """64 pseudo-random bits for each id."""
    with np.errstate(over="ignore"):
        z = key + (ids.astype(np.uint64) + np.uint64(1)) * _STEP
        z = (z ^ (z >> _SHIFTS[0])) * _MULTIPLY[0]
        z = (z ^ (z >> _SHIFTS[1])) * _MULTIPLY[1]
        return np.asarray(z ^ (z >> _SHIFTS[2]))


def uniform(key: np.uint64, ids: Array) -> Array:
    """A uniform number in [0, 1) for each id, a multiple of 2^-53."""
    return (hashed(key, ids) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_classes(rows: Tensor, which: Array, u: Array) -> Array:
    """Classes by inversion: the first class whose cumulative probability exceeds u.

    rows (M, K) hold distributions, which (n,) says whose row each number in u (n,) is for. A class of
    probability zero is never drawn, and a row with a single class always gives it.
    """
    cumulative = rows.numpy().cumsum(-1)
    cumulative /= cumulative[:, -1:]
    classes = np.empty(len(u), dtype=np.int64)
    step = max(1, _BLOCK // max(1, cumulative.shape[1]))
    for start in range(0, len(u), step):
        part = slice(start, start + step)
        classes[part] = (cumulative[which[part]] > u[part, None]).argmax(-1)
    return classes
