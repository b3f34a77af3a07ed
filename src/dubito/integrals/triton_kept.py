# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call, assignment"
"""The likelihood of one of at most 32 classes, with one table lookup per class and node, and one node per lane.

The values of each class stay in registers until the weights of the nodes are known. A row that misses the tolerance
gets the nodes in between, repeatedly, so that none is computed twice. Error and rule are those of
`triton_quadrature`. Imported only where Triton is.
"""

from __future__ import annotations

import triton
import triton.language as tl

from . import table as _table
from .triton_all_row import evenness, nodes_of
from .triton_lanes import LANES, dealt, exp, four_sums, log, pick, swapped, twelve_sums
from .triton_table import ROOT_C, columns, look_up, place_angle, rough, rough_value, target_slope

_FAR = tl.constexpr(_table.FAR)
ROUNDING = tl.constexpr(2.5e-7)  # of 14 + |log p|: the error of table and float32
DEEP = tl.constexpr(-120.0)  # of the sum of log F: below it a term may lie outside the table
EDGE = tl.constexpr(5e-6)  # of a weight: the range must not end before the integrand does
CHANGE, NOTHING, SHARE = tl.constexpr(3e-3), tl.constexpr(1e-7), tl.constexpr(1e-4)
# Halving the step tells the error only if every class is smooth on the scale of a step; in widths of the class.
COARSE, REACH = tl.constexpr(1.6), tl.constexpr(5.0)
_DROP, _ROUNDS = tl.constexpr(13.5), tl.constexpr(8)
_HALF, _INSIDE, _TURNS = tl.constexpr(16), tl.constexpr(6), tl.constexpr(4)


@triton.jit
def _steps_to(value, outer, inner, level):
    """Steps outwards from a point above the level to one below it, at most 1; as in `triton_range`."""
    here = pick(value, outer)
    there = pick(value, tl.minimum(tl.maximum(inner, 0), _HALF - 1))
    fall = tl.where((inner >= 0) & (inner < _HALF), there - here, 0.0)
    return tl.minimum((here - level) / tl.maximum(fall, 1e-6), 1.0)


@triton.jit
def _support(table_ptr, keep, column, own_width, own_base, own_offset, COUNT: tl.constexpr):
    """A range of t at whose ends the integrand has dropped by `_DROP` nats or more, and roughly its mode.

    Each half of the lanes holds the same 16 points and sums every other class. Results (lanes,), all the same.
    """
    mean, inverse, base, offset = column
    lane = tl.arange(0, LANES)
    point, side = lane % _HALF, lane // _HALF
    zero = tl.zeros([LANES], tl.float32)
    high = zero + (tl.maximum(tl.max(tl.where(keep, mean + 6 / inverse, 0.0)), 0.0) + 14 * own_width)
    low = zero - 7 * own_width
    mode = low
    inside = 0
    rounds = 0
    while (inside < _INSIDE) & (rounds < _ROUNDS):
        step = (high - low) / (_HALF - 1)
        t = low + step * point
        total = zero
        for start in range(0, COUNT, 2 * _TURNS):
            for turn in tl.static_range(_TURNS):
                j = side + (start + 2 * turn)
                x = (t - pick(mean, j)) * pick(inverse, j)
                m = rough_value(table_ptr, x, pick(base, j), pick(offset, j))
                total -= exp(tl.minimum(m, 80.0))
        m, m_x = rough(table_ptr, t / own_width, own_base, own_offset)
        value = m + log(tl.maximum(-m_x, 1e-30)) + total + swapped(total, _HALF)
        peak = tl.max(value)
        level = peak - _DROP
        within = value > level
        inside = tl.sum(within.to(tl.int32)) // 2
        first = tl.min(tl.where(within, point, _HALF - 1))
        last = tl.max(tl.where(within, point, 0))
        mode = low + step * tl.max(tl.where(value == peak, point, 0))
        back = _steps_to(value, first, first + 1, level)
        ahead = _steps_to(value, last, last - 1, level)
        high = low + step * tl.minimum(last + ahead, _HALF - 1.0)
        low = low + step * tl.maximum(first - back, 0.0)
        rounds += 1
    return low, high, mode


@triton.jit
def _values(table_ptr, column, target, t, COUNT: tl.constexpr):
    """d log F / dx and d log F / dv of all classes at t; the sum of log F, and its derivative for the rivals.

    `none` is 0 in a way that the compiler cannot see: else it would pick all values before the first chunk, and run
    out of registers.
    """
    mean, inverse, base, offset = column
    none = (t < -3e38).to(tl.int32)
    in_x = ()
    in_v = ()
    log_f = tl.zeros([LANES], tl.float32)
    rate = tl.zeros([LANES], tl.float32)
    for k in tl.static_range(COUNT):
        j = none + k
        per = pick(inverse, j)
        m, m_x, m_v = look_up(table_ptr, (t - pick(mean, j)) * per, pick(base, j), pick(offset, j))
        part = -exp(m)
        in_x = in_x + (part * m_x,)
        in_v = in_v + (part * m_v,)
        log_f += part
        rate += tl.where(target == k, 0.0, part * m_x * per)
    return in_x, in_v, log_f, rate


@triton.jit
def _position(column, t, none, k):
    mean, inverse, base, offset = column
    return (t - pick(mean, none + k)) * pick(inverse, none + k)


@triton.jit
def _averages(column, in_x, in_v, t, weight, a, b, c, a2, b2, c2, COUNT: tl.constexpr):
    """Adds sums of in_x, x in_x and in_v over nodes to a, b, c, one class per lane; even ones to a2, b2, c2."""
    none = (t < -3e38).to(tl.int32)
    zero = tl.zeros([LANES], tl.float32)
    for k in tl.static_range(0, COUNT, 4):
        p, q = in_x[k] * weight, in_x[k + 1] * weight
        r, s = in_x[k + 2] * weight, in_x[k + 3] * weight
        sums = twelve_sums(
            p, q, r, s,
            p * _position(column, t, none, k), q * _position(column, t, none, k + 1),
            r * _position(column, t, none, k + 2), s * _position(column, t, none, k + 3),
            in_v[k] * weight, in_v[k + 1] * weight, in_v[k + 2] * weight, in_v[k + 3] * weight,
        )  # fmt: skip
        both = sums + swapped(sums, 1)
        a, b, c = a + dealt(both, k, 0, zero), b + dealt(both, k, 4, zero), c + dealt(both, k, 2, zero)
        a2, b2, c2 = a2 + dealt(sums, k, 0, zero), b2 + dealt(sums, k, 4, zero), c2 + dealt(sums, k, 2, zero)
    return a, b, c, a2, b2, c2


@triton.jit
def _gradients(a, b, c, own_a, own_b, own_c, share, mine, keep, inverse, cos, sin, turn):
    """Averages to derivatives in mean, scale and the Gumbel's width; the target's by integration by parts."""
    a, b, c = (
        tl.where(mine, own_a, a) * share,
        tl.where(mine, own_b, b) * share,
        tl.where(mine, own_c, c * turn) * share,
    )
    per = tl.where(keep, inverse, 0.0)
    return -a * per, -(cos * b + sin * c) * per, tl.sum(tl.where(keep, (cos * c - sin * b) * inverse, 0.0))


@triton.jit
def _largest(x):
    return tl.max(tl.abs(x))


@triton.jit
def _uneven(part):
    """By how many nats the two parts of a whole, `part` and 1 - `part`, differ from its half, at most."""
    return tl.maximum(tl.abs(tl.log(2 * part)), tl.abs(tl.log(2 * (1 - part))))


@triton.jit(do_not_specialize=["rows", "classes", "tau_stride", "ignore", "heated", "most"])
def kept_kernel(
    mean_ptr, scale_ptr, target_ptr, tau_ptr, angle_ptr, table_ptr,
    log_p_ptr, error_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr, rows, classes, tau_stride, tol, allowed, ignore,
    heated, most, COUNT: tl.constexpr,
):  # fmt: skip
    """One row per program: 31 intervals, halved until the error is small enough or there are `most`."""
    row = tl.program_id(0)
    lane = tl.arange(0, LANES)
    zero = tl.zeros([LANES], tl.float32)
    target = tl.load(target_ptr + row)
    at = row.to(tl.int64) * classes + lane
    if target == ignore:  # log p = 0, no error and no gradients
        tl.store(d_mean_ptr + at, zero, mask=lane < classes)
        tl.store(d_scale_ptr + at, zero, mask=lane < classes)
        tl.store(d_tau_ptr + row, 0.0, mask=heated > 0)
        tl.store(log_p_ptr + row, 0.0)
        tl.store(error_ptr + row, 0.0)
        return
    target = target.to(tl.int32)
    gumbel = ROOT_C * tl.load(tau_ptr + row * tau_stride).to(tl.float32)
    own_at = row.to(tl.int64) * classes + target
    shift = tl.load(mean_ptr + own_at).to(tl.float32)
    own_scale = tl.load(scale_ptr + own_at).to(tl.float32)
    own_width = tl.sqrt(own_scale * own_scale + gumbel * gumbel)
    own_base, own_offset, own_turn = place_angle(angle_ptr, own_scale, gumbel)
    k, keep, mean, scale, inverse, base, offset, turn = columns(
        mean_ptr, scale_ptr, angle_ptr, row, 0, classes, shift, gumbel, LANES
    )
    column = (mean, inverse, base, offset)
    low, high, mode = _support(table_ptr, keep, column, own_width, own_base, own_offset, COUNT)
    length, even = high - low, evenness(low, high, mode)
    within = keep & (mean + REACH / inverse > low) & (mean - REACH / inverse < high)
    place = tl.minimum(tl.maximum((mean - low) / length, 0.0), 1.0)
    steepest = tl.max(tl.where(within, length * (even + 2 * (1 - even) * place) * inverse, 0.0))
    cos, sin, mine = scale * inverse, gumbel * inverse, k == target
    least = NOTHING / tl.max(tl.where(keep, 1 / inverse, 0.0))
    a, b, c, own = zero, zero, zero, zero
    d_mean, d_scale, before = zero, zero, zero
    top, d_tau, log_p, ends = 0.0, 0.0, 0.0, 0.0
    error = float("inf")
    lost = 0
    intervals = 31
    apart = 1  # between the nodes of a chunk
    again = 1
    while (again > 0) & (intervals <= most):
        first = apart == 1
        a2, b2, c2, own2 = a, b, c, own
        for i in range(tl.where(first, 0, 1), apart, 2):
            t, log_weight = nodes_of(low, length, even, lane * apart + i, intervals)
            own_x = t / own_width
            log_slope, own_m, ratio = target_slope(
                table_ptr, own_scale, gumbel, own_width, own_x, own_base, own_offset, own_turn
            )
            in_x, in_v, log_f, rate = _values(table_ptr, column, target, t, COUNT)
            # all with the step of the first round, by which the sum is divided
            terms = log_f + log_slope + log_weight + tl.log(apart / own_width)
            top = tl.where(first, tl.max(terms), top)
            weight = exp(tl.minimum(terms - top, 60.0))
            outside = (weight > 1e-9) & ((log_f < DEEP) | (own_m < _FAR))
            lost += tl.sum((outside | (weight > 1e20)).to(tl.int32))
            balance = -weight * rate * own_width
            sums = four_sums(weight, balance, balance * own_x, balance * ratio)
            a, b, c, e, f, g = _averages(column, in_x, in_v, t, weight, a, b, c, zero, zero, zero, COUNT)
            own += sums + swapped(sums, 1)
            a2, b2, c2 = tl.where(first, e, a2), tl.where(first, f, b2), tl.where(first, g, c2)
            own2 = tl.where(first, sums, own2)
            fourth, next_one = tl.where(lane % 4 == 0, weight, 0.0), tl.where(lane % 4 == 1, weight, 0.0)
            earlier = tl.maximum(
                _uneven(tl.sum(fourth) / pick(sums, 0)), _uneven(tl.sum(next_one) / pick(sums, 1))
            )
            before = tl.where(first, earlier, before)
            edge = tl.max(tl.where((lane == 0) | (lane == LANES - 1), weight, 0.0))
            ends = tl.where(first, edge, ends)
        every, half = pick(own, 0), pick(own2, 0)
        log_p = tl.max(top + tl.log(every / apart))
        change = _uneven(half / every)
        error = tl.max(tl.maximum(change * tl.sqrt(change), before * before * before * before * before))
        error += ROUNDING * (14 + tl.abs(log_p))
        before = change
        coarse_mean, coarse_scale, coarse_tau = _gradients(
            a2, b2, c2, pick(own2, 8), pick(own2, 16), pick(own2, 24), 1 / half, mine, keep, inverse, cos, sin, turn
        )  # fmt: skip
        d_mean, d_scale, d_tau = _gradients(
            a, b, c, pick(own, 8), pick(own, 16), pick(own, 24), 1 / every, mine, keep, inverse, cos, sin, turn
        )  # fmt: skip
        size = _largest(d_scale)
        moved = _largest(coarse_mean - d_mean) > CHANGE * _largest(d_mean) + least
        moved = moved | (_largest(coarse_scale - d_scale) > CHANGE * size + least)
        # Terms of the temperature's gradient may cancel, so its change is compared with the largest of the others,
        # too.
        moved = moved | (tl.abs(coarse_tau - d_tau) > CHANGE * tl.abs(d_tau) + SHARE * size + least)
        cut = ends > EDGE * tl.max(every)
        wrong = moved | cut | (lost > 0) | (steepest > COARSE * intervals)
        error = tl.where(wrong, float("inf"), error)
        again = ((error > tol + allowed * tl.abs(log_p)) & (lost == 0)).to(tl.int32)
        intervals *= 2
        apart *= 2
    tl.store(d_mean_ptr + at, d_mean, mask=keep)
    tl.store(d_scale_ptr + at, d_scale, mask=keep)
    tl.store(d_tau_ptr + row, ROOT_C * d_tau, mask=heated > 0)
    tl.store(log_p_ptr + row, log_p)
    tl.store(error_ptr + row, error)
