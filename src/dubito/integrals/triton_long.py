# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The rule of `quick` with thousands of nodes, a chunk at a time: for the few rows whose widths differ much.

Low temperatures make classes with little noise narrow and leave the others wide; equal steps then have to be many.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .triton_all import _RELATIVE, _stretch, _top, _values
from .triton_table import ROOT_C, class_columns, tables

_TILE = 1 << 12  # classes x nodes of a chunk


@triton.jit
def _forward(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, low_ptr, step_ptr, classes,
    BLOCK_K: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    gumbel = tl.load(tau_ptr + row).to(tl.float32) * ROOT_C
    shift = _top(mean_ptr, row, classes, BLOCK_K)
    k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, BLOCK_K
    )
    low, step = _stretch(table_ptr, keep, mean, width, base, offset, CHUNK * CHUNKS)
    peak = tl.full([BLOCK_K, 1], -1e30, tl.float32)
    every = tl.zeros([BLOCK_K, 1], tl.float32)
    half = tl.zeros([BLOCK_K, 1], tl.float32)
    for i in range(CHUNKS):
        start = low + step * (i * CHUNK)
        x, log_rate, ratio, total = _values(
            table_ptr, keep, mean, width, cos, sin, base, offset, turn, start, step, CHUNK
        )
        terms = log_rate + total
        top = tl.maximum(peak, tl.max(terms, 1, keep_dims=True))
        parts, before = tl.exp(terms - top), tl.exp(peak - top)
        even = tl.where(tl.arange(0, CHUNK)[None, :] % 2 == 0, parts, 0.0)
        every = every * before + tl.sum(parts, 1, keep_dims=True)
        half = half * before + tl.sum(even, 1, keep_dims=True)
        peak = top
    log_p = peak + tl.log(every)
    p = tl.where(keep, tl.exp(log_p), 0.0)
    moved = tl.max(tl.max(tl.where(p > _RELATIVE, tl.abs(2 * half / every - 1), 0.0), 1), 0)
    error = tl.abs(tl.sum(tl.sum(p, 1), 0) - 1) + moved * tl.sqrt(moved)
    tl.store(log_p_ptr + row.to(tl.int64) * classes + k, log_p, mask=keep)
    tl.store(error_ptr + row, tl.where(error < 1e30, error, float("inf")))
    tl.store(low_ptr + row, low)
    tl.store(step_ptr + row, step)


@triton.jit
def _backward(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, low_ptr, step_ptr, grad_ptr,
    d_mean_ptr, d_scale_ptr, d_tau_ptr, classes, BLOCK_K: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    gumbel = tl.load(tau_ptr + row).to(tl.float32) * ROOT_C
    shift = _top(mean_ptr, row, classes, BLOCK_K)
    k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, BLOCK_K
    )
    low, step = tl.load(low_ptr + row), tl.load(step_ptr + row)
    at = row.to(tl.int64) * classes + k
    log_p = tl.maximum(tl.load(log_p_ptr + at, mask=keep, other=0.0), -1e30)
    grad = tl.load(grad_ptr + at, mask=keep, other=0.0).to(tl.float32)
    a = tl.zeros([BLOCK_K, 1], tl.float32)
    b = tl.zeros([BLOCK_K, 1], tl.float32)
    c = tl.zeros([BLOCK_K, 1], tl.float32)
    for i in range(CHUNKS):
        start = low + step * (i * CHUNK)
        x, log_rate, ratio, total = _values(
            table_ptr, keep, mean, width, cos, sin, base, offset, turn, start, step, CHUNK
        )
        weighted = grad * tl.exp(tl.minimum(log_rate + total - log_p, 60.0))
        rate = tl.exp(tl.minimum(log_rate, 80.0))
        in_x = rate * tl.sum(weighted, 0, keep_dims=True) - weighted * tl.sum(rate, 0, keep_dims=True)
        in_x = tl.where(keep, in_x, 0.0)
        a += tl.sum(in_x, 1, keep_dims=True)
        b += tl.sum(in_x * x, 1, keep_dims=True)
        c += tl.sum(in_x * ratio, 1, keep_dims=True)
    tl.store(d_mean_ptr + at, -a, mask=keep)
    tl.store(d_scale_ptr + at, -(cos * b + sin * c), mask=keep)
    d_tau = tl.sum(tl.sum(tl.where(keep, cos * c - sin * b, 0.0), 1), 0)
    tl.store(d_tau_ptr + row, d_tau * ROOT_C)


def _shape(classes: int, nodes: int) -> dict[str, int]:
    block = max(2, triton.next_power_of_2(classes))
    chunk = max(2, min(nodes, _TILE // block))
    return {"BLOCK_K": block, "CHUNK": chunk, "CHUNKS": nodes // chunk, "num_warps": 8}


def forward(inputs: list[Tensor], nodes: int, found: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Fill log p (B, K), its error, the first node and the distance of nodes (B,)."""
    rows, classes = inputs[0].shape
    _forward[(rows,)](*inputs, *tables(inputs[0].device), *found, classes, **_shape(classes, nodes))


def backward(
    inputs: list[Tensor], saved: tuple[Tensor, ...], nodes: int, found: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Fill the gradients in mean and scale (B, K) and temperature (B, 1)."""
    rows, classes = inputs[0].shape
    _backward[(rows,)](*inputs, *tables(inputs[0].device), *saved, *found, classes, **_shape(classes, nodes))
