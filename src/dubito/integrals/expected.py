"""`expected_log_softmax`: the average softmax of all classes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from .border import Latent, as_latent
from .noise import bank_blocks, check_kind, fresh_seed, power_of_two, random_blocks, sobol_bank
from .sampled import average_blocks

METHODS = ("auto", "mc", "qmc")


def expected_log_softmax(
    mean: Tensor,
    scale: Tensor,
    *,
    factors: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    method: str = "auto",
    samples: int = 1000,
    generator: torch.Generator | None = None,
    noise: str = "normal",
) -> Tensor:
    """Log of the expected tempered softmax of a Gaussian latent."""
    if method not in METHODS:
        raise DubitoError("unknown method", got=repr(method), remedy=nearest(method, METHODS))
    check_kind(noise)
    latent = as_latent(mean, scale, factors, temperature)
    if method == "qmc":
        return by_qmc(latent, samples, fresh_seed(generator), noise)
    return by_mc(latent, samples, fresh_seed(generator), noise)


def by_mc(latent: Latent, samples: int, seed: int, noise: str) -> Tensor:
    """Monte Carlo in fixed blocks, each drawn again in the backward pass."""
    mean, rank = latent.mean.detach(), latent.rank
    return average_blocks(*latent, lambda: random_blocks(mean, rank, samples, seed, noise), samples)


def by_qmc(latent: Latent, samples: int, seed: int, noise: str) -> Tensor:
    """Scrambled Sobol points shared by all rows; `samples` is raised to a power of two."""
    count = power_of_two(samples)
    mean = latent.mean
    bank, factor_bank = sobol_bank(count, mean.shape[-1], latent.rank, seed, noise, mean.device, mean.dtype)
    return average_blocks(*latent, lambda: bank_blocks(bank, factor_bank, mean.dim() - 1), count)
