"""Expected softmax of all classes at once, by quadrature on one set of panels per row.

In float32, if the tolerance allows, `quick` goes first, and only the rows that it misses come here.

With G = sum_k log F_k and r_k = d log F_k / dt,

    p_c = integral of exp(G(t)) r_c(t) dt,      sum_c p_c = exp(G(right)) - exp(G(left)) over any panel.

The right-hand side is known exactly and all integrands are positive, so that an error in one class shows in the
sum, unless errors of several classes cancel; then the smoothness of each integrand tells. Panels that miss the
tolerance are halved. Tails are covered down to exp(-80), so that small probabilities keep some relative precision,
but the tolerance is absolute.

For a loss with d loss / d log p_c = g_c and q_cn the share of node n in p_c, integration by parts leaves
first derivatives only:   d loss / d theta_k = sum_n d log F_k / d theta_k ( sum_c g_c q_cn - g_k q_kn R_n /
r_kn ).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .fused_all import by_kernels, fitting
from .gumbel_normal import ROOT_C
from .panels import Panels, evaluate, parts, refine
from .quadrature import spread_points
from .quick import quick
from .rows import Rows, make_rows
from .two_classes import two_classes

_QUICK = 1e-5  # above this tolerance equal steps in float32 come first


class AllClasses(torch.autograd.Function):
    """log p of all classes (B, K) and the absolute error of each row; the backward pass recomputes the nodes."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, temperature: Tensor, tol: float
    ) -> tuple[Tensor, Tensor]:
        """Place the panels, then sum."""
        inputs = tuple(x.double() for x in (mean, scale, temperature))
        rows = _as_rows(*inputs)
        panels, error = refine(rows, tol)
        log_p = torch.full_like(mean, -math.inf, dtype=torch.float64)
        for part in parts(panels, rows):
            v = evaluate(rows, part)
            terms = torch.logsumexp(v.log_rate + (v.total + v.log_weight).unsqueeze(1), -1)
            log_p = _scatter_logsumexp(log_p, part.row, terms)
        ctx.save_for_backward(*inputs, log_p, *panels)
        ctx.mark_non_differentiable(error)
        ctx.dtype = mean.dtype
        return log_p.to(mean.dtype), error.to(mean.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The same nodes once more, for the derivatives."""
        mean, scale, temperature, log_p, *saved = ctx.saved_tensors
        rows, panels = _as_rows(mean, scale, temperature), Panels(*saved)
        a = b = c = torch.zeros_like(mean)
        for part in parts(panels, rows):
            pieces = _backward_part(rows, part, grad.double(), log_p)
            a, b, c = (total.index_add(0, part.row, piece) for total, piece in zip((a, b, c), pieces))
        c = c * rows.turn
        d_mean = -a / rows.width
        d_scale = -(rows.cos * b + rows.sin * c) / rows.width
        d_tau = ROOT_C * ((rows.cos * c - rows.sin * b) / rows.width).sum(-1, keepdim=True)
        points = (scale == 0) & (temperature == 0)
        d_scale = torch.where(points, 0.0, d_scale)
        return d_mean.to(ctx.dtype), d_scale.to(ctx.dtype), d_tau.to(ctx.dtype), None


def _backward_part(rows: Rows, part: Panels, grad: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over the nodes of each panel, (P, K), of the derivatives in x, x times that, and the angle offset."""
    v = evaluate(rows, part)
    floor = log_p[part.row].clamp(min=-1e300).unsqueeze(-1)
    share = (v.log_rate + (v.total + v.log_weight).unsqueeze(1) - floor).clamp(max=60.0).exp()
    weighted = grad[part.row].unsqueeze(-1) * share
    rate = v.log_rate.exp()
    # d log F_k / dx = width * r_k cancels the division by r_k in the second term: no tiny quotient is formed.
    width = rows.width[part.row].unsqueeze(-1)
    in_x = (rate * weighted.sum(1, keepdim=True) - weighted * rate.sum(1, keepdim=True)) * width
    return in_x.sum(-1), (in_x * v.x).sum(-1), (in_x * v.in_v).sum(-1)


def _as_rows(mean: Tensor, scale: Tensor, temperature: Tensor) -> Rows:
    target = torch.zeros(len(mean), dtype=torch.int64, device=mean.device)
    return make_rows(mean, spread_points(mean, scale, temperature, target).narrowed, temperature, target)


def _scatter_logsumexp(total: Tensor, row: Tensor, terms: Tensor) -> Tensor:
    """logaddexp of `terms` (P, K) into rows of `total` (B, K)."""
    index = row.unsqueeze(-1).expand_as(terms)
    peak = total.scatter_reduce(0, index, terms, "amax").clamp(min=-1e300)
    mass = (total - peak).exp().index_add(0, row, (terms - peak[row]).exp())
    return torch.where(mass > 0, mass.clamp(min=1e-300).log() + peak, -math.inf)


def all_classes(mean: Tensor, scale: Tensor, temperature: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Normalised log p (B, K) and the absolute error (B,) of the probabilities.

    Classes without any spread are compared exactly: the highest of them shares its probability with those that tie,
    and the lower ones have probability 0.
    """
    if mean.numel() == 0:
        return mean.clone(), mean.new_zeros(mean.shape[:-1])
    if mean.shape[-1] == 2:
        return two_classes(mean, scale, temperature)
    if tol < _QUICK or not fitting(mean, scale, temperature):
        return _ranked(mean, scale, temperature, tol, _normalised)
    log_p, error, hard = by_kernels(mean, scale, temperature, tol)
    if hard is not None:
        rest = mean[hard], scale[hard], temperature[hard]
        more, closer = _ranked(*rest, tol, _by_panels)
        log_p, error = log_p.index_copy(0, hard, more), error.index_copy(0, hard, closer)
    return log_p, error


def _ranked(
    mean: Tensor, scale: Tensor, temperature: Tensor, tol: float, rule: Callable[..., tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Apply the rule, with classes without any spread compared exactly."""
    points = (scale == 0) & (temperature == 0)
    if not bool(points.any()):
        return rule(mean, scale, temperature, tol)
    top = torch.where(points, mean, -math.inf).amax(-1, keepdim=True)
    tied = points & (mean == top)
    stands = tied & (tied.cumsum(-1) == 1)
    away = mean.detach().amin(-1, keepdim=True) - 1e4 * (1 + scale.detach().amax(-1, keepdim=True))
    log_p, error = _by_panels(torch.where(points & ~stands, away, mean), scale, temperature, tol)
    shared = (
        torch.where(stands, log_p, 0.0).sum(-1, keepdim=True) - tied.sum(-1, keepdim=True).clamp(min=1).log()
    )
    return torch.where(tied, shared, torch.where(points, -math.inf, log_p)), error


def _normalised(mean: Tensor, scale: Tensor, temperature: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    if mean.dtype != torch.float32 or tol < _QUICK or mean.is_cuda:
        return _by_panels(mean, scale, temperature, tol)
    log_p, error, hard = quick(mean, scale, temperature, tol)
    if hard is not None:
        more, closer = _by_panels(mean[hard], scale[hard], temperature[hard], tol)
        log_p, error = log_p.index_copy(0, hard, more), error.index_copy(0, hard, closer)
    return log_p, error


def _by_panels(mean: Tensor, scale: Tensor, temperature: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    log_p, error = AllClasses.apply(mean, scale, temperature, tol)  # type: ignore[no-untyped-call]
    return log_p - torch.logsumexp(log_p, -1, keepdim=True), error
