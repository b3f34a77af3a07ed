"""Low-rank latents: a rule over the few factors around the exact integral over the rest of the noise.

p_y = E_z[ p_y(mean + factors z) ] with z standard normal, and p_y(.) the integral of `quadrature`. As a function of
z it is log-concave, but its mass may be narrow and far from z = 0. So the rule is shifted and scaled: for any place
m and root L, with z = m + L x,

    E_z[ p(z) ] = E_x[ p(m + L x) exp((|x|^2 - |m + L x|^2) / 2) det L ],   x standard normal.

m is the mode, and L comes from the curvature there. With up to three factors the rule is a product of Gauss-Hermite
rules, whose order is raised until the value no longer changes. With more it is scrambled Sobol points in
independent replicates, whose spread estimates the error.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .border import Gaussian
from .climb import Climb
from .noise import sobol_bank
from .quadrature import solve
from .sampling import REPLICATES

_ROWS = 4096  # rows of the inner integral at a time
PRODUCT_RANK = 3  # up to this many factors a product rule beats sampling all noise at equal cost
_ORDERS = {1: (6, 12, 24, 48), 2: (4, 7, 12, 20), 3: (3, 5, 8, 13)}
_WIDER = 1.3  # the proposal is a little wider than the curvature says: its tails must not be too short
_SOBOL = (64, 256, 1024, 4096)
_NARROW = 9.0  # curvature beyond which both sides of the mode are checked


class Rule(NamedTuple):
    """Points (S, R) for a standard normal z, logarithms of their weights (S,), and whether they are replicates.

    Points marked `free` (S,) are used where they are, as draws from the prior. The others are moved by a proposal,
    and all are weighted for the mixture of prior and proposal.
    """

    points: Tensor
    log_weight: Tensor
    replicated: bool
    free: Tensor | None = None


def rules(rank: int, seed: int, like: Tensor) -> list[Rule]:
    """Rules of rising size for this many factors."""
    if rank in _ORDERS:
        return [hermite_rule(rank, order, like) for order in _ORDERS[rank]]
    return [sobol_rule(count, rank, seed, like) for count in _SOBOL]


def sobol_rule(count: int, rank: int, seed: int, like: Tensor) -> Rule:
    """Independent scrambled Sobol sets, one per replicate."""
    each = max(1, count // REPLICATES)
    sets = [
        sobol_bank(each, rank, 0, seed + r, "normal", like.device, like.dtype)[0] for r in range(REPLICATES)
    ]
    points = torch.cat(sets)
    return Rule(points, torch.full_like(points[:, 0], -math.log(len(points))), True)


def hermite_rule(rank: int, order: int, like: Tensor) -> Rule:
    """The product rule of an order, without the corners of negligible weight."""
    k = torch.arange(1, order, dtype=torch.float64)
    # The lower half of a Jacobi matrix is all that eigh reads.
    nodes, vectors = torch.linalg.eigh(torch.diag(k.sqrt(), -1))
    log_weight = 2 * vectors[0].abs().clamp(min=1e-150).log()
    points = torch.cartesian_prod(*[nodes] * rank).reshape(-1, rank)
    total = torch.cartesian_prod(*[log_weight] * rank).reshape(-1, rank).sum(-1)
    heavy = total > total.max() - 60
    return Rule(points[heavy].to(like), total[heavy].to(like), False)


class Proposal(NamedTuple):
    """Where to put the points of a rule: place (B, R), root (B, R, R) and the log of its determinant (B,).

    `hard` lists rows where a rule of few points cannot be trusted: p looks like a step, or its mode is lopsided or
    was hard to find.
    """

    place: Tensor
    root: Tensor
    log_det: Tensor
    hard: Tensor | None = None

    def at(self, z: Tensor, free: Tensor | None) -> tuple[Tensor, Tensor]:
        """Places (S, B, R) of points (S, R), and there the log of the prior's density over that of the points."""
        at = self.place + torch.einsum("brq,sq->sbr", self.root, z)
        if free is None:
            return at, (z.square().sum(-1, keepdim=True) - at.square().sum(-1)) / 2 + self.log_det
        at = torch.where(free[:, None, None], z.unsqueeze(1), at)
        back = torch.linalg.solve(self.root, (at - self.place).unsqueeze(-1)).squeeze(-1)
        prior, own = -at.square().sum(-1) / 2, -back.square().sum(-1) / 2 - self.log_det
        return at, prior - torch.logaddexp(prior, own) + math.log(2)


class Mixed(torch.autograd.Function):
    """log of the weighted mean over points, with gradients gathered in the same pass; and its parts (S, B)."""

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        scale: Tensor,
        factors: Tensor,
        temperature: Tensor,
        target: Tensor,
        proposal: Proposal,
        rule: Rule,
        tol: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One pass over the points; gradients are summed with the same weights."""
        sums = [torch.zeros_like(x) for x in (mean, scale, temperature, factors)]
        peak = mean.new_full((len(mean),), -math.inf)
        pieces, errors = [], torch.zeros_like(peak)
        size = max(1, _ROWS // max(1, len(mean)))
        free = [None] * len(rule.points) if rule.free is None else rule.free.split(size)
        for z, log_weight, stays in zip(rule.points.split(size), rule.log_weight.split(size), free):
            at, ratio = proposal.at(z, stays)
            log_p, error, parts = _at_points(mean, scale, factors, temperature, target, at, tol)
            terms = log_p + log_weight[:, None] + ratio
            pieces.append(terms)
            errors = torch.maximum(errors, error.amax(0))
            higher = torch.maximum(peak, terms.amax(0))
            floor = higher.clamp(min=torch.finfo(peak.dtype).min)
            fade, weight = (peak - floor).exp(), (terms - floor).exp()
            sums = [
                s * fade.reshape(-1, *(1,) * (s.dim() - 1)) + torch.einsum("sb,sb...->b...", weight, part)
                for s, part in zip(sums, parts)
            ]
            peak = higher
        everything = torch.cat(pieces)
        log_p = torch.logsumexp(everything, 0)
        share = (peak - log_p).exp().nan_to_num(0.0)
        ctx.save_for_backward(*(s * share.reshape(-1, *(1,) * (s.dim() - 1)) for s in sums))
        ctx.mark_non_differentiable(errors, everything)
        return log_p, errors, everything

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the forward pass, scaled."""
        d_mean, d_scale, d_temperature, d_factors = (
            torch.where((d == 0) | (g == 0), 0.0, g * d)
            for d, g in ((d, grad.reshape(-1, *(1,) * (d.dim() - 1))) for d in ctx.saved_tensors)
        )
        return d_mean, d_scale, d_factors, d_temperature, None, None, None, None


def _at_points(
    mean: Tensor,
    scale: Tensor,
    factors: Tensor,
    temperature: Tensor,
    target: Tensor,
    at: Tensor,
    tol: float,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The exact integral at points (S, B, R): log p and error (S, B), gradients (S, B, ...) for all inputs."""
    count, shape = len(at), mean.shape
    shifted = mean + torch.einsum("bkr,sbr->sbk", factors, at)
    answer, _ = solve(
        shifted.flatten(0, 1),
        scale.expand(count, *shape).flatten(0, 1),
        temperature.expand(count, -1, 1).flatten(0, 1),
        target.repeat(count),
        tol,
    )
    log_p, error = answer.log_p.reshape(count, -1), answer.error.reshape(count, -1)
    d_mean, d_scale = answer.d_mean.reshape(count, *shape), answer.d_scale.reshape(count, *shape)
    parts = [d_mean, d_scale, answer.d_temperature.reshape(count, -1, 1)]
    return log_p, error, [*parts, d_mean.unsqueeze(-1) * at.unsqueeze(-2)]


def find_proposal(
    mean: Tensor, scale: Tensor, factors: Tensor, temperature: Tensor, target: Tensor, steps: int = 5
) -> Proposal:
    """The mode of log p(z) - |z|^2 / 2, roughly, by Barzilai-Borwein steps, and its curvature, by differences.

    If factors are large compared with the temperature, these steps may not converge, and one side of the mode may
    fall far more slowly than the curvature says. Such rows continue by line searches and get a wider spread.
    """

    def of(rows: Tensor | slice) -> Climb:
        return Climb(mean[rows], scale[rows], factors[rows], temperature[rows], target[rows])

    climb, rank = of(slice(None)), factors.shape[-1]
    z = torch.zeros(len(mean), rank, dtype=mean.dtype, device=mean.device)
    slope = climb.slope(z)
    length = torch.full_like(z[:, :1], 0.5)
    for _ in range(steps):
        new = z + length * slope
        turned = slope - (new_slope := climb.slope(new))
        moved = new - z
        along = (moved * turned).sum(-1, keepdim=True).clamp(min=1e-12)
        # the prior alone has curvature 1, so no step needs to be longer
        length = ((moved * moved).sum(-1, keepdim=True) / along).clamp(0.02, 1.0)
        z, slope = new, new_slope
    z = torch.where(torch.isfinite(z), z, 0.0)
    # With a slope of 1 at most, the objective is within 1/2 of its height at the mode.
    astray = (slope.square().sum(-1) > 1).nonzero().flatten()
    if len(astray):
        z[astray] = of(astray).searched()
    bend = climb.bend(z)
    values, vectors = torch.linalg.eigh(((bend + bend.mT) / 2).nan_to_num(0.0, 0.0, 0.0))
    spread = (_WIDER / values.clamp(min=1.0).sqrt()).clamp(max=1.0)
    narrow = (values.amax(-1) > _NARROW).nonzero().flatten()
    hard = climb.stepped()
    hard[astray] = True
    if len(narrow):
        wider = of(narrow).widened(z[narrow], vectors[narrow], spread[narrow])
        hard[narrow] |= (wider > spread[narrow]).any(-1)
        spread[narrow] = wider
    return Proposal(z, vectors * spread.unsqueeze(-2), spread.log().sum(-1), hard.nonzero().flatten())


def factor_log_likelihood(
    latent: Gaussian,
    target: Tensor,
    tol: float,
    seed: int,
    fixed: Rule | None = None,
    most: float = math.inf,
    least: float = -math.inf,
) -> tuple[Tensor, Tensor, int]:
    """log p of the target, its error, and the number of points: as many as `tol` needs, or a `fixed` rule.

    At least two rules are tried, since their difference is the error; further ones have at most `most` points.
    Hard rows are checked by `held`, except where log p is below `least`.
    """
    assert latent.factors is not None
    shape, classes = latent.mean.shape[:-1], latent.mean.shape[-1]
    flat = (
        latent.mean.reshape(-1, classes),
        latent.scale.reshape(-1, classes),
        latent.factors.reshape(-1, classes, latent.rank),
        latent.temperature.reshape(-1, 1),
        target.reshape(-1),
    )
    with torch.no_grad():
        proposal = find_proposal(*flat)
    sizes = [fixed] if fixed is not None else rules(latent.rank, seed, latent.mean)
    sizes = [rule for i, rule in enumerate(sizes) if i < 2 or len(rule.points) <= most]
    before: Tensor | None = None
    for rule in sizes:
        log_p, error, terms = Mixed.apply(*flat, proposal, rule, max(tol / 10, 1e-6))  # type: ignore[no-untyped-call]
        error = error + rule_error(rule, terms, log_p.detach(), before)
        if error.numel() == 0 or float(error.max()) <= tol:
            break
        before = log_p.detach()
    hard = proposal.hard
    hard = None if hard is None else hard[log_p.detach()[hard] > least]
    if fixed is None and hard is not None and len(hard):
        from .held import checked

        log_p, error = checked(flat, log_p, error, proposal._replace(hard=hard), seed)
    return log_p.reshape(shape), error.reshape(shape), len(rule.points)


def rule_error(rule: Rule, terms: Tensor, log_p: Tensor, before: Tensor | None) -> Tensor:
    """The change from the smaller rule (infinite without one), or the standard error over replicates."""
    if not rule.replicated:
        if before is None:
            return torch.full_like(log_p, math.inf)
        return (log_p - before).nan_to_num(0.0).abs()
    groups = torch.logsumexp(terms.unflatten(0, (REPLICATES, -1)), 1) + math.log(REPLICATES) - log_p
    spread: Tensor = groups.exp().nan_to_num(0.0).std(0)
    return spread / math.sqrt(REPLICATES)
