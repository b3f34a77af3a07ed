"""Which examples a part of a set holds: by position, by mask, by size, by group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from .._random import permutation
from ..errors import DubitoError


def positions_of(positions: Tensor | Sequence[int], n: int, device: torch.device, name: str) -> Tensor:
    """Positions among n examples as int64, of a mask those where it is true; anything else is refused."""
    given = torch.as_tensor(positions, device=device)
    if given.dim() != 1 or given.is_complex() or (given.is_floating_point() and len(given)):
        raise DubitoError(
            "these are no positions of examples",
            where=name,
            expected="whole numbers, or one boolean per example",
            got=f"{given.dtype} of shape {tuple(given.shape)}",
        )
    if given.dtype == torch.bool:
        if len(given) != n:
            raise DubitoError("a mask says yes or no to each example", where=name, expected=n, got=len(given))
        return given.nonzero().flatten()
    keep = given.to(torch.int64)
    bad = (keep < 0) | (keep >= n)
    if bad.any():
        place = int(bad.nonzero()[0])
        raise DubitoError(
            "no such example",
            where=f"{name}, positions[{place}]",
            expected=f"0 to {n - 1}" if n else "none of an empty set",
            got=int(keep[place]),
        )
    return keep


def spread(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Row i as often as counts[i] says, and which of its copies each is, from 0.

    Example:
        >>> spread(torch.tensor([2, 0, 1]))
        (tensor([0, 0, 2]), tensor([0, 1, 0]))
    """
    row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    return row, torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]


def counts_of(sizes: Sequence[int | float], n: int, name: str) -> list[int]:
    """How many of n examples each part gets."""
    if all(isinstance(s, int) for s in sizes):
        counts = [int(s) for s in sizes]
    elif all(isinstance(s, float) for s in sizes):
        ends, total = [0], 0.0
        for size in sizes:
            total += size
            ends.append(round(total * n))
        counts = [b - a for a, b in pairwise(ends)]
    else:
        raise DubitoError("split sizes must be all counts or all fractions", where=name, got=tuple(sizes))
    if not counts or min(counts) < 0 or sum(counts) > n:
        raise DubitoError(
            "these split sizes do not fit", where=name, expected=f"at most {n} examples", got=tuple(sizes)
        )
    return counts


def grouped(groups: Tensor, counts: list[int], seed: int, purpose: str) -> tuple[Tensor, list[int]]:
    """Fill the parts with whole groups in random order; a group goes where its first member falls."""
    names, member = torch.unique(groups, return_inverse=True)
    rank = torch.empty_like(names)
    rank[permutation(len(names), seed, purpose=purpose, device=names.device)] = torch.arange(
        len(names), device=names.device
    )
    order = torch.sort(rank[member], stable=True).indices
    ordered = rank[member][order]
    starts = torch.searchsorted(ordered, torch.arange(len(names), device=names.device))
    ends, total = [0], 0
    for count in counts:
        total += count
        later = starts[starts >= total]
        ends.append(int(later[0]) if len(later) else len(order))
    return order, [b - a for a, b in pairwise(ends)]
