"""The support of an integrand from one sweep over all rows at once, in few operations.

`search` finds mode and ends iteratively, by a dozen small operations per step. If the integrand is neither very
narrow nor very steep, a sweep over equally spaced points and interpolation between them is as good. Rows where it
is not miss their tolerance, and are searched then.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .gumbel_normal import ROOT_C
from .rows import Rows, rough_log_integrand, rough_value_and_slope
from .search import Support, curvature

_POINTS = 24
_ROOM = 1.06  # the ends are placed where the root of the drop is this factor larger than needed


def scan_support(rows: Rows, drop: float) -> Support:
    """Mode and ends of every row, these at least `drop` nats below the mode or marked by NaN."""
    t = spaced(*search_range(rows, drop), _POINTS)
    return _at(rows, *between(t, *rough_value_and_slope(rows, t), drop), math.sqrt(drop))


def between(t: Tensor, value: Tensor, slope: Tensor, drop: float) -> tuple[Tensor, Tensor]:
    """From t, the log-integrand and its slope (B, points): the mode (B, 1) and where the ends may be (B, 2)."""
    peak, best = value.max(-1, keepdim=True)
    first, last = _first_and_last(value > peak - drop)
    inner = torch.cat([first, last], -1)
    outer = torch.cat([(first - 1).clamp(min=0), (last + 1).clamp(max=t.shape[-1] - 1)], -1)
    ends = _ends(t, (peak - value).sqrt(), slope.abs(), inner, outer, _ROOM * math.sqrt(drop))
    return _mode(t, slope, best), ends


def search_range(rows: Rows, drop: float) -> tuple[Tensor, Tensor]:
    """Between these two, (B, 1), the integrand has its mode and drops by `drop` on both sides."""
    own, sin, cos = (rows.of_target(part.unsqueeze(-1)) for part in (rows.width, rows.sin, rows.cos))
    top = torch.add(rows.mean, rows.width, alpha=2.0).amax(-1, keepdim=True)
    far = math.sqrt(2.2 * drop)
    tail = own * sin / ROOT_C * (math.log(rows.mean.shape[-1]) + drop)
    return -far * own, top + tail + far * own * cos


def spaced(low: Tensor, high: Tensor, points: int) -> Tensor:
    """Equally spaced points, (B, points)."""
    return low + (high - low) * torch.linspace(0, 1, points, dtype=low.dtype, device=low.device)


def _first_and_last(inside: Tensor) -> tuple[Tensor, Tensor]:
    marks = inside.to(torch.uint8)
    last = marks.shape[-1] - 1
    return marks.argmax(-1, keepdim=True), last - marks.flip(-1).argmax(-1, keepdim=True)


def _mode(t: Tensor, slope: Tensor, best: Tensor) -> Tensor:
    """Where the slope between the highest point and the next one uphill crosses zero."""
    here = slope.gather(-1, best)
    ahead = (best + here.sign().long()).clamp(0, t.shape[-1] - 1)
    there = slope.gather(-1, ahead)
    share = (here / (here - there)).nan_to_num().clamp(0.0, 1.0)
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
    """The support, with values, slopes and curvature computed at these places.

    An end that is not far enough down would cut off a part that no later check can see: such an end gets NaN.
    """
    value, first, second = rough_log_integrand(rows, torch.cat([mode, ends], -1))
    fallen = (value[:, :1] - value[:, 1:]).sqrt()
    fallen = torch.where(fallen >= root, fallen, math.nan)
    return Support(mode, curvature(second[:, :1]), (ends - mode).abs(), fallen, first[:, 1:])
