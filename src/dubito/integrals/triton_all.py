# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The rule of `quick` as kernels: a program per row, classes down, nodes across. Imported only where Triton is."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import quick as _quick
from .triton_table import ROOT_C, X_MAX, class_columns, look_up, rough, tables

_LEFT, _RIGHT = tl.constexpr(_quick.LEFT), tl.constexpr(_quick.RIGHT)
_POINTS, _ROUNDS = tl.constexpr(_quick.POINTS), tl.constexpr(_quick.ROUNDS)
_RELATIVE = tl.constexpr(1e-8)
_MOST = 1 << 14


@triton.jit
def _top(mean_ptr, row, classes, BLOCK_K: tl.constexpr):
    """The highest mean of a row."""
    k = tl.arange(0, BLOCK_K)
    mean = tl.load(mean_ptr + row.to(tl.int64) * classes + k, mask=k < classes, other=-float("inf"))
    return tl.max(mean.to(tl.float32), 0)


@triton.jit
def _stretch(table_ptr, keep, mean, width, base, offset, NODES: tl.constexpr):
    """The first node and the distance of nodes."""
    low = tl.max(tl.max(tl.where(keep, mean - 14 * width, -1e30), 1), 0)
    high = tl.max(tl.max(tl.where(keep, mean + 16 * width, -1e30), 1), 0)
    index = tl.arange(0, _POINTS)[None, :]
    for _ in range(_ROUNDS):
        step = (high - low) / (_POINTS - 1)
        m, m_x = rough(table_ptr, (low + step * index - mean) / width, base, offset)
        m = tl.where(keep, m, -1e30)
        peak = tl.max(m, 0, keep_dims=True)
        value = peak + tl.log(tl.sum(tl.exp(m - peak), 0, keep_dims=True))
        first = tl.sum(tl.sum((value >= _LEFT).to(tl.int32), 1), 0) - 1
        last = _POINTS - tl.sum(tl.sum((value <= _RIGHT).to(tl.int32), 1), 0)
        high = low + step * tl.minimum(last, _POINTS - 1)
        low = low + step * tl.maximum(first, 0)
    return low, (high - low) / (NODES - 1)


@triton.jit
def _values(table_ptr, keep, mean, width, cos, sin, base, offset, turn, low, step, NODES: tl.constexpr):
    """At all nodes, (BLOCK_K, NODES): x, log of the rate, (dM/d alpha) / (dM/dx); and G + log step, (1, NODES)."""
    x = (low + step * tl.arange(0, NODES)[None, :] - mean) / width
    m, m_x, m_v = look_up(table_ptr, x, base, offset)
    # The Gumbel's tail is exactly exponential far to the right.
    slope = ROOT_C / sin
    straight = ((x - 8) * sin > ROOT_C * cos) & ((m < -21.0) | (x > X_MAX))
    line = slope * slope * cos * cos * 0.5 - 0.5772156649015329 - slope * x + tl.log(slope)
    log_slope = tl.where(straight, line, m + tl.log(tl.maximum(-m_x, 1e-30)))
    ratio = tl.where(straight, (slope - x) * cos / sin, m_v * turn / tl.minimum(m_x, -1e-30))
    log_rate = tl.where(keep, log_slope - tl.log(width), -1e30)
    total = tl.log(step) - tl.sum(tl.where(keep, tl.exp(m), 0.0), 0, keep_dims=True)
    return x, log_rate, ratio, total


@triton.jit
def _forward(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, low_ptr, step_ptr, classes,
    BLOCK_K: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    gumbel = tl.load(tau_ptr + row).to(tl.float32) * ROOT_C
    shift = _top(mean_ptr, row, classes, BLOCK_K)
    k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, BLOCK_K
    )
    low, step = _stretch(table_ptr, keep, mean, width, base, offset, NODES)
    x, log_rate, ratio, total = _values(
        table_ptr, keep, mean, width, cos, sin, base, offset, turn, low, step, NODES
    )
    terms = log_rate + total
    peak = tl.max(terms, 1, keep_dims=True)
    parts = tl.exp(terms - peak)
    all_nodes = tl.sum(parts, 1, keep_dims=True)
    even = tl.where(tl.arange(0, NODES)[None, :] % 2 == 0, parts, 0.0)
    half = 2 * tl.sum(even, 1, keep_dims=True)
    log_p = peak + tl.log(all_nodes)
    p = tl.where(keep, tl.exp(log_p), 0.0)
    moved = tl.max(tl.max(tl.where(p > _RELATIVE, tl.abs(half / all_nodes - 1), 0.0), 1), 0)
    error = tl.abs(tl.sum(tl.sum(p, 1), 0) - 1) + moved * tl.sqrt(moved)
    tl.store(log_p_ptr + row.to(tl.int64) * classes + k, log_p, mask=keep)
    # A NaN compares as false, so that it becomes infinite too.
    tl.store(error_ptr + row, tl.where(error < 1e30, error, float("inf")))
    tl.store(low_ptr + row, low)
    tl.store(step_ptr + row, step)


@triton.jit
def _backward(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, low_ptr, step_ptr, grad_ptr,
    d_mean_ptr, d_scale_ptr, d_tau_ptr, classes, BLOCK_K: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    gumbel = tl.load(tau_ptr + row).to(tl.float32) * ROOT_C
    shift = _top(mean_ptr, row, classes, BLOCK_K)
    k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, BLOCK_K
    )
    low, step = tl.load(low_ptr + row), tl.load(step_ptr + row)
    x, log_rate, ratio, total = _values(
        table_ptr, keep, mean, width, cos, sin, base, offset, turn, low, step, NODES
    )
    at = row.to(tl.int64) * classes + k
    log_p = tl.maximum(tl.load(log_p_ptr + at, mask=keep, other=0.0), -1e30)
    grad = tl.load(grad_ptr + at, mask=keep, other=0.0).to(tl.float32)
    weighted = grad * tl.exp(tl.minimum(log_rate + total - log_p, 60.0))
    rate = tl.exp(tl.minimum(log_rate, 80.0))
    in_x = rate * tl.sum(weighted, 0, keep_dims=True) - weighted * tl.sum(rate, 0, keep_dims=True)
    in_x = tl.where(keep, in_x, 0.0)
    a = tl.sum(in_x, 1, keep_dims=True)
    b = tl.sum(in_x * x, 1, keep_dims=True)
    c = tl.sum(in_x * ratio, 1, keep_dims=True)
    tl.store(d_mean_ptr + at, -a, mask=keep)
    tl.store(d_scale_ptr + at, -(cos * b + sin * c), mask=keep)
    d_tau = tl.sum(tl.sum(tl.where(keep, cos * c - sin * b, 0.0), 1), 0)
    tl.store(d_tau_ptr + row, d_tau * ROOT_C)


def _shape(classes: int, nodes: int) -> dict[str, int]:
    block = max(2, triton.next_power_of_2(classes))
    return {"BLOCK_K": block, "NODES": nodes, "num_warps": max(1, min(16, block * nodes // 256))}


def _long(classes: int, nodes: int) -> bool:
    """Whether the nodes do not fit into one tile of 2^14 numbers."""
    return bool(triton.next_power_of_2(classes) * nodes > _MOST)


def forward(
    mean: Tensor, scale: Tensor, temperature: Tensor, nodes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log p (B, K), its error, the first node and the distance of nodes (B,), in float32."""
    rows, classes = mean.shape
    log_p = torch.empty(rows, classes, dtype=torch.float32, device=mean.device)
    error, low, step = (torch.empty(rows, dtype=torch.float32, device=mean.device) for _ in range(3))
    inputs = [x.contiguous() for x in (mean, scale, temperature)]
    found = (log_p, error, low, step)
    if _long(classes, nodes):
        from . import triton_long

        triton_long.forward(inputs, nodes, found)
    else:
        _forward[(rows,)](*inputs, *tables(mean.device), *found, classes, **_shape(classes, nodes))
    return found


def backward(
    mean: Tensor,
    scale: Tensor,
    temperature: Tensor,
    log_p: Tensor,
    low: Tensor,
    step: Tensor,
    grad: Tensor,
    nodes: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in mean and scale (B, K) and temperature (B, 1), in float32."""
    rows, classes = mean.shape
    d_mean, d_scale = (torch.empty_like(log_p) for _ in range(2))
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=mean.device)
    inputs = [x.contiguous() for x in (mean, scale, temperature)]
    saved, found = (log_p, low, step, grad.contiguous()), (d_mean, d_scale, d_tau)
    if _long(classes, nodes):
        from . import triton_long

        triton_long.backward(inputs, saved, nodes, found)
    else:
        _backward[(rows,)](*inputs, *tables(mean.device), *saved, *found, classes, **_shape(classes, nodes))
    return found
