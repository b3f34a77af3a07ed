"""The expected softmax by averaging over draws: Monte Carlo, or any other set of noise points.

`sampled_log_softmax` is a pure function: noise in, log-probabilities out, nothing drawn. `average_blocks` computes
the same number from a stream of fixed blocks, which it draws again in the backward pass, so that memory does not
grow with the number of draws. Both go through the same blocks in the same order and agree bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._tensors import check_broadcast, full_precision
from ..errors import DubitoError
from . import draws

BLOCK = 32  # draws summed together; a constant, as the last bits of the result depend on it

# One block of noise: (b, ..., K) for the classes and (b, ..., R) for the factors or None.
Block = tuple[Tensor, Tensor | None]


@full_precision
def sampled_log_softmax(
    mean: Tensor,
    scale: Tensor,
    noise: Tensor,
    *,
    factors: Tensor | None = None,
    factor_noise: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    floor: float = 0.0,
) -> Tensor:
    """Log of the softmax averaged over given noise.

        log p_c = logsumexp_s log_softmax(u^s / tau)_c - log S
        u^s = mean + scale * noise^s + factors @ factor_noise^s

    Shapes: mean and scale (..., K); noise (S, ..., K), broadcast over the middle; factors (..., K, R) with
    factor_noise (S, ..., R); the result is (..., K).

    Arguments:
        mean, scale: location and standard deviation of each latent logit; scale may be 0.
        noise: standard draws, normal or any other.
        factors, factor_noise: the low-rank part of the noise and its draws.
        temperature: tau, a number or a tensor that broadcasts to (..., 1); at 0 the argmax, ties shared, with
            zero gradient.
        floor: probabilities below it are raised to it, as some public code does, which sets their gradient to 0.

    Reference:
        collier2020 eq. 2, eq. 6, eq. 7
        englesson2023 eq. 13

    Example:
        >>> mean = torch.tensor([1.0, 0.0, -0.5])
        >>> noise = torch.tensor([[0.3, -1.0, 0.2], [-0.3, 1.0, -0.2]])
        >>> sampled_log_softmax(mean, torch.tensor([0.5, 1.0, 2.0]), noise).exp()
        tensor([0.5705, 0.2902, 0.1393])
    """
    check_draws(mean, scale, noise, factors, factor_noise, temperature)
    samples = noise.shape[0]
    if floor == 0 and draws.fit(mean, scale, noise, factors, factor_noise):
        return draws.average(mean, scale, noise, factors, factor_noise, temperature)
    total: Tensor | None = None
    for start in range(0, samples, BLOCK):
        part = noise[start : start + BLOCK]
        rest = None if factor_noise is None else factor_noise[start : start + BLOCK]
        log_p = _log_softmax(_latent(mean, scale, factors, (part, rest)), temperature)
        total = _accumulate(total, log_p)
    assert total is not None
    log_p = total - math.log(samples)
    return log_p.clamp(min=math.log(floor)) if floor > 0 else log_p


def check_draws(
    mean: Tensor,
    scale: Tensor,
    noise: Tensor,
    factors: Tensor | None,
    factor_noise: Tensor | None,
    temperature: float | Tensor,
) -> None:
    """Refuse noise without a draw, and shapes that do not fit together."""
    if noise.dim() == 0 or noise.shape[0] == 0:
        raise DubitoError("there is no draw of noise", expected="(S, ..., K), S >= 1", got=tuple(noise.shape))
    given = {"mean": mean, "scale": scale, "noise": noise, "factors": factors, "factor_noise": factor_noise}
    for name, x in given.items():
        if x is not None and x.is_complex():
            raise DubitoError(f"{name} must be real", got=str(x.dtype))
    if (factors is None) != (factor_noise is None):
        raise DubitoError("factors and factor_noise go together", got="one of them")
    check_broadcast(mean=mean, scale=scale, noise=noise, temperature=temperature)
    if factors is not None and factor_noise is not None:
        check_broadcast(factors=factors[..., 0, :], factor_noise=factor_noise)
        check_broadcast(mean=mean, factors=factors[..., 0])


def _latent(mean: Tensor, scale: Tensor, factors: Tensor | None, block: Block) -> Tensor:
    noise, factor_noise = block
    u = mean + scale * noise
    if factors is not None and factor_noise is not None:
        u = u + (factors @ factor_noise.unsqueeze(-1)).squeeze(-1)
    return u


def _log_softmax(u: Tensor, temperature: float | Tensor) -> Tensor:
    """log_softmax(u / tau) over the last axis, with the argmax (ties shared, no gradient) at tau = 0."""
    if isinstance(temperature, Tensor):
        zero = temperature == 0
        soft = torch.log_softmax(u / torch.where(zero, 1.0, temperature), -1)
        return torch.where(zero, hard_log_softmax(u), soft)
    if temperature == 0:
        return hard_log_softmax(u) + 0.0 * u
    return torch.log_softmax(u / temperature, -1)


def hard_log_softmax(u: Tensor) -> Tensor:
    """The limit of log_softmax(u / tau) as tau falls to 0: -log of the number of winners, or -inf. No gradient."""
    winners = (u == u.amax(-1, keepdim=True)).detach()
    shares = -winners.sum(-1, keepdim=True).to(u.dtype).log()
    return torch.where(winners, shares, -math.inf)


def _accumulate(total: Tensor | None, log_p: Tensor) -> Tensor:
    """Running log of the sum of exp(log_p) over draws. Safe in value and gradient where all are -inf."""
    peak = log_p.detach().amax(0)
    if total is not None:
        peak = torch.maximum(peak, total.detach())
    peak = peak.clamp(min=torch.finfo(peak.dtype).min / 4)
    mass = (log_p - peak).exp().sum(0)
    if total is not None:
        mass = mass + (total - peak).exp()
    positive = mass > 0
    return torch.where(positive, torch.where(positive, mass, 1.0).log() + peak, -math.inf)


class _Averaged(torch.autograd.Function):
    """`sampled_log_softmax` over a stream of blocks, drawn a second time in the backward pass.

    With w_sc = p_sc / sum_s' p_s'c the gradient of sum_c g_c log p_c in the latent u^s is
    (g_k w_sk - p_sk sum_c g_c w_sc) / tau.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        scale: Tensor,
        factors: Tensor | None,
        temperature: Tensor,
        blocks: Callable[[], Any],
        samples: int,
    ) -> Tensor:
        total: Tensor | None = None
        for block in blocks():
            total = _accumulate(total, _log_softmax(_latent(mean, scale, factors, block), temperature))
        assert total is not None
        ctx.save_for_backward(mean, scale, factors, temperature, total)
        ctx.blocks = blocks
        return total - math.log(samples)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, temperature, total = ctx.saved_tensors
        inverse = torch.where(temperature == 0, 0.0, 1 / torch.where(temperature == 0, 1.0, temperature))
        d_mean, d_scale, d_tau = torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros_like(mean)
        d_factors = None if factors is None else torch.zeros_like(factors)
        for block in ctx.blocks():
            u = _latent(mean, scale, factors, block)
            log_p = _log_softmax(u, temperature)
            weighted = grad * (log_p - total.clamp(min=torch.finfo(total.dtype).min)).exp()
            d_u = (weighted - log_p.exp() * weighted.sum(-1, keepdim=True)) * inverse
            d_mean += d_u.sum(0)
            d_scale += (d_u * block[0]).sum(0)
            d_tau -= (d_u * (u - u.amax(-1, keepdim=True))).sum(0)
            if d_factors is not None and block[1] is not None:
                d_factors += (d_u.unsqueeze(-1) * block[1].unsqueeze(-2)).sum(0)
        d_temperature = (d_tau * inverse).sum(-1, keepdim=True)
        return d_mean, d_scale, d_factors, d_temperature, None, None


def average_blocks(
    mean: Tensor,
    scale: Tensor,
    factors: Tensor | None,
    temperature: Tensor,
    blocks: Callable[[], Any],
    samples: int,
) -> Tensor:
    """The mean over blocks of noise in log space; `blocks()` must give the same blocks whenever it is called.

    All inputs have the same leading shape; temperature is (..., 1).
    """
    result: Tensor = _Averaged.apply(mean, scale, factors, temperature, blocks, samples)  # type: ignore[no-untyped-call]
    return result
