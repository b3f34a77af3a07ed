# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call, assignment"
"""The backward pass over all classes, by the nodes of the forward pass. Imported only where Triton is.

With g_c the derivative in log p_c and q_cn the share of node n in p_c,
d loss / d theta_k = sum_n d log F_k / d theta_k ( sum_c g_c q_cn - g_k q_kn R_n / r_kn ).
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_all_row import nodes_of, prepare, rate_of, ratio_of, total_of
from .triton_range import TURNS
from .triton_table import ROOT_C, pick

SMALL, MANY = 64, 496  # nodes of a chunk; rows of more than `MANY` intervals get larger ones


@triton.jit
def _sums(table_ptr, column, grad, log_p, classes, t, total, per_tau):
    """Over all classes at t (nodes,): shares times gradients, and rates."""
    index = tl.zeros(t.shape, tl.int32)
    weighted = tl.zeros(t.shape, tl.float32)
    rates = tl.zeros(t.shape, tl.float32)
    for start in range(0, classes, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            x, m, log_rate, straight, m_v, m_x = rate_of(table_ptr, column, t, per_tau, j)
            weighted += _share(grad, log_p, j, log_rate, total)
            rates += tl.exp(tl.minimum(log_rate, 80.0))
    return weighted, rates


@triton.jit
def _share(grad, log_p, j, log_rate, total):
    """The share of each node in the probability of class j, times its gradient."""
    return pick(grad, j) * tl.exp(tl.minimum(log_rate + total - pick(log_p, j), 60.0))


@triton.jit
def _part(
    table_ptr, column, tail, grad, log_p, classes, t, log_weight, per_tau, WIDE: tl.constexpr
):  # fmt: skip
    """A chunk's part of the gradients in mean and scale, one class per lane, and of the temperature's, (nodes,)."""
    turns, slopes, cos, sin = tail
    index = tl.zeros(t.shape, tl.int32)
    lane = tl.arange(0, WIDE)
    to_mean = tl.zeros([WIDE], tl.float32)
    to_scale = tl.zeros([WIDE], tl.float32)
    heat = tl.zeros(t.shape, tl.float32)
    total = total_of(table_ptr, column, classes, t, log_weight)
    weighted, rates = _sums(table_ptr, column, grad, log_p, classes, t, total, per_tau)
    for start in range(0, classes, TURNS):
        for turn in tl.static_range(TURNS):
            j = index + (start + turn)
            x, m, log_rate, straight, m_v, m_x = rate_of(table_ptr, column, t, per_tau, j)
            ratio = ratio_of(tail, column[4], j, x, straight, m_v, m_x)
            rate = tl.exp(tl.minimum(log_rate, 80.0))
            in_x = rate * weighted - _share(grad, log_p, j, log_rate, total) * rates
            c, s = pick(cos, j), pick(sin, j)
            mine = lane == start + turn
            to_mean = tl.where(mine, tl.sum(in_x), to_mean)
            to_scale = tl.where(mine, tl.sum(in_x * (c * x + s * ratio)), to_scale)
            heat += in_x * (c * ratio - s * x)
    return to_mean, to_scale, tl.sum(heat)


@triton.jit
def _row(
    mean_ptr, scale_ptr, tau_ptr, grad_ptr, angle_ptr, table_ptr, log_p_ptr, places_ptr, d_mean_ptr,
    d_scale_ptr, d_tau_ptr, row, rows, classes, tau_stride, heated, CHUNK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    gumbel = tl.load(tau_ptr + row * tau_stride).to(tl.float32) * ROOT_C
    at, keep, column, tail = prepare(mean_ptr, scale_ptr, angle_ptr, row, classes, gumbel, WIDE)
    grad = tl.load(grad_ptr + at, mask=keep, other=0.0).to(tl.float32)
    log_p = tl.load(log_p_ptr + at, mask=keep, other=0.0)
    to_mean = tl.zeros([WIDE], tl.float32)
    to_scale = tl.zeros([WIDE], tl.float32)
    heat = 0.0
    # Rows that another rule has replaced have no gradient, and their nodes may be anywhere.
    if tl.max(tl.where(grad == 0, 0.0, 1.0)) > 0:
        low, length = tl.load(places_ptr + row), tl.load(places_ptr + rows + row)
        even, norm = tl.load(places_ptr + 2 * rows + row), tl.load(places_ptr + 3 * rows + row)
        intervals = tl.load(places_ptr + 4 * rows + row).to(tl.int32)
        grad -= tl.where(keep, tl.exp(log_p), 0.0) * tl.sum(grad)  # through the normalisation
        log_p = tl.maximum(log_p + norm, -1e30)
        for start in range(0, intervals + 1, CHUNK):
            t, log_weight = nodes_of(low, length, even, start + tl.arange(0, CHUNK), intervals)
            a, y, more = _part(
                table_ptr, column, tail, grad, log_p, classes, t, log_weight, ROOT_C / gumbel, WIDE
            )  # fmt: skip
            to_mean -= a
            to_scale -= y
            heat += more
    tl.store(d_mean_ptr + at, to_mean, mask=keep)
    tl.store(d_scale_ptr + at, to_scale, mask=keep)
    tl.store(d_tau_ptr + row, ROOT_C * heat, mask=heated > 0)


@triton.jit(do_not_specialize=["rows", "classes", "tau_stride", "heated", "most"])
def backward_kernel(
    mean_ptr, scale_ptr, tau_ptr, grad_ptr, angle_ptr, table_ptr, log_p_ptr, places_ptr, d_mean_ptr,
    d_scale_ptr, d_tau_ptr, rows, classes, tau_stride, heated, most,
    CHUNK: tl.constexpr, WIDE: tl.constexpr, AGAIN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """All rows with up to `most` intervals, one per program; AGAIN: the others, several per program."""
    if AGAIN:
        begin = tl.program_id(0) * ROWS
        at = begin + tl.arange(0, ROWS)
        if tl.max(tl.load(places_ptr + 4 * rows + at, mask=at < rows, other=0.0)) <= most:
            return
        for i in range(tl.minimum(rows - begin, ROWS)):
            row = begin + i
            if tl.load(places_ptr + 4 * rows + row) > most:
                _row(
                    mean_ptr, scale_ptr, tau_ptr, grad_ptr, angle_ptr, table_ptr, log_p_ptr, places_ptr, d_mean_ptr,
                    d_scale_ptr, d_tau_ptr, row, rows, classes, tau_stride, heated, CHUNK, WIDE,
                )  # fmt: skip
    else:
        row = tl.program_id(0)
        if tl.load(places_ptr + 4 * rows + row) <= most:
            _row(
                mean_ptr, scale_ptr, tau_ptr, grad_ptr, angle_ptr, table_ptr, log_p_ptr, places_ptr, d_mean_ptr,
                d_scale_ptr, d_tau_ptr, row, rows, classes, tau_stride, heated, CHUNK, WIDE,
            )  # fmt: skip
