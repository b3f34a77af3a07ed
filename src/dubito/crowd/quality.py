"""Is this label right? A probability for each single label."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._arguments import check_crowd
from .labels import CrowdLabels
from .result import Aggregate, check_aggregate


def label_quality(crowd: CrowdLabels, aggregate: Aggregate, *, probs: Any = None) -> Tensor:
    """Probability that each given label is right, ``(labels,)``: ``q[n, y]`` for a label y of item n.

    q is the aggregate's posterior, from the labels of all annotators weighted by their matrices. With a
    classifier's probabilities p it is combined with them as in `with_model`.

    Arguments:
        crowd: labels of the items and classes of `aggregate`.
        probs: ``(items, classes)`` out-of-sample probabilities of a classifier, in the order of
            `crowd.item_ids` and `crowd.classes`.

    Example:
        >>> from dubito.crowd import aggregate
        >>> crowd = CrowdLabels.from_dense([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 0, 1]])
        >>> quality = label_quality(crowd, aggregate(crowd))
        >>> bool(quality[2] < 0.5), bool(quality[0] > 0.5)
        (True, True)
    """
    same_crowd(crowd, aggregate)
    q = aggregate.probabilities if probs is None else with_model(aggregate, probs)
    return q.flatten()[crowd.item.long() * crowd.num_classes + crowd.label]


def with_model(aggregate: Aggregate, probs: Any) -> Tensor:
    """Posterior of the true classes from annotators and a classifier, ``(items, classes)``.

    ``q'[n, k] ~ (q[n, k] / prior_k) p[n, k]^b / sum_j p[n, j]^b``: the classifier takes the place of the class
    prior, an informant beside the annotators. Its weight b >= 0 is the one under which the labels that were
    given are most probable, so an overconfident model is toned down and a useless one gets b = 0; b is looked
    up on a grid from 0 to 4.

    Arguments:
        probs: ``(items, classes)`` out-of-sample probabilities.

    Example:
        >>> from dubito.crowd import aggregate
        >>> result = aggregate(CrowdLabels.from_dense([[0, 1], [1, 1], [0, 0]]))
        >>> with_model(result, [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]).shape
        torch.Size([3, 2])
    """
    check_aggregate(aggregate)
    q = aggregate.probabilities
    p = _probabilities(probs, q)
    evidence = _log(q) - _log(aggregate.class_prior).to(q.dtype)
    log_p = _log(p)
    weights = [0.0, *(0.125 * 2 ** (i / 2) for i in range(11))]
    values = [_fit(evidence, log_p, b) for b in weights]
    b = weights[max(range(len(weights)), key=values.__getitem__)]
    return torch.softmax(evidence + b * log_p, 1)


def _fit(evidence: Tensor, log_p: Tensor, b: float) -> float:
    scaled = b * log_p
    return float(
        (torch.logsumexp(evidence + scaled, 1) - torch.logsumexp(scaled, 1)).sum(dtype=torch.float64)
    )


def _log(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).tiny).log()


def _probabilities(probs: Any, q: Tensor) -> Tensor:
    try:
        numbers = probs if isinstance(probs, Tensor) else np.asarray(probs, dtype=np.float64)
    except (TypeError, ValueError):
        raise DubitoError("probs must be a table of numbers", got=type(probs).__name__) from None
    p = torch.as_tensor(numbers).to(q)
    if p.shape != q.shape:
        raise DubitoError(
            "probs must give one row per item and one column per class",
            expected=tuple(q.shape),
            got=tuple(p.shape),
        )
    bad = ((p < 0).any(1) | ~torch.isclose(p.sum(1), p.new_ones(()), atol=1e-3)).nonzero().flatten()
    if len(bad):
        raise DubitoError("probs must be distributions", where=f"row {int(bad[0])}", got=p[bad[0]].tolist())
    return p


def same_crowd(crowd: CrowdLabels, aggregate: Aggregate) -> None:
    """Refuse an aggregate of other items, annotators or classes."""
    check_crowd(crowd)
    check_aggregate(aggregate)
    for name, ours, theirs in (
        ("items", crowd.num_items, len(aggregate.items)),
        ("annotators", crowd.num_annotators, len(aggregate.annotators)),
        ("classes", crowd.num_classes, len(aggregate.classes)),
    ):
        if ours != theirs:
            raise DubitoError(
                f"the aggregate has other {name} than the crowd",
                expected=ours,
                got=theirs,
                remedy="aggregate it",
            )
