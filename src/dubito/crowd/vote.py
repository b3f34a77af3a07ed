"""Majority vote, with ties that can be reproduced."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .._numbers import word
from ..errors import DubitoError
from ._arguments import check_crowd, check_seed
from .labels import CrowdLabels


def vote_counts(crowd: CrowdLabels, dtype: torch.dtype = torch.float32) -> Tensor:
    """How many labels of each class an item has, ``(items, classes)``.

    Example:
        >>> vote_counts(CrowdLabels([0, 0, 1], ["a", "b", "a"], [1, 1, 0])).tolist()
        [[0.0, 2.0], [1.0, 0.0]]
    """
    check_crowd(crowd)
    counts = torch.zeros(crowd.num_items * crowd.num_classes, dtype=dtype, device=crowd.item.device)
    one = torch.ones(min(len(crowd), PIECE), dtype=dtype, device=counts.device)
    for part in pieces(len(crowd)):
        place = cells(crowd, part)
        counts.index_add_(0, place, one[: len(place)])
    return counts.view(crowd.num_items, crowd.num_classes)


PIECE = 1 << 19  # rows at a time: temporaries stay in the cache, and no memory is fetched for them anew


def pieces(length: int, size: int = PIECE) -> Iterator[slice]:
    """Slices that cover ``range(length)``."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def cells(crowd: CrowdLabels, part: slice = slice(None)) -> Tensor:
    """Place of each label in a flattened ``(items, classes)`` table."""
    K = crowd.num_classes
    item = crowd.item[part] if crowd.num_items * K < 2**31 else crowd.item[part].long()
    return item * K + crowd.label[part]


def majority_vote(
    crowd: CrowdLabels, *, seed: int = 0, counts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The most frequent label of each item; ties are drawn evenly with `seed`.

    The draw belongs to the item, in the order of `crowd.item_ids`: the labels of other items do not change
    it. An item without labels is a tie of all classes.

    Returns:
        ``(codes, tied)``, both ``(items,)``: the class, and whether it was drawn.

    Example:
        >>> codes, tied = majority_vote(CrowdLabels([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [1, 1, 0, 0, 1]))
        >>> int(codes[0]), tied.tolist()
        (1, [False, True])
    """
    check_crowd(crowd)
    check_seed(seed)
    counts = vote_counts(crowd) if counts is None else counts
    if not isinstance(counts, Tensor):
        raise DubitoError("counts must be a tensor", got=type(counts).__name__)
    if tuple(counts.shape) != (crowd.num_items, crowd.num_classes):
        expected = (crowd.num_items, crowd.num_classes)
        raise DubitoError("counts must be items x classes", expected=expected, got=tuple(counts.shape))
    codes = torch.empty(crowd.num_items, dtype=torch.int64, device=counts.device)
    several = [
        _first_best(counts[part], codes[part]) + part.start for part in pieces(len(counts), PIECE // 8)
    ]
    rows = torch.cat(several) if several else codes[:0]
    generator = torch.Generator().manual_seed(word(seed))
    draws = torch.rand(crowd.num_items, generator=generator, dtype=torch.float32).to(counts.device)[rows]
    among = counts[rows] == counts[rows].amax(1, keepdim=True)
    wanted = (
        draws * among.sum(1)
    ).floor() + 1  # draws are below 1 by 2^-24 at least: never more than there are
    codes[rows] = (among.cumsum(1) == wanted.unsqueeze(1)).int().argmax(1)
    tied = torch.zeros(crowd.num_items, dtype=torch.bool, device=counts.device)
    tied[rows] = True
    return codes, tied


def _first_best(counts: Tensor, codes: Tensor) -> Tensor:
    """Write the first class with the most labels into `codes`; return the rows where it is not the only one."""
    best, first = counts.max(1)
    codes.copy_(first)
    # A product with ones counts the maxima of a row several times faster than a sum over the short axis.
    ones = torch.ones(counts.shape[1], dtype=torch.float32, device=counts.device)
    maxima = (counts == best.unsqueeze(1)).float() @ ones
    return (maxima > 1).nonzero().flatten()


def shares(counts: Tensor) -> Tensor:
    """Vote counts as a distribution; uniform where there are none.

    Example:
        >>> shares(torch.tensor([[1.0, 3.0], [0.0, 0.0]])).tolist()
        [[0.25, 0.75], [0.5, 0.5]]
    """
    total = counts.sum(1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp(min=1), 1.0 / counts.shape[1])
