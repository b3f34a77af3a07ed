"""Do the annotators agree? Statistics that need no truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DubitoError
from ._arguments import check_crowd
from .labels import CrowdLabels
from .vote import vote_counts

MOST = 1 << 22  # pairs of labels times classes at a time


def krippendorff_alpha(crowd: CrowdLabels) -> float:
    """Krippendorff's alpha for nominal labels: 1 is perfect agreement, 0 is chance.

    ``alpha = 1 - D_o / D_e``. With m_n labels on item n, of which c_nk name class k, only items with m_n > 1
    count: ``D_o = sum_n (m_n^2 - sum_k c_nk^2) / (m_n - 1)``, and with v_k = sum_n c_nk and V = sum_k v_k,
    ``D_e = (V^2 - sum_k v_k^2) / (V - 1)``. NaN when no item has two labels or only one class occurs.

    Reference:
        Krippendorff 2011, Computing Krippendorff's alpha-reliability

    Example:
        >>> crowd = CrowdLabels.from_dense([[0, 0], [0, 1], [1, 1], [1, 1]])
        >>> round(krippendorff_alpha(crowd), 4)
        0.5333
    """
    counts = vote_counts(crowd, torch.float64)
    m = counts.sum(1)
    counts, m = counts[m > 1], m[m > 1]
    observed = ((m.square() - counts.square().sum(1)) / (m - 1)).sum()
    v = counts.sum(0)
    V = v.sum()
    expected = (V.square() - v.square().sum()) / (V - 1)
    return float(1 - observed / expected)  # 0 / 0 without a pair or a second class


def annotator_agreement(crowd: CrowdLabels) -> Tensor:
    """Share of the other labels on the same items that say the same, per annotator.

    Mean over the annotator's labels on items with other labels; NaN for an annotator who shares no item.

    Example:
        >>> crowd = CrowdLabels.from_dense([[0, 0, 1], [1, 1, 1]])
        >>> annotator_agreement(crowd).tolist()
        [0.75, 0.75, 0.5]
    """
    counts = vote_counts(crowd, torch.float64)
    item, label = crowd.item.long(), crowd.label.long()
    others = counts.sum(1)[item] - 1
    same = (counts[item, label] - 1) / others.clamp(min=1)
    total = torch.zeros(crowd.num_annotators, dtype=torch.float64, device=item.device)
    seen = total.clone().index_add_(0, crowd.annotator, (others > 0).double())
    return total.index_add_(0, crowd.annotator, same) / seen  # 0 / 0 for who shares no item


@dataclass(frozen=True)
class Kappa:
    """Cohen's kappa of pairs of annotators that share items, one row per pair.

    `first`, `second`: annotator codes, first < second; `shared`: items both labelled; `kappa`: NaN where both
    used one and the same class throughout, for then chance agrees as well.
    """

    first: Tensor
    second: Tensor
    shared: Tensor
    kappa: Tensor


def pairwise_kappa(crowd: CrowdLabels, *, min_shared: int = 1) -> Kappa:
    """Cohen's kappa of every pair of annotators with at least `min_shared` common items.

    ``kappa = (p_o - p_e) / (1 - p_e)`` with p_o the share of common items with equal labels and p_e the
    product of the two annotators' class shares on these items, summed over classes. Pairs without common
    items take no memory, and the others little more than their four numbers.

    Reference:
        Cohen 1960, A coefficient of agreement for nominal scales

    Example:
        >>> crowd = CrowdLabels.from_dense([[0, 0], [0, 1], [1, 1], [1, 1]])
        >>> pairwise_kappa(crowd).kappa.tolist()
        [0.5]
    """
    check_crowd(crowd)
    if isinstance(min_shared, bool) or not isinstance(min_shared, Integral) or min_shared < 1:
        raise DubitoError("min_shared counts items", expected="at least 1", got=min_shared)
    parts = [_kappas(part, crowd, int(min_shared)) for part in _pairs(crowd)]
    if not parts:
        none = crowd.item.new_zeros(0, dtype=torch.int64)
        return Kappa(none, none, none, none.double())
    return Kappa(*(torch.cat(column) for column in zip(*parts)))


def _kappas(part: Pairs, crowd: CrowdLabels, min_shared: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both annotators, the items they share and kappa, for the pairs in one part."""
    K, R = crowd.num_classes, crowd.num_annotators
    code = part.first * R + part.second
    values, index, shared = torch.unique(code, return_inverse=True, return_counts=True)
    kept = shared >= min_shared
    used = kept[index]
    index, left, right = (kept.long().cumsum(0) - 1)[index[used]], part.left[used], part.right[used]
    values, shared = values[kept], shared[kept]
    n = shared.double()

    def tally(label: Tensor) -> Tensor:
        flat = torch.bincount(index * K + label, minlength=len(values) * K)
        return flat.view(len(values), K).double()

    agree = torch.bincount(index, weights=(left == right).double(), minlength=len(values)) / n
    chance = (tally(left) * tally(right)).sum(1) / n.square()
    return values // R, values % R, shared, (agree - chance) / (1 - chance)


class Pairs(NamedTuple):
    """Pairs of labels on the same item: annotators, first < second, and what either said."""

    first: Tensor
    second: Tensor
    left: Tensor
    right: Tensor


def _pairs(crowd: CrowdLabels) -> Iterator[Pairs]:
    """All pairs of labels on the same item by different annotators, some first annotators at a time."""
    R = crowd.num_annotators
    order = torch.argsort(crowd.item.long() * R + crowd.annotator, stable=True)
    item, who, label = (x[order].long() for x in (crowd.item, crowd.annotator, crowd.label))
    # Behind a label stand those of the same item by annotators further on: it is the first of so many pairs.
    place = torch.arange(len(item), device=item.device)
    behind = torch.bincount(item, minlength=crowd.num_items).cumsum(0)[item] - place - 1
    by_person = torch.argsort(who, stable=True)
    pairs = torch.zeros(R, dtype=torch.int64, device=item.device).index_add_(0, who, behind).cumsum(0)
    ends = torch.bincount(who, minlength=R).cumsum(0)
    person = start = 0
    while person < R:
        done = int(pairs[person - 1]) if person else 0
        # As many as fit, one at least.
        after = int(torch.searchsorted(pairs, done + max(1, MOST // crowd.num_classes), right=True))
        person = min(max(after, person + 1), R)
        rows, start = by_person[start : int(ends[person - 1])], int(ends[person - 1])
        one = torch.repeat_interleave(rows, behind[rows])
        step = place.new_ones(len(one)).cumsum(0) - (behind[rows].cumsum(0) - behind[rows]).repeat_interleave(
            behind[rows]
        )
        two = one + step
        apart = who[one] != who[two]  # two labels of one person are no pair
        one, two = one[apart], two[apart]
        if len(one):
            yield Pairs(who[one], who[two], label[one], label[two])
