# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Fused kernels for shared noise banks: average the softmax over draws without storing a single draw.

Memory is O(rows x classes). For a likelihood, one pass gives value and gradients, which are averages over the same
draws; for all classes the backward pass goes through the bank again. Imported only where Triton is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import triton_few
from .triton_launch import Launcher

MOST_CLASSES = 8192
# Exponentials are taken to base 2. 1 / tau at tau = 0 is a very large number: all but the maximum vanish.
_SHARP = tl.constexpr(1e30)
_LOG2_E, _LOG_2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@triton.jit
def _load(
    mean_ptr, scale_ptr, tau_ptr, rows, classes, tau_stride, BLOCK_K: tl.constexpr, BLOCK_R: tl.constexpr
):
    """A tile with classes first and rows last; padding classes lie far below all others."""
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)[None, :]
    k = tl.arange(0, BLOCK_K)[:, None]
    keep = (k < classes) & (row < rows)
    at = row.to(tl.int64) * classes + k
    mean = tl.load(mean_ptr + at, mask=keep, other=-1e30).to(tl.float32)
    scale = tl.load(scale_ptr + at, mask=keep, other=0.0).to(tl.float32)
    tau = tl.load(tau_ptr + row * tau_stride, mask=row < rows, other=1.0).to(tl.float32)
    return row, k, keep, at, mean, scale, tau, tl.where(tau > 0, _LOG2_E / tau, _SHARP)


@triton.jit
def _unnormalised(mean, scale, noise, inverse):
    """The distance d below the maximum, to base 2; 2^d; and the maximum."""
    u = mean + scale * noise
    top = tl.max(u, 0, keep_dims=True)
    below = (u - top) * inverse
    return below, tl.exp2(below), top


@triton.jit(do_not_specialize=["rows", "classes", "samples", "tau_stride", "ignore"])
def _nll_kernel(
    mean_ptr, scale_ptr, target_ptr, tau_ptr, bank_ptr, log_p_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr,
    rows, classes, samples, tau_stride, ignore,
    BLOCK_K: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """With weights w_s proportional to p_sy, d log p_y / d u_k is the average of w_s (1{k = y} - p_sk) / tau. The
    term 1{k = y} concerns the target alone and is added at the end.
    """
    row, k, keep, at, mean, scale, tau, inverse = _load(
        mean_ptr, scale_ptr, tau_ptr, rows, classes, tau_stride, BLOCK_K, BLOCK_R
    )
    live = row < rows
    target = tl.load(target_ptr + row, mask=live, other=0)
    counts = target != ignore  # a row that does not count has log p = 0 and no gradients
    target = tl.where(counts, target, 0)
    own_at = row.to(tl.int64) * classes + target
    own_mean = tl.load(mean_ptr + own_at, mask=live, other=0.0).to(tl.float32)
    own_scale = tl.load(scale_ptr + own_at, mask=live, other=0.0).to(tl.float32)
    g_mean = tl.zeros([BLOCK_K, BLOCK_R], tl.float32)
    g_scale = tl.zeros([BLOCK_K, BLOCK_R], tl.float32)
    g_tau = tl.zeros([1, BLOCK_R], tl.float32)
    g_own = tl.zeros([1, BLOCK_R], tl.float32)
    mass = tl.zeros([1, BLOCK_R], tl.float32)
    peak = tl.full([1, BLOCK_R], -1e38, tl.float32)
    for s in range(samples):
        noise = tl.load(bank_ptr + s * classes + k, mask=k < classes, other=0.0)
        own_noise = tl.load(bank_ptr + s * classes + target)
        below, weights, top = _unnormalised(mean, scale, noise, inverse)
        total = tl.sum(weights, 0, keep_dims=True)
        average = tl.sum(tl.where(weights > 0, below * weights, 0.0), 0, keep_dims=True) / total
        own_below = (own_mean + own_scale * own_noise - top) * inverse
        log_own = own_below - tl.log2(total)
        higher = tl.maximum(peak, log_own)
        fade = tl.exp2(peak - higher)
        weight = tl.exp2(log_own - higher)
        push = weights * (weight / total)
        g_mean = g_mean * fade - push
        g_scale = g_scale * fade - push * noise
        g_own = g_own * fade + weight * own_noise
        g_tau = g_tau * fade + tl.where(weight > 0, weight * (own_below - average), 0.0)
        mass = mass * fade + weight
        peak = higher
    own = k == target
    slope = tl.where(tau > 0, 1.0 / tau, 0.0) / mass
    slope = tl.where(counts, slope, 0.0)
    log_p = (peak + tl.log2(mass) - tl.log2(samples * 1.0)) * _LOG_2
    tl.store(log_p_ptr + row, tl.where(counts, log_p, 0.0), mask=live)
    tl.store(d_mean_ptr + at, (g_mean + tl.where(own, mass, 0.0)) * slope, mask=keep)
    tl.store(d_scale_ptr + at, (g_scale + tl.where(own, g_own, 0.0)) * slope, mask=keep)
    tl.store(d_tau_ptr + row, -g_tau * _LOG_2 * slope, mask=live)


@triton.jit(do_not_specialize=["rows", "classes", "samples", "tau_stride"])
def _forward_kernel(
    mean_ptr, scale_ptr, tau_ptr, bank_ptr, log_p_ptr, rows, classes, samples, tau_stride,
    BLOCK_K: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """log of the average softmax of all classes."""
    row, k, keep, at, mean, scale, tau, inverse = _load(
        mean_ptr, scale_ptr, tau_ptr, rows, classes, tau_stride, BLOCK_K, BLOCK_R
    )
    mass = tl.zeros([BLOCK_K, BLOCK_R], tl.float32)
    best = tl.full([BLOCK_K, BLOCK_R], -1e38, tl.float32)
    for s in range(samples):
        noise = tl.load(bank_ptr + s * classes + k, mask=k < classes, other=0.0)
        below, weights, top = _unnormalised(mean, scale, noise, inverse)
        total = tl.sum(weights, 0, keep_dims=True)
        mass += weights / total
        best = tl.maximum(best, below - tl.log2(total))
    # A class that underflows in every draw keeps the log of its best one.
    log_p = tl.where(mass > 0, tl.log2(tl.maximum(mass, 1e-38)), best) - tl.log2(samples * 1.0)
    tl.store(log_p_ptr + at, log_p * _LOG_2, mask=keep)


@triton.jit(do_not_specialize=["rows", "classes", "samples", "tau_stride"])
def _backward_kernel(
    mean_ptr, scale_ptr, tau_ptr, grad_ptr, bank_ptr, log_p_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr,
    rows, classes, samples, tau_stride,
    BLOCK_K: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """d_u = (g_k w_k - p_k sum_c g_c w_c) / tau with w_c = p_c / (S average p_c), draw by draw."""
    row, k, keep, at, mean, scale, tau, inverse = _load(
        mean_ptr, scale_ptr, tau_ptr, rows, classes, tau_stride, BLOCK_K, BLOCK_R
    )
    log_p = tl.load(log_p_ptr + at, mask=keep, other=0.0) * _LOG2_E
    grad = tl.load(grad_ptr + at, mask=keep, other=0.0).to(tl.float32)
    g_mean = tl.zeros([BLOCK_K, BLOCK_R], tl.float32)
    g_scale = tl.zeros([BLOCK_K, BLOCK_R], tl.float32)
    g_tau = tl.zeros([1, BLOCK_R], tl.float32)
    for s in range(samples):
        noise = tl.load(bank_ptr + s * classes + k, mask=k < classes, other=0.0)
        below, weights, top = _unnormalised(mean, scale, noise, inverse)
        total = tl.sum(weights, 0, keep_dims=True)
        weighted = grad * tl.exp2(tl.where(keep, below - tl.log2(total) - log_p, 0.0))
        push = weighted - weights / total * tl.sum(weighted, 0, keep_dims=True)
        g_mean += push
        g_scale += push * noise
        g_tau += tl.sum(tl.where(push == 0, 0.0, push * below), 0, keep_dims=True)
    slope = tl.where(tau > 0, 1.0 / tau, 0.0) / samples
    tl.store(d_mean_ptr + at, g_mean * slope, mask=keep)
    tl.store(d_scale_ptr + at, g_scale * slope, mask=keep)
    tl.store(d_tau_ptr + row, -g_tau * _LOG_2 * slope, mask=row < rows)


_run_nll, _run_forward, _run_backward = (
    Launcher(_nll_kernel),
    Launcher(_forward_kernel),
    Launcher(_backward_kernel),
)


def _launch(classes: int) -> tuple[tuple[int, int], int]:
    """Tile shape and warps: up to 32 classes several rows, beyond that the threads of a program share one row."""
    block_k = max(2, triton.next_power_of_2(classes))
    if block_k <= 32:
        return (block_k, 64), 2
    return (block_k, 1), 1 if block_k <= 128 else 4 if block_k <= 2048 else 8


def _stride(temperature: Tensor) -> int:
    return 1 if temperature.numel() > 1 else 0


def nll(
    mean: Tensor,
    scale: Tensor,
    temperature: Tensor,
    target: Tensor,
    bank: Tensor,
    tile: tuple[tuple[int, int], int] | None = None,
    ignore: int = -1,
    heat: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log p of the target (B,) and its gradients in mean, scale (B, K) and temperature (B, 1).

    The gradients in mean and scale have the type of these, all else is float32. mean and scale (B, K) contiguous,
    float32 or bfloat16; temperature (B, 1) or one number; bank (S, K) float32.
    `tile` overrides the shape of the tiles; rows with the label `ignore` get zeros; without `heat` the gradient in
    the temperature is left out.
    """
    rows, classes = mean.shape
    log_p = torch.empty(rows, dtype=torch.float32, device=mean.device)
    d_mean, d_scale = torch.empty_like(mean), torch.empty_like(scale)
    few = classes <= triton_few.MOST_CLASSES and tile is None
    need = heat or not few
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=mean.device) if need else log_p
    given, found = (mean, scale, target, temperature), (bank, log_p, d_mean, d_scale, d_tau)
    if few:
        numbers, warps = triton_few.ROWS, triton_few.WARPS
        rest = (*found, rows, bank.shape[0], _stride(temperature), ignore)
        triton_few.nll(triton.cdiv(rows, numbers), given, rest, (classes, numbers, heat), warps)
    else:
        shape, warps = tile or _launch(classes)
        more = (*found, rows, classes, bank.shape[0], _stride(temperature), ignore)
        _run_nll(triton.cdiv(rows, shape[1]), given, more, shape, warps)
    return log_p, d_mean, d_scale, d_tau


def forward(mean: Tensor, scale: Tensor, temperature: Tensor, bank: Tensor) -> Tensor:
    """log of the average softmax, (B, K) in float32. Arguments as for `nll`."""
    rows, classes = mean.shape
    log_p = torch.empty(rows, classes, dtype=torch.float32, device=mean.device)
    given = (mean, scale, temperature)
    if classes <= triton_few.MOST_CLASSES:
        numbers, warps = triton_few.ROWS, triton_few.WARPS
        rest = (bank, log_p, rows, bank.shape[0], _stride(temperature))
        triton_few.forward(triton.cdiv(rows, numbers), given, rest, (classes, numbers), warps)
    else:
        shape, warps = _launch(classes)
        more = (bank, log_p, rows, classes, bank.shape[0], _stride(temperature))
        _run_forward(triton.cdiv(rows, shape[1]), given, more, shape, warps)
    return log_p


def backward(
    mean: Tensor, scale: Tensor, temperature: Tensor, bank: Tensor, log_p: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in mean, scale and temperature of sum(grad * log_p)."""
    rows, classes = mean.shape
    d_mean, d_scale = torch.empty_like(mean), torch.empty_like(scale)
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=mean.device)
    given = (mean, scale, temperature, grad.contiguous())
    found = (bank, log_p, d_mean, d_scale, d_tau)
    if classes <= triton_few.MOST_CLASSES:
        numbers, warps = triton_few.ROWS, triton_few.WARPS
        rest = (*found, rows, bank.shape[0], _stride(temperature))
        triton_few.backward(triton.cdiv(rows, numbers), given, rest, (classes, numbers), warps)
    else:
        shape, warps = _launch(classes)
        more = (*found, rows, classes, bank.shape[0], _stride(temperature))
        _run_backward(triton.cdiv(rows, shape[1]), given, more, shape, warps)
    return d_mean, d_scale, d_tau
