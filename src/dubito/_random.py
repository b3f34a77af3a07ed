"""Randomness as a function: every draw is named by (seed, purpose, counters) and by nothing else.

A draw does not depend on which draws came before it, on the batch it is part of, or on the device: integers
are hashed with the output function of SplitMix64, chained once per counter,

    h_0 = key(purpose),   h_i = mix(h_{i-1} + golden * c_i)   for c = (seed, *counters),

in 64-bit integer arithmetic that wraps alike on every device. Counters are ints or integer tensors and
broadcast, so the functions work inside captured CUDA graphs and `torch.compile` with seed and epoch as tensors
(the purpose then given as the integer `key(purpose)`, computed beforehand).
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np
import torch
from torch import Tensor

from ._tensors import checks_values

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31

Counter = int | Tensor


def key(purpose: str | int) -> int:
    """The 63-bit integer that stands for a purpose: the head of SHA-256 of its UTF-8 text; integers stay.

    Example:
        >>> key("shuffle") == key(key("shuffle"))
        True
    """
    return purpose if isinstance(purpose, int) else _key(purpose)


@functools.lru_cache(maxsize=256)
def _key(purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "big") >> 1


def bits(
    seed: Counter, purpose: str | int, *counters: Counter, device: torch.device | str | None = None
) -> Tensor:
    """64 random bits per counter as int64, shape: the counters broadcast together.

    Arguments:
        seed: the run's seed, an int or an integer tensor.
        purpose: what the draw is for, a short text, or `key` of it.
        counters: what tells draws apart: epoch, index, coordinate.
        device: where the result is made if everything is a Python int.

    Example:
        >>> index = torch.tensor([7, 3, 5])
        >>> bool((bits(0, "flip", 2, index)[1] == bits(0, "flip", 2, 3)).all())
        True
    """
    state: Counter = key(purpose) & _WORD
    for counter in (seed, *counters):
        state = _step(state, counter)
    if isinstance(state, int):
        return torch.tensor(_signed(state), dtype=torch.int64, device=device)
    return state


def uniform(
    seed: Counter,
    purpose: str | int,
    *counters: Counter,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Uniform numbers in [0, 1), one per counter, the same bits on every device.

    24 random bits for float32 and 53 for float64, so that 1 is never reached by rounding.

    Example:
        >>> u = uniform(0, "flip", 4, torch.arange(10_000))
        >>> bool(((u >= 0) & (u < 1)).all()), round(float(u.mean()), 1)
        (True, 0.5)
    """
    width = 53 if dtype == torch.float64 else 24
    high = _shift(bits(seed, purpose, *counters, device=device), 64 - width)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return (high.to(wide) * 2.0**-width).to(dtype)


def integers(
    high: int,
    seed: Counter,
    purpose: str | int,
    *counters: Counter,
    device: torch.device | str | None = None,
) -> Tensor:
    """Integers 0 ... high - 1 as int64, one per counter: floor(32 random bits * high / 2^32), high < 2^31.

    Example:
        >>> integers(9, 0, "crop", 1, torch.arange(1000)).unique().tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    return (_shift(bits(seed, purpose, *counters, device=device), 32) * high) >> 32


def permutation(
    n: int,
    seed: Counter,
    epoch: Counter = 0,
    *,
    purpose: str | int = "shuffle",
    device: torch.device | str | None = None,
) -> Tensor:
    """A permutation of 0 ... n - 1, keyed by (seed, purpose, epoch): the order in which random words sort.

    Example:
        >>> sorted(permutation(5, seed=0, epoch=3).tolist())
        [0, 1, 2, 3, 4]
    """
    words = bits(seed, purpose, epoch, torch.arange(n, device=device))
    if checks_values(words):
        # No two words are equal (the hash is one to one in its last counter), so that any sort gives the same.
        return torch.from_numpy(np.argsort(words.numpy()))
    return torch.sort(words, stable=True).indices


def generator(
    seed: int, step: int, purpose: str | int, *, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A new torch.Generator for one purpose at one step; the global generators are not touched.

    Example:
        >>> a, b = generator(0, 12, "dropout"), generator(0, 12, "dropout")
        >>> bool((torch.rand(3, generator=a) == torch.rand(3, generator=b)).all())
        True
    """
    made = torch.Generator(device=device)
    made.manual_seed(int(bits(seed, purpose, step)) & (_WORD >> 1))
    return made


def _step(state: Counter, counter: Counter) -> Counter:
    """mix(state + golden * counter), in Python for ints and in wrapping int64 for tensors."""
    if isinstance(state, int) and isinstance(counter, int):
        word = (state + _GOLDEN * counter) & _WORD
        for shift, factor in _MIX:
            word = ((word ^ word >> shift) * factor) & _WORD
        return word ^ word >> _LAST_SHIFT
    left = _signed(state) if isinstance(state, int) else state
    if isinstance(counter, int):
        right: Counter = _signed(_GOLDEN * counter & _WORD)
    else:
        right = counter.to(torch.int64) * _signed(_GOLDEN)
    word_: Tensor = left + right  # type: ignore[assignment]
    for shift, factor in _MIX:
        word_ = (word_ ^ _shift(word_, shift)) * _signed(factor)
    return word_ ^ _shift(word_, _LAST_SHIFT)


def _shift(x: Tensor, by: int) -> Tensor:
    """Logical right shift: torch shifts int64 arithmetically, so the copies of the sign are masked off."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
