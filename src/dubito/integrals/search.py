"""The support of a row's integrand: its mode, and on each side the place where it has dropped far enough.

The integrand f_y(t) prod_{k != y} F_k(t) is log-concave, so there is one mode and one place per side. Everything
here is approximate (within a nat or so): it decides where nodes lie, and no value depends on it. Far outside the
table the error may be larger: `mend` uses the integrand itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .rows import Rows, rough_log_integrand

_AT_MOST = 80
_POINTS, _ROUNDS = 9, 24  # of the search in `mend`: each round leaves a quarter of the range
SHOULDER = 2.0  # nats


class Support(NamedTuple):
    """The mode (B, 1), minus the second derivative there (B, 1), and per side, left then right, (B, 2): the
    distance of the end from the mode, the square root of the drop, and the slope."""

    mode: Tensor
    bend: Tensor
    reach: Tensor
    root: Tensor
    slope: Tensor


def find_support(rows: Rows, drop: float, shoulder: float = 0.0) -> tuple[Support, Tensor | None]:
    """Locate the mode and the two ends, at least `drop` nats below it.

    With `shoulder`, also the distances (B, 2) at which the integrand has dropped by this many nats.
    """
    mode = find_mode(rows)
    peak, _, second = rough_log_integrand(rows, mode)
    bend = curvature(second)
    support = Support(mode, bend, *_find_ends(rows, mode, peak, bend, drop))
    return support, _find_ends(rows, mode, peak, bend, shoulder)[0] if shoulder else None


def curvature(second: Tensor) -> Tensor:
    """Minus a second derivative, at least a tiny number: rounding may make it 0 where the integrand is straight."""
    return (-second).clamp(min=torch.finfo(second.dtype).tiny)


def find_mode(rows: Rows) -> Tensor:
    """Newton's method on the concave log-integrand inside a shrinking bracket."""
    low, high, t = bracket(rows)
    narrow = rows.width.amin(-1, keepdim=True)
    out, todo = torch.empty_like(t), torch.arange(len(t), device=t.device)
    for _ in range(_AT_MOST):
        _, first, second = rough_log_integrand(rows, t)
        low, high, following = nearer(low, high, t, first, second)
        near = (first * first < 0.05 * -second) | (high - low < 1e-6 * narrow)
        t = torch.where(near, t, following)
        out[todo] = t
        left = ~near.squeeze(-1)
        unfinished = int(left.sum())
        if unfinished == 0:
            break
        if unfinished < len(todo):
            todo, rows = todo[left], rows.take(left)
            t, low, high, narrow = t[left], low[left], high[left], narrow[left]
    return out


def bracket(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Two places (B, 1) around the mode, and one in between to begin with.

    Means are relative to the target's, without the Gumbel mean; a Gumbel's mode lies 0.45 widths below its mean.
    """
    low = -0.46 * rows.of_target(rows.width.unsqueeze(-1))
    high, t = ((rows.mean + widths * rows.width).amax(-1, keepdim=True) for widths in (8.0, 0.5))
    return low, high, t


def nearer(
    low: Tensor, high: Tensor, t: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The bracket with t in place of one end, and where to look next: Newton's guess, or the middle."""
    rising = first > 0
    low, high = torch.where(rising, t, low), torch.where(rising, high, t)
    guess = t + first / curvature(second)
    return low, high, torch.where((guess > low) & (guess < high), guess, (low + high) / 2)


class Side(NamedTuple):
    """The search on both sides, (B, 2): inner and outer distance, root and slope at the outer, the next to try."""

    inner: Tensor
    outer: Tensor
    root: Tensor
    slope: Tensor
    next: Tensor


def _find_ends(
    rows: Rows, mode: Tensor, peak: Tensor, bend: Tensor, drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The distances at which the log-integrand has dropped by `drop` to 1.3 times it, roots and slopes there."""
    root = math.sqrt(drop)
    side = both_sides(rows, bend, root)
    out = [torch.empty_like(part) for part in (side.outer, side.root, side.slope)]
    todo = torch.arange(len(mode), device=mode.device)
    for step in range(_AT_MOST):
        side, done = look(rows, mode, peak, side, root, step)
        for result, part in zip(out, (side.outer, side.root, side.slope)):
            result[todo] = part
        left = ~done.all(-1)
        unfinished = int(left.sum())
        if unfinished == 0:
            break
        if unfinished < len(todo):
            todo, rows, mode, peak = todo[left], rows.take(left), mode[left], peak[left]
            side = Side(*(x[left] for x in side))
    return out[0], out[1], out[2]


def both_sides(rows: Rows, bend: Tensor, root: float) -> Side:
    """The start of the search: the first try is the end of a parabola, or nearer if that is very far."""
    reach = (root * (2 / bend).sqrt()).minimum(40 * rows.width.amax(-1, keepdim=True)).expand(-1, 2)
    unknown = torch.full_like(reach, math.inf)
    return Side(torch.zeros_like(reach), unknown, unknown, unknown, reach)


def look(
    rows: Rows, mode: Tensor, peak: Tensor, side: Side, root: float, step: int, *, branchless: bool = False
) -> tuple[Side, Tensor]:
    """A step on both sides, by Newton's method on the root of the drop, nearly a line; each fourth one halves."""
    value, slope, _ = rough_log_integrand(rows, mode + signs(mode) * side.next, branchless=branchless)
    fallen = (peak - value).clamp(min=0.0).sqrt()
    return narrow(side, fallen, slope, root, halve=step % 4 == 3)


def signs(like: Tensor) -> Tensor:
    """(-1, 1), made on the device: nothing may be copied to it while a graph is captured."""
    return torch.linspace(-1, 1, 2, dtype=like.dtype, device=like.device)


def narrow(side: Side, fallen: Tensor, slope: Tensor, root: float, halve: bool) -> tuple[Side, Tensor]:
    """Use a new value: shrink the bracket, see whether it is good enough, choose where to look next."""
    reach = side.next
    beyond = fallen >= root
    inner = torch.where(beyond, side.inner, torch.maximum(side.inner, reach))
    closer = beyond & (reach <= side.outer)
    outer = torch.where(closer, reach, side.outer)
    outer_root, outer_slope = torch.where(closer, fallen, side.root), torch.where(closer, slope, side.slope)
    done = (outer_root < 1.15 * root) | (outer - inner < 1e-3 * inner)
    newton = reach + (1.06 * root - fallen) * 2 * fallen / slope.abs().clamp(min=1e-30)
    inside = (newton > inner) & (newton < outer) & (newton < 8 * reach) & (not halve)
    middle = torch.where(outer.isinf(), 2 * reach, (inner + outer) / 2)
    following = torch.where(done, outer, torch.where(inside, newton, middle))
    return Side(inner, outer, outer_root, outer_slope, following), done


def mend(
    rows: Rows, support: Support, shoulder: Tensor, drop: float, height: Callable[[Rows, Tensor], Tensor]
) -> tuple[Support, Tensor]:
    """Support and shoulder, found again by the exact integrand in rows where it has not dropped at an end.

    `height(rows, t)` is the log of the integrand at t (B, N).
    """
    ends = support.mode + signs(support.mode) * support.reach
    value = height(rows, torch.cat([support.mode, ends], 1))
    wrong = ~(value[:, 1:] < value[:, :1] - 0.7 * drop).all(-1)
    if not bool(wrong.any()):
        return support, shoulder
    some = rows.take(wrong)
    mode = _highest(some, height)
    top = height(some, mode)
    far, near = (_fallen(some, mode, top, nats, height) for nats in (drop, SHOULDER))
    mode, reach, shoulder = (
        x.index_put((wrong,), new)
        for x, new in zip((support.mode, support.reach, shoulder), (mode, far, near))
    )
    return support._replace(mode=mode, reach=reach), shoulder


def _highest(rows: Rows, height: Callable[[Rows, Tensor], Tensor]) -> Tensor:
    """The mode (B, 1) of a concave function, by points over a range that shrinks around the best of them."""
    low, high, _ = bracket(rows)
    steps = torch.linspace(0, 1, _POINTS, dtype=low.dtype, device=low.device)
    for _ in range(_ROUNDS):
        t = low + (high - low) * steps
        best = height(rows, t).argmax(-1, keepdim=True)
        low, high = t.gather(-1, (best - 1).clamp(min=0)), t.gather(-1, (best + 1).clamp(max=_POINTS - 1))
    return (low + high) / 2


def _fallen(
    rows: Rows, mode: Tensor, top: Tensor, drop: float, height: Callable[[Rows, Tensor], Tensor]
) -> Tensor:
    """The distances (B, 2) at which a concave function has fallen from its top by `drop` nats or slightly more."""
    sign = signs(mode)
    inner = torch.zeros_like(mode).expand(-1, 2)
    outer = (1e-6 * rows.width.amin(-1, keepdim=True)).expand(-1, 2)
    for _ in range(_AT_MOST):
        short = height(rows, mode + sign * outer) > top - drop
        if not bool(short.any()):
            break
        inner, outer = torch.where(short, outer, inner), torch.where(short, 2 * outer, outer)
    for _ in range(4):
        middle = (inner + outer) / 2
        short = height(rows, mode + sign * middle) > top - drop
        inner, outer = torch.where(short, middle, inner), torch.where(short, outer, middle)
    return outer
