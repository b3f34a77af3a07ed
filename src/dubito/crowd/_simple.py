"""Aggregates of the models without matrices: votes and GLAD."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from . import _glad, _rules
from ._layout import Layout
from .labels import CrowdLabels
from .result import Aggregate, State, company_of
from .vote import cells, majority_vote, pieces, shares, vote_counts


def by_vote(crowd: CrowdLabels, name: str, seed: int, gold: Tensor | None, dtype: torch.dtype) -> Aggregate:
    """Counts: hard with ties drawn, or soft."""
    counts = vote_counts(crowd, dtype)
    codes, tied = majority_vote(crowd, seed=seed, counts=counts)
    if gold is not None:
        codes = torch.where(gold >= 0, gold, codes)
        counts[gold >= 0] = 0.0
        counts[gold >= 0, gold[gold >= 0]] = 1.0
        tied &= gold < 0
    if name == "vote":
        drawn = tied.nonzero().flatten()  # a lot says nothing: the best classes are as probable as each other
        among = (counts[drawn] == counts[drawn].amax(1, keepdim=True)).to(counts.dtype)
        probabilities = counts.zero_().scatter_(1, codes.unsqueeze(1), 1.0)
        probabilities[drawn] = among / among.sum(1, keepdim=True)
    else:
        probabilities = shares(counts)
    flat = probabilities.flatten()

    def hit(part: slice) -> Tensor:
        return flat.index_select(0, cells(crowd, part))

    return _one_number(crowd, codes, probabilities, hit, name, [], float("nan"), True, "none (a count)", gold)


def by_glad(
    crowd: CrowdLabels, dtype: torch.dtype, iterations: int, tolerance: float, gold: Tensor | None
) -> Aggregate:
    """GLAD, as an aggregate."""
    fit = _glad.glad(crowd, dtype=dtype, iterations=iterations, tolerance=tolerance, gold=gold)
    return _one_number(
        crowd,
        fit.posterior.argmax(1),
        fit.posterior,
        lambda part: fit.right[part],
        "glad",
        fit.trace,
        fit.log_likelihood,
        fit.converged,
        "log-likelihood + log prior density",
        gold,
    )


def _one_number(
    crowd: CrowdLabels,
    codes: Tensor,
    probabilities: Tensor,
    hit: Callable[[slice], Tensor],
    name: str,
    trace: list[float],
    log_likelihood: float,
    converged: bool,
    objective: str,
    gold: Tensor | None,
) -> Aggregate:
    """An aggregate whose annotators have one number each: the mean of `hit(labels)` over their labels."""
    R, K = crowd.num_annotators, crowd.num_classes
    n, right = _totals(crowd, hit)
    skill = torch.where(n > 0, right / n.clamp(min=1), right.sum() / n.sum().clamp(min=1))
    empty = torch.zeros(0, dtype=torch.int64, device=n.device)
    layout = Layout(crowd.num_items, R, K, len(crowd), empty, empty, (), None, probabilities.dtype)
    wide = skill.unsqueeze(1).expand(R, K)
    pattern = (1 - torch.eye(K, dtype=torch.float64, device=n.device)) / max(K - 1, 1)
    none, (company, _) = n.new_zeros(0, K), company_of(crowd, gold)
    fitted = _rules.Fitted(
        none, none, 1 - wide, pattern, wide, 0.0, (n * company).unsqueeze(1).expand(R, K), {}, shared=True
    )
    prior = probabilities.sum(0, dtype=torch.float64) / max(crowd.num_items, 1)
    prior = prior if crowd.num_items else n.new_full((K,), 1.0 / K)
    given = (crowd.item, crowd.annotator, crowd.label)
    return Aggregate(
        items=crowd.item_ids,
        annotators=crowd.annotator_ids,
        classes=crowd.classes,
        codes=codes,
        probabilities=probabilities,
        skills=skill,
        class_prior=prior,
        log_likelihood=log_likelihood,
        trace=torch.tensor(trace, dtype=torch.float64),
        objective=objective,
        method=name,
        why="asked for",
        converged=converged,
        state=State(layout, fitted, none, none, prior * crowd.num_items, given, 0.0, company, 1.0),
    )


def _totals(crowd: CrowdLabels, hit: Callable[[slice], Tensor]) -> tuple[Tensor, Tensor]:
    """Labels per annotator, and the sum of `hit` over them."""
    n = torch.zeros(crowd.num_annotators, dtype=torch.float64, device=crowd.item.device)
    right = torch.zeros_like(n)
    for part in pieces(len(crowd)):
        who = crowd.annotator[part]
        n += torch.bincount(who, minlength=len(n))
        right += torch.bincount(who, weights=hit(part).double(), minlength=len(n))
    return n, right
