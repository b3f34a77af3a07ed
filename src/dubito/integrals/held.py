"""Rows of a low-rank latent that a product rule may miss, held against quasi-random points.

Beside a step the orders of a product rule can agree and be wrong by a tenth. Draws of everything are cheap and see
steps well, but what lies far out they all miss alike, and agree on too little. Points of which half lie about the
mode see that, at the price of an integral each. So draws are believed unless such points find more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._tensors import expect
from .border import Latent
from .factors import Mixed, Proposal, Rule, rule_error, sobol_rule
from .sampling import REPLICATES, by_qmc, likelihood_error

_DRAWS = 8192
_FEW, _MANY = 256, 2048  # points about the mode and all over
_INNER = 1e-4  # tolerance of the integral at each of them
_DOUBT = 0.25  # relative error of p


def checked(
    flat: tuple[Tensor, ...], log_p: Tensor, error: Tensor, proposal: Proposal, seed: int
) -> tuple[Tensor, Tensor]:
    """log p and its error with hard rows held against points.

    The rule stays where it agrees with them, and where they see too little of p; then it is in doubt.
    """
    hard = proposal.hard
    assert hard is not None
    drawn, off = _draws(tuple(x[hard] for x in flat), seed)
    found, spread = _about(flat, hard, proposal, _FEW, seed)
    missed = ~(off < _DOUBT) | (found.detach() - drawn.detach() > 4 * (off + spread))
    log_p, error = _better(log_p, error, hard[~missed], drawn[~missed], off[~missed])
    if bool(missed.any()):
        far = hard[missed]
        log_p, error = _better(log_p, error, far, *_about(flat, far, proposal, _MANY, seed))
    return log_p, error


def _better(log_p: Tensor, error: Tensor, rows: Tensor, other: Tensor, off: Tensor) -> tuple[Tensor, Tensor]:
    """Rows take other values, of relative error `off`, where they disagree or are less sure themselves."""
    apart, own = (log_p.detach()[rows] - other.detach()).abs(), error[rows]
    seen = off < _DOUBT
    worse = seen & ~((apart <= 4 * off) & (own <= off))
    doubt = torch.where(seen, torch.maximum(own, apart), own.clamp(min=_DOUBT))
    error = error.index_put((rows,), torch.where(worse, off, doubt).to(error.dtype))
    return log_p.index_put((rows[worse],), other[worse].to(log_p.dtype)), error


def _draws(rows: tuple[Tensor, ...], seed: int) -> tuple[Tensor, Tensor]:
    """log p by draws of everything, and its relative error; infinite where they do not see p."""
    latent, own = Latent(*rows[:4]), rows[4]
    log_p = expect(by_qmc(latent, _DRAWS, seed, "normal"), own)
    return log_p, likelihood_error(log_p, own, "qmc", latent, _DRAWS, seed, "normal")


def _about(
    flat: tuple[Tensor, ...], rows: Tensor, proposal: Proposal, count: int, seed: int
) -> tuple[Tensor, Tensor]:
    """log p by points of which half lie about the mode, and its relative error."""
    about = Proposal(proposal.place[rows], proposal.root[rows], proposal.log_det[rows])
    rule = mixed_rule(count, proposal.place.shape[-1], seed, flat[0])
    log_p, error, terms = Mixed.apply(*(x[rows] for x in flat), about, rule, _INNER)  # type: ignore[no-untyped-call]
    return log_p, error + rule_error(rule, terms, log_p.detach(), None)


def mixed_rule(count: int, rank: int, seed: int, like: Tensor) -> Rule:
    """Sobol points of which the first half of each replicate stays where the prior has it."""
    rule = sobol_rule(count, rank, seed + 7919, like)
    each = len(rule.points) // REPLICATES
    free = torch.arange(len(rule.points), device=like.device) % each < each // 2
    return rule._replace(free=free)
