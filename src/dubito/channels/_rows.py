"""The matrices of the annotators in a batch: read once, with gradients for their rows alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .._tensors import at_least_float32, checks_values
from ._core import FAR_BELOW, IMPOSSIBLE, log_softplus

# Row sums of softplus(W) above this are far enough from 0 to take their logarithm.
_SAFE = 1e-30


class Read:
    """The free parameters of the annotators that occur, ``(P, K, K)``, and the place of each label among them.

    Arguments:
        weight: parameters of all annotators ``(R, K, K)``.
        sparse: whether their gradient is row-sparse.
    """

    def __init__(self, weight: Tensor, annotators: Tensor, sparse: bool) -> None:
        self.weight, self.annotators, self.sparse = weight, annotators, sparse
        self.people, self.place = annotators.long().unique(return_inverse=True)
        self._diagonals: Tensor | None = None

    @cached_property
    def rows(self) -> Tensor:
        """The parameters themselves."""
        rows: Tensor = (
            _SparseRows.apply(self.weight, self.people) if self.sparse else self.weight[self.people]  # type: ignore[no-untyped-call]
        )
        return at_least_float32(rows)

    @cached_property
    def log_sums(self) -> Tensor:
        """Logarithms of the row sums of softplus, ``(P, K)``."""
        sums = F.softplus(self.rows).sum(-1)
        if checks_values(sums) and bool((sums > _SAFE).all()):
            return sums.log()
        return log_softplus(self.rows).logsumexp(-1)

    def diagonals(self) -> Tensor:
        """Diagonals of the matrices, ``(P, K)``."""
        if self._diagonals is None:
            logs = log_softplus(self.rows.diagonal(dim1=-2, dim2=-1)) - self.log_sums
            self._diagonals = logs.exp()
        return self._diagonals

    def log_given(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """Log-probability of each label, ``(M, K)`` and ``(M,)`` -> ``(M,)``; keeps the diagonals for a penalty."""
        found: Tensor
        found, self._diagonals = _Given.apply(self.weight, log_p, self.people, self.place, labels)  # type: ignore[no-untyped-call]
        return found


class _SparseRows(torch.autograd.Function):
    """table[index] with a row-sparse gradient; the index must be strictly increasing."""

    @staticmethod
    def forward(table: Tensor, index: Tensor) -> Tensor:
        return table.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return _sparse(index, grad, ctx.shape), None


class _Given(torch.autograd.Function):
    """Labels' log-probabilities and the matrices' diagonals as one operation with a gradient of its own.

        log q = logsumexp_k(log p_k + log A_r[k, y]),   A = s / S,   s = softplus(W),   S = row sums of s

    With r_k = P(true = k | label), the share of each true class in q:
        d log q / d log p_k = r_k,   d log q / d W[k, y] += r_k sigma(W[k, y]) / s[k, y],
        d log q / d W[k, j] -= r_k sigma(W[k, j]) / S_k
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, log_p: Tensor, people: Tensor, place: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows = at_least_float32(weight.index_select(0, people))
        entry = _entries(place, labels, rows.shape[-1])
        ctx.plain = checks_values(rows) and rows.numel() > 0 and bool(rows.min() > FAR_BELOW)
        softplus = F.softplus(rows)
        if ctx.plain:
            sums = softplus.sum(-1)
            log_sums, log_given = sums.log(), softplus.view(-1)[entry].log_()
            diagonals = softplus.diagonal(dim1=-2, dim2=-1) / sums
        else:
            logs = log_softplus(rows)
            log_sums, log_given = logs.logsumexp(-1), logs.view(-1)[entry]
            diagonals = (logs.diagonal(dim1=-2, dim2=-1) - log_sums).exp()
        terms = log_p + (log_given - log_sums.index_select(0, place)).to(log_p.dtype)
        top = terms.amax(-1, keepdim=True)
        share = (terms - torch.where(top == -torch.inf, 0.0, top)).exp_()
        total = share.sum(-1, keepdim=True)
        log_q = torch.where(total == 0, IMPOSSIBLE, total.log() + top).squeeze(-1)
        share /= torch.where(total == 0, 1.0, total)
        ctx.save_for_backward(rows, softplus, log_sums, diagonals, share, people, place, entry)
        ctx.shape, ctx.dtype = weight.shape, weight.dtype
        ctx.set_materialize_grads(False)
        return log_q, diagonals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_log_q: Tensor | None, of_diagonals: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, softplus, log_sums, diagonals, share, people, place, entry = ctx.saved_tensors
        of_log_p = None if of_log_q is None else of_log_q.unsqueeze(-1) * share
        if not ctx.needs_input_grad[0]:
            return None, of_log_p, None, None, None
        of_sums = torch.zeros_like(log_sums)  # gradient with respect to the logarithms of the row sums
        if of_log_p is not None:
            at_labels = of_log_p.to(rows.dtype)
            of_sums.index_add_(0, place, at_labels, alpha=-1)
        if of_diagonals is not None:
            own = of_diagonals * diagonals
            of_sums -= own
        slopes = _Slopes(rows, softplus, log_sums, ctx.plain)
        gradient = slopes.over_sums(of_sums)
        if of_log_p is not None:
            steps = at_labels * slopes.of_logs(lambda x: x.view(-1)[entry])
            gradient.view(-1).index_add_(0, entry.view(-1), steps.view(-1))
        if of_diagonals is not None:
            steps = own * slopes.of_logs(lambda x: x.diagonal(dim1=-2, dim2=-1))
            gradient.diagonal(dim1=-2, dim2=-1).add_(steps)
        return _sparse(people, gradient.to(ctx.dtype), ctx.shape), of_log_p, None, None, None


class _Slopes:
    """Derivatives of softplus: computed directly if no weight is far below 0 (`plain`), else from logarithms."""

    def __init__(self, rows: Tensor, softplus: Tensor, log_sums: Tensor, plain: bool) -> None:
        self.rows, self.softplus, self.log_sums, self.plain = rows, softplus, log_sums, plain
        self.sigma = torch.sigmoid(rows) if plain else rows

    def over_sums(self, of_sums: Tensor) -> Tensor:
        """sigma(W) / S times the gradient of log S, ``(P, K, K)``."""
        if self.plain:
            return self.sigma * (of_sums * (-self.log_sums).exp()).unsqueeze(-1)
        return (F.logsigmoid(self.rows) - self.log_sums.unsqueeze(-1)).exp() * of_sums.unsqueeze(-1)

    def of_logs(self, part: Callable[[Tensor], Tensor]) -> Tensor:
        """d log softplus(W) / dW at a part of the entries."""
        if self.plain:
            return part(self.sigma) / part(self.softplus)
        rows = part(self.rows)
        return (F.logsigmoid(rows) - log_softplus(rows)).exp()


def _entries(place: Tensor, labels: Tensor, K: int) -> Tensor:
    """The places in the flat matrices of the column that each label selects, ``(M, K)``."""
    column = torch.arange(K, device=place.device) * K
    return (place * (K * K) + labels.long()).unsqueeze(-1) + column


def _sparse(index: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    return torch.sparse_coo_tensor(
        index.unsqueeze(0), values, shape, check_invariants=False, is_coalesced=True
    )
