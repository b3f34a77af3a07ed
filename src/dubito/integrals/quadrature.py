"""log p_y for rows of independent classes, to a tolerance: by a quick rule, and by a thorough one where needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .._tensors import at_least_float32
from . import fused
from .likelihood import Answer, height, integrate, laplace_nodes, tanh_sinh_nodes
from .rapid import rapid
from .rows import make_rows
from .scan import scan_support
from .search import SHOULDER, find_support, mend
from .two_classes import two_log_likelihood

_ELEMENTS = 1 << 18  # rows x classes x nodes worked on at a time: what fits into a cache
_MOST_ELEMENTS = 1 << 23  # the same on a GPU, which gains from large parts, within limits of memory
_POINT = 1e-5  # a class without any spread is given this share of the narrowest width in its row
_LEVELS = (32, 64, 128, 256)  # nodes per piece of the thorough rule
_DROP = 38.0  # nats below the mode at which the thorough rule ends
_LOOSEST = 1e-2  # looser tolerances get the range that this one needs
_UNDERFLOW = 1e-30
_TABLE = 3e-9  # relative error of the table, found by comparison with full precision


def quick_nodes(dtype: torch.dtype) -> int:
    """Nodes of the quick rule."""
    return 33 if dtype == torch.float64 else 21


MOST_NODES = 4 * (_LEVELS[-1] + 1)


def default_tolerance(dtype: torch.dtype) -> float:
    """The error of log p to aim at where the caller names none."""
    return 1e-7 if dtype == torch.float64 else 2e-5


def solve_any(
    mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float
) -> tuple[Answer, Tensor | None]:
    """As `solve`, but exact for two classes; on a GPU the kernels are, too."""
    if mean.shape[-1] == 2 and not fused.ready(mean, scale, temperature):
        return two_log_likelihood(mean, scale, temperature, target), None
    return solve(mean, scale, temperature, target, tol)


def solve(
    mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float
) -> tuple[Answer, Tensor | None]:
    """log p of the target, error and gradients; and which rows took the thorough rule, None if none did.

    mean, scale (B, K), temperature (B, 1), target (B,). Errors above `tol` mean that it was not reached. Gradients
    are always computed, since a row is good only if they have settled too. On a GPU the quick rule is a fused
    kernel.
    """
    if mean.numel() > 0 and fused.ready(mean, scale, temperature):
        found, missed = fused.quadrature(mean, scale, temperature, target, tol)
        if missed is None:
            return Answer(*found[:2], torch.ones((), dtype=torch.bool), *found[2:]), None
        finish_hard(found, mean, scale, temperature, target, tol)
        return Answer(*found[:2], ~missed, *found[2:]), missed
    mean, scale, temperature = at_least_float32(mean), at_least_float32(scale), at_least_float32(temperature)
    if mean.shape[0] == 0:
        value, error = mean.new_zeros(0), mean.new_zeros(0)
        return Answer(value, error, error.bool(), mean, mean, temperature), None
    if bool((temperature > 0).all()):
        return _spread_out(mean, scale, temperature, target, tol)
    given = scale
    points, scale, mean, ties, lost = spread_points(mean, scale, temperature, target)
    answer, hard = _spread_out(mean, scale, temperature, target, tol, lost)
    if scale is given:  # there are no points
        return answer, hard
    keep = ~lost.unsqueeze(-1)
    answer = answer._replace(
        log_p=torch.where(lost, -math.inf, answer.log_p - ties.log()),
        error=torch.where(lost, 0.0, answer.error),
        d_mean=torch.where(keep, answer.d_mean, 0.0),
        d_scale=torch.where(keep & ~points, answer.d_scale, 0.0),
        d_temperature=torch.where(keep, answer.d_temperature, 0.0),
    )
    return answer, hard


def _spread_out(
    mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float, lost: Tensor | None = None
) -> tuple[Answer, Tensor | None]:
    """As `solve`, for rows without a class of width 0; those that are `lost` need only the quick rule."""
    answer, hard = _quick(mean, scale, temperature, target, tol), None
    good = _good(answer, tol) if lost is None else _good(answer, tol) | lost
    if not bool(good.all()):
        hard = ~good
        answer = _merge(answer, hard, _thorough(*_pick(hard, mean, scale, temperature, target), tol))
    rounding = max(_TABLE, torch.finfo(mean.dtype).eps / 2)  # of the table, or of the result itself
    error = torch.add(answer.error, answer.log_p.abs(), alpha=rounding).add_(_TABLE)
    return answer._replace(error=error, d_mean=F.hardshrink(answer.d_mean, _UNDERFLOW)), hard


def finish_hard(
    found: Sequence[Tensor], mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float
) -> None:
    """Replace the kernel's results, in place, by the thorough rule's where their error is too large.

    `found`: log p, error and the gradients in mean, scale and temperature, from the kernel.
    """
    missed = fused.missed(found[0], found[1], tol)
    m, s, tau, y = _pick(missed, mean, scale, temperature, target)
    rest, _ = solve(m.double(), s.double(), tau.double(), y, tol)
    rounding = rest.log_p.clamp(min=-1e30).abs() * (torch.finfo(found[0].dtype).eps / 2)
    for old, new in zip(found, (rest.log_p, rest.error + rounding, *rest[3:])):
        old[missed] = new.to(old.dtype)


def _elements(mean: Tensor) -> int:
    """How many rows x classes x nodes to work on at a time."""
    if mean.device.type == "cpu":
        return _ELEMENTS
    return max(_ELEMENTS, min(_MOST_ELEMENTS, 2 * mean.numel()))


def _pick(
    index: Tensor, mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Some of the rows."""
    return mean[index], scale[index], temperature[index], target[index]


class Spread(NamedTuple):
    """Which classes are points, scales without any 0, means, how many classes share a win, which rows are lost."""

    points: Tensor
    narrowed: Tensor
    mean: Tensor
    ties: Tensor
    lost: Tensor


def spread_points(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor) -> Spread:
    """Replace classes without spread (scale and temperature 0), called points, by very narrow ones.

    Points are compared with one another exactly: a target below another point has lost, one that ties shares.
    """
    points = (scale == 0) & (temperature == 0)
    ties, lost = mean.new_ones(len(mean)), mean.new_zeros(len(mean), dtype=torch.bool)
    if not bool(points.any()):
        return Spread(points, scale, mean, ties, lost)
    widths = torch.where(scale > 0, scale, math.inf).amin(-1, keepdim=True)
    narrow = _POINT * torch.where(widths.isinf(), 1.0, widths)
    at = target.unsqueeze(-1)
    own, own_point = mean.gather(-1, at), points.gather(-1, at)
    lost = (own_point & points & (mean > own)).any(-1)
    equal = own_point & points & (mean == own)
    ties = torch.where(own_point.squeeze(-1), equal.sum(-1).to(mean.dtype), ties)
    # Rivals compared already are moved out of the way.
    settled = (own_point & points).scatter(-1, at, False)
    mean = torch.where(settled, own - 1e3 * narrow, mean)
    return Spread(points, torch.where(points, narrow, scale), mean, ties, lost)


def _quick(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float) -> Answer:
    """The quick rule, a cache-sized part at a time; rows that miss the tolerance are tried with more nodes."""
    if mean.dtype == torch.float32 and mean.device.type == "cpu":
        return rapid(mean, scale, temperature, target, tol)
    nodes = quick_nodes(mean.dtype)
    size = max(1, _elements(mean) // (mean.shape[-1] * nodes))
    drop = min(38.0, (1 if mean.dtype == torch.float32 else 4) - math.log(min(tol, _LOOSEST)))
    parts = []
    for inputs in zip(*(x.split(size) for x in (mean, scale, temperature, target))):
        rows = make_rows(*inputs)
        support = scan_support(rows, drop)
        answer = integrate(rows, support.mode, laplace_nodes(support, nodes), 1, exact=False)
        missed = ~_good(answer, tol)
        if bool(missed.any()):
            rows, support = rows.take(missed), type(support)(*(x[missed] for x in support))
            finer = laplace_nodes(support, 2 * nodes - 1)
            answer = _merge(answer, missed, integrate(rows, support.mode, finer, 1, exact=False))
        parts.append(answer)
    return parts[0] if len(parts) == 1 else Answer(*(torch.cat(column) for column in zip(*parts)))


def _good(answer: Answer, tol: float) -> Tensor:
    return answer.settled & (answer.error <= tol)


def _thorough(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float) -> Answer:
    """Tanh-sinh nodes in float64, doubled until the value is within `tol` and the gradients have settled."""
    size = max(1, _elements(mean) // (mean.shape[-1] * 4 * _LEVELS[1]))
    parts = [
        _thorough_part(m.double(), s.double(), tau.double(), y, tol)
        for m, s, tau, y in zip(*(x.split(size) for x in (mean, scale, temperature, target)))
    ]
    return _cast(Answer(*(torch.cat(column) for column in zip(*parts))), mean.dtype)


def _thorough_part(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, tol: float) -> Answer:
    rows = make_rows(mean, scale, temperature, target)
    support, shoulder = find_support(rows, _DROP, SHOULDER)
    assert shoulder is not None
    support, shoulder = mend(rows, support, shoulder, _DROP, height)
    answer: Answer | None = None
    todo = torch.arange(len(mean), device=mean.device)
    for level in _LEVELS:
        new = integrate(rows, support.mode, tanh_sinh_nodes(support, shoulder, level), 4, exact=True)
        answer = new if answer is None else _merge(answer, todo, new)
        left = ~_good(new, tol)
        if not bool(left.any()):
            break
        todo, rows, shoulder = todo[left], rows.take(left), shoulder[left]
        support = type(support)(*(x[left] for x in support))
    assert answer is not None
    return answer


def _cast(answer: Answer, dtype: torch.dtype) -> Answer:
    return Answer(*(x if x.dtype == torch.bool else x.to(dtype) for x in answer))


def _merge(answer: Answer, index: Tensor, new: Answer) -> Answer:
    """`new` in some rows, the old answer elsewhere."""
    out = []
    for old, part in zip(answer, new):
        if old.numel():
            old = old.clone()
            old[index] = part
        out.append(old)
    return Answer(*out)
