"""Monte Carlo and quasi Monte Carlo over the whole latent, with error estimates from independent replicates."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._numbers import check_choice
from .._tensors import expect
from ..errors import DubitoError
from .border import Gaussian
from .fused import QmcAllClasses, fits, ready
from .noise import bank_blocks, power_of_two, random_blocks, sobol_bank
from .sampled import average_blocks

REPLICATES = 8
_MOST = 0.5  # relative error beyond which draws say nothing about a logarithm


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
    runs = torch.stack(_replicates(method, latent, samples, seed, noise)).exp()
    spread: Tensor = runs.std(0)
    return spread / math.sqrt(REPLICATES)


def likelihood_error(
    log_p: Tensor, target: Tensor, method: str, latent: Gaussian, samples: int, seed: int, noise: str
) -> Tensor:
    """Error of a sampled log p of the target: the relative standard error, or how far replicates are from it.

    Where p is tiny it hangs on the few draws that come near. Replicates that missed them agree with one another,
    and only their distance from `log_p` tells; where one of them holds most of their sum, others may have missed
    more still. Then nothing is known, and the error is infinite.
    """
    runs = torch.stack([expect(run, target) for run in _replicates(method, latent, samples, seed, noise)])
    middle = runs.logsumexp(0) - math.log(REPLICATES)
    spread = (runs - middle).exp().std(0) / math.sqrt(REPLICATES)
    error = torch.maximum(spread, (log_p.detach() - middle).abs())
    return torch.where(error <= _MOST, error, math.inf)


def _replicates(method: str, latent: Gaussian, samples: int, seed: int, noise: str) -> list[Tensor]:
    """Averages over an eighth of the draws each; their seeds are far from those of the average itself."""
    average = by_qmc if method == "qmc" else by_mc
    each = max(1, samples // REPLICATES)
    with torch.no_grad():
        return [average(latent, each, seed + (r + 1) * 1_000_003, noise) for r in range(REPLICATES)]
