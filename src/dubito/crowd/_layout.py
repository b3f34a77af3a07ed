"""Labels laid out for EM: one pass reads each label twice, in blocks of items that stay in the cache.

A row of the parameter table belongs to a *key*, an (annotator, label) pair that occurs, so the table has at most
as many rows as there are labels, however many annotators and classes there are. The E-step sums the rows of an
item's keys; the M-step sums the posteriors of a key's items. Both are bag sums over an index prepared once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .labels import CrowdLabels

# Labels per block: 40-byte rows of a few hundred thousand items fit a core's cache; a GPU wants large blocks.
BLOCK = {"cpu": 1 << 18, "cuda": 1 << 24}


@dataclass(frozen=True)
class Block:
    """Items start to stop, their labels in two orders."""

    start: int
    stop: int
    keys: Tensor  # key of each label, by item
    items: Tensor  # position of each item's first label, one more at the end
    rows: Tensor  # item (counted from start) of each label, by key
    bags: Tensor  # position of each key's first label, one more at the end


@dataclass(frozen=True)
class Layout:
    """Labels of `num_items` items, sorted and cut into blocks.

    `key_annotator`, `key_label`: what each key stands for. `gold`: class of an item where known, else -1.
    """

    num_items: int
    num_annotators: int
    num_classes: int
    num_labels: int
    key_annotator: Tensor
    key_label: Tensor
    blocks: tuple[Block, ...]
    gold: Tensor | None
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where the labels lie."""
        return self.key_label.device

    def by_annotator(self, values: Tensor) -> Tensor:
        """Sum of key values ``(keys, ...)`` over each annotator's keys."""
        out = values.new_zeros(self.num_annotators, *values.shape[1:])
        return out.index_add_(0, self.key_annotator, values)

    def by_label(self, values: Tensor) -> Tensor:
        """Sum of key values ``(keys, ...)`` over the keys with the same label."""
        out = values.new_zeros(self.num_classes, *values.shape[1:])
        return out.index_add_(0, self.key_label, values)

    def zeros(self, *shape: int) -> Tensor:
        """Float64 zeros beside the labels: sums are kept in double precision."""
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def own(self) -> Tensor:
        """Mask ``(keys, classes)``: the true class that the key's label names."""
        return self.key_label.unsqueeze(1) == torch.arange(self.num_classes, device=self.device)


def lay_out(
    crowd: CrowdLabels,
    *,
    dtype: torch.dtype,
    gold: Tensor | None = None,
    present: Tensor | None = None,
    block: int | None = None,
) -> Layout:
    """Sort labels by item, number the keys, cut into blocks.

    Arguments:
        present: boolean ``(annotators * classes,)``, keys to keep besides those that occur here.
        block: labels per block.
    """
    K, device = crowd.num_classes, crowd.item.device
    item, key = crowd.item, crowd.annotator.long() * K + crowd.label
    if len(crowd) and not bool((item[1:] >= item[:-1]).all()):
        item, order = torch.sort(item, stable=True)
        key = key[order]
        del order
    key, values = _number(key, crowd.num_annotators * K, present)
    size = block or max(BLOCK.get(device.type, BLOCK["cuda"]), 4 * len(values))
    first = torch.zeros(crowd.num_items + 1, dtype=torch.int64, device=device)
    torch.cumsum(torch.bincount(item, minlength=crowd.num_items), 0, out=first[1:])
    return Layout(
        num_items=crowd.num_items,
        num_annotators=crowd.num_annotators,
        num_classes=K,
        num_labels=len(crowd),
        key_annotator=torch.div(values, K, rounding_mode="floor"),
        key_label=values % K,
        blocks=tuple(_cut(key, first, len(values), size)),
        gold=gold,
        dtype=dtype,
    )


def _number(key: Tensor, most: int, present: Tensor | None) -> tuple[Tensor, Tensor]:
    """Keys that occur, numbered in order: (number of each label's key, the keys)."""
    if present is None and most > 8 * key.numel() + 1024:
        values, number = torch.unique(key, return_inverse=True)
        return number.int(), values
    seen = torch.zeros(most, dtype=torch.bool, device=key.device) if present is None else present.clone()
    seen[key] = True
    place = seen.int().cumsum(0, dtype=torch.int32) - 1
    return place[key], seen.nonzero().flatten()


def _cut(key: Tensor, first: Tensor, num_keys: int, size: int) -> list[Block]:
    total, items = key.numel(), first.numel() - 1
    targets = torch.arange(0, max(total, 1), size, device=first.device)
    edges = sorted({0, items, *torch.searchsorted(first, targets).tolist()})
    blocks = []
    for start, stop in pairwise(edges):
        low, high = int(first[start]), int(first[stop])
        keys = key[low:high]
        offsets = first[start : stop + 1] - low
        per_item = offsets.diff()
        rows = torch.repeat_interleave(
            torch.arange(stop - start, dtype=torch.int32, device=key.device), per_item, output_size=high - low
        )
        bags = torch.zeros(num_keys + 1, dtype=torch.int64, device=key.device)
        torch.cumsum(torch.bincount(keys, minlength=num_keys), 0, out=bags[1:])
        order = torch.argsort(keys, stable=True)
        blocks.append(Block(start, stop, keys, offsets.int(), rows[order], bags.int()))
    return blocks


def bag_sum(index: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """out[b] = sum of rows[index[i]] for offsets[b] <= i < offsets[b+1]; empty bags give 0."""
    if index.numel() == 0:
        return rows.new_zeros(offsets.numel() - 1, rows.shape[1])
    return embedding_bag(index, rows, offsets, mode="sum", include_last_offset=True)


@dataclass(frozen=True)
class Sums:
    """What one pass over the labels yields, in float64.

    `counts` ``(keys, classes)``: sum over labels of the posterior of the true class; `squares`: of its square;
    `prior` ``(classes,)``: sum over items of the posterior; `log_likelihood`: sum over items of the log
    normaliser; `posterior` ``(items, classes)``. `squares` and `posterior` are empty unless asked for.
    """

    counts: Tensor
    prior: Tensor
    log_likelihood: float
    posterior: Tensor
    squares: Tensor


# Posteriors of a block's items, and the sum of their log normalisers.
Posterior = Callable[[Block], tuple[Tensor, Tensor]]


def e_step(
    layout: Layout, table: Tensor, log_prior: Tensor, *, keep: bool = False, squares: bool = False
) -> Sums:
    """Posteriors q[n] ~ exp(log_prior + sum of the table's rows over the item's labels), and their sums.

    Arguments:
        table: ``(keys, classes)`` log-probability of the key's label for each true class.
        log_prior: ``(classes,)``, or ``(items, classes)``.
    """
    table, log_prior = table.to(layout.dtype), log_prior.to(layout.dtype)

    def posterior(block: Block) -> tuple[Tensor, Tensor]:
        prior = log_prior if log_prior.dim() == 1 else log_prior[block.start : block.stop]
        scores = bag_sum(block.keys, table, block.items) + prior
        _clamp_gold(scores, layout, block)
        total = torch.logsumexp(scores, 1, keepdim=True)
        return scores.sub_(total).exp_(), total.sum(dtype=torch.float64)

    return _sums(layout, posterior, keep, squares)


def vote_shares(layout: Layout, *, keep: bool = False) -> Sums:
    """The start of EM: each label of an item has an equal share; items without labels are uniform."""
    K = layout.num_classes
    votes = layout.own().to(layout.dtype)

    def posterior(block: Block) -> tuple[Tensor, Tensor]:
        shares = bag_sum(block.keys, votes, block.items)
        count = shares.sum(1, keepdim=True)
        shares = torch.where(count > 0, shares / count.clamp(min=1), 1.0 / K)
        if layout.gold is not None:
            scores = shares.clamp(min=1e-30).log()
            _clamp_gold(scores, layout, block)
            shares = torch.softmax(scores, 1)
        return shares, shares.new_zeros((), dtype=torch.float64)

    return _sums(layout, posterior, keep, False)


def _clamp_gold(scores: Tensor, layout: Layout, block: Block) -> None:
    if layout.gold is None:
        return
    gold = layout.gold[block.start : block.stop].unsqueeze(1)
    other = torch.arange(layout.num_classes, device=scores.device) != gold
    scores.masked_fill_(other & (gold >= 0), -torch.inf)


def _sums(layout: Layout, posterior: Posterior, keep: bool, squares: bool) -> Sums:
    counts = layout.zeros(len(layout.key_label), layout.num_classes)
    second = torch.zeros_like(counts) if squares else counts.new_zeros(0)
    prior = counts.new_zeros(layout.num_classes)
    total = counts.new_zeros(())
    items = layout.num_items if keep else 0
    kept = torch.empty(items, layout.num_classes, dtype=layout.dtype, device=layout.device)
    for block in layout.blocks:
        q, log_likelihood = posterior(block)
        counts += bag_sum(block.rows, q, block.bags)
        prior += q.sum(0, dtype=torch.float64)
        total += log_likelihood
        if keep:
            kept[block.start : block.stop] = q
        if squares:
            second += bag_sum(block.rows, q.square(), block.bags)
    return Sums(counts, prior, float(total), kept, second)
