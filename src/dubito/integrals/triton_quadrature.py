# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The likelihood of one class by quadrature in a single kernel: one warp per row, nodes along the lanes.

The mathematics of `search` and `likelihood`, arranged for a GPU. Points over a safe range show where the
log-concave integrand is large; 32 nodes over that part give value, gradients and error.

What depends on a class alone is computed for 32 classes at once, one per lane, and broadcast. Then one class after
the other is looked up at all nodes, twice: for the weights of the nodes, and for the gradients. So sums over
classes stay inside a lane, and memory is O(rows x classes). Rows that miss the tolerance are computed again with 64
and 512 nodes by further launches, which skip the others; those that miss it again (scales of very different size)
are left to the thorough rule. Up to 32 classes `triton_kept` does all this in one launch; two are exact
(`triton_two`). Imported only where Triton is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import table as _table
from . import triton_two
from .triton_kept import CHANGE, COARSE, DEEP, EDGE, NOTHING, REACH, ROUNDING, SHARE, kept_kernel
from .triton_launch import Launcher
from .triton_range import TURNS, WIDE, support
from .triton_table import ROOT_C, columns, look_up, pick, place_angle, tables, target_slope

_FAR = tl.constexpr(_table.FAR)
ALLOWED = 3e-7  # beyond the tolerance, relative to log p
_ROWS = tl.constexpr(8)  # rows per program of the second and third launch


@triton.jit
def _earlier(weight, node, half):
    """The change by the halving before the last, to the fifth power."""
    even = tl.sum(tl.where(node % 4 == 0, weight, 0.0))
    odd = tl.sum(tl.where(node % 4 == 1, weight, 0.0))
    change = tl.maximum(tl.abs(tl.log(2 * even / half)), tl.abs(tl.log(2 * odd / (1 - half))))
    return change * change * change * change * change


@triton.jit
def _sums(table_ptr, mean, inverse, base, offset, first, count, target, t):
    """Over the classes of a chunk, (nodes,): log F, and its derivative in t for the rivals."""
    index = tl.zeros(t.shape, tl.int32)
    log_f = tl.zeros(t.shape, tl.float32)
    rate = tl.zeros(t.shape, tl.float32)
    for start in range(0, count, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            per = pick(inverse, j)
            m, m_x, m_v = look_up(table_ptr, (t - pick(mean, j)) * per, pick(base, j), pick(offset, j))
            part = tl.exp(m)
            log_f -= part
            rate -= tl.where(first + start + turn == target, 0.0, part * m_x * per)
    return log_f, rate


@triton.jit
def _averages(
    table_ptr, mean, inverse, base, offset, cos, sin_turn, cos_turn, sin, first, count, target, t, weight, coarse
):  # fmt: skip
    """For the classes of a chunk, one per lane: averages of the derivatives in mean and scale, with both weights.

    In units of the class's width. Also (nodes,) the sum over rivals of the derivative in the temperature.
    """
    index = tl.zeros(t.shape, tl.int32)
    lane = tl.arange(0, WIDE)
    a = tl.zeros([WIDE], tl.float32)
    a2 = tl.zeros([WIDE], tl.float32)
    y = tl.zeros([WIDE], tl.float32)
    y2 = tl.zeros([WIDE], tl.float32)
    heat = tl.zeros(t.shape, tl.float32)
    for start in range(0, count, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            per = pick(inverse, j)
            x = (t - pick(mean, j)) * per
            m, m_x, m_v = look_up(table_ptr, x, pick(base, j), pick(offset, j))
            log_f = -tl.exp(m)
            in_x = log_f * m_x
            in_v = log_f * m_v
            in_scale = pick(cos, j) * x * in_x + pick(sin_turn, j) * in_v
            in_heat = pick(cos_turn, j) * in_v - pick(sin, j) * x * in_x
            heat += tl.where(first + start + turn == target, 0.0, in_heat * per)
            mine = lane == start + turn
            a = tl.where(mine, tl.sum(in_x * weight), a)
            a2 = tl.where(mine, tl.sum(in_x * coarse), a2)
            y = tl.where(mine, tl.sum(in_scale * weight), y)
            y2 = tl.where(mine, tl.sum(in_scale * coarse), y2)
    return a, a2, y, y2, heat


@triton.jit
def _row(
    mean_ptr, scale_ptr, target_ptr, tau_ptr, angle_ptr, table_ptr,
    log_p_ptr, error_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr, row, classes, tau_stride, ignore, heated,
    POINTS: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """One row. `heated`: whether the temperature's gradient is wanted."""
    target = tl.load(target_ptr + row)
    counts = target != ignore
    target = tl.where(counts, target, 0).to(tl.int32)
    gumbel = ROOT_C * tl.load(tau_ptr + row * tau_stride).to(tl.float32)
    own_at = row.to(tl.int64) * classes + target
    shift = tl.load(mean_ptr + own_at).to(tl.float32)
    own_scale = tl.load(scale_ptr + own_at).to(tl.float32)
    own_width = tl.sqrt(own_scale * own_scale + gumbel * gumbel)
    own_base, own_offset, own_turn = place_angle(angle_ptr, own_scale, gumbel)
    low, high, mode = support(
        mean_ptr, scale_ptr, angle_ptr, table_ptr, row, classes, shift, gumbel, own_width, own_base, own_offset,
        POINTS,
    )  # fmt: skip
    node = tl.arange(0, NODES)
    # A parabola t(s) puts the mode near the middle of the nodes, as a long tail on one side needs few of them.
    step = (high - low) / (NODES - 1)
    even = tl.minimum(tl.maximum(4 * (mode - low) / (high - low) - 1, 0.35), 1.65)
    s = node * (1.0 / (NODES - 1))
    t = low + (high - low) * s * (even + (1 - even) * s)
    stretch = even + 2 * (1 - even) * s
    own_x = t / own_width

    # Value: the integrand at all nodes.
    log_slope, own_m, ratio = target_slope(
        table_ptr, own_scale, gumbel, own_width, own_x, own_base, own_offset, own_turn
    )
    log_f = tl.zeros([NODES], tl.float32)
    rate = tl.zeros([NODES], tl.float32)
    jump = 0
    for start in range(0, classes, WIDE):
        k, keep, mean, scale, inverse, base, offset, turn = columns(
            mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, WIDE
        )
        more, more_rate = _sums(
            table_ptr, mean, inverse, base, offset, start, tl.minimum(classes - start, WIDE), target, t
        )
        log_f += more
        rate += more_rate
        # A class that rises within the range, in less than a step.
        place = tl.minimum(tl.maximum((mean - low) / (high - low), 0.0), 1.0)
        local = step * (even + 2 * (1 - even) * place)
        within = (mean + REACH / inverse > low) & (mean - REACH / inverse < high)
        jump += tl.sum((keep & within & (local * inverse > COARSE)).to(tl.int32))
    terms = log_f + log_slope + tl.log(step * stretch) - tl.log(own_width)
    top = tl.max(terms)
    parts = tl.exp(terms - top)
    total = tl.sum(parts)
    # A row that does not count has log p = 0, no error and no gradients.
    log_p = tl.where(counts, top + tl.log(total), 0.0)
    weight = parts / total
    # Error: from every other node alone; infinite if nodes with weight lie outside the table or the range is short.
    half = tl.sum(tl.where(node % 2 == 0, weight, 0.0))
    coarse = tl.where(node % 2 == 0, weight / half, 0.0)
    change = tl.maximum(tl.abs(tl.log(2 * half)), tl.abs(tl.log(2 * (1 - half))))
    error = tl.maximum(change * tl.sqrt(change), _earlier(weight, node, half)) + ROUNDING * (
        14 + tl.abs(log_p)
    )
    lost = (weight > 1e-9) & ((log_f < DEEP) | (own_m < _FAR))
    lost = lost | ((weight > EDGE) & ((node == 0) | (node == NODES - 1)))
    error += tl.where(tl.sum(lost.to(tl.int32)) + jump > 0, float("inf"), 0.0)
    # Gradients: averages of derivatives of log F; for the target by integration by parts.
    balance = -weight * rate * own_width
    balance2 = -coarse * rate * own_width
    own_a, own_a2 = tl.sum(balance), tl.sum(balance2)
    own_b, own_b2 = tl.sum(balance * own_x), tl.sum(balance2 * own_x)
    own_c, own_c2 = tl.sum(balance * ratio), tl.sum(balance2 * ratio)
    heat = tl.zeros([NODES], tl.float32)
    top_mean = 0.0
    top_scale = 0.0
    moved_mean = 0.0
    moved_scale = 0.0
    widest = 0.0
    for start in range(0, classes, WIDE):
        k, keep, mean, scale, inverse, base, offset, turn = columns(
            mean_ptr, scale_ptr, angle_ptr, row, start, classes, shift, gumbel, WIDE
        )
        cos, sin = tl.where(keep, scale * inverse, 0.0), tl.where(keep, gumbel * inverse, 0.0)
        a, a2, y, y2, more = _averages(
            table_ptr, mean, inverse, base, offset, cos, sin * turn, cos * turn, sin,
            start, tl.minimum(classes - start, WIDE), target, t, weight, coarse,
        )  # fmt: skip
        heat += more
        mine = k == target
        a, a2 = tl.where(mine, own_a, a), tl.where(mine, own_a2, a2)
        y, y2 = tl.where(mine, cos * own_b + sin * own_c, y), tl.where(mine, cos * own_b2 + sin * own_c2, y2)
        at = row.to(tl.int64) * classes + k
        tl.store(d_mean_ptr + at, tl.where(counts, -a * inverse, 0.0), mask=keep)
        tl.store(d_scale_ptr + at, tl.where(counts, -y * inverse, 0.0), mask=keep)
        per = tl.where(keep, inverse, 0.0)
        top_mean = tl.maximum(top_mean, tl.max(tl.abs(a * per)))
        top_scale = tl.maximum(top_scale, tl.max(tl.abs(y * per)))
        moved_mean = tl.maximum(moved_mean, tl.max(tl.abs((a2 - a) * per)))
        moved_scale = tl.maximum(moved_scale, tl.max(tl.abs((y2 - y) * per)))
        widest = tl.maximum(widest, tl.max(tl.where(keep, 1 / inverse, 0.0)))
    own_square = own_width * own_width
    d_tau = tl.sum(heat * weight) + (own_scale * own_c - gumbel * own_b) / own_square
    d_tau_2 = tl.sum(heat * coarse) + (own_scale * own_c2 - gumbel * own_b2) / own_square
    floor = NOTHING / widest
    moved = (moved_mean > CHANGE * top_mean + floor) | (moved_scale > CHANGE * top_scale + floor)
    # Terms of the temperature's gradient may cancel, so its change is compared with the largest of the others, too.
    moved = moved | (tl.abs(d_tau_2 - d_tau) > CHANGE * tl.abs(d_tau) + SHARE * top_scale + floor)
    tl.store(d_tau_ptr + row, tl.where(counts, ROOT_C * d_tau, 0.0), mask=heated > 0)
    tl.store(log_p_ptr + row, log_p)
    tl.store(error_ptr + row, tl.where(counts, tl.where(moved, float("inf"), error), 0.0))


@triton.jit(do_not_specialize=["rows", "classes", "tau_stride", "ignore", "heated"])
def _kernel(
    mean_ptr, scale_ptr, target_ptr, tau_ptr, angle_ptr, table_ptr,
    log_p_ptr, error_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr, rows, classes, tau_stride, tol, allowed, ignore,
    heated, POINTS: tl.constexpr, NODES: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """All rows, one per program; AGAIN: only those whose error is above the tolerance, some rows per program."""
    if AGAIN:
        begin = tl.program_id(0) * _ROWS
        at = begin + tl.arange(0, _ROWS)
        error = tl.load(error_ptr + at, mask=at < rows, other=0.0)
        log_p = tl.load(log_p_ptr + at, mask=at < rows, other=0.0)
        if tl.sum((error <= tol + allowed * tl.abs(log_p)).to(tl.int32)) == _ROWS:
            return
        for i in range(tl.minimum(rows - begin, _ROWS)):
            row = begin + i
            good = tl.load(error_ptr + row) <= tol + allowed * tl.abs(tl.load(log_p_ptr + row))
            if good == 0:
                _row(
                    mean_ptr, scale_ptr, target_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr,
                    d_mean_ptr, d_scale_ptr, d_tau_ptr, row, classes, tau_stride, ignore, heated, POINTS, NODES,
                )  # fmt: skip
    else:
        _row(
            mean_ptr, scale_ptr, target_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, d_mean_ptr,
            d_scale_ptr, d_tau_ptr, tl.program_id(0), classes, tau_stride, ignore, heated, POINTS, NODES,
        )  # fmt: skip


_run, _run_kept = Launcher(_kernel), Launcher(kept_kernel)


def nll(
    mean: Tensor,
    scale: Tensor,
    temperature: Tensor,
    target: Tensor,
    tol: float = 2e-5,
    shapes: tuple[tuple[int, int, int], ...] | None = None,
    ignore: int = -1,
    heat: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """log p of the target (B,), its error (B,), gradients in mean, scale (B, K), temperature (B, 1).

    mean and scale (B, K) contiguous, float32 or bfloat16; temperature (B, 1) or one number; gradients in
    the type of the inputs, the rest in float32. An error above `tol` + `ALLOWED` |log p|, or a NaN, marks a row
    that needs the thorough rule. `shapes` overrides the nodes, points and warps of the launches; rows with the
    label `ignore` get zeros; without `heat` the temperature's gradient is left out.
    """
    rows, classes = mean.shape
    if shapes is None and classes == 2:
        return triton_two.nll(mean, scale, temperature, target, ignore, heat)
    log_p, error = (torch.empty(rows, dtype=torch.float32, device=mean.device) for _ in range(2))
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=mean.device) if heat else error
    d_mean, d_scale = torch.empty_like(mean), torch.empty_like(scale)
    stride = 1 if temperature.numel() > 1 else 0
    given = (mean, scale, target, temperature)
    rest = (
        *tables(mean.device), log_p, error, d_mean, d_scale, d_tau, rows, classes, stride, tol, ALLOWED, ignore,
        1 if heat else 0,
    )  # fmt: skip
    if shapes is None and classes <= FEW:
        _run_kept(rows, given, (*rest, KEPT), (-(-classes // 4) * 4,), 1)
        return log_p, error, d_mean, d_scale, d_tau
    for turn, (nodes, points, warps) in enumerate(shapes or LAUNCHES):
        programs = rows if turn == 0 else -(-rows // _ROWS.value)
        _run(programs, given, rest, (points, nodes, turn > 0), warps)
    return log_p, error, d_mean, d_scale, d_tau


# Nodes, points and warps of the first launch and of those for the rows that missed.
LAUNCHES = (32, 32, 1), (64, 32, 1), (512, 32, 4)
FEW, KEPT = 32, 992  # the most classes kept in registers, and the most intervals of such rows
