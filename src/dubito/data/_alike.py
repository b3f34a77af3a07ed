"""Examples that belong together: copies of one input, or of one group by the user's word."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor

from ._labelled import LabelledData

GROUP = "group"  # the name in `LabelledData.extra` of numbers of groups, as patients, that stay together
FEWEST = 50  # different inputs; of fewer, equal ones are patterns of a few categories, not copies
_BLOCK = 1024


def together(data: LabelledData) -> Tensor | None:
    """The group of each example ``(N,)``, 0 to G - 1, none of which may be cut; None: each stands alone."""
    given = data.extra.get(GROUP)
    return alike(data) if given is None else torch.unique(given, return_inverse=True)[1]


def alike(data: LabelledData) -> Tensor | None:
    """Numbers ``(N,)`` that are equal where the inputs are, byte for byte; None where no two are.

    None as well where there are hardly any different inputs: a model that never saw one of four patterns could
    say nothing about it.

    Example:
        >>> x = torch.arange(60.0).unsqueeze(1)
        >>> data = LabelledData(torch.cat([x, x[:2]]), torch.arange(62) % 2)
        >>> alike(data)[-3:].tolist()
        [59, 0, 1]
    """
    seen: dict[bytes, int] = {}
    numbers: list[int] = []
    for rows in torch.arange(len(data), device=data.device).split(_BLOCK):
        x = data.gather(rows).cpu().flatten(1)
        if x.shape[1] == 0:
            return None
        if x.is_floating_point():
            x = x + 0.0  # -0 and 0 are one number
        for row in x.contiguous().view(torch.uint8).numpy():
            numbers.append(seen.setdefault(blake2b(row, digest_size=16).digest(), len(seen)))
    if not FEWEST <= len(seen) < len(numbers):
        return None
    return torch.tensor(numbers, device=data.device)


def first_of(group: Tensor) -> Tensor:
    """The first example of each group ``(G,)``.

    Example:
        >>> first_of(torch.tensor([0, 1, 0, 2])).tolist()
        [0, 1, 3]
    """
    n = len(group)
    first = torch.full((int(group.max()) + 1,), n, device=group.device)
    return first.scatter_reduce(0, group, torch.arange(n, device=group.device), "amin")


def as_first(values: Tensor, group: Tensor | None) -> Tensor:
    """For every example what the first of its group has.

    Example:
        >>> as_first(torch.tensor([5, 6, 7, 8]), torch.tensor([0, 1, 0, 2])).tolist()
        [5, 6, 5, 8]
    """
    return values if group is None else values[first_of(group)[group]]
