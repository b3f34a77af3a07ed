"""Expected softmax of all classes by equally spaced nodes: one rule for every row, with its error.

With G = sum_k log F_k and r_k = d log F_k / dt, the probabilities are p_c = integral of exp(G) r_c dt. Between the
places where G is -75 and -1e-8, every integrand is smooth on the scale of its class's width, so that 64 equal steps
converge exponentially unless widths differ much within the row. The error is estimated from how far the
probabilities' sum is from 1 and from what every other node alone gives; if a class could hide between two nodes,
the row gets more of them. Rows that still miss the tolerance are left to `all_classes`. On a GPU a kernel does the
same, with nodes along a parabola (`triton_all`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .gumbel_normal import ROOT_C
from .rows import Rows, log_slope_and_ratio, make_rows
from .table import lookup, rough

NODES = (64, 256, 1024)  # for all rows, then for those that miss
POINTS, ROUNDS = 32, 2
LEFT, RIGHT = math.log(75.0), -18.0  # log(-G) at the two ends
_ELEMENTS = 1 << 18
_NOTHING = -1e30
_RELATIVE = 1e-8  # classes of a larger probability are judged by their relative change
_NARROW, _DEEP = 0.5, -18.0  # share of a step; G below which no class matters


class _Values(NamedTuple):
    x: Tensor  # (B, K, nodes)
    log_rate: Tensor
    in_v: Tensor
    total: Tensor  # (B, nodes): G + log step


class QuickClasses(torch.autograd.Function):
    """log p of all classes (B, K), not normalised, and the absolute error of each row."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, temperature: Tensor, nodes: int
    ) -> tuple[Tensor, Tensor]:
        """Place the nodes, then sum."""
        parts = [_forward(nodes, *part) for part in _split(nodes, mean, scale, temperature)]
        log_p, error, low, step = (torch.cat(column) for column in zip(*parts))
        ctx.save_for_backward(mean, scale, temperature, log_p, low, step)
        ctx.mark_non_differentiable(error)
        ctx.nodes = nodes
        return log_p, error

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The same nodes once more, for the derivatives."""
        mean, scale, temperature, log_p, low, step = ctx.saved_tensors
        inputs = (mean, scale, temperature, log_p, low, step, grad)
        parts = [_backward(ctx.nodes, *part) for part in _split(ctx.nodes, *inputs)]
        found = tuple(torch.cat(column) for column in zip(*parts))
        # Rows that another rule has replaced have no gradient, and their nodes may be anywhere.
        idle = (grad == 0).all(-1, keepdim=True)
        found = tuple(torch.where(idle, 0.0, d) for d in found)
        d_mean, d_scale, d_tau = (d.to(x.dtype) for d, x in zip(found, (mean, scale, temperature)))
        return d_mean, d_scale, d_tau, None


def _split(nodes: int, *tensors: Tensor) -> Any:
    size = max(1, _ELEMENTS // (tensors[0].shape[-1] * nodes))
    return zip(*(x.split(size) for x in tensors))


def _rows(mean: Tensor, scale: Tensor, temperature: Tensor) -> Rows:
    """Rows whose means are relative to the highest."""
    return make_rows(mean, scale, temperature, mean.argmax(-1))


def _forward(
    nodes: int, mean: Tensor, scale: Tensor, temperature: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = _rows(mean, scale, temperature)
    low, step = _stretch(rows, nodes)
    v = _values(rows, low, step, nodes)
    terms = v.log_rate + v.total.unsqueeze(1)
    log_p = torch.logsumexp(terms, -1)
    p, half = log_p.exp(), (2 * terms[..., ::2].exp()).sum(-1)
    moved = torch.where(p > _RELATIVE, (half / p - 1).abs(), 0.0).amax(-1)
    error = (p.sum(-1) - 1).abs() + moved**1.5
    known = error.isfinite() & ~_hiding(rows, v.total - step.log()[:, None], low, step)
    return log_p, torch.where(known, error, math.inf), low, step


def _hiding(rows: Rows, total: Tensor, low: Tensor, step: Tensor) -> Tensor:
    """Rows (B,) with a class that can win and is narrower than half a step: sums over nodes may miss it."""
    deep = low + step * ((total < _DEEP).sum(-1) - 1)
    high = low + step * (total.shape[-1] - 1)
    inside = (rows.mean + 7 * rows.width > deep[:, None]) & (rows.mean - 3 * rows.width < high[:, None])
    return (inside & (rows.width < _NARROW * step[:, None])).any(-1)


def _stretch(rows: Rows, nodes: int) -> tuple[Tensor, Tensor]:
    """The first node and the distance of nodes, (B,)."""
    low = (rows.mean - 14 * rows.width).amax(-1)
    high = (rows.mean + 16 * rows.width).amax(-1)
    index = torch.arange(POINTS, device=low.device, dtype=low.dtype)
    for _ in range(ROUNDS):
        step = (high - low) / (POINTS - 1)
        x = (low[:, None] + step[:, None] * index).unsqueeze(1) - rows.mean.unsqueeze(-1)
        m, _, _ = rough(
            rows.table, x / rows.width.unsqueeze(-1), rows.cell.unsqueeze(-1), rows.offset.unsqueeze(-1)
        )
        value = torch.logsumexp(m, 1)
        first = ((value >= LEFT).sum(-1) - 1).clamp(min=0)
        last = (POINTS - (value <= RIGHT).sum(-1)).clamp(max=POINTS - 1)
        low, high = low + step * first, low + step * last
    return low, (high - low) / (nodes - 1)


def _values(rows: Rows, low: Tensor, step: Tensor, nodes: int) -> _Values:
    t = low[:, None] + step[:, None] * torch.arange(nodes, device=low.device, dtype=low.dtype)
    x = (t.unsqueeze(1) - rows.mean.unsqueeze(-1)) / rows.width.unsqueeze(-1)
    offset = rows.offset.unsqueeze(-1).expand_as(x)
    m, m_x, m_v = lookup(rows.table, x, rows.cell.unsqueeze(-1), offset)
    columns = (column.unsqueeze(-1) for column in (rows.cos, rows.sin, rows.turn))
    log_slope, ratio, _ = log_slope_and_ratio(x, m, m_x, m_v, *columns)
    log_rate = log_slope - rows.width.log().unsqueeze(-1)
    return _Values(x, log_rate, ratio, step.log()[:, None] - m.exp().sum(1))


def _backward(
    nodes: int,
    mean: Tensor,
    scale: Tensor,
    temperature: Tensor,
    log_p: Tensor,
    low: Tensor,
    step: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = _rows(mean, scale, temperature)
    v = _values(rows, low, step, nodes)
    floor = log_p.clamp(min=_NOTHING).unsqueeze(-1)
    share = (v.log_rate + v.total.unsqueeze(1) - floor).clamp(max=60.0).exp()
    weighted = grad.unsqueeze(-1) * share
    rate = v.log_rate.clamp(max=80.0).exp()
    in_x = rate * weighted.sum(1, keepdim=True) - weighted * rate.sum(1, keepdim=True)
    # d log F / dx is the rate times the width, and one division by the width follows.
    a, b, c = in_x.sum(-1), (in_x * v.x).sum(-1), (in_x * v.in_v).sum(-1) * rows.turn
    d_tau = ROOT_C * (rows.cos * c - rows.sin * b).sum(-1, keepdim=True)
    return -a, -(rows.cos * b + rows.sin * c), d_tau


def quick(
    mean: Tensor, scale: Tensor, temperature: Tensor, tol: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """log p (B, K), normalised, the error of the probabilities (B,), and the rows above `tol`, None without any."""
    log_p, error = QuickClasses.apply(mean, scale, temperature, NODES[0])  # type: ignore[no-untyped-call]
    hard = (~(error <= tol)).nonzero().flatten()
    for nodes in NODES[1:]:
        if len(hard) == 0:
            break
        picked = (x[hard] for x in (mean, scale, temperature))
        more, closer = QuickClasses.apply(*picked, nodes)  # type: ignore[no-untyped-call]
        log_p, error = log_p.index_copy(0, hard, more), error.index_copy(0, hard, closer)
        hard = hard[~(closer <= tol)]
    log_p = log_p - torch.logsumexp(log_p, -1, keepdim=True)
    return log_p, error, hard if len(hard) else None
