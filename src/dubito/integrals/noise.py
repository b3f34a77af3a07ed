"""Draws for the sampled forms: seeded blocks of pseudo-random noise and banks of scrambled Sobol points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from .._numbers import check_choice
from .sampled import BLOCK, Block

KINDS = ("normal", "logistic", "gumbel")
_SOBOL_AXES = SobolEngine.MAXDIM


def check_kind(kind: str) -> None:
    """Refuse an unknown noise distribution."""
    check_choice(kind, KINDS, "noise")


def fresh_seed(generator: torch.Generator | None) -> int:
    """One seed drawn from the caller's generator; 0 without one, so that a call repeats itself."""
    if generator is None:
        return 0
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def standard_noise(kind: str, shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Independent draws of the standard normal, logistic or Gumbel distribution.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> standard_noise("gumbel", (2, 3), g, torch.zeros(1)).shape
        torch.Size([2, 3])
    """
    empty = torch.empty(shape, dtype=like.dtype, device=like.device)
    if kind == "normal":
        return empty.normal_(generator=generator)
    first = empty.exponential_(generator=generator).log()
    if kind == "gumbel":
        return -first
    return torch.empty_like(first).exponential_(generator=generator).log() - first


def random_blocks(mean: Tensor, rank: int, samples: int, seed: int, kind: str = "normal") -> Iterator[Block]:
    """Blocks of noise for every row of `mean`, each from a seed of its own, so that it can be drawn again."""
    generator = torch.Generator(device=mean.device)
    for index, start in enumerate(range(0, samples, BLOCK)):
        count = min(BLOCK, samples - start)
        generator.manual_seed((seed + index) % 2**63)
        noise = standard_noise(kind, (count, *mean.shape), generator, mean)
        if rank == 0:
            yield noise, None
        else:
            yield noise, standard_noise("normal", (count, *mean.shape[:-1], rank), generator, mean)


@lru_cache(maxsize=16)
def _uniform_bank(samples: int, axes: int, seed: int) -> Tensor:
    """Scrambled Sobol points in (0, 1), (samples, axes), float64 on the CPU.

    Beyond the axes that Sobol sequences are tabulated for, further axes come from independently scrambled copies
    whose points are put in random order.
    """
    banks = []
    for part, start in enumerate(range(0, axes, _SOBOL_AXES)):
        width = min(_SOBOL_AXES, axes - start)
        engine = SobolEngine(width, scramble=True, seed=(seed + part) % 2**63)
        bank = engine.draw(samples, dtype=torch.float64)
        if part:
            order = torch.Generator().manual_seed((seed + part) % 2**63)
            bank = bank[torch.randperm(samples, generator=order)]
        banks.append(bank)
    # Scrambled points are multiples of 2^-30 and may be 0: move each to the middle of its cell.
    return torch.cat(banks, 1) + 2.0**-31


@lru_cache(maxsize=16)
def sobol_bank(
    samples: int, classes: int, rank: int, seed: int, kind: str, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """Quasi-random noise shared by all rows: (samples, classes) and (samples, rank) or None.

    The factors take the first axes, which are the best distributed ones.

    Example:
        >>> classes, factors = sobol_bank(64, 10, 2, 0, "normal", torch.device("cpu"), torch.float32)
        >>> classes.shape, factors.shape
        (torch.Size([64, 10]), torch.Size([64, 2]))
    """
    uniform = _uniform_bank(samples, classes + rank, seed)
    factors = torch.special.ndtri(uniform[:, :rank]).to(device, dtype) if rank else None
    return quantile(uniform[:, rank:], kind).to(device, dtype), factors


def bank_of(mean: Tensor, samples: int, seed: int, kind: str) -> Tensor:
    """A bank for the classes of `mean` as the kernels read it: in float32, on the same device."""
    return sobol_bank(power_of_two(samples), mean.shape[-1], 0, seed, kind, mean.device, torch.float32)[0]


def quantile(uniform: Tensor, kind: str) -> Tensor:
    """The standard normal, logistic or Gumbel value below which a share `uniform` lies."""
    if kind == "normal":
        normal: Tensor = torch.special.ndtri(uniform)
        return normal
    if kind == "logistic":
        return torch.logit(uniform)
    return -(-uniform.log()).log()


def bank_blocks(bank: Tensor, factor_bank: Tensor | None, batch_axes: int) -> Iterator[Block]:
    """A shared bank cut into blocks that broadcast over `batch_axes` leading axes."""
    middle = (1,) * batch_axes
    for start in range(0, bank.shape[0], BLOCK):
        part = bank[start : start + BLOCK]
        rest = None if factor_bank is None else factor_bank[start : start + BLOCK]
        yield (
            part.reshape(part.shape[0], *middle, part.shape[1]),
            None if rest is None else rest.reshape(rest.shape[0], *middle, rest.shape[1]),
        )


def power_of_two(samples: int) -> int:
    """The power of two at or above `samples`: Sobol points are balanced only then."""
    return 1 << max(0, math.ceil(math.log2(max(1, samples))))
