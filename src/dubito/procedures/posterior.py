"""Posteriors of the true classes and matrices of the annotators: the two halves of every EM procedure.

Labels are triplets (item n, annotator r, label y), ``q[n, k]`` is the probability that item n is of class k, and
the matrices are ``A[r, true, given]``. The cost of everything is proportional to the number of labels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..data._labelled import Triplets

TINY = torch.finfo(torch.float32).tiny
# Log-evidence of a class that is ruled out: below any log-probability, but finite, as inf - inf would be NaN.
NEVER = -1e30

# Exponents of a classifier's probabilities that `weigh_model` tries: 1/8 to 4, in half octaves.
WEIGHTS = tuple(0.125 * 2 ** (i / 2) for i in range(11))


def vote_shares(crowd: Triplets, num_items: int, num_classes: int) -> Tensor:
    """Share of each class among an item's labels ``(N, K)``; uniform for an item without labels.

    The paper divides by the number of annotators, which is the same if everyone labels everything.

    Reference:
        tanno2019 alg. 2, alg. 3

    Example:
        >>> crowd = Triplets(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]))
        >>> vote_shares(crowd, 2, 2).tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """
    counts = torch.zeros(num_items, num_classes, device=crowd.item.device)
    counts.index_put_((crowd.item, crowd.label), counts.new_ones(()), accumulate=True)
    total = counts.sum(1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp(min=1), 1.0 / num_classes)


def count_matrices(q: Tensor, crowd: Triplets, num_annotators: int, *, strength: float = 0.0) -> Tensor:
    """The annotators' matrices given the posteriors (the second M-step).

        A[r, k, j] = (C[r, k, j] + s P[k, j]) / (sum_j C[r, k, j] + s)
        C[r, k, j] = sum of q[n, k] over the labels j that r gave

    P is the matrix of the whole crowd, from the counts of all annotators. Without a prior (s = 0), a class that
    annotator r never saw has a uniform row.

    Shapes: q ``(N, K)`` -> ``(R, K, K)``. Sums are made in float64.

    Arguments:
        strength: s, pseudo-labels per true class, spread like the crowd's matrix.

    Reference:
        tanno2019 alg. 2, alg. 3
        Dawid and Skene 1979
    """
    K = q.shape[1]
    flat = torch.zeros(num_annotators * K, K, dtype=torch.float64, device=q.device)
    flat.index_add_(0, crowd.annotator * K + crowd.label, q[crowd.item].double())
    counts = flat.view(num_annotators, K, K).transpose(1, 2)
    pooled = _rows(counts.sum(0) + 0.01 * torch.eye(K, device=q.device))
    return _rows(counts + strength * pooled).to(q.dtype)


def _rows(counts: Tensor) -> Tensor:
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp(min=1e-300), 1.0 / counts.shape[-1])


def log_evidence(A: Tensor, crowd: Triplets, num_items: int) -> Tensor:
    """The evidence of an item's labels about its class: ``sum over its labels of log A[r, k, y]``, ``(N, K)``.

    A zero in A rules its class out, with `NEVER`. If that rules out every class of an item, log 0 is taken as the
    log of the smallest normal float32 instead, so that the labels still tell its classes apart.
    """
    picked = A.clamp(min=TINY).log().transpose(1, 2)[crowd.annotator, crowd.label]
    evidence = picked.new_zeros(num_items, A.shape[-1]).index_add_(0, crowd.item, picked)
    zeros = (A == 0).transpose(1, 2)[crowd.annotator, crowd.label].to(picked.dtype)
    out = torch.zeros_like(evidence).index_add_(0, crowd.item, zeros) > 0
    return evidence.masked_fill(out & ~out.all(1, keepdim=True), NEVER)


def posterior(log_p: Tensor, evidence: Tensor) -> Tensor:
    """The E-step: ``q[n, k] ~ p[n, k] prod over labels of A[r, k, y]``.

    Shapes: log_p ``(N, K)`` from a network, or ``(K,)`` for a class prior; evidence ``(N, K)`` -> ``(N, K)``.

    Reference:
        tanno2019 alg. 2, alg. 3

    Example:
        >>> posterior(torch.tensor([0.5, 0.5]).log(), torch.tensor([[0.9, 0.3]]).log())
        tensor([[0.7500, 0.2500]])
    """
    return (log_p + evidence).softmax(-1)


def weigh_model(log_p: Tensor, evidence: Tensor) -> Tensor:
    """A classifier's log-probabilities, sharpened or flattened so as to make the given labels most probable.

        log p^b / sum_j p_j^b   with b = argmax sum_n log sum_k p^b[n, k] prod over labels of A[r, k, y]

    For predictions on items that the classifier was not trained on: an overconfident one is flattened, a timid
    (strongly regularised) one sharpened.

    Shapes: ``(N, K)`` and ``(N, K)`` -> ``(N, K)``.

    Example:
        >>> timid = torch.tensor([[0.6, 0.4], [0.4, 0.6]]).log()
        >>> labels = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).log()
        >>> bool(weigh_model(timid, labels)[0, 0] > timid[0, 0])
        True
    """
    scaled = [(b * log_p).log_softmax(-1) for b in WEIGHTS]
    fits = [float((each + evidence).logsumexp(-1).sum(dtype=torch.float64)) for each in scaled]
    return scaled[max(range(len(fits)), key=fits.__getitem__)]
