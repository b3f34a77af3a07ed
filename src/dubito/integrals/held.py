"""A check of the hard rows of a low-rank latent, where a product rule may fail, against quasi-random points.

Next to a step, product rules of several orders can agree and be wrong by a tenth. Draws of all noise are cheap and
not misled by steps, but if p comes from far out they all miss it, and agree on too small a value. Points of which
half lie around the mode find it, at the price of an integral each. So draws are trusted unless these find more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._tensors import expect
from .border import Gaussian
from .factors import Mixed, Proposal, Rule, rule_error, sobol_rule
from .sampling import REPLICATES, by_qmc, likelihood_error

_DRAWS = 8192
_FEW, _MANY = 256, 2048  # points, half of them around the mode
_INNER = 1e-4  # tolerance of the integral at each of them
_DOUBT = 0.25  # relative error of p from which an estimate is not trusted


def checked(
    flat: tuple[Tensor, ...], log_p: Tensor, error: Tensor, proposal: Proposal, seed: int
) -> tuple[Tensor, Tensor]:
    """log p and its error, with the hard rows checked against points.

    The rule's value stays where the points agree, and where they are not accurate enough to tell; then its error is
    raised to `_DOUBT`.
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
    """Rows take the `other` values, of relative error `off`, where these disagree or are more accurate."""
    apart, own = (log_p.detach()[rows] - other.detach()).abs(), error[rows]
    seen = off < _DOUBT
    worse = seen & ~((apart <= 4 * off) & (own <= off))
    doubt = torch.where(seen, torch.maximum(own, apart), own.clamp(min=_DOUBT))
    error = error.index_put((rows,), torch.where(worse, off, doubt).to(error.dtype))
    return log_p.index_put((rows[worse],), other[worse].to(log_p.dtype)), error


def _draws(rows: tuple[Tensor, ...], seed: int) -> tuple[Tensor, Tensor]:
    """log p by draws of all noise, and its relative error, infinite where the draws do not see p."""
    latent, own = Gaussian(*rows[:4]), rows[4]
    log_p = expect(by_qmc(latent, _DRAWS, seed, "normal"), own)
    return log_p, likelihood_error(log_p, own, "qmc", latent, _DRAWS, seed, "normal")


def _about(
    flat: tuple[Tensor, ...], rows: Tensor, proposal: Proposal, count: int, seed: int
) -> tuple[Tensor, Tensor]:
    """log p by points of which half lie around the mode, and its relative error."""
    about = Proposal(proposal.place[rows], proposal.root[rows], proposal.log_det[rows])
    rule = mixed_rule(count, proposal.place.shape[-1], seed, flat[0])
    log_p, error, terms = Mixed.apply(*(x[rows] for x in flat), about, rule, _INNER)  # type: ignore[no-untyped-call]
    return log_p, error + rule_error(rule, terms, log_p.detach(), None)


def mixed_rule(count: int, rank: int, seed: int, like: Tensor) -> Rule:
    """Sobol points of which the first half of each replicate is `free`, drawn from the prior."""
    rule = sobol_rule(count, rank, seed + 7919, like)
    each = len(rule.points) // REPLICATES
    free = torch.arange(len(rule.points), device=like.device) % each < each // 2
    return rule._replace(free=free)
