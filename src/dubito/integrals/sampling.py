"""Monte Carlo and quasi Monte Carlo over the whole latent, with error estimates from independent replicates."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._numbers import check_choice
from ..errors import DubitoError
from .border import Gaussian
from .fused import QmcAllClasses, fits, ready
from .noise import bank_blocks, power_of_two, random_blocks, sobol_bank
from .sampled import average_blocks

REPLICATES = 8


def check_sampling(method: str, samples: int) -> None:
    """Refuse an unknown way of sampling or a number of draws below 1."""
    check_choice(method, ("mc", "qmc"), "method")
    if samples < 1:
        raise DubitoError("too few samples", expected="at least 1", got=samples)


def by_mc(latent: Gaussian, samples: int, seed: int, noise: str) -> Tensor:
    """Random draws in fixed blocks, each drawn again in the backward pass."""
    mean, rank = latent.mean.detach(), latent.rank
    return average_blocks(*latent, lambda: random_blocks(mean, rank, samples, seed, noise), samples)


def by_qmc(latent: Gaussian, samples: int, seed: int, noise: str) -> Tensor:
    """Scrambled Sobol points shared by all rows; `samples` is raised to a power of two."""
    count, mean = power_of_two(samples), latent.mean
    classes = mean.shape[-1]
    bank, factor_bank = sobol_bank(count, classes, latent.rank, seed, noise, mean.device, mean.dtype)
    if latent.factors is None and ready(mean) and fits(classes):
        flat = (
            mean.reshape(-1, classes),
            latent.scale.reshape(-1, classes),
            latent.temperature.reshape(-1, 1),
        )
        log_p: Tensor = QmcAllClasses.apply(*flat, bank)  # type: ignore[no-untyped-call]
        return log_p.reshape(mean.shape)
    return average_blocks(*latent, lambda: bank_blocks(bank, factor_bank, mean.dim() - 1), count)


def standard_error(method: str, latent: Gaussian, samples: int, seed: int, noise: str) -> Tensor:
    """Standard error (..., K) of the averaged probabilities, from replicates of an eighth of the draws each.

    For "qmc" this overstates the error of one set of `samples` points, which is better than its parts.
    """
    average = by_qmc if method == "qmc" else by_mc
    each = max(1, samples // REPLICATES)
    with torch.no_grad():
        # Seeds far from those of the average itself: replicates are independent of it and of one another.
        runs = [average(latent, each, seed + (r + 1) * 1_000_003, noise).exp() for r in range(REPLICATES)]
    spread: Tensor = torch.stack(runs).std(0)
    return spread / math.sqrt(REPLICATES)
