# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The rule of `quick` as kernels: a warp per row, nodes along the lanes, in chunks. Imported only where Triton is.

What depends on a class alone is found once, one class per lane, and handed round. Rows that 64 nodes do not settle
are done again with 128, 512 and at last 8,192 of them by further launches, in which the others are passed over; the
backward pass finds in `places` how many each row took.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import quick as _quick
from .triton_all_back import SMALL, backward_kernel
from .triton_all_row import log_sums, nodes_of, prepare
from .triton_launch import Launcher
from .triton_range import rivals
from .triton_table import ROOT_C

_MOST_LEFT, _LEAST_RIGHT = tl.constexpr(math.exp(_quick.LEFT)), tl.constexpr(math.exp(_quick.RIGHT))
_POINTS, _ROUNDS = tl.constexpr(_quick.POINTS), tl.constexpr(_quick.ROUNDS)
_RELATIVE = tl.constexpr(1e-8)
_ROWS = tl.constexpr(8)  # that a program of the later launches goes through
# Nodes of a chunk, chunks of the first and of the last try, and warps: for all rows, then for those that miss.
LAUNCHES = (64, 1, 1, 1), (64, 2, 8, 1), (512, 16, 16, 4)


@triton.jit
def _stretch(table_ptr, keep, mean, inverse, base, offset, classes):
    """Between these two -G falls from 75 to 1e-8."""
    low = tl.max(tl.where(keep, mean - 14 / inverse, -1e30))
    high = tl.max(tl.where(keep, mean + 16 / inverse, -1e30))
    for _ in tl.static_range(_ROUNDS):
        step = (high - low) / (_POINTS - 1)
        value = -rivals(table_ptr, mean, inverse, base, offset, classes, low + step * tl.arange(0, _POINTS))
        first = tl.sum((value >= _MOST_LEFT).to(tl.int32)) - 1
        last = _POINTS - tl.sum((value <= _LEAST_RIGHT).to(tl.int32))
        high = low + step * tl.minimum(last, _POINTS - 1)
        low = low + step * tl.maximum(first, 0)
    return low, high


@triton.jit
def _row(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
    row, rows, classes, tau_stride, chunks, CHUNK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One row with so many chunks of nodes: normalised log p, and how far the probabilities may be off."""
    gumbel = tl.load(tau_ptr + row * tau_stride).to(tl.float32) * ROOT_C
    at, keep, columns, tail = prepare(mean_ptr, scale_ptr, angle_ptr, row, classes, gumbel, WIDE)
    mean, inverse, base, offset = columns
    low, high = _stretch(table_ptr, keep, mean, inverse, base, offset, classes)
    step = (high - low) / (CHUNK * chunks - 1)
    peak = tl.full([WIDE], -1e30, tl.float32)
    every = tl.zeros([WIDE], tl.float32)
    half = tl.zeros([WIDE], tl.float32)
    for i in range(chunks):
        t = nodes_of(low, step, i, CHUNK)
        top, all_nodes, even = log_sums(table_ptr, columns, tail, classes, t, tl.log(step), CHUNK, WIDE)
        higher = tl.maximum(peak, top)
        before, now = tl.exp(peak - higher), tl.exp(top - higher)
        every = every * before + all_nodes * now
        half = half * before + even * now
        peak = higher
    log_p = peak + tl.log(every)
    p = tl.where(keep, tl.exp(log_p), 0.0)
    moved = tl.max(tl.where(p > _RELATIVE, tl.abs(2 * half / every - 1), 0.0))
    total = tl.sum(p)
    norm = tl.log(total)
    error = tl.abs(total - 1) + moved * tl.sqrt(moved)
    error = tl.where(error < 1e30, error, float("inf"))  # a NaN compares as false
    tl.store(log_p_ptr + at, log_p - norm, mask=keep)
    tl.store(error_ptr + row, error)
    tl.store(places_ptr + row, low)
    tl.store(places_ptr + rows + row, step)
    tl.store(places_ptr + 2 * rows + row, norm)
    tl.store(places_ptr + 3 * rows + row, (CHUNK * chunks) * 1.0)
    return error


@triton.jit(do_not_specialize=["rows", "classes", "tau_stride", "first", "last"])
def forward_kernel(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
    rows, classes, tau_stride, tol, first, last,
    CHUNK: tl.constexpr, WIDE: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """All rows, one per program; AGAIN: those above the tolerance, with four times the nodes until they are not."""
    if AGAIN:
        begin = tl.program_id(0) * _ROWS
        at = begin + tl.arange(0, _ROWS)
        good = tl.load(error_ptr + at, mask=at < rows, other=0.0) <= tol
        if tl.sum(good.to(tl.int32)) == _ROWS:
            return
        for i in range(tl.minimum(rows - begin, _ROWS)):
            row = begin + i
            error = tl.load(error_ptr + row)
            chunks = first
            while (error > tol) & (chunks <= last):
                error = _row(
                    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
                    row, rows, classes, tau_stride, chunks, CHUNK, WIDE,
                )  # fmt: skip
                chunks *= 4
    else:
        _row(
            mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
            tl.program_id(0), rows, classes, tau_stride, first, CHUNK, WIDE,
        )  # fmt: skip


_run_forward, _run_backward = Launcher(forward_kernel), Launcher(backward_kernel)


def _wide(classes: int) -> int:
    return 32 if classes <= 32 else int(triton.next_power_of_2(classes))


def forward(
    mean: Tensor,
    scale: Tensor,
    temperature: Tensor,
    tol: float,
    launches: tuple[tuple[int, int, int, int], ...] = LAUNCHES,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised log p (B, K), its error (B,), and (4, B) what the backward pass needs, in float32.

    mean and scale (B, K) contiguous, float32; temperature (B, 1) or one number.
    """
    from .triton_table import tables

    rows, classes = mean.shape
    log_p = torch.empty_like(mean)
    error = torch.empty(rows, dtype=torch.float32, device=mean.device)
    places = torch.empty(4, rows, dtype=torch.float32, device=mean.device)
    stride = 1 if temperature.numel() > 1 else 0
    for turn, (chunk, first, last, warps) in enumerate(launches):
        _run_forward(
            rows if turn == 0 else triton.cdiv(rows, _ROWS.value),
            (mean, scale, temperature),
            (*tables(mean.device), log_p, error, places, rows, classes, stride, tol, first, last),
            (chunk, _wide(classes), turn > 0),
            warps,
        )
    return log_p, error, places


def backward(
    mean: Tensor, scale: Tensor, temperature: Tensor, log_p: Tensor, places: Tensor, grad: Tensor, heat: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in mean and scale (B, K) and, if asked for, temperature (B, 1), in float32."""
    from .triton_table import tables

    rows, classes = mean.shape
    d_mean, d_scale = torch.empty_like(mean), torch.empty_like(mean)
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=mean.device) if heat else places
    stride = 1 if temperature.numel() > 1 else 0
    for chunk, warps, programs in ((SMALL, 1, rows), (512, 4, triton.cdiv(rows, _ROWS.value))):
        _run_backward(
            programs,
            (mean, scale, temperature, grad),
            (
                *tables(mean.device),
                log_p,
                places,
                d_mean,
                d_scale,
                d_tau,
                rows,
                classes,
                stride,
                1 if heat else 0,
            ),
            (chunk, _wide(classes), chunk != SMALL, _ROWS.value),
            warps,
        )
    return d_mean, d_scale, d_tau
