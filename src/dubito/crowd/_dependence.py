"""Labels of one item err together: how much they are worth, learned from the labels alone.

An item that is hard or misleading is so for everyone, but a posterior that multiplies matrices counts every label
as a new witness, and is sure of what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ._em import Base, Result, Shared
from ._hierarchical import LEAST, Hierarchical, prior_of
from ._layout import Block, Layout, _clamp_gold, _sums, bag_sum, e_step
from ._rules import log

# Values of rho that are tried: finer where labels are nearly independent.
GRID = (0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
CELLS = 1 << 21  # labels x classes at a time
ENOUGH = 1 << 16  # labels that rho is learned from where there are more: one number needs no others
SAMPLE = 1 << 12  # of them at a time
RATE = 5.0  # of the exponential prior on rho: a fifth on average; decides only where there are few labels
FEWEST = 3  # labels of an item that tell about rho: of two, one is left when the other is judged


def worth(labels: Tensor, rho: float) -> Tensor:
    """By how much each of an item's m labels counts: ``1 / (1 + rho (m - 1))``, so that they are m to 1/rho in all.

    Reference:
        Kish 1965, the design effect of clusters
    """
    return 1 / (1 + rho * (labels.double() - 1).clamp(min=0))


class Piece(NamedTuple):
    """Labels of the items start to stop, with ``log A`` for each as other items tell it, ``(labels, classes)``."""

    start: int
    stop: int
    rows: Tensor  # item of each label, counted from start
    size: Tensor  # labels of each item
    log_a: Tensor
    total: Tensor  # sum of log_a over each item's labels


def settle(
    layout: Layout,
    rule: Hierarchical,
    result: Result,
    *,
    shared: Shared,
    base: Base | None = None,
    rho: float | None = None,
) -> Result:
    """Posteriors that know that labels of one item err together, and the matrices that these give.

    With q the posterior that EM ended with and m_n labels on item n,

        p[n, k] ~ prior_k prod_r A_n[r, k, y_nr] ^ (1 / (1 + rho (m_n - 1)))
        A_n[r, k, y] = (C[r, y, k] - q[n, k] + alpha[r, k, y]) / (N[r, k] - q[n, k] + s_k)

    A_n leaves out what item n itself added to the counts, or its labels would vouch for themselves. rho is
    the most probable value when each label is predicted from the others of its item. The matrices are estimated
    once more, from p; the class prior stays.

    Arguments:
        base: as in `expectation_maximisation`.
        rho: learned unless given.
    """
    counts = result.sums.counts if base is None else result.sums.counts + base.counts
    pieces = _Pieces(layout, result, counts)
    if rho is None:
        rho = pieces.learned(shared)
    log_prior = log(result.prior)

    def posterior(block: Block) -> tuple[Tensor, Tensor]:
        q = torch.empty(
            block.stop - block.start, layout.num_classes, dtype=layout.dtype, device=layout.device
        )
        for piece in pieces.of(block):
            q[piece.start : piece.stop] = piece.total * worth(piece.size, rho).unsqueeze(1) + log_prior
        _clamp_gold(q, layout, block)
        return torch.softmax(q, 1), log_prior.new_zeros(())

    sums = shared(_sums(layout, posterior, True, True))
    fitted = rule.given(layout, sums.counts if base is None else sums.counts + base.counts, result.fitted)
    true = shared(e_step(layout, log(fitted.mean), log_prior)).log_likelihood
    return replace(result, fitted=fitted, sums=sums, log_likelihood=true, dependence=rho)


class _Pieces:
    """The labels of a layout with matrices that leave out their item."""

    def __init__(self, layout: Layout, result: Result, counts: Tensor) -> None:
        alpha, strength = prior_of(layout, result.fitted.hyper)
        self.layout, self.log_prior, self.q = layout, log(result.prior), result.sums.posterior
        self.cells = (counts + alpha).to(layout.dtype)
        self.rows = (layout.by_annotator(counts) + strength).to(layout.dtype)

    def of(self, block: Block, step: int = 1) -> Iterator[Piece]:
        """All of a block, or every `step`-th of small pieces; start and stop are counted from the block's start."""
        size = max(1, CELLS // self.layout.num_classes)
        size = size if step == 1 else min(size, SAMPLE)
        first, items = block.items.long(), block.stop - block.start
        targets = torch.arange(0, max(block.keys.numel(), 1), size, device=first.device)
        edges = sorted({0, items, *torch.searchsorted(first, targets).tolist()})
        for start, stop in list(pairwise(edges))[::step]:
            yield self._piece(block, start, stop)

    def _piece(self, block: Block, start: int, stop: int) -> Piece:
        offsets = block.items[start : stop + 1]
        keys = block.keys[int(offsets[0]) : int(offsets[-1])]
        offsets = offsets - offsets[0]
        size = offsets.diff()
        rows = torch.repeat_interleave(size.long())
        own = self.q[block.start + start : block.start + stop][rows]
        cells = (self.cells[keys] - own).clamp(min=LEAST)
        a = cells / (self.rows[self.layout.key_annotator[keys]] - own).clamp(min=LEAST)
        log_a = a.clamp(LEAST, 1.0).log()
        place = torch.arange(len(keys), dtype=offsets.dtype, device=keys.device)
        return Piece(start, stop, rows, size, log_a, bag_sum(place, log_a, offsets))

    def learned(self, shared: Shared) -> float:
        """The most probable rho of the grid; of equals the least."""
        values = self.log_prior.new_zeros(len(GRID))
        step = max(1, self.layout.num_labels // ENOUGH)
        for block in self.layout.blocks:
            for piece in self.of(block, step):
                values += self._predicted(piece, block)
        found = [shared.number(float(v), values) - RATE * rho for v, rho in zip(values, GRID)]
        return GRID[max(range(len(GRID)), key=found.__getitem__)]

    def _predicted(self, piece: Piece, block: Block) -> Tensor:
        """Log-probability of the labels under each rho, given the others of their items of unknown class."""
        kept = piece.size[piece.rows] >= FEWEST
        if self.layout.gold is not None:
            kept &= self.layout.gold[block.start + piece.start + piece.rows] < 0
        rows, log_a = piece.rows[kept], piece.log_a[kept]
        others, left, a = piece.total[rows] - log_a, (piece.size - 1)[rows], log_a.exp()
        prior, found = self.log_prior.to(a.dtype), []
        for rho in GRID:
            q = torch.softmax(others * worth(left, rho).to(a.dtype).unsqueeze(1) + prior, 1)
            found.append((q * a).sum(1).log().sum(dtype=torch.float64))
        return torch.stack(found)
