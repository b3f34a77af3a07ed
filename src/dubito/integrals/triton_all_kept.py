# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call, assignment"
"""All of at most 32 classes, with one table lookup per class and node. Imported only where Triton is.

Each lane has a node; the values of each class stay in registers until the sum over all classes is known. A row that
misses the tolerance gets the nodes in between, repeatedly, so that none is computed twice.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from . import quick as _quick
from .triton_all_row import error_of, evenness, narrowest, nodes_of, prepare, rate_of
from .triton_lanes import LANES, dealt, exp, four_highest, four_sums, pick, swapped
from .triton_table import ROOT_C, rough_value

_LEFT, _RIGHT = tl.constexpr(_quick.LEFT), tl.constexpr(-16.0)
_DEEP = tl.constexpr(math.log(18.0))
_HALF = tl.constexpr(16)
_TURNS = tl.constexpr(4)


@triton.jit
def _log_depth(table_ptr, column, t, COUNT: tl.constexpr):
    """log(-G), roughly, at 16 points t, which both halves of the lanes hold; each half sums every other class."""
    mean, inverse, base, offset, cot = column
    half = tl.arange(0, LANES) // _HALF
    depth = tl.zeros([LANES], tl.float32)
    for start in range(0, COUNT, 2 * _TURNS):
        for turn in tl.static_range(_TURNS):
            j = half + (start + 2 * turn)
            x = (t - pick(mean, j)) * pick(inverse, j)
            m = rough_value(table_ptr, x, pick(base, j), pick(offset, j))
            depth += exp(tl.minimum(m, 80.0))
    return tl.log(depth + swapped(depth, _HALF))


@triton.jit
def _crossing(value, low, step, level, most, side):
    """Where a falling function, given at equally spaced points, crosses a level, by linear interpolation.

    Where it falls by more than `most` between two points, a line is too rough, and the point on `side` is taken.
    """
    above = tl.sum((value >= level).to(tl.int32)) // 2  # every point is held twice
    i = tl.minimum(tl.maximum(above - 1, 0), _HALF - 2)
    here, there = pick(value, i), pick(value, i + 1)
    part = tl.where(here - there > most, side, (here - level) / tl.maximum(here - there, 1e-6))
    return low + step * (i + tl.minimum(tl.maximum(part, 0.0), 1.0))


@triton.jit
def stretch(table_ptr, keep, column, COUNT: tl.constexpr):
    """Between the first two -G falls from about 75 to 1e-7, then it is 1, then 18; (lanes,), all the same."""
    mean, inverse, base, offset, cot = column
    point = (tl.arange(0, LANES) % _HALF).to(tl.float32)
    low = tl.zeros([LANES], tl.float32) + tl.max(tl.where(keep, mean - 14 / inverse, -1e30))
    high = tl.zeros([LANES], tl.float32) + tl.max(tl.where(keep, mean + 16 / inverse, -1e30))
    step = (high - low) / (_HALF - 1)
    value = _log_depth(table_ptr, column, low + step * point, COUNT)
    first = tl.sum((value >= _LEFT).to(tl.int32)) // 2 - 1
    last = _HALF - tl.sum((value <= _RIGHT).to(tl.int32)) // 2
    high = low + step * tl.minimum(last, _HALF - 1)
    low = low + step * tl.maximum(first, 0)
    step = (high - low) / (_HALF - 1)
    value = _log_depth(table_ptr, column, low + step * point, COUNT)
    middle = _crossing(value, low, step, 0.0, 12.0, 0.5)
    return (
        _crossing(value, low, step, _LEFT, 2.0, 0.0),
        _crossing(value, low, step, _RIGHT, 12.0, 1.0),
        middle,
        _crossing(value, low, step, _DEEP, 2.0, 0.0),
    )


@triton.jit
def _rates(table_ptr, column, t, log_weight, per_tau, COUNT: tl.constexpr):
    """Logarithms of the rates of all classes at t, and G + log of the weights.

    `none` is 0 in a way that the compiler cannot see: else it would pick all values before the first chunk, and run
    out of registers.
    """
    none = (t < -3e38).to(tl.int32)
    kept = ()
    total = log_weight
    for j in tl.static_range(COUNT):
        x, m, log_rate, straight, m_v, m_x = rate_of(table_ptr, column, t, per_tau, none + j)
        kept = kept + (log_rate,)
        total -= exp(m)
    return kept, total


@triton.jit
def _peaks(kept, total, COUNT: tl.constexpr):
    """The largest log-term of each class, one class per lane."""
    peak = tl.full([LANES], -1e30, tl.float32)
    for j in tl.static_range(0, COUNT, 4):
        x = four_highest(kept[j] + total, kept[j + 1] + total, kept[j + 2] + total, kept[j + 3] + total)
        peak = dealt(x, j, 0, peak)
    return peak


@triton.jit
def _part(log_rate, total, peak, j):
    return exp(log_rate + total - pick(peak, j))


@triton.jit
def _sums(kept, total, peak, COUNT: tl.constexpr):
    """Sums of exp(term - peak) over even and over odd nodes, one class per lane."""
    even = tl.zeros([LANES], tl.float32)
    odd = tl.zeros([LANES], tl.float32)
    for j in tl.static_range(0, COUNT, 4):
        x = four_sums(
            _part(kept[j], total, peak, j),
            _part(kept[j + 1], total, peak, j + 1),
            _part(kept[j + 2], total, peak, j + 2),
            _part(kept[j + 3], total, peak, j + 3),
        )
        even, odd = dealt(x, j, 0, even), dealt(x, j, 1, odd)
    return even, odd


@triton.jit(do_not_specialize=["rows", "classes", "tau_stride", "most"])
def kept_forward(
    mean_ptr, scale_ptr, tau_ptr, angle_ptr, table_ptr, log_p_ptr, error_ptr, places_ptr,
    rows, classes, tau_stride, tol, most, COUNT: tl.constexpr,
):  # fmt: skip
    """One row per program: 31 intervals, halved until the error is below `tol` or there are `most`."""
    row = tl.program_id(0)
    gumbel = tl.load(tau_ptr + row * tau_stride).to(tl.float32) * ROOT_C
    per_tau = ROOT_C / gumbel
    at, keep, column, tail = prepare(mean_ptr, scale_ptr, angle_ptr, row, classes, gumbel, LANES)
    low, high, middle, deep = stretch(table_ptr, keep, column, COUNT)
    length, even = high - low, evenness(low, high, middle)
    least = narrowest(keep, column, low, length, even, deep)
    lane = tl.arange(0, LANES)
    peak = tl.full([LANES], -1e30, tl.float32)
    every = tl.zeros([LANES], tl.float32)
    half = tl.zeros([LANES], tl.float32)
    log_p = tl.zeros([LANES], tl.float32)
    norm = 0.0
    error = float("inf")
    intervals = 31
    apart = 1  # between the nodes of a chunk
    again = 1
    while (again > 0) & (intervals <= most):
        half = every
        for i in range(tl.where(apart > 1, 1, 0), apart, 2):
            t, log_weight = nodes_of(low, length, even, lane * apart + i, intervals)
            # all with the step of the first round, by which the sum is divided
            kept, total = _rates(table_ptr, column, t, log_weight + tl.log(apart * 1.0), per_tau, COUNT)
            higher = tl.maximum(peak, _peaks(kept, total, COUNT))
            every, half = every * exp(peak - higher), half * exp(peak - higher)
            peak = higher
            a, b = _sums(kept, total, peak, COUNT)
            half = tl.where(apart == 1, a, half)
            every += a + b
        log_p = peak + tl.log(every / apart)
        p = tl.where(keep, tl.exp(log_p), 0.0)
        all_p = tl.sum(p)
        norm = tl.log(all_p)
        error = error_of(p, every, half, all_p, (least > 2 * intervals).to(tl.int32))
        again = ((error > tol) & (all_p == all_p)).to(tl.int32)  # a NaN will not become a number
        intervals *= 2
        apart *= 2
    tl.store(log_p_ptr + at, log_p - norm, mask=keep)
    tl.store(error_ptr + row, error)
    place = places_ptr + row + 0 * lane
    tl.store(place, low, mask=lane == 0)
    tl.store(place + rows, length, mask=lane == 0)
    tl.store(place + 2 * rows, even, mask=lane == 0)
    tl.store(places_ptr + 3 * rows + row, norm)
    tl.store(places_ptr + 4 * rows + row, (intervals // 2) * 1.0)
