"""All classes of a latent with one factor: panels over the factor, around the integral over the rest of the noise.

    p_c = E_z[ p_c(mean + factors z) ],   z standard normal

Given z the classes are independent, and `all_classes` gives them all, with sum 1, whatever z is. So their average
over any nodes has sum 1 as well. Where the factor is large beside the rest of the noise, p is a row of steps in z:
one class wins up to some z, and another one from there on. Panels on which some p_c is not smooth are halved until
it is, or until they are too short to matter. As p_c is log-concave in z, no class wins unseen in the middle of a
panel where another one wins at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .all_classes import all_classes
from .panels import NODES, Panels, gauss_legendre, last_coefficients

_EDGES = (-9.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 9.0)
_DEPTH = 24
_FINEST = 1e-9  # the least error that is aimed at
_INNER = 0.25  # share of the tolerance that the integrals at the nodes may take
_ELEMENTS = 1 << 16  # rows x classes x nodes at a time


class OneFactor(torch.autograd.Function):
    """log p of all classes (B, K), their absolute error (B,), and the most nodes of a row."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, factor: Tensor, temperature: Tensor, tol: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """mean, scale, factor (B, K), temperature (B, 1)."""
        inputs = (mean, scale, factor, temperature)
        panels, log_p, error = _refined(inputs, tol)
        log_p = log_p - torch.logsumexp(log_p, -1, keepdim=True)
        ctx.save_for_backward(*inputs, log_p, *panels)
        ctx.tol = tol
        nodes = panels.row.bincount(minlength=1).max() * NODES
        ctx.mark_non_differentiable(error, nodes)
        return log_p, error, nodes

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The same nodes once more: d log p_c is the average of d log p_c(z), weighted by the share of z in p_c.

        The sum over classes, which the forward pass divides by, is 1 at every node and has no gradient.
        """
        *inputs, log_p, row, left, length = ctx.saved_tensors
        totals = [torch.zeros_like(x) for x in inputs]
        for part in _split(Panels(row, left, length), log_p.shape[-1]):
            with torch.enable_grad():
                leaves = [x[part.row].requires_grad_() for x in inputs]
                terms = _at_nodes(leaves, part, ctx.tol)[0]
                own = log_p[part.row].clamp(min=torch.finfo(log_p.dtype).min).unsqueeze(1)
                share = (terms.detach() - own).exp() * grad[part.row].unsqueeze(1)
                slopes = torch.autograd.grad(terms, leaves, share)
            for total, piece in zip(totals, slopes):
                total.index_add_(0, part.row, piece)
        return *totals, None


def one_factor(
    mean: Tensor, scale: Tensor, factor: Tensor, temperature: Tensor, tol: float
) -> tuple[Tensor, Tensor, int]:
    """log p (B, K) of sum 1, the absolute error (B,) of the probabilities, and the most nodes of a row.

    Shapes: mean, scale and factor (B, K), temperature (B, 1).
    """
    if mean.numel() == 0:
        return mean.clone(), mean.new_zeros(len(mean)), 0
    log_p, error, nodes = OneFactor.apply(mean, scale, factor, temperature, tol)  # type: ignore[no-untyped-call]
    return log_p, error, int(nodes)


def _refined(inputs: tuple[Tensor, ...], tol: float) -> tuple[Panels, Tensor, Tensor]:
    """Panels fine enough for `tol`, log p, and the error that remains in each row."""
    mean = inputs[0]
    edges = mean.new_tensor(_EDGES)
    row = torch.arange(len(mean), device=mean.device).repeat_interleave(len(edges) - 1)
    panels = Panels(row, edges[:-1].repeat(len(mean)), edges.diff().repeat(len(mean)))
    p, error = torch.zeros_like(mean), torch.zeros_like(mean[:, 0])
    kept: list[Panels] = []
    depth = 0
    while len(panels.row):
        found = [_integrals(inputs, part, tol) for part in _split(panels, mean.shape[-1])]
        mass, miss, inner = (torch.cat(column) for column in zip(*found))
        bad = (miss > max(tol, _FINEST) / (4 * len(edges))) & (depth < _DEPTH)
        done = panels.row[~bad]
        p = p.index_add(0, done, mass[~bad])
        # Twice what was seen of the panels, as it is an estimate, not a bound.
        error = error.index_add(0, done, 2 * miss[~bad] + inner[~bad])
        kept.append(Panels(*(x[~bad] for x in panels)))
        row, left, half = panels.row[bad], panels.left[bad], panels.length[bad] / 2
        panels, depth = Panels(row.repeat(2), torch.cat([left, left + half]), half.repeat(2)), depth + 1
    return Panels(*(torch.cat(column) for column in zip(*kept))), p.log(), error


def _split(panels: Panels, classes: int) -> list[Panels]:
    size = max(1, _ELEMENTS // (classes * NODES))
    return [Panels(*part) for part in zip(*(x.split(size) for x in panels))]


def _integrals(inputs: tuple[Tensor, ...], panels: Panels, tol: float) -> tuple[Tensor, Tensor, Tensor]:
    """Over each panel: of every class (P, K), the largest error (P,) by the panel, and that by the inner integral.

    Each integrand is expanded in Legendre polynomials: if its last two coefficients are smaller than the first by
    some factor, those beyond are taken to be smaller by it once more.
    """
    terms, inner = _at_nodes([x[panels.row] for x in inputs], panels, tol)
    mass, *last = (terms.exp().transpose(1, 2) @ last_coefficients(NODES, terms)).unbind(-1)
    rest = last[0].abs() + last[1].abs()
    return mass, torch.minimum(rest.square() / mass.clamp(min=1e-30), rest).amax(-1), inner.sum(-1)


def _at_nodes(rows: Sequence[Tensor], panels: Panels, tol: float) -> tuple[Tensor, Tensor]:
    """log of weight, density and p_c at the nodes (P, n, K), and its error (P, n), for the row of each panel."""
    mean, scale, factor, temperature = rows
    nodes, weights = gauss_legendre(NODES, panels.left)
    z = panels.left[:, None] + panels.length[:, None] * nodes
    log_weight = (panels.length[:, None] * weights).log() - z * z / 2 - 0.5 * math.log(2 * math.pi)
    at = mean.unsqueeze(1) + factor.unsqueeze(1) * z.unsqueeze(-1)
    spread, tau = scale.unsqueeze(1).expand_as(at), temperature.unsqueeze(1).expand(*z.shape, 1)
    log_p, error = all_classes(at.flatten(0, 1), spread.flatten(0, 1), tau.flatten(0, 1), _INNER * tol)
    terms = log_p.reshape(at.shape) + log_weight.unsqueeze(-1)
    return terms, error.reshape(z.shape) * log_weight.exp()
