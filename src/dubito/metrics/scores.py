"""Accuracy and proper scores of predicted classes and probabilities."""

from __future__ import annotations

from ..errors import DubitoError
from ._inputs import Array, as_tensor, check_total, in_range, indices, probabilities, scores_and_labels


def accuracy(predictions: Array, labels: Array, *, dim: int = -1, ignore_index: int = -100) -> float:
    """The share of labels that are predicted.

    ``(1/N) sum_n 1[argmax_k s_nk = y_n]``; on a tie the first class counts.

    Arguments:
        predictions: scores (..., K) of any kind (logits, probabilities), or predicted classes (...) as integers.
        labels: (...) class indices.
        dim: the class axis of scores.
        ignore_index: labels that do not count.

    Example:
        >>> import torch
        >>> accuracy(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
        0.5
    """
    given = as_tensor(predictions, "predictions")
    if given.is_floating_point():
        scores, y = scores_and_labels(given, labels, dim, ignore_index)
        return float((scores.argmax(-1) == y).double().mean())
    y = indices(labels, given.shape, given.device)
    kept = y != ignore_index
    if not bool(kept.any()):
        raise DubitoError("there is no labelled example to score", got=f"{y.numel()} labels, all ignored")
    in_range(indices(given, given.shape, given.device), 1 << 62, kept, "predictions")
    return float((given == y)[kept].double().mean())


def log_likelihood(log_probs: Array, labels: Array, *, dim: int = -1, ignore_index: int = -100) -> float:
    """The mean log-probability of the labels; higher is better.

    ``(1/N) sum_n log p(y_n | x_n)``. It takes *log*-probabilities, for which no probability is too small; nothing
    is clipped, so a label that was called impossible gives minus infinity.

    Arguments:
        log_probs: (..., K) normalised, as from log_softmax or a model's ``log_probs``.
        labels: (...) class indices.
        dim: the class axis.
        ignore_index: labels that do not count.

    Example:
        >>> import torch
        >>> log_likelihood(torch.tensor([[0.5, 0.5], [0.2, 0.8]]).log(), torch.tensor([0, 1]))
        -0.458...
    """
    logp, y = scores_and_labels(log_probs, labels, dim, ignore_index)
    remedy = "pass log_softmax(logits), or the logarithm of probabilities"
    check_total(logp.double().logsumexp(-1).exp(), logp.dtype, remedy)
    return float(logp.gather(-1, y.unsqueeze(-1)).double().mean())


def brier(probs: Array, labels: Array, *, dim: int = -1, ignore_index: int = -100) -> float:
    """The mean squared distance between probabilities and the label's one-hot vector, 0 (best) to 2.

    ``(1/N) sum_n sum_k (p_nk - 1[k = y_n])^2``.

    Arguments:
        probs: (..., K) probabilities.
        labels: (...) class indices.
        dim: the class axis.
        ignore_index: labels that do not count.

    Reference:
        Brier 1950

    Example:
        >>> import torch
        >>> brier(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
        0.5
    """
    p, y = probabilities(probs, labels, dim, ignore_index)
    p = p.double()
    own = p.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    # The label's own entry is squared as 1 - p, not as p^2 - 2p + 1, which would lose digits near p = 1.
    others = p.square().sum(-1) - own.square()
    return float((others.clamp(min=0) + (1 - own).square()).mean())
