"""Penalties: confusion matrices -> one number that is added to the loss.

Each takes a channel, or matrices ``(..., K, K)``, and a weight. They average over annotators, so that one weight
suits three annotators as well as three thousand. The trace can be estimated without bias from the annotators of a
batch, so that a step reads no others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._matrices import check_square
from ._tensors import full_precision
from .channels._core import Channel
from .errors import DubitoError

KINDS = ("volume", "stacked")


def trace(
    channel: Channel | Tensor,
    *,
    weight: float = 0.01,
    annotators: Tensor | None = None,
    counts: Tensor | None = None,
    fraction: float | None = None,
) -> Tensor:
    """Mean trace of the confusion matrices, minimised: annotators as unreliable as the data allow.

        weight * (1/R) sum_r tr(A_r)
        from a batch:  weight * (1/R) sum over its labels l of tr(A_{r_l}) / (n_{r_l} fraction)

    Each of the n_r labels of annotator r enters a batch with probability `fraction`, so the expectation of the
    second form is the first (without annotators who gave no label). The paper's eq. 4 sums over annotators, which
    is R times this.

    Shapes: matrices ``(..., K, K)``, annotators ``(...)`` -> a scalar.

    Arguments:
        weight: lambda, .01 in the paper, stable from .001 to .1.
        annotators: ids of the labels in the batch; with them `counts` and `fraction` are needed.
        counts: n_r, labels per annotator in the training set, ``(R,)``.
        fraction: items in the batch divided by items in the training set.

    Reference:
        tanno2019 eq. 4, lemma 1, theorem 1, listing 1, alg. 1

    Example:
        >>> trace(torch.eye(3).expand(5, 3, 3), weight=0.01)
        tensor(0.0300)
    """
    _check_weight(weight)
    if annotators is None:
        _refuse_sparse(channel)
        if isinstance(channel, Channel):
            return weight * channel.diagonals().sum(-1).mean()
        return weight * _matrices(channel).diagonal(dim1=-2, dim2=-1).sum(-1).mean()
    if counts is None or fraction is None or not fraction > 0:
        raise DubitoError(
            "the trace of a batch needs counts and a positive fraction", got=f"fraction={fraction}"
        )
    if not isinstance(channel, Channel) or not channel.per_annotator:
        raise DubitoError("the trace of a batch needs a channel with annotators", got=type(channel).__name__)
    traces = channel.diagonals(annotators).sum(-1)  # type: ignore[call-arg]
    share = 1 / (counts[annotators].to(traces.dtype) * fraction)
    return weight * (traces * share).sum() / len(counts)


def frobenius(channel: Channel | Tensor, *, weight: float = 0.01) -> Tensor:
    """Mean squared Frobenius norm of the confusion matrices: weight decay on the probabilities.

        weight * (1/R) sum_r sum_ij A_r[i, j]^2

    It is 1 at uniform rows, its minimum, and K at the identity.

    Shapes: matrices ``(..., K, K)`` -> a scalar.

    Reference:
        tanno2019 sec. 2.3
        Sukhbaatar et al. 2014

    Example:
        >>> frobenius(torch.eye(3), weight=1.0)
        tensor(3.)
    """
    _check_weight(weight)
    _refuse_sparse(channel)
    return weight * _matrices(channel).square().sum((-2, -1)).mean()


@full_precision
def log_det(
    channel: Channel | Tensor, *, weight: float = 1e-4, kind: str = "volume", ridge: float = 1e-6
) -> Tensor:
    """Log-determinant of the confusion matrices.

        "volume":   weight * (1/R) sum_r 1/2 log det(A_r' A_r + ridge I)      minimises volume, as the trace does
        "stacked": -weight * log det((1/R) sum_r A_r' A_r + ridge I)          lets the crowd tell classes apart

    With ridge 0 the volume is log |det A_r|, without a lower bound; a small ridge bounds value and gradient.

    Shapes: matrices ``(..., K, K)`` -> a scalar.

    Arguments:
        kind: which of the two; both are minimised.

    Reference:
        Li et al. 2021 ("volume"), Ibrahim et al. 2023 ("stacked")

    Example:
        >>> log_det(torch.eye(3), weight=1.0, ridge=0.0)
        tensor(0.)
    """
    _check_weight(weight)
    _refuse_sparse(channel)
    A = _matrices(channel)
    gram = A.mT @ A
    if kind == "stacked":
        gram = gram.reshape(-1, *A.shape[-2:]).mean(0)
    elif kind != "volume":
        raise DubitoError("unknown kind", expected=" or ".join(KINDS), got=repr(kind))
    eye = torch.eye(*A.shape[-2:], dtype=A.dtype, device=A.device)
    logs: Tensor = torch.linalg.slogdet(gram + ridge * eye).logabsdet
    return -weight * logs if kind == "stacked" else weight * logs.mean() / 2


def _matrices(channel: Channel | Tensor) -> Tensor:
    if isinstance(channel, Channel):
        return channel.matrices()
    if not isinstance(channel, Tensor):
        raise DubitoError(
            "a penalty on confusion matrices needs some",
            expected="a model with a channel",
            got=type(channel).__name__,
        )
    check_square(channel, "matrices")
    return channel


def _refuse_sparse(channel: Channel | Tensor) -> None:
    if getattr(channel, "sparse", False) and torch.is_grad_enabled():
        raise DubitoError(
            "a penalty over all annotators would make the gradient of a row-sparse channel dense",
            remedy="use trace with annotators, counts and fraction of the batch",
        )


def _check_weight(weight: float) -> None:
    if not weight >= 0:
        raise DubitoError("the weight of a penalty must be at least 0", got=weight)
