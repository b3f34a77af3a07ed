"""How much the softmax itself varies under the latent: the per-class predictive variance, in O(classes) memory."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .._tensors import full_precision
from .border import as_latent
from .graphs import apart_from_graphs
from .noise import bank_blocks, check_kind, fresh_seed, power_of_two, random_blocks, sobol_bank
from .sampled import BLOCK, Block, _latent, _log_softmax, check_draws
from .sampling import check_sampling


def sampled_variance(
    mean: Tensor,
    scale: Tensor,
    noise: Tensor,
    *,
    factors: Tensor | None = None,
    factor_noise: Tensor | None = None,
    temperature: float | Tensor = 1.0,
) -> Tensor:
    """Variance over given noise of each class's softmax probability.

    v_c = (1/S) sum_s (softmax(u^s / tau)_c - p_c)^2,   p_c = (1/S) sum_s softmax(u^s / tau)_c

    Shapes and arguments: as for `sampled_log_softmax`.

    Reference:
        collier2020 fig. 4

    Example:
        >>> sampled_variance(torch.zeros(2), torch.ones(2), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
        tensor([0.1450, 0.1450])
    """
    check_draws(mean, scale, noise, factors, factor_noise, temperature)
    rest = [None] * len(noise) if factor_noise is None else factor_noise
    blocks: Iterable[Block] = (
        (noise[i : i + BLOCK], None if factor_noise is None else rest[i : i + BLOCK])  # type: ignore[misc]
        for i in range(0, len(noise), BLOCK)
    )
    return _accumulate(mean, scale, factors, temperature, blocks)


@apart_from_graphs
@full_precision
def predictive_variance(
    mean: Tensor,
    scale: Tensor,
    *,
    factors: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    method: str = "qmc",
    samples: int = 1024,
    generator: torch.Generator | None = None,
    noise: str = "normal",
    dim: int = -1,
) -> Tensor:
    """Variance under the latent of each class's softmax probability, without keeping the draws.

    v_c = Var[ softmax(u / tau)_c ],   u = mean + scale * e + factors @ z

    Shapes: mean and scale (..., K), factors (..., K, R); the result is (..., K). There is no gradient.

    Arguments:
        method: "qmc" (shared scrambled Sobol points) or "mc".
        samples: number of draws.
        The others: as for `expected_log_softmax`.

    Reference:
        collier2020 fig. 4

    Example:
        >>> predictive_variance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
        tensor([0., 0.])
    """
    check_kind(noise)
    check_sampling(method, samples)
    latent = as_latent(mean.detach(), scale, factors, temperature, dim)
    seed = fresh_seed(generator)
    if method == "mc":
        blocks = random_blocks(latent.mean, latent.rank, samples, seed, noise)
    else:
        like = latent.mean
        banks = sobol_bank(
            power_of_two(samples), like.shape[-1], latent.rank, seed, noise, like.device, like.dtype
        )
        blocks = bank_blocks(*banks, like.dim() - 1)
    with torch.no_grad():
        result = _accumulate(latent.mean, latent.scale, latent.factors, latent.temperature, blocks)
    return result.movedim(-1, dim)


def _accumulate(
    mean: Tensor,
    scale: Tensor,
    factors: Tensor | None,
    temperature: float | Tensor,
    blocks: Iterable[Block],
) -> Tensor:
    """Merge the mean and the sum of squared deviations block by block (Chan et al. 1979)."""
    count, average, squares = 0, torch.zeros_like(mean), torch.zeros_like(mean)
    for block in blocks:
        p = _log_softmax(_latent(mean, scale, factors, block), temperature).exp()
        size, centre = p.shape[0], p.mean(0)
        shift = centre - average
        squares = squares + (p - centre).square().sum(0) + shift * shift * (count * size / (count + size))
        average = average + shift * (size / (count + size))
        count += size
    return squares / count
