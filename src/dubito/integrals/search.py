"""Where the integrand of a row lives: its mode, and on each side the place where it has dropped far enough.

The integrand f_y(t) prod_{k != y} F_k(t) is log-concave, so there is one mode and one place per side.
Everything here is approximate (within a nat or so): nodes are placed by it, and no value depends on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .rows import Rows, rough_log_integrand

_AT_MOST = 80
_WORTH = 0.7  # unfinished rows go on alone when they are fewer than this share


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

    With `shoulder`, also the distances (B, 2) at which the first so many nats are lost.
    """
    mode = find_mode(rows)
    peak, _, second = rough_log_integrand(rows, mode)
    bend = (-second).clamp(min=1e-12 / rows.width.amax(-1, keepdim=True) ** 2)
    support = Support(mode, bend, *_find_ends(rows, mode, peak, bend, drop))
    return support, _find_ends(rows, mode, peak, bend, shoulder)[0] if shoulder else None


def find_mode(rows: Rows) -> Tensor:
    """Newton's method on the concave log-integrand inside a shrinking bracket."""
    width, narrow = rows.of_target(rows.width.unsqueeze(-1)), rows.width.amin(-1, keepdim=True)
    low = -0.46 * width  # the Gumbel mean is dropped: its mode lies 0.45 of its width below it
    high = torch.maximum((rows.mean + 8 * rows.width).amax(-1, keepdim=True), 3 * width)
    t = torch.minimum((rows.mean + 0.5 * rows.width).amax(-1, keepdim=True).clamp(min=0.0), high)
    out, todo = torch.empty_like(t), torch.arange(len(t), device=t.device)
    for _ in range(_AT_MOST):
        _, first, second = rough_log_integrand(rows, t)
        low, high = torch.where(first > 0, t, low), torch.where(first > 0, high, t)
        near = (first * first < 0.05 * -second) | (high - low < 1e-6 * narrow)
        guess = t + first / (-second).clamp(min=1e-30)
        safe = (guess > low) & (guess < high)
        t = torch.where(near, t, torch.where(safe, guess, (low + high) / 2))
        out[todo] = t
        left = ~near.squeeze(-1)
        unfinished = int(left.sum())
        if unfinished == 0:
            break
        if unfinished < _WORTH * len(todo):
            todo, rows = todo[left], rows.take(left)
            t, low, high, narrow = t[left], low[left], high[left], narrow[left]
    return out


class Side(NamedTuple):
    """What is known on both sides, (B, 2): inner and outer distance, the outer's root and slope, the next try."""

    inner: Tensor
    outer: Tensor
    root: Tensor
    slope: Tensor
    next: Tensor


def _find_ends(
    rows: Rows, mode: Tensor, peak: Tensor, bend: Tensor, drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The distances at which the log-integrand has dropped by `drop` to 1.3 times it.

    Newton's method on the square root of the drop, which is nearly a line, inside a bracket.
    """
    sign = torch.tensor([-1.0, 1.0], dtype=mode.dtype, device=mode.device)
    root = math.sqrt(drop)
    reach = (root * (2 / bend).sqrt()).minimum(40 * rows.width.amax(-1, keepdim=True)).expand(-1, 2)
    far_off = torch.full_like(reach, math.inf)
    side = Side(torch.zeros_like(reach), far_off, far_off, torch.zeros_like(reach), reach)
    out = [torch.empty_like(reach) for _ in range(3)]
    todo = torch.arange(len(mode), device=mode.device)
    for step in range(_AT_MOST):
        value, slope, _ = rough_log_integrand(rows, mode + sign * side.next)
        fallen = (peak - value).clamp(min=0.0).sqrt()
        side, done = narrow(side, fallen, slope, root, halve=step % 4 == 3)
        for result, part in zip(out, (side.outer, side.root, side.slope)):
            result[todo] = part
        left = ~done.all(-1)
        unfinished = int(left.sum())
        if unfinished == 0:
            break
        if unfinished < _WORTH * len(todo):
            todo, rows, mode, peak = todo[left], rows.take(left), mode[left], peak[left]
            side = Side(*(x[left] for x in side))
    return out[0], out[1], out[2]


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
