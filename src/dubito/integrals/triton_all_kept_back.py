# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call, assignment"
"""The backward pass over at most 32 classes, with one table lookup per class and node. Imported where Triton is.

The formula is that of `triton_all_back`; averages of three quantities per class give all gradients.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_all_row import nodes_of, prepare, rate_of, ratio_of
from .triton_lanes import LANES, dealt, exp, pick, swapped, twelve_sums
from .triton_table import ROOT_C


@triton.jit
def _values(table_ptr, column, tail, t, log_weight, per_tau, none, COUNT: tl.constexpr):
    """Log-rates and ratios of all classes at t, and G + log of the weights."""
    log_rates = ()
    ratios = ()
    total = log_weight
    for j in tl.static_range(COUNT):
        index = none + j
        x, m, log_rate, straight, m_v, m_x = rate_of(table_ptr, column, t, per_tau, index)
        log_rates = log_rates + (log_rate,)
        ratios = ratios + (ratio_of(tail, column[4], index, x, straight, m_v, m_x),)
        total -= exp(m)
    return log_rates, ratios, total


@triton.jit
def _chunk(
    table_ptr, column, tail, t, log_weight, per_tau, grad, log_p, a, b, c, COUNT: tl.constexpr
):  # fmt: skip
    """Adds to a, b and c a chunk's sums of d = the derivative in a shift, of d t, and of d times the ratio.

    `none` is 0 in a way that the compiler cannot see: else it would pick all values before the first chunk, and run
    out of registers.
    """
    none = (t < -3e38).to(tl.int32)
    log_rates, ratios, total = _values(table_ptr, column, tail, t, log_weight, per_tau, none, COUNT)
    weighted = tl.zeros([LANES], tl.float32)
    both = tl.zeros([LANES], tl.float32)
    shares = ()
    rates = ()
    for j in tl.static_range(COUNT):
        # the share of each node in the probability of class j, times its gradient
        share = pick(grad, none + j) * exp(tl.minimum(log_rates[j] + total - pick(log_p, none + j), 60.0))
        rate = exp(tl.minimum(log_rates[j], 80.0))
        shares = shares + (share,)
        rates = rates + (rate,)
        weighted += share
        both += rate
    zero = tl.zeros([LANES], tl.float32)
    for j in tl.static_range(0, COUNT, 4):
        u = rates[j] * weighted - shares[j] * both
        v = rates[j + 1] * weighted - shares[j + 1] * both
        w = rates[j + 2] * weighted - shares[j + 2] * both
        x = rates[j + 3] * weighted - shares[j + 3] * both
        sums = twelve_sums(
            u, v, w, x, u * t, v * t, w * t, x * t,
            u * ratios[j], v * ratios[j + 1], w * ratios[j + 2], x * ratios[j + 3],
        )  # fmt: skip
        sums += swapped(sums, 1)
        a, b, c = a + dealt(sums, j, 0, zero), b + dealt(sums, j, 4, zero), c + dealt(sums, j, 2, zero)
    return a, b, c


@triton.jit(do_not_specialize=["rows", "classes", "tau_stride", "heated"])
def kept_backward(
    mean_ptr, scale_ptr, tau_ptr, grad_ptr, angle_ptr, table_ptr, log_p_ptr, places_ptr, d_mean_ptr,
    d_scale_ptr, d_tau_ptr, rows, classes, tau_stride, heated, COUNT: tl.constexpr,
):  # fmt: skip
    """A row per program."""
    row = tl.program_id(0)
    gumbel = tl.load(tau_ptr + row * tau_stride).to(tl.float32) * ROOT_C
    at, keep, column, tail = prepare(mean_ptr, scale_ptr, angle_ptr, row, classes, gumbel, LANES)
    mean, inverse, base, offset, cot = column
    turn, slope, cos, sin = tail
    grad = tl.load(grad_ptr + at, mask=keep, other=0.0).to(tl.float32)
    log_p = tl.load(log_p_ptr + at, mask=keep, other=0.0)
    a = tl.zeros([LANES], tl.float32)
    b = tl.zeros([LANES], tl.float32)
    c = tl.zeros([LANES], tl.float32)
    # Rows that another rule has replaced have no gradient, and their nodes may be anywhere.
    if tl.max(tl.where(grad == 0, 0.0, 1.0)) > 0:
        low, length = tl.load(places_ptr + row), tl.load(places_ptr + rows + row)
        even, norm = tl.load(places_ptr + 2 * rows + row), tl.load(places_ptr + 3 * rows + row)
        intervals = tl.load(places_ptr + 4 * rows + row).to(tl.int32)
        grad -= tl.where(keep, tl.exp(log_p), 0.0) * tl.sum(grad)  # through the normalisation
        log_p = tl.maximum(log_p + norm, -1e30)
        for start in range(0, intervals + 1, LANES):
            t, log_weight = nodes_of(low, length, even, start + tl.arange(0, LANES), intervals)
            a, b, c = _chunk(
                table_ptr, column, tail, t, log_weight, ROOT_C / gumbel, grad, log_p, a, b, c, COUNT
            )  # fmt: skip
        b = (b - mean * a) * inverse
    tl.store(d_mean_ptr + at, -a, mask=keep)
    tl.store(d_scale_ptr + at, -(cos * b + sin * c), mask=keep)
    heat = tl.sum(tl.where(keep, cos * c - sin * b, 0.0))
    tl.store(d_tau_ptr + row, ROOT_C * heat, mask=heated > 0)
