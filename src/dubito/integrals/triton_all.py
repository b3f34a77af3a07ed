# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""All classes on a GPU, as in `quick`, with nodes at equal steps of s along a parabola t(s). Imported only where
Triton is.

Up to 32 classes fit into registers (`triton_all_kept`): one launch gives each row 32 nodes and, where the error is
too large, those in between, up to 7,937. With more classes, what depends on a class alone is computed once, one
class per lane, and broadcast; rows for which 63 nodes are not enough are computed again with 125, 497 and 7,937 by
further launches, which skip the others. The backward pass finds in `places` which nodes each row used.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import quick as _quick
from .triton_all_back import MANY, SMALL, backward_kernel
from .triton_all_kept import kept_forward
from .triton_all_kept_back import kept_backward
from .triton_all_row import error_of, evenness, log_sums, narrowest, nodes_of, prepare
from .triton_launch import Launcher
from .triton_range import rivals
from .triton_table import ROOT_C

_MOST_LEFT, _LEAST_RIGHT = tl.constexpr(math.exp(_quick.LEFT)), tl.constexpr(math.exp(-16.0))
_POINTS, _ROUNDS = tl.constexpr(_quick.POINTS), tl.constexpr(_quick.ROUNDS)
_ROWS = tl.constexpr(8)  # per program of the later launches
# Nodes of a chunk, intervals of the first and of the last try, and warps: for all rows, then for those that miss.
LAUNCHES = (64, 62, 62, 1), (64, 124, 496, 1), (512, 7936, 7936, 4)
FEW, KEPT = 32, 7936  # the most classes kept in registers, and the most intervals of such rows


@triton.jit
def _stretch(table_ptr, keep, column, classes):
    """Between the first two -G falls from 75 to 1e-7; then it is about 1, then above 18."""
    mean, inverse, base, offset, cot = column
    low = tl.max(tl.where(keep, mean - 14 / inverse, -1e30))
    high = tl.max(tl.where(keep, mean + 16 / inverse, -1e30))
    middle = low
    deep = low
    for _ in tl.static_range(_ROUNDS):
        step = (high - low) / (_POINTS - 1)
        value = -rivals(table_ptr, mean, inverse, base, offset, classes, low + step * tl.arange(0, _POINTS))
        first = tl.sum((value >= _MOST_LEFT).to(tl.int32)) - 1
        last = _POINTS - tl.sum((value <= _LEAST_RIGHT).to(tl.int32))
        middle = low + step * (tl.sum((value >= 1.0).to(tl.int32)) - 0.5)
        deep = low + step * (tl.sum((value >= 18.0).to(tl.int32)) - 1.0)
        high = low + step * tl.minimum(last, _POINTS - 1)
        low = low + step * tl.maximum(first, 0)
    return low, high, middle, deep


@triton.jit
def _row(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
    row, rows, classes, tau_stride, intervals, CHUNK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One row with a given number of intervals: normalised log p, and the error of the probabilities."""
    gumbel = tl.load(tau_ptr + row * tau_stride).to(tl.float32) * ROOT_C
    at, keep, column, tail = prepare(mean_ptr, scale_ptr, angle_ptr, row, classes, gumbel, WIDE)
    low, high, middle, deep = _stretch(table_ptr, keep, column, classes)
    length, bend = high - low, evenness(low, high, middle)
    least = narrowest(keep, column, low, length, bend, deep)
    peak = tl.full([WIDE], -1e30, tl.float32)
    every = tl.zeros([WIDE], tl.float32)
    half = tl.zeros([WIDE], tl.float32)
    for start in range(0, intervals + 1, CHUNK):
        t, log_weight = nodes_of(low, length, bend, start + tl.arange(0, CHUNK), intervals)
        top, all_nodes, even = log_sums(
            table_ptr, column, classes, t, log_weight, ROOT_C / gumbel, CHUNK, WIDE
        )  # fmt: skip
        higher = tl.maximum(peak, top)
        before, now = tl.exp(peak - higher), tl.exp(top - higher)
        every = every * before + all_nodes * now
        half = half * before + even * now
        peak = higher
    log_p = peak + tl.log(every)
    p = tl.where(keep, tl.exp(log_p), 0.0)
    total = tl.sum(p)
    norm = tl.log(total)
    error = error_of(p, every, half, total, (least > 2 * intervals).to(tl.int32))
    tl.store(log_p_ptr + at, log_p - norm, mask=keep)
    tl.store(error_ptr + row, error)
    tl.store(places_ptr + row, low)
    tl.store(places_ptr + rows + row, length)
    tl.store(places_ptr + 2 * rows + row, bend)
    tl.store(places_ptr + 3 * rows + row, norm)
    tl.store(places_ptr + 4 * rows + row, intervals * 1.0)
    return error


@triton.jit(do_not_specialize=["rows", "classes", "tau_stride", "first", "last"])
def forward_kernel(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
    rows, classes, tau_stride, tol, first, last,
    CHUNK: tl.constexpr, WIDE: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """All rows, one per program; AGAIN: only those above the tolerance, with ever four times the nodes."""
    if AGAIN:
        begin = tl.program_id(0) * _ROWS
        at = begin + tl.arange(0, _ROWS)
        good = tl.load(error_ptr + at, mask=at < rows, other=0.0) <= tol
        if tl.sum(good.to(tl.int32)) == _ROWS:
            return
        for i in range(tl.minimum(rows - begin, _ROWS)):
            row = begin + i
            error = tl.load(error_ptr + row)
            intervals = first
            while (error > tol) & (intervals <= last):
                error = _row(
                    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
                    row, rows, classes, tau_stride, intervals, CHUNK, WIDE,
                )  # fmt: skip
                intervals *= 4
    else:
        _row(
            mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
            tl.program_id(0), rows, classes, tau_stride, first, CHUNK, WIDE,
        )  # fmt: skip


_run_forward, _run_backward = Launcher(forward_kernel), Launcher(backward_kernel)
_run_kept, _run_kept_back = Launcher(kept_forward), Launcher(kept_backward)


def _wide(classes: int) -> int:
    return 32 if classes <= 32 else int(triton.next_power_of_2(classes))


def _count(classes: int) -> int:
    return -(-classes // 4) * 4


def forward(
    mean: Tensor,
    scale: Tensor,
    temperature: Tensor,
    tol: float,
    launches: tuple[tuple[int, int, int, int], ...] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised log p (B, K), its error (B,), and `places` (5, B) for the backward pass, in float32.

    mean and scale (B, K) contiguous, float32; temperature (B, 1) or one number. `launches` excludes
    `triton_all_kept`.
    """
    from .triton_table import tables

    rows, classes = mean.shape
    log_p = torch.empty_like(mean)
    error = torch.empty(rows, dtype=torch.float32, device=mean.device)
    places = torch.empty(5, rows, dtype=torch.float32, device=mean.device)
    stride = 1 if temperature.numel() > 1 else 0
    given, found = (mean, scale, temperature), (*tables(mean.device), log_p, error, places)
    if launches is None and classes <= FEW:
        _run_kept(rows, given, (*found, rows, classes, stride, tol, KEPT), (_count(classes),), 1)
        return log_p, error, places
    for turn, (chunk, first, last, warps) in enumerate(launches or LAUNCHES):
        _run_forward(
            rows if turn == 0 else -(-rows // _ROWS.value),
            given,
            (*found, rows, classes, stride, tol, first, last),
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
    given = (mean, scale, temperature, grad)
    rest = (
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
    )
    if classes <= FEW:
        _run_kept_back(rows, given, rest, (_count(classes),), 1)
        return d_mean, d_scale, d_tau
    for chunk, warps, programs in ((SMALL, 1, rows), (512, 4, -(-rows // _ROWS.value))):
        _run_backward(
            programs, given, (*rest, MANY), (chunk, _wide(classes), chunk != SMALL, _ROWS.value), warps
        )
    return d_mean, d_scale, d_tau
