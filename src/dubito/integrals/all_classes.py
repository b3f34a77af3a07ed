"""Expected softmax of all classes at once, by quadrature on one set of panels per row.

In float32, and to a tolerance that it allows, `quick` goes first and only the rows that it misses come here.

With G = sum_k log F_k and r_k = d log F_k / dt,

    p_c = integral of exp(G(t)) r_c(t) dt,      sum_c p_c = exp(G(right)) - exp(G(left)) over any panel.

The right-hand side is known exactly, all integrands are positive, and a feature of one class shows in the
sum; where errors of classes cancel in it, the smoothness of each integrand tells. Panels that miss are halved.
Tails are covered down to exp(-80), so that small probabilities keep some relative precision, but the promise
is absolute.

For a loss with d loss / d log p_c = g_c and q_cn the share of node n in p_c, integration by parts leaves
first derivatives only:   d loss / d theta_k = sum_n d log F_k / d theta_k ( sum_c g_c q_cn - g_k q_kn R_n /
r_kn ).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .fused_all import by_kernels, fitting
from .gumbel_normal import ROOT_C
from .quadrature import spread_points
from .quick import quick
from .rows import Rows, log_slope_and_ratio, make_rows
from .table import lookup, rough
from .two_classes import two_classes

_LEVELS = (-80.0, -30.0, -12.0, -5.0, -2.0, -0.7, -0.2, -0.03, -1e-3, -1e-6, -1e-10, -1e-15)
_ELEMENTS = 1 << 18
_DEPTH = 24
_NODES = 8
_FINEST = (
    1e-10  # no panel is halved for less: below, the seams of the table would be chased to the deepest level
)
_QUICK = 1e-5  # above this tolerance equal steps in float32 come first


class Panels(NamedTuple):
    """P panels: their row, left end and length."""

    row: Tensor
    left: Tensor
    length: Tensor


class _Values(NamedTuple):
    """At the nodes of some panels, (P, K, n) or (P, n): what both passes need."""

    x: Tensor
    log_rate: Tensor  # log r_k
    in_v: Tensor  # d log F_k / d v over d log F_k / d x
    total: Tensor  # G
    log_weight: Tensor


def _jacobi(n: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the Jacobi matrix of the Legendre polynomials."""
    k = torch.arange(1, n, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(
        torch.diag(k / (4 * k * k - 1).sqrt(), -1)
    )  # which reads the lower half
    return values, vectors


def _gauss_legendre(n: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1) and weights."""
    nodes, vectors = _jacobi(n)
    return ((nodes + 1) / 2).to(like), (vectors[0] ** 2).to(like)


def _last_coefficients(n: int, like: Tensor) -> Tensor:
    """(nodes, 3): of terms that carry their weights, the sum and the last two Legendre coefficients."""
    vectors = _jacobi(n)[1]
    return (vectors[[0, -2, -1]] / vectors[0]).T.to(like)


def _evaluate(rows: Rows, panels: Panels) -> _Values:
    nodes, weights = _gauss_legendre(_NODES, panels.left)
    t = panels.left[:, None] + panels.length[:, None] * nodes
    part = rows.take(panels.row)
    inverse = 1 / part.width.unsqueeze(-1)
    x = (t.unsqueeze(1) - part.mean.unsqueeze(-1)) * inverse
    m, m_x, m_v = lookup(part.table, x, part.cell.unsqueeze(-1), part.offset.unsqueeze(-1).expand_as(x))
    columns = (column.unsqueeze(-1) for column in (part.cos, part.sin, part.turn))
    log_slope, ratio, _ = log_slope_and_ratio(x, m, m_x, m_v, *columns)
    log_weight = panels.length.log()[:, None] + weights.log()
    log_rate = log_slope - part.width.log().unsqueeze(-1)
    return _Values(x, log_rate, ratio, -m.exp().sum(1), log_weight)


def _mass(rows: Rows, panels: Panels) -> Tensor:
    """exp(G) at the right end minus exp(G) at the left end, without cancellation where both are near 1."""
    part = rows.take(panels.row)
    t = torch.stack([panels.left, panels.left + panels.length], -1)
    x = (t.unsqueeze(1) - part.mean.unsqueeze(-1)) / part.width.unsqueeze(-1)
    m, _, _ = lookup(part.table, x, part.cell.unsqueeze(-1), part.offset.unsqueeze(-1).expand_as(x))
    total = -m.exp().sum(1)
    left, right = total.unbind(-1)
    return right.exp() * -torch.expm1(left - right)


def _edges(rows: Rows) -> Tensor:
    """Where G takes the values of `_LEVELS`, roughly, (B, levels): safeguarded Newton on log(-G)."""
    aim = torch.tensor(_LEVELS, dtype=rows.mean.dtype, device=rows.mean.device).neg().log()
    low = (rows.mean - 14 * rows.width).amax(-1, keepdim=True).expand(-1, len(aim))
    high = (rows.mean + 40 * rows.width).amax(-1, keepdim=True).expand(-1, len(aim))
    t = (rows.mean + rows.width).amax(-1, keepdim=True).expand(-1, len(aim))
    inverse = 1 / rows.width.unsqueeze(-1)
    for _ in range(60):
        x = (t.unsqueeze(1) - rows.mean.unsqueeze(-1)) * inverse
        m, m_x, _ = rough(rows.table, x, rows.cell.unsqueeze(-1), rows.offset.unsqueeze(-1))
        top = m.amax(1)
        terms = (m - top.unsqueeze(1)).exp()
        value = top + terms.sum(1).log()
        slope = (terms * m_x * inverse).sum(1) / terms.sum(1)
        above = value > aim  # G too low: go right
        low, high = torch.where(above, t, low), torch.where(above, high, t)
        near = ((value - aim).abs() < 0.2) | (high - low < 1e-9 * rows.width.amin(-1, keepdim=True))
        if bool(near.all()):
            break
        guess = t + (aim - value) / slope.clamp(max=-1e-30)
        t = torch.where(near, t, torch.where((guess > low) & (guess < high), guess, (low + high) / 2))
    return t.sort(-1).values


def refine(rows: Rows, tol: float) -> tuple[Panels, Tensor]:
    """Panels fine enough for `tol`, and what is left of the error in each row."""
    edges = _edges(rows)
    count = edges.shape[1] - 1
    index = torch.arange(len(edges), device=edges.device).repeat_interleave(count)
    panels = Panels(
        index, edges[:, :-1].flatten(), (edges[:, 1:] - edges[:, :-1]).clamp(min=1e-300).flatten()
    )
    error = edges.new_zeros(len(edges))
    kept: list[Panels] = []
    depth = 0
    while True:
        depth += 1
        miss = torch.cat([_misses(rows, part) for part in _parts(panels, rows)])
        # Each halving may spend half of what is left: the sum over all panels stays below tol.
        bad = miss > max(tol, _FINEST) / (4 * count)
        if depth == _DEPTH:
            bad = torch.zeros_like(bad)
        error = error.index_add(0, panels.row[~bad], miss[~bad])
        kept.append(Panels(*(x[~bad] for x in panels)))
        if not bool(bad.any()):
            break
        half = panels.length[bad] / 2
        panels = Panels(
            panels.row[bad].repeat(2),
            torch.cat([panels.left[bad], panels.left[bad] + half]),
            half.repeat(2),
        )
    # Doubled, for it is an estimate, not a bound.
    return Panels(*(torch.cat(column) for column in zip(*kept))), 2 * error


def _parts(panels: Panels, rows: Rows) -> list[Panels]:
    size = max(1, _ELEMENTS // (rows.mean.shape[-1] * _NODES))
    return [Panels(*part) for part in zip(*(x.split(size) for x in panels))]


def _misses(rows: Rows, panels: Panels) -> Tensor:
    """How far each panel is off: the sum over classes from its mass, and the least smooth of the classes.

    Errors of classes may cancel in the sum. So each integrand is expanded in Legendre polynomials: as far as its
    last two coefficients are below the first, those that the rule cannot see will lie once more below these.
    """
    values = _evaluate(rows, panels)
    terms = (values.log_rate + (values.total + values.log_weight).unsqueeze(1)).exp()
    found, *last = (terms @ _last_coefficients(_NODES, terms)).unbind(-1)
    rough_part = (last[0].abs() + last[1].abs()).square() / found.clamp(min=1e-300)
    return (found.sum(1) - _mass(rows, panels)).abs() + torch.minimum(rough_part, found).amax(1)


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
        for part in _parts(panels, rows):
            v = _evaluate(rows, part)
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
        for part in _parts(panels, rows):
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
    v = _evaluate(rows, part)
    floor = log_p[part.row].clamp(min=-1e300).unsqueeze(-1)
    share = (v.log_rate + (v.total + v.log_weight).unsqueeze(1) - floor).clamp(max=60.0).exp()
    weighted = grad[part.row].unsqueeze(-1) * share
    rate = v.log_rate.exp()
    # d log F_k / dx = width * r_k; the second term divides by r_k again, so it never forms a tiny quotient.
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

    Classes without any spread are ranked exactly: the highest of them stands for all that tie with it, the lower
    ones have probability 0.
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
    """The rule, with classes without any spread ranked exactly."""
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
