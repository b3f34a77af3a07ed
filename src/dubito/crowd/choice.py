"""Which model of a crowd predicts labels it has not seen: a judge that needs no truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._random import permutation
from ..errors import DubitoError
from ._arguments import check_count, check_crowd, check_seed
from ._rules import matrices
from .aggregate import aggregate
from .labels import CrowdLabels

CANDIDATES = ("hierarchical", "dawid-skene", "skill", "one-coin", "glad")
LEAST = (
    1e-9  # of the probability of a label: what a model holds for impossible costs this much, not everything
)
BLOCK = 1 << 16  # labels at a time


class Score(NamedTuple):
    """How well a model predicts held-out labels: log-likelihood per label, and its standard error."""

    method: str
    log_likelihood: float
    error: float


def held_out(
    crowd: CrowdLabels, method: str = "auto", *, folds: int = 5, seed: int = 0, **options: Any
) -> Tensor:
    """Log-probability of every label under a model that did not see it.

    The labels are cut into folds. With those of one fold left out, the others give posteriors q and matrices A, and

        log p(y_nr) = log sum_k q[n, k] A[r, k, y_nr]

    An item that has lost all its labels has the class prior, an annotator who has lost all theirs the crowd's
    matrix. Truth plays no part, so that models and strengths can be compared on any crowd.

    Shapes: ``(labels,)`` in the crowd's order.

    Arguments:
        method, options: as for `aggregate`.
        folds: number of folds.
        seed: keys the cut.

    Example:
        >>> crowd = CrowdLabels.from_dense([[0, 0, 0], [1, 1, 1]] * 20)
        >>> bool(held_out(crowd).exp().mean() > 0.9)
        True
    """
    check_crowd(crowd)
    check_count(folds, "folds", 2)
    check_seed(seed)
    if len(crowd) < folds:
        raise DubitoError("fewer labels than folds", expected=f"{folds} labels", got=len(crowd))
    fold = permutation(len(crowd), seed, purpose="held-out", device=crowd.item.device) % folds
    found = torch.zeros(len(crowd), dtype=torch.float64, device=crowd.item.device)
    for f in range(folds):
        result = aggregate(crowd.select(fold != f), method, **options)
        for rows in (fold == f).nonzero().squeeze(1).split(BLOCK):
            item, who, label = (t[rows].long() for t in (crowd.item, crowd.annotator, crowd.label))
            people, place = who.unique(return_inverse=True)
            A = matrices(result.state.layout, result.state.fitted, people)
            q = result.probabilities[item].to(A.dtype)
            found[rows] = (q * A[place, :, label]).sum(1).clamp(min=LEAST).log()
    return found


def compare(
    crowd: CrowdLabels,
    methods: Sequence[str] = CANDIDATES,
    *,
    folds: int = 5,
    seed: int = 0,
) -> list[Score]:
    """Models of a crowd by how well they predict labels that they have not seen, best first.

    The error is that of the difference to the best model over items (that of the best itself for the first), so
    models within one or two errors of the first are as good as it.

    Example:
        >>> crowd = CrowdLabels.from_dense([[0, 0, 0], [1, 1, 1]] * 20)
        >>> len(compare(crowd, ("hierarchical", "one-coin")))
        2
    """
    check_crowd(crowd)
    if not isinstance(methods, list | tuple) or not methods:
        raise DubitoError("methods must be a list of models", got=repr(methods))
    found = {m: held_out(crowd, m, folds=folds, seed=seed) for m in methods}
    order = sorted(found, key=lambda m: -float(found[m].mean()))
    best = found[order[0]]
    scores = []
    for name in order:
        gap = best if name == order[0] else best - found[name]
        scores.append(Score(name, float(found[name].mean()), _error(gap, crowd)))
    return scores


def _error(values: Tensor, crowd: CrowdLabels) -> float:
    """Standard error of the mean over labels, items taken as independent."""
    apart = (values - values.mean()).to(torch.float64)
    by_item = torch.zeros(crowd.num_items, dtype=torch.float64, device=apart.device)
    by_item.index_add_(0, crowd.item.long(), apart)
    return float(by_item.square().sum().sqrt()) / max(len(values), 1)
