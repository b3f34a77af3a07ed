"""The support of an integrand from one sweep over all rows at once: for ordinary rows, in few operations.

`search` finds mode and ends step by step, each step a dozen small operations. Where the integrand is neither
very narrow nor very steep, a sweep over equally spaced points and an interpolation between them do as well.
Nothing is promised: rows with a poor support miss their tolerance and are searched.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .gumbel_normal import ROOT_C
from .rows import Rows, rough_log_integrand, rough_value_and_slope
from .search import Support

_POINTS = 24
_ROOM = 1.06  # the ends are aimed at so much beyond the root of the drop


def scan_support(rows: Rows, drop: float) -> Support:
    """Mode and ends of every row, at least `drop` nats below the mode where all went well."""
    t = _points(*_range(rows, drop))
    value, slope = rough_value_and_slope(rows, t)
    peak, best = value.max(-1, keepdim=True)
    first, last = _first_and_last(value > peak - drop)
    mode = _mode(t, slope, best)
    aim = _ROOM * math.sqrt(drop)
    root = (peak - value).sqrt()
    inner = torch.cat([first, last], -1)
    outer = torch.cat([(first - 1).clamp(min=0), (last + 1).clamp(max=_POINTS - 1)], -1)
    ends = _ends(t, root, slope.abs(), inner, outer, aim)
    return _at(rows, mode, ends, math.sqrt(drop))


def _range(rows: Rows, drop: float) -> tuple[Tensor, Tensor]:
    """Between these two the integrand has its mode and drops by `drop` on both sides."""
    own = rows.of_target(rows.width.unsqueeze(-1))
    tau = own * rows.of_target(rows.sin.unsqueeze(-1)) / ROOT_C
    sigma = own * rows.of_target(rows.cos.unsqueeze(-1))
    top = torch.add(rows.mean, rows.width, alpha=2.0).amax(-1, keepdim=True).clamp(min=0.0)
    high = top + tau * (math.log(rows.mean.shape[-1]) + drop) + math.sqrt(2.2 * drop) * sigma
    return -math.sqrt(2.2 * drop) * own, high


def _points(low: Tensor, high: Tensor) -> Tensor:
    steps = torch.linspace(0, 1, _POINTS, dtype=low.dtype, device=low.device)
    return low + (high - low) * steps


def _first_and_last(inside: Tensor) -> tuple[Tensor, Tensor]:
    marks = inside.to(torch.uint8)
    return marks.argmax(-1, keepdim=True), _POINTS - 1 - marks.flip(-1).argmax(-1, keepdim=True)


def _mode(t: Tensor, slope: Tensor, best: Tensor) -> Tensor:
    """Where the slope between the highest point and the next one uphill crosses zero."""
    here = slope.gather(-1, best)
    ahead = (best + here.sign().long()).clamp(0, _POINTS - 1)
    there = slope.gather(-1, ahead)
    share = (here / (here - there)).nan_to_num(0.0).clamp(0.0, 1.0)
    start = t.gather(-1, best)
    return torch.lerp(start, t.gather(-1, ahead), share)


def _ends(t: Tensor, root: Tensor, slope: Tensor, inner: Tensor, outer: Tensor, aim: float) -> Tensor:
    """Where the root of the drop is `aim`, (B, 2): t as a cubic in the root through two points with slopes."""
    near, far = t.gather(-1, inner), t.gather(-1, outer)
    r, r_far = root.gather(-1, inner), root.gather(-1, outer)
    rise = (r_far - r).clamp(min=1e-6)
    z = ((aim - r) / rise).clamp(0.0, 1.0)
    # dt / d root = 2 root / slope
    begin, end = (
        2 * q * rise / slope.gather(-1, at).clamp(min=1e-30) for q, at in ((r, inner), (r_far, outer))
    )
    length = (far - near).abs()
    begin, end = torch.minimum(begin, 3 * length), torch.minimum(end, 3 * length)
    way = z * (begin + z * (3 * length - 2 * begin - end + z * (begin + end - 2 * length)))
    return near + (far - near).sign() * torch.minimum(way.clamp(min=0.0), length)


def _at(rows: Rows, mode: Tensor, ends: Tensor, root: float) -> Support:
    """The support with values, slopes and curvature as they are at these places.

    An end that is not far enough down would cut off what no later check can see: such a row gets NaN.
    """
    value, first, second = rough_log_integrand(rows, torch.cat([mode, ends], -1))
    bend = (-second[:, :1]).clamp(min=1e-12 / rows.width.amax(-1, keepdim=True) ** 2)
    fallen = (value[:, :1] - value[:, 1:]).clamp(min=0.0).sqrt()
    fallen = torch.where(fallen >= root, fallen, math.nan)
    return Support(mode, bend, (ends - mode).abs().clamp(min=1e-30), fallen, first[:, 1:])
