# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The likelihood of one class by quadrature in a single kernel: one program per row, nodes along the lanes.

The same mathematics as `search` and `likelihood`, arranged for a GPU. Some points over a safe range show where
the log-concave integrand lives; 32 nodes over that part give value, gradients and error.
Neighbouring lanes read neighbouring cells of the table. Rows that miss are done again with 64 and with 512 nodes by
further launches, in which the others end at once; what misses again (scales of very different size) is left to the
thorough rule. Classes come in chunks, and with more than one chunk they
are computed twice: once for the weights of the nodes, once for the gradients, so that memory is O(rows x
classes). Imported only where Triton is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import table as _table
from .triton_range import support, support_of_chunk
from .triton_table import ROOT_C, X_MAX, class_columns, look_up, place_angle, tables

_FAR = tl.constexpr(_table.FAR)
_ROUNDING = tl.constexpr(2.5e-7)  # of 14 + |log p|: what table and float32 leave
_MOST = 1 << 12  # classes x nodes of a tile
ALLOWED = 3e-7  # beyond the tolerance, relative to log p
_DEEP = tl.constexpr(-120.0)  # of the sum of log F: below it a term may lie outside the table
_EDGE = tl.constexpr(5e-6)  # of a weight: the range must not end before the integrand does
_CHANGE, _NOTHING, _SHARE = tl.constexpr(3e-3), tl.constexpr(1e-7), tl.constexpr(1e-4)


@triton.jit
def _values(
    mean_ptr, scale_ptr, angle_ptr, table_ptr, row, start, classes, shift, gumbel, t, BLOCK_K: tl.constexpr
):
    """A chunk of classes at all nodes: some columns of `class_columns`, then x, M and its derivatives."""
    k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
        mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, BLOCK_K
    )
    x = (t - mean) * (1 / width)
    m, m_x, m_v = look_up(table_ptr, x, base, offset)
    return k, keep, width, cos, sin, turn, x, m, m_x, m_v


@triton.jit
def _over_classes(k, keep, width, m, m_x, target):
    """Sums over a chunk, (1, nodes): log F, and its derivative in t for the rivals."""
    log_f = tl.where(keep, -tl.exp(m), 0.0)
    slope = tl.where(k == target, 0.0, log_f * m_x * (1 / width))
    return tl.sum(log_f, 0, keep_dims=True), tl.sum(slope, 0, keep_dims=True)


@triton.jit
def _target(table_ptr, angle_ptr, scale, gumbel, width, x):
    """At x (1, nodes): the target's log-slope, its M where the table gives it, and (dM/d alpha) / (dM/dx)."""
    base, offset, turn = place_angle(angle_ptr, scale, gumbel)
    m, m_x, m_v = look_up(table_ptr, x, base, offset)
    cos, sin = scale / width, gumbel / width
    # The Gumbel's tail is exactly exponential far to the right.
    slope = ROOT_C / sin
    straight = ((x - 8) * sin > ROOT_C * cos) & ((m < -21.0) | (x > X_MAX))
    line = slope * slope * cos * cos * 0.5 - 0.5772156649015329 - slope * x + tl.log(slope)
    log_slope = tl.where(straight, line, m + tl.log(tl.maximum(-m_x, 1e-30)))
    ratio = tl.where(straight, (slope - x) * cos / sin, m_v * turn / tl.minimum(m_x, -1e-30))
    return log_slope, tl.where(straight, 0.0, m), ratio


@triton.jit
def _all(values):
    return tl.sum(tl.sum(values, 1), 0)


@triton.jit
def _earlier(weight, node, half):
    """What the halving before the last one changed, to the fifth power."""
    even = _all(tl.where(node % 4 == 0, weight, 0.0))
    odd = _all(tl.where(node % 4 == 1, weight, 0.0))
    change = tl.maximum(tl.abs(tl.log(2 * even / half)), tl.abs(tl.log(2 * odd / (1 - half))))
    return change * change * change * change * change


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
    return tl.where(mine, own_a, a), tl.where(mine, own_b, b), tl.where(mine, own_c, c * turn)


@triton.jit
def _largest(values, keep):
    return tl.max(tl.where(keep, tl.abs(values), 0.0))


@triton.jit
def _gradients(
    d_mean_ptr, d_scale_ptr, row, classes, k, keep, width, cos, sin, turn, x, m, m_x, m_v, target, counts,
    weight, coarse, own_a, own_b, own_c, own_a2, own_b2, own_c2,
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
    tl.store(d_mean_ptr + at, tl.where(counts, d_mean, 0.0), mask=keep)
    tl.store(d_scale_ptr + at, tl.where(counts, d_scale, 0.0), mask=keep)
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
    mean_ptr, scale_ptr, tau_ptr, target_ptr, angle_ptr, table_ptr,
    log_p_ptr, error_ptr, missed_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr, classes, tau_stride, tol,
    allowed, ignore,
    BLOCK_K: tl.constexpr, POINTS: tl.constexpr, NODES: tl.constexpr, ONE: tl.constexpr,
    AGAIN: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """One row. ONE says that all classes fit into one chunk, whose values are then kept for the gradients.

    AGAIN: only rows whose error is above the tolerance. LAST: those that stay above it are counted.
    """
    row = tl.program_id(0)
    if AGAIN:  # noqa: SIM102
        if tl.load(error_ptr + row) <= tol + allowed * tl.abs(tl.load(log_p_ptr + row)):
            return
    target = tl.load(target_ptr + row)
    counts = target != ignore
    target = tl.where(counts, target, 0)
    gumbel = ROOT_C * tl.load(tau_ptr + row * tau_stride).to(tl.float32)
    own_at = row.to(tl.int64) * classes + target
    shift = tl.load(mean_ptr + own_at).to(tl.float32)
    own_scale = tl.load(scale_ptr + own_at).to(tl.float32)
    own_width = tl.sqrt(own_scale * own_scale + gumbel * gumbel)
    if ONE:
        k, keep, mean, width, cos, sin, base, offset, turn = class_columns(
            mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, BLOCK_K
        )
        low, high, mode = support_of_chunk(
            table_ptr, k, keep, mean, width, base, offset, target, own_width, POINTS
        )
    else:
        low, high, mode = support(
            mean_ptr, scale_ptr, angle_ptr, table_ptr, row, target, classes, shift, gumbel, own_width, BLOCK_K,
            POINTS,
        )  # fmt: skip
    node = tl.arange(0, NODES)[None, :]
    # A parabola t(s) brings the mode near the middle of the nodes: a long tail on one side needs few of them.
    step = (high - low) / (NODES - 1)
    even = tl.minimum(tl.maximum(4 * (mode - low) / (high - low) - 1, 0.35), 1.65)
    s = node * (1.0 / (NODES - 1))
    t = low + (high - low) * s * (even + (1 - even) * s)
    stretch = even + 2 * (1 - even) * s
    own_x = t / own_width

    # Value: the integrand at all nodes.
    log_slope, own_m, ratio = _target(table_ptr, angle_ptr, own_scale, gumbel, own_width, own_x)
    if ONE:
        x = (t - mean) * (1 / width)
        m, m_x, m_v = look_up(table_ptr, x, base, offset)
        log_f, rate = _over_classes(k, keep, width, m, m_x, target)
    else:
        log_f = tl.zeros([1, NODES], tl.float32)
        rate = tl.zeros([1, NODES], tl.float32)
        for start in range(0, classes, BLOCK_K):
            k, keep, width, cos, sin, turn, x, m, m_x, m_v = _values(
                mean_ptr, scale_ptr, angle_ptr, table_ptr, row, start, classes, shift, gumbel, t, BLOCK_K
            )
            more, more_rate = _over_classes(k, keep, width, m, m_x, target)
            log_f += more
            rate += more_rate
    terms = log_f + log_slope + tl.log(step * stretch) - tl.log(own_width)
    top = tl.max(tl.max(terms, 1), 0)
    total = _all(tl.exp(terms - top))
    # A row that does not count has log p = 0, no error and no gradients.
    log_p = tl.where(counts, top + tl.log(total), 0.0)
    weight = tl.exp(terms - top) / total
    # Error: every other node alone, and whether what counts lies outside table or range.
    half = _all(tl.where(node % 2 == 0, weight, 0.0))
    coarse = tl.where(node % 2 == 0, weight / half, 0.0)
    change = tl.maximum(tl.abs(tl.log(2 * half)), tl.abs(tl.log(2 * (1 - half))))
    error = tl.maximum(change * tl.sqrt(change), _earlier(weight, node, half)) + _ROUNDING * (
        14 + tl.abs(log_p)
    )
    lost = (weight > 1e-9) & ((log_f < _DEEP) | (own_m < _FAR))
    lost = lost | ((weight > _EDGE) & ((node == 0) | (node == NODES - 1)))
    error += tl.where(_all(lost.to(tl.float32)) > 0, float("inf"), 0.0)
    # Gradients: averages of derivatives of log F.
    own_a, own_b, own_c = _own(weight, rate, own_width, own_x, ratio)
    own_a2, own_b2, own_c2 = _own(coarse, rate, own_width, own_x, ratio)
    if ONE:
        d_tau, d_tau_2, top_mean, top_scale, moved_mean, moved_scale, widest = _gradients(
            d_mean_ptr, d_scale_ptr, row, classes, k, keep, width, cos, sin, turn, x, m, m_x, m_v, target,
            counts, weight, coarse, own_a, own_b, own_c, own_a2, own_b2, own_c2,
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
                mean_ptr, scale_ptr, angle_ptr, table_ptr, row, start, classes, shift, gumbel, t, BLOCK_K
            )  # fmt: skip
            part, part_2, mean_2, scale_2, off_mean, off_scale, wide = _gradients(
                d_mean_ptr, d_scale_ptr, row, classes, k, keep, width, cos, sin, turn, x, m, m_x, m_v, target,
                counts, weight, coarse, own_a, own_b, own_c, own_a2, own_b2, own_c2,
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
    # The temperature's is a sum over classes that may cancel: measured against the largest of the others too.
    moved = moved | (tl.abs(d_tau_2 - d_tau) > _CHANGE * tl.abs(d_tau) + _SHARE * top_scale + floor)
    tl.store(d_tau_ptr + row, tl.where(counts, ROOT_C * d_tau, 0.0))
    tl.store(log_p_ptr + row, log_p)
    error = tl.where(counts, tl.where(moved, float("inf"), error), 0.0)
    tl.store(error_ptr + row, error)
    if LAST:
        good = error <= tol + allowed * tl.abs(log_p)
        tl.atomic_add(missed_ptr, tl.where(good, 0, 1))


def nll(
    mean: Tensor,
    scale: Tensor,
    temperature: Tensor,
    target: Tensor,
    tol: float = 2e-5,
    shapes: tuple[tuple[int, int, int], ...] | None = None,
    ignore: int = -1,
) -> tuple[Tensor, ...]:
    """log p of the target (B,), its error (B,), gradients in mean, scale (B, K), temperature (B, 1); and a count.

    mean and scale (B, K) contiguous, float32 or bfloat16; temperature (B, 1) or one number; gradients in
    the type of the inputs, the rest in float32. An
    error above `tol` + `ALLOWED` |log p|, or a NaN, marks a row that needs the thorough rule; the last tensor (1,)
    says how many there are. `shapes` overrides the nodes, points and warps of the launches;
    rows with the label `ignore` get zeros.
    """
    rows, classes = mean.shape
    device = mean.device
    log_p, error = (torch.empty(rows, dtype=torch.float32, device=device) for _ in range(2))
    d_mean, d_scale = torch.empty_like(mean), torch.empty_like(scale)
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=device)
    missed = torch.zeros(1, dtype=torch.int32, device=device)
    block = max(2, min(32, triton.next_power_of_2(classes)))
    plan = shapes or launches(block)
    for turn, (nodes, points, warps) in enumerate(plan):
        chunk = block if nodes * block <= _MOST else max(2, _MOST // nodes)
        _kernel[(rows,)](
            mean, scale, temperature, target, *tables(device),
            log_p, error, missed, d_mean, d_scale, d_tau, classes, 1 if temperature.numel() > 1 else 0,
            tol, ALLOWED, ignore, BLOCK_K=chunk, POINTS=points, NODES=nodes, ONE=classes <= chunk,
            AGAIN=turn > 0, LAST=turn == len(plan) - 1, num_warps=warps,
        )  # fmt: skip
    return log_p, error, d_mean, d_scale, d_tau, missed


def launches(block: int) -> tuple[tuple[int, int, int], ...]:
    """Nodes, points and warps of the first launch and of those for the rows that missed."""
    return (32, 16, {32: 4, 16: 2}.get(block, 1)), (64, 32, 8 if block > 8 else 4), (512, 32, 8)
