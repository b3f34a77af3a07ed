"""Annotators who share a pool of confusions: for many classes and few labels per annotator."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from .._dense import check_sizes, source_of
from ..errors import DubitoError
from ._core import Channel, check_diagonal, through
from .annotators import check_annotators


class PooledConfusion(Channel):
    """Annotators who differ in skill but share what they confuse.

        A_r[i, j] = d_ri 1(i = j) + (1 - d_ri) E_r[i, j],   d_ri = sigmoid(skill_r + ease_i)
        rank None:  E_r = E, one matrix for the crowd, zero diagonal, rows softmax over j != i
        rank M:     E_r = G_r H,  G_r[i, :] = softmax(g_i + tilt_r) (K x M),  H = row softmax (M x K)

    An annotator costs 1 number (rank None) or 1 + M, against K^2 for `AnnotatorConfusion`; the pool costs
    K^2 or 2 K M. With a rank no K x K matrix is ever formed in a step.

    Shapes: log_p ``(..., K)``, annotators ``(...)`` -> ``(..., K)``, leading axes broadcast.

    Arguments:
        rank: number M of kinds of confusion; None for one full pooled matrix.
        diagonal: the starting d, for any number of classes.
        generator: source of the initial g and h, which must not be equal for all kinds; None is a fresh generator
            seeded with 0.

    Reference:
        Dawid and Skene 1979

    Example:
        >>> channel = PooledConfusion(200, 1000, rank=4)
        >>> sum(p.numel() for p in channel.parameters())
        10000
        >>> channel(torch.zeros(2, 1000).log_softmax(-1), torch.tensor([7, 199])).shape
        torch.Size([2, 1000])
    """

    per_annotator = True

    def __init__(
        self,
        num_annotators: int,
        num_classes: int,
        *,
        rank: int | None = None,
        diagonal: float = 0.9,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_annotators=num_annotators, num_classes=num_classes, rank=1 if rank is None else rank)
        if num_classes < 2:
            raise DubitoError("a pool of confusions needs two classes", got=num_classes)
        check_diagonal(diagonal)
        self.num_annotators, self.num_classes = num_annotators, num_classes
        self.rank, self.diagonal = rank, diagonal
        self.skill = nn.Parameter(torch.full((num_annotators,), math.log(diagonal / (1 - diagonal))))
        self.ease = nn.Parameter(torch.zeros(num_classes))
        if rank is None:
            self.pool = nn.Parameter(torch.zeros(num_classes, num_classes))
            return
        source = source_of(generator)
        self.tilt = nn.Parameter(torch.zeros(num_annotators, rank))
        self.kinds = nn.Parameter(torch.randn(num_classes, rank, generator=source))
        self.shapes = nn.Parameter(torch.randn(rank, num_classes, generator=source))

    def log_matrices(self, annotators: Tensor | None = None) -> Tensor:
        """Log of A for the given annotators ``(...)`` -> ``(..., K, K)``; for all of them when None."""
        right, wrong = self._log_skill(annotators)
        if self.rank is None:
            errors = self._log_pool()
        else:
            errors = through(self._log_kinds(annotators), self.shapes.log_softmax(-1))
        eye = torch.eye(self.num_classes, dtype=torch.bool, device=right.device)
        own = torch.where(eye, right.unsqueeze(-1), -torch.inf)
        return torch.logaddexp(own, wrong.unsqueeze(-1) + errors)

    def diagonals(self, annotators: Tensor | None = None) -> Tensor:
        """P(observed = c | true = c) of the given annotators, ``(..., K)``."""
        right, wrong = self._log_skill(annotators)
        if self.rank is None:
            return right.exp()
        chance = (self._log_kinds(annotators) + self.shapes.log_softmax(-1).T).logsumexp(-1)
        return torch.logaddexp(right, wrong + chance).exp()

    def forward(self, log_p: Tensor, annotators: Tensor) -> Tensor:
        """Log-probabilities of the true class to those of each label, given who gave it."""
        log_p = self.accept(log_p)
        right, wrong = (x.to(log_p.dtype) for x in self._log_skill(annotators))
        if self.rank is None:
            errors = through(log_p + wrong, self._log_pool().to(log_p.dtype))
        else:
            kinds = through(log_p + wrong, self._log_kinds(annotators).to(log_p.dtype))
            errors = through(kinds, self.shapes.log_softmax(-1).to(log_p.dtype))
        return torch.logaddexp(log_p + right, errors)

    def _log_skill(self, annotators: Tensor | None) -> tuple[Tensor, Tensor]:
        logit = self._of(self.skill, annotators).unsqueeze(-1) + self.ease
        return F.logsigmoid(logit), F.logsigmoid(-logit)

    def _log_pool(self) -> Tensor:
        eye = torch.eye(self.num_classes, dtype=torch.bool, device=self.pool.device)
        return self.pool.masked_fill(eye, -torch.inf).log_softmax(-1)

    def _log_kinds(self, annotators: Tensor | None) -> Tensor:
        return (self.kinds + self._of(self.tilt, annotators).unsqueeze(-2)).log_softmax(-1)

    def _of(self, table: Tensor, annotators: Tensor | None) -> Tensor:
        if annotators is None:
            return table
        check_annotators(annotators, self.num_annotators)
        # With an extra axis: torch would read the value of a 0-d index, which vmap does not allow.
        return table[annotators.long().unsqueeze(-1)].squeeze(annotators.dim())
