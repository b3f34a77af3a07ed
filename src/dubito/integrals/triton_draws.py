# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Fused kernels for Monte Carlo as the papers do it: fresh draws at every step, shared by the rows of a batch.

Runs that are trained together form groups, each with its own draws. One program computes one row of one group, in
tiles of (draws, classes); low-rank noise is a small matrix product inside a tile. Nothing of the size of rows x
draws is ever stored. Imported only where Triton is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_CLASSES, MOST_FACTORS = 128, 64
_TILE = 64  # draws in a tile
# Exponentials are taken to base 2. 1 / tau at tau = 0 is a very large number: all but the maximum vanish.
_SHARP = tl.constexpr(1e30)
_LOG2_E, _LOG_2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@triton.jit
def _load_row(
    mean_ptr, scale_ptr, tau_ptr, factors_ptr, rows, classes, rank, K: tl.constexpr, R: tl.constexpr
):
    """Mean and scale (1, K), factors (R, K) and temperature of this program's row."""
    row = (tl.program_id(1) * rows + tl.program_id(0)).to(tl.int64)
    k = tl.arange(0, K)[None, :]
    at = row * classes + k
    mean = tl.load(mean_ptr + at, mask=k < classes, other=-1e30)
    scale = tl.load(scale_ptr + at, mask=k < classes, other=0.0)
    tau = tl.load(tau_ptr + row)
    factors = tl.zeros([1, 1], tl.float32)
    if R > 0:
        r = tl.arange(0, R)[:, None]
        where = (row * classes + k) * rank + r
        factors = tl.load(factors_ptr + where, mask=(k < classes) & (r < rank), other=0.0)
    return row, at, mean, scale, factors, tau, tl.where(tau > 0, _LOG2_E / tau, _SHARP)


@triton.jit
def _load_draws(
    noise_ptr, factor_noise_ptr, start, draws, classes, rank,
    S: tl.constexpr, K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """One tile of this group's draws: (S, K) for the classes and (S, R) for the factors."""
    s = start + tl.arange(0, S)[:, None]
    k = tl.arange(0, K)[None, :]
    at = (tl.program_id(1).to(tl.int64) * draws + s) * classes + k
    noise = tl.load(noise_ptr + at, mask=(s < draws) & (k < classes), other=0.0)
    shared = tl.zeros([1, 1], tl.float32)
    if R > 0:
        r = tl.arange(0, R)[None, :]
        at_r = (tl.program_id(1).to(tl.int64) * draws + s) * rank + r
        shared = tl.load(factor_noise_ptr + at_r, mask=(s < draws) & (r < rank), other=0.0)
    return s, noise, shared


@triton.jit
def _log2_softmax(mean, scale, factors, inverse, noise, shared, R: tl.constexpr):
    """log2 softmax(u / tau) of every draw in the tile, and the distance of u / tau below its maximum."""
    u = mean + scale * noise
    if R > 0:
        u += tl.dot(shared, factors, input_precision="ieee")
    below = (u - tl.max(u, 1, keep_dims=True)) * inverse
    return below - tl.log2(tl.sum(tl.exp2(below), 1, keep_dims=True)), below


@triton.jit
def _forward_kernel(
    mean_ptr, scale_ptr, tau_ptr, factors_ptr, noise_ptr, factor_noise_ptr, log_p_ptr,
    rows, draws, classes, rank,
    S: tl.constexpr, K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """log of the average softmax of one row."""
    row, at, mean, scale, factors, tau, inverse = _load_row(
        mean_ptr, scale_ptr, tau_ptr, factors_ptr, rows, classes, rank, K, R
    )
    mass = tl.zeros([S, K], tl.float32)
    best = tl.full([S, K], -1e38, tl.float32)
    for start in range(0, draws, S):
        s, noise, shared = _load_draws(noise_ptr, factor_noise_ptr, start, draws, classes, rank, S, K, R)
        log2_p, below = _log2_softmax(mean, scale, factors, inverse, noise, shared, R)
        mass += tl.where(s < draws, tl.exp2(log2_p), 0.0)
        best = tl.maximum(best, tl.where(s < draws, log2_p, -1e38))
    total = tl.sum(mass, 0, keep_dims=True)
    # A class that underflows in every draw keeps the log of its best one.
    peak = tl.max(best, 0, keep_dims=True)
    log_p = tl.where(total > 0, tl.log2(tl.maximum(total, 1e-38)), peak) - tl.log2(draws * 1.0)
    tl.store(log_p_ptr + at, log_p * _LOG_2, mask=tl.arange(0, K)[None, :] < classes)


@triton.jit
def _backward_kernel(
    mean_ptr, scale_ptr, tau_ptr, factors_ptr, noise_ptr, factor_noise_ptr, log_p_ptr, grad_ptr,
    d_mean_ptr, d_scale_ptr, d_tau_ptr, d_factors_ptr,
    rows, draws, classes, rank,
    S: tl.constexpr, K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """d_u = (g_k w_k - p_k sum_c g_c w_c) / tau with w_c = p_c / (S average p_c), draw by draw."""
    row, at, mean, scale, factors, tau, inverse = _load_row(
        mean_ptr, scale_ptr, tau_ptr, factors_ptr, rows, classes, rank, K, R
    )
    k = tl.arange(0, K)[None, :]
    log2_average = tl.load(log_p_ptr + at, mask=k < classes, other=0.0) * _LOG2_E
    grad = tl.load(grad_ptr + at, mask=k < classes, other=0.0)
    g_mean = tl.zeros([S, K], tl.float32)
    g_scale = tl.zeros([S, K], tl.float32)
    g_tau = tl.zeros([S, K], tl.float32)
    g_factors = tl.zeros([K, R if R > 0 else 1], tl.float32)
    for start in range(0, draws, S):
        s, noise, shared = _load_draws(noise_ptr, factor_noise_ptr, start, draws, classes, rank, S, K, R)
        log2_p, below = _log2_softmax(mean, scale, factors, inverse, noise, shared, R)
        real = (s < draws) & (k < classes)
        weighted = tl.where(real, grad * tl.exp2(tl.where(real, log2_p - log2_average, 0.0)), 0.0)
        push = weighted - tl.exp2(log2_p) * tl.sum(weighted, 1, keep_dims=True)
        g_mean += push
        g_scale += push * noise
        g_tau += tl.where(push == 0, 0.0, push * below)
        if R > 0:
            g_factors += tl.dot(tl.trans(push), shared, input_precision="ieee")
    slope = tl.where(tau > 0, 1.0 / tau, 0.0) / draws
    tl.store(d_mean_ptr + at, tl.sum(g_mean, 0, keep_dims=True) * slope, mask=k < classes)
    tl.store(d_scale_ptr + at, tl.sum(g_scale, 0, keep_dims=True) * slope, mask=k < classes)
    tl.store(d_tau_ptr + row, -tl.sum(tl.sum(g_tau, 1), 0) * _LOG_2 * slope)
    if R > 0:
        column, r = tl.arange(0, K)[:, None], tl.arange(0, R)[None, :]
        where = (row * classes + column) * rank + r
        tl.store(d_factors_ptr + where, g_factors * slope, mask=(column < classes) & (r < rank))


def _tiles(classes: int, rank: int) -> dict[str, int]:
    """Shapes of the tiles: matrix products want at least 16 of everything."""
    wide = max(16, triton.next_power_of_2(classes))
    return {"S": _TILE, "K": wide, "R": max(16, triton.next_power_of_2(rank)) if rank else 0, "num_warps": 4}


def forward(
    mean: Tensor, scale: Tensor, factors: Tensor | None, tau: Tensor, noise: Tensor, shared: Tensor | None
) -> Tensor:
    """log of the softmax averaged over draws, (G, B, K).

    mean, scale (G, B, K); factors (G, B, K, R) or None; tau (G, B); noise (G, S, K); shared (G, S, R) or None; all
    float32 and contiguous.
    """
    groups, rows, classes = mean.shape
    rank = 0 if factors is None else factors.shape[-1]
    log_p = torch.empty_like(mean)
    _forward_kernel[(rows, groups)](
        mean, scale, tau, mean if factors is None else factors, noise, noise if shared is None else shared, log_p,
        rows, noise.shape[1], classes, rank, **_tiles(classes, rank),
    )  # fmt: skip
    return log_p


def backward(
    mean: Tensor, scale: Tensor, factors: Tensor | None, tau: Tensor, noise: Tensor, shared: Tensor | None,
    log_p: Tensor, grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Gradients of sum(grad * log_p) in mean, scale, factors and tau. Arguments as for `forward`."""
    groups, rows, classes = mean.shape
    rank = 0 if factors is None else factors.shape[-1]
    d_mean, d_scale, d_tau = torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(tau)
    d_factors = None if factors is None else torch.empty_like(factors)
    _backward_kernel[(rows, groups)](
        mean, scale, tau, mean if factors is None else factors, noise, noise if shared is None else shared,
        log_p, grad, d_mean, d_scale, d_tau, mean if d_factors is None else d_factors,
        rows, noise.shape[1], classes, rank, **_tiles(classes, rank),
    )  # fmt: skip
    return d_mean, d_scale, d_factors, d_tau
