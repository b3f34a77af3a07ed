"""One confusion matrix per annotator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._dense import check_sizes
from .._tensors import at_least_float32, check_broadcast, check_tensor, checks_values, refuse_first
from ..errors import DubitoError
from ._core import Channel, log_rows, log_softplus, start, through
from ._rows import Read


class AnnotatorConfusion(Channel):
    """One learned confusion matrix per annotator.

        A_r = softplus(W_r) / row sums,   log q_j = logsumexp_i(log p_i + log A_r[i, j])

    Only the matrices of the annotators in a batch are gathered, so the cost of a step does not grow with the number
    of annotators. The likelihood alone cannot tell A from the classifier: add `penalties.trace`.

    Shapes: log_p ``(..., K)``, annotators ``(...)`` -> ``(..., K)``, leading axes broadcast: ``(N, 1, K)``
    with ``(R,)`` gives every annotator's view of every item. W ``(R, K, K)``, ``A[r, true, observed]``.

    Arguments:
        init: ``"diagonal"``; ``"paper"``: W = 6 I - 5, whose diagonal falls with the number of classes (.956 for
            10, .664 for 100); or stochastic matrices ``(K, K)`` or ``(R, K, K)`` to start from.
        diagonal: the starting diagonal of every A_r for ``init="diagonal"``, for any number of classes.
        sparse: row-sparse gradients (for `torch.optim.SparseAdam`); annotators without a label in the batch
            are neither read nor written.

    Reference:
        tanno2019 eq. 2, eq. 3, listing 2, alg. 1

    Example:
        >>> channel = AnnotatorConfusion(5, 10, init="paper")
        >>> channel.skills().detach()
        tensor([0.9560, 0.9560, 0.9560, 0.9560, 0.9560])
        >>> log_p = torch.zeros(3, 10).log_softmax(-1)
        >>> channel(log_p, torch.tensor([4, 0, 4])).shape
        torch.Size([3, 10])
    """

    per_annotator = True

    def __init__(
        self,
        num_annotators: int,
        num_classes: int,
        *,
        init: str | Tensor = "diagonal",
        diagonal: float = 0.9,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(num_annotators=num_annotators, num_classes=num_classes)
        self.num_annotators, self.num_classes, self.sparse = num_annotators, num_classes, sparse
        self.init, self.diagonal = init.detach() if isinstance(init, Tensor) else init, diagonal
        self._read: Read | None = None
        first = start(num_classes, init, diagonal).to(torch.get_default_dtype())
        if first.dim() > 3 or (first.dim() == 3 and first.shape[0] not in (1, num_annotators)):
            raise DubitoError(
                "init must give one matrix or one per annotator", expected=num_annotators, got=first.shape[0]
            )
        self.weight = nn.Parameter(first.expand(num_annotators, -1, -1).clone())

    def log_matrices(self, annotators: Tensor | None = None) -> Tensor:
        """Log of A for the given annotators ``(...)`` -> ``(..., K, K)``; for all of them when None."""
        if annotators is None:
            return log_rows(at_least_float32(self.weight))
        check_annotators(annotators, self.num_annotators)
        if self.sparse:
            read = self._reading(annotators)
            return log_rows(read.rows)[read.place]
        # Normalise before or after gathering, whichever is less work.
        if self.num_annotators <= annotators.numel():
            return _rows(self.log_matrices(), annotators)
        return log_rows(at_least_float32(_rows(self.weight, annotators)))

    @contextmanager
    def sharing(self, annotators: Tensor) -> Iterator[None]:
        """Inside this context the matrices of these annotators are read once, for both loss and penalty."""
        self._read = self._reading(annotators)
        try:
            yield
        finally:
            self._read = None

    def _reading(self, annotators: Tensor) -> Read:
        """The matrices of these annotators, each once; those that `sharing` holds, if it does."""
        if self._read is not None and self._read.annotators is annotators:
            return self._read
        return Read(self.weight, annotators, self.sparse)

    def diagonals(self, annotators: Tensor | None = None) -> Tensor:
        """P(observed = c | true = c) of the given annotators, ``(..., K)``."""
        if annotators is None or not self.sparse:
            return self.log_matrices(annotators).diagonal(dim1=-2, dim2=-1).exp()
        check_annotators(annotators, self.num_annotators)
        read = self._reading(annotators)
        return read.diagonals()[read.place]

    def log_given(self, log_p: Tensor, annotators: Tensor, labels: Tensor) -> Tensor:
        """Log-probability of the given labels alone: ``(..., K)`` and ``(...)`` -> ``(...)``.

        As `forward`, gathered at the labels, but only one column and the row sums of each matrix are needed: K
        logarithms per label instead of K^2.
        """
        log_p = self.accept(log_p)
        check_annotators(annotators, self.num_annotators)
        check_ids(labels, self.num_classes, "label", "labels")
        read = self._reading(annotators)
        if self.sparse and log_p.shape[:-1] == annotators.shape == labels.shape and labels.dim() == 1:
            return read.log_given(log_p, labels)
        column = log_softplus(read.rows[read.place, :, labels.long()]) - read.log_sums[read.place]
        return through(log_p, column.to(log_p.dtype).unsqueeze(-1)).squeeze(-1)

    def forward(self, log_p: Tensor, annotators: Tensor) -> Tensor:
        """Log-probabilities of the true class to those of each label, given who gave it."""
        log_p = self.accept(log_p)
        check_tensor(annotators, "annotators")
        check_broadcast(log_p=log_p[..., 0], annotators=annotators)
        return through(log_p, self.log_matrices(annotators).to(log_p.dtype))


def check_annotators(annotators: Tensor, count: int) -> None:
    """Refuse annotator ids that are not integers from 0 to count - 1."""
    check_ids(annotators, count, "annotator", "annotators")


def check_ids(ids: Tensor, count: int, what: str, name: str) -> None:
    """Refuse numbers that are not integers from 0 to count - 1."""
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise DubitoError(
            f"{what} ids must be integers" if what == "annotator" else f"{name} must be integers",
            got=str(ids.dtype),
            remedy=f"use {name}.long()",
        )
    if checks_values(ids):
        refuse_first((ids < 0) | (ids >= count), ids, name, f"unknown {what}", f"0 to {count - 1}")


def _rows(table: Tensor, index: Tensor) -> Tensor:
    return F.embedding(index.long(), table.flatten(1)).reshape(*index.shape, *table.shape[1:])
