# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The likelihood of one class by quadrature in a single kernel: one program per row, nodes along the lanes.

The same mathematics as `search` and `likelihood`, arranged for a GPU. 32 points over a safe range show where
the log-concave integrand lives; 64 equally spaced nodes over that part give value, gradients and error.
Neighbouring lanes read neighbouring cells of the table. Rows that miss (scales of very different size) get an
infinite error and are left to the thorough rule. Classes come in chunks, and with more than one chunk they
are computed twice: once for the weights of the nodes, once for the gradients, so that memory is O(rows x
classes). Imported only where Triton is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import table as _table
from .triton_table import ROOT_C, X_MAX, class_columns, look_up, rough, tables

_DEEP, _FAR = tl.constexpr(_table.DEEP), tl.constexpr(_table.FAR)
_DROP, _ROUNDS, _ENOUGH = tl.constexpr(16.0), tl.constexpr(8), tl.constexpr(4)
_CHANGE, _NOTHING = tl.constexpr(2e-3), tl.constexpr(1e-7)


@triton.jit
def _range(
    mean_ptr, scale_ptr, angle_ptr, cells_ptr, table_ptr, row, target, classes, shift, gumbel, own_width,
    BLOCK_K: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """A stretch of t at whose ends the integrand has dropped by `_DROP` nats or more."""
    high = 0.0
    for start in range(0, classes, BLOCK_K):
        k, keep, mean, width, cos, sin, cell, offset, turn = class_columns(
            mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
        )
        high = tl.maximum(high, tl.max(tl.where(keep, mean + 6 * width, 0.0)))
    low = -7 * own_width
    high += 14 * own_width
    index = tl.arange(0, POINTS)
    inside = 0
    rounds = 0
    while (inside < _ENOUGH) & (rounds < _ROUNDS):
        step = (high - low) / (POINTS - 1)
        t = low + step * index[None, :]
        value = tl.zeros([POINTS], tl.float32)
        for start in range(0, classes, BLOCK_K):
            k, keep, mean, width, cos, sin, cell, offset, turn = class_columns(
                mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
            )
            m, m_x = rough(table_ptr, cells_ptr, (t - mean) / width, cell, offset)
            own = m + tl.log(tl.maximum(-m_x, 1e-30))
            terms = tl.where(k == target, own, 0.0) - tl.exp(tl.minimum(m, 80.0))
            value += tl.sum(tl.where(keep, terms, 0.0), 0)
        within = value > tl.max(value) - _DROP
        inside = tl.sum(within.to(tl.int32))
        first = tl.min(tl.where(within, index, POINTS)) - 1
        last = tl.max(tl.where(within, index, -1)) + 1
        high = low + step * tl.minimum(last, POINTS - 1)
        low = low + step * tl.maximum(first, 0)
        rounds += 1
    return low, high


@triton.jit
def _values(
    mean_ptr, scale_ptr, angle_ptr, cells_ptr, table_ptr, row, start, classes, shift, gumbel, t,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A chunk of classes at all nodes: some columns of `class_columns`, then x, M and its derivatives."""
    k, keep, mean, width, cos, sin, cell, offset, turn = class_columns(
        mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
    )
    x = (t - mean) / width
    m, m_x, m_v = look_up(table_ptr, cells_ptr, x, cell, offset)
    return k, keep, width, cos, sin, turn, x, m, m_x, m_v


@triton.jit
def _over_classes(k, keep, width, cos, sin, turn, x, m, m_x, m_v, target):
    """Sums over the classes of a chunk, (1, nodes): log-integrand, rivals' rate, and the target's M and ratio."""
    log_f = tl.where(keep, -tl.exp(m), 0.0)
    mine = k == target
    # The Gumbel's tail is exactly exponential far to the right.
    slope = ROOT_C / sin
    straight = ((x - 8) * sin > ROOT_C * cos) & ((m < -21.0) | (x > X_MAX))
    line = slope * slope * cos * cos * 0.5 - 0.5772156649015329 - slope * x + tl.log(slope)
    own = tl.where(straight, line, m + tl.log(tl.maximum(-m_x, 1e-30)))
    slant = tl.where(straight, (slope - x) * cos / (sin * turn), m_v / tl.minimum(m_x, -1e-30))
    terms = tl.sum(log_f + tl.where(mine, own, 0.0), 0, keep_dims=True)
    rate = tl.sum(tl.where(mine, 0.0, log_f * m_x / width), 0, keep_dims=True)
    own_m = tl.sum(tl.where(mine & (straight == 0), m, 0.0), 0, keep_dims=True)
    ratio = tl.sum(tl.where(mine, slant, 0.0), 0, keep_dims=True)
    bottom = tl.max(tl.where(keep, m, -1e30), 0, keep_dims=True)
    return terms, rate, own_m, ratio, bottom


@triton.jit
def _all(values):
    return tl.sum(tl.sum(values, 1), 0)


@triton.jit
def _own(weight, rate, own_width, own_x, ratio):
    """The target's three sums, by integration by parts."""
    balance = -weight * rate * own_width
    return _all(balance), _all(balance * own_x), _all(balance * ratio)


@triton.jit
def _averages(in_x, in_v, x, weight, mine, turn, own_a, own_b, own_c):
    """Averages over the nodes, (BLOCK_K, 1), of the derivatives in x, x times that, and the angle."""
    a = tl.sum(in_x * weight, 1, keep_dims=True)
    b = tl.sum(in_x * x * weight, 1, keep_dims=True)
    c = tl.sum(in_v * weight, 1, keep_dims=True)
    return tl.where(mine, own_a, a), tl.where(mine, own_b, b), tl.where(mine, own_c, c) * turn


@triton.jit
def _largest(values, keep):
    return tl.max(tl.where(keep, tl.abs(values), 0.0))


@triton.jit
def _gradients(
    d_mean_ptr, d_scale_ptr, row, classes, k, keep, width, cos, sin, turn, x, m, m_x, m_v, target, weight, coarse,
    own_a, own_b, own_c, own_a2, own_b2, own_c2,
):  # fmt: skip
    """Store the gradients of a chunk; return its part of the temperature's (twice), and what checks them."""
    log_f = tl.where(keep, -tl.exp(m), 0.0)
    mine = k == target
    in_x = log_f * m_x
    in_v = log_f * m_v
    a, b, c = _averages(in_x, in_v, x, weight, mine, turn, own_a, own_b, own_c)
    a2, b2, c2 = _averages(in_x, in_v, x, coarse, mine, turn, own_a2, own_b2, own_c2)
    d_mean = -a / width
    d_scale = -(cos * b + sin * c) / width
    at = row.to(tl.int64) * classes + k
    tl.store(d_mean_ptr + at, d_mean, mask=keep)
    tl.store(d_scale_ptr + at, d_scale, mask=keep)
    d_tau = tl.sum(tl.where(keep, (cos * c - sin * b) / width, 0.0))
    d_tau_2 = tl.sum(tl.where(keep, (cos * c2 - sin * b2) / width, 0.0))
    moved_mean = _largest((a2 - a) / width, keep)
    moved_scale = _largest((cos * (b2 - b) + sin * (c2 - c)) / width, keep)
    return (
        d_tau,
        d_tau_2,
        _largest(d_mean, keep),
        _largest(d_scale, keep),
        moved_mean,
        moved_scale,
        _largest(width, keep),
    )


@triton.jit
def _kernel(
    mean_ptr, scale_ptr, tau_ptr, target_ptr, angle_ptr, cells_ptr, table_ptr,
    log_p_ptr, error_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr, classes, tau_stride,
    BLOCK_K: tl.constexpr, POINTS: tl.constexpr, NODES: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """One row. ONE says that all classes fit into one chunk, whose values are then kept for the gradients."""
    row = tl.program_id(0)
    target = tl.load(target_ptr + row)
    gumbel = ROOT_C * tl.load(tau_ptr + row * tau_stride).to(tl.float32)
    own_at = row.to(tl.int64) * classes + target
    shift = tl.load(mean_ptr + own_at).to(tl.float32)
    own_scale = tl.load(scale_ptr + own_at).to(tl.float32)
    own_width = tl.sqrt(own_scale * own_scale + gumbel * gumbel)
    low, high = _range(
        mean_ptr, scale_ptr, angle_ptr, cells_ptr, table_ptr, row, target, classes, shift, gumbel, own_width,
        BLOCK_K, POINTS,
    )  # fmt: skip
    node = tl.arange(0, NODES)[None, :]
    step = (high - low) / (NODES - 1)
    t = low + step * node
    own_x = t / own_width

    # Value: the integrand at all nodes.
    if ONE:
        k, keep, width, cos, sin, turn, x, m, m_x, m_v = _values(
            mean_ptr, scale_ptr, angle_ptr, cells_ptr, table_ptr, row, 0, classes, shift, gumbel, t, BLOCK_K
        )
        terms, rate, own_m, ratio, bottom = _over_classes(
            k, keep, width, cos, sin, turn, x, m, m_x, m_v, target
        )
    else:
        terms = tl.zeros([1, NODES], tl.float32)
        rate = tl.zeros([1, NODES], tl.float32)
        own_m = tl.zeros([1, NODES], tl.float32)
        ratio = tl.zeros([1, NODES], tl.float32)
        bottom = tl.full([1, NODES], -1e30, tl.float32)
        for start in range(0, classes, BLOCK_K):
            k, keep, width, cos, sin, turn, x, m, m_x, m_v = _values(
                mean_ptr,
                scale_ptr,
                angle_ptr,
                cells_ptr,
                table_ptr,
                row,
                start,
                classes,
                shift,
                gumbel,
                t,
                BLOCK_K,
            )
            more, more_rate, more_m, more_ratio, deeper = _over_classes(
                k, keep, width, cos, sin, turn, x, m, m_x, m_v, target
            )
            terms += more
            rate += more_rate
            own_m += more_m
            ratio += more_ratio
            bottom = tl.maximum(bottom, deeper)
    terms += tl.log(step) - tl.log(own_width)
    top = tl.max(tl.max(terms, 1), 0)
    total = _all(tl.exp(terms - top))
    log_p = top + tl.log(total)
    weight = tl.exp(terms - top) / total
    # Error: every other node alone, and whether anything that counts lies outside the table.
    even = _all(tl.where(node % 2 == 0, weight, 0.0))
    coarse = tl.where(node % 2 == 0, weight / even, 0.0)
    change = tl.maximum(tl.abs(tl.log(2 * even)), tl.abs(tl.log(2 * (1 - even))))
    error = change * tl.sqrt(change) + 5e-7 * (1 + tl.abs(log_p))
    lost = (weight > 1e-9) & ((bottom > _DEEP) | (own_m < _FAR))
    error += tl.where(_all(lost.to(tl.float32)) > 0, float("inf"), 0.0)
    # Gradients: averages of derivatives of log F.
    own_a, own_b, own_c = _own(weight, rate, own_width, own_x, ratio)
    own_a2, own_b2, own_c2 = _own(coarse, rate, own_width, own_x, ratio)
    if ONE:
        d_tau, d_tau_2, top_mean, top_scale, moved_mean, moved_scale, widest = _gradients(
            d_mean_ptr, d_scale_ptr, row, classes, k, keep, width, cos, sin, turn, x, m, m_x, m_v, target,
            weight, coarse, own_a, own_b, own_c, own_a2, own_b2, own_c2,
        )  # fmt: skip
    else:
        d_tau = 0.0
        d_tau_2 = 0.0
        top_mean = 0.0
        top_scale = 0.0
        moved_mean = 0.0
        moved_scale = 0.0
        widest = 0.0
        for start in range(0, classes, BLOCK_K):
            k, keep, width, cos, sin, turn, x, m, m_x, m_v = _values(
                mean_ptr,
                scale_ptr,
                angle_ptr,
                cells_ptr,
                table_ptr,
                row,
                start,
                classes,
                shift,
                gumbel,
                t,
                BLOCK_K,
            )
            part, part_2, mean_2, scale_2, off_mean, off_scale, wide = _gradients(
                d_mean_ptr, d_scale_ptr, row, classes, k, keep, width, cos, sin, turn, x, m, m_x, m_v, target,
                weight, coarse, own_a, own_b, own_c, own_a2, own_b2, own_c2,
            )  # fmt: skip
            d_tau += part
            d_tau_2 += part_2
            top_mean = tl.maximum(top_mean, mean_2)
            top_scale = tl.maximum(top_scale, scale_2)
            moved_mean = tl.maximum(moved_mean, off_mean)
            moved_scale = tl.maximum(moved_scale, off_scale)
            widest = tl.maximum(widest, wide)
    floor = _NOTHING / widest
    moved = (moved_mean > _CHANGE * top_mean + floor) | (moved_scale > _CHANGE * top_scale + floor)
    moved = moved | (tl.abs(d_tau_2 - d_tau) > _CHANGE * tl.abs(d_tau) + floor)
    tl.store(d_tau_ptr + row, ROOT_C * d_tau)
    tl.store(log_p_ptr + row, log_p)
    tl.store(error_ptr + row, tl.where(moved, float("inf"), error))


def nll(
    mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, warps: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """log p of the target (B,), its error (B,), and gradients in mean, scale (B, K) and temperature (B, 1).

    mean and scale (B, K) contiguous, float32 or bfloat16; temperature (B, 1) or one number; results in float32. An
    infinite or NaN error marks a row that needs the thorough rule.
    """
    rows, classes = mean.shape
    device = mean.device
    log_p, error = (torch.empty(rows, dtype=torch.float32, device=device) for _ in range(2))
    d_mean, d_scale = (torch.empty(rows, classes, dtype=torch.float32, device=device) for _ in range(2))
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=device)
    block = max(2, min(32, triton.next_power_of_2(classes)))
    warps = warps or {32: 8, 16: 4}.get(block, 2)
    _kernel[(rows,)](
        mean, scale, temperature, target, *tables(device),
        log_p, error, d_mean, d_scale, d_tau, classes, 1 if temperature.numel() > 1 else 0,
        BLOCK_K=block, POINTS=32, NODES=64, ONE=classes <= block, num_warps=warps,
    )  # fmt: skip
    return log_p, error, d_mean, d_scale, d_tau
