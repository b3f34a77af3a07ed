"""Low-rank latents: quasi-random points over the few factors around the exact integral over the rest."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .border import Latent
from .noise import sobol_bank
from .quadrature import solve
from .sampling import REPLICATES

FIRST, MOST = 64, 4096  # points over the factors
_ROWS = 4096  # rows of the inner integral at a time


class _Mixed(torch.autograd.Function):
    """log of the mean over points z of p_y(mean + factors z), with gradients gathered in the same pass."""

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        scale: Tensor,
        factors: Tensor,
        temperature: Tensor,
        target: Tensor,
        points: Tensor,
        tol: float,
    ) -> tuple[Tensor, Tensor]:
        wanted = any(ctx.needs_input_grad)
        sums = [torch.zeros_like(x) for x in (mean, scale, temperature, factors)]
        peak = torch.full_like(mean[:, 0], -math.inf)
        values, errors = [], torch.zeros_like(peak)
        for z in points.split(max(1, _ROWS // max(1, len(mean)))):
            log_p, error, parts = _at_points(mean, scale, factors, temperature, target, z, tol)
            values.append(log_p)
            errors = torch.maximum(errors, error.amax(0))
            if wanted:
                higher = torch.maximum(peak, log_p.amax(0))
                floor = higher.clamp(min=torch.finfo(peak.dtype).min)
                fade, weight = (peak - floor).exp(), (log_p - floor).exp()
                sums = [
                    s * fade.reshape(-1, *(1,) * (s.dim() - 1)) + torch.einsum("sb,sb...->b...", weight, part)
                    for s, part in zip(sums, parts)
                ]
                peak = higher
        log_ps = torch.cat(values)
        log_p = torch.logsumexp(log_ps, 0) - math.log(len(points))
        if wanted:
            share = (peak - log_p).exp().nan_to_num(0.0) / len(points)
            sums = [s * share.reshape(-1, *(1,) * (s.dim() - 1)) for s in sums]
        ctx.save_for_backward(*sums)
        error = errors + _relative_spread(log_ps, log_p)
        ctx.mark_non_differentiable(error)
        return log_p, error

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_mean, d_scale, d_temperature, d_factors = (
            torch.where(d == 0, 0.0, grad.reshape(-1, *(1,) * (d.dim() - 1)) * d) for d in ctx.saved_tensors
        )
        return d_mean, d_scale, d_factors, d_temperature, None, None, None


def _at_points(
    mean: Tensor,
    scale: Tensor,
    factors: Tensor,
    temperature: Tensor,
    target: Tensor,
    z: Tensor,
    tol: float,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The exact integral at points z (S, R): log p and error (S, B), gradients (S, B, ...) for all four inputs."""
    count, shape = len(z), mean.shape
    shifted = mean + (factors @ z.T).movedim(-1, 0)
    answer, _ = solve(
        shifted.flatten(0, 1),
        scale.expand(count, *shape).flatten(0, 1),
        temperature.expand(count, -1, 1).flatten(0, 1),
        target.repeat(count),
        tol,
    )
    log_p, error = answer.log_p.reshape(count, -1), answer.error.reshape(count, -1)
    d_mean, d_scale = answer.d_mean.reshape(count, *shape), answer.d_scale.reshape(count, *shape)
    parts = [d_mean, d_scale, answer.d_temperature.reshape(count, -1, 1)]
    return log_p, error, [*parts, d_mean.unsqueeze(-1) * z[:, None, None]]


def _relative_spread(log_ps: Tensor, log_p: Tensor) -> Tensor:
    """Standard error of log p from the replicates that the points are made of."""
    groups = log_ps.unflatten(0, (REPLICATES, -1))
    ratio = (torch.logsumexp(groups, 1) - math.log(groups.shape[1]) - log_p).exp()
    spread: Tensor = ratio.nan_to_num(0.0).std(0)
    return spread / math.sqrt(REPLICATES)


def factor_points(count: int, rank: int, seed: int, like: Tensor) -> Tensor:
    """`count` points over the factors: independent scrambled Sobol sets, one per replicate, (count, rank)."""
    each = max(1, count // REPLICATES)
    sets = [
        sobol_bank(each, rank, 0, seed + r, "normal", like.device, like.dtype)[0] for r in range(REPLICATES)
    ]
    return torch.cat(sets)


def factor_log_likelihood(
    latent: Latent, target: Tensor, tol: float, seed: int, count: int | None = None
) -> tuple[Tensor, Tensor, int]:
    """log p of the target, its error, and the number of points: doubled until `tol` is met, or `count`."""
    assert latent.factors is not None
    shape, classes = latent.mean.shape[:-1], latent.mean.shape[-1]
    flat = (
        latent.mean.reshape(-1, classes),
        latent.scale.reshape(-1, classes),
        latent.factors.reshape(-1, classes, latent.rank),
        latent.temperature.reshape(-1, 1),
        target.reshape(-1),
    )
    inner = max(tol / 10, 1e-5)
    number = count or FIRST
    while True:
        points = factor_points(number, latent.rank, seed, latent.mean)
        log_p, error = _Mixed.apply(*flat, points, inner)  # type: ignore[no-untyped-call]
        if count or number >= MOST or error.numel() == 0 or float(error.max()) <= tol:
            return log_p.reshape(shape), error.reshape(shape), number
        number *= 2
