"""One mask from the masks of several annotators, by how reliable each has been: STAPLE, of any number of classes.

The labels of a pixel are a row of at most R numbers, and few different rows occur. Pixels with one row share one
posterior, so that EM runs over the rows, each weighted by the number of its pixels: the numbers are those of
Dawid and Skene's EM over all pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..data import IGNORED, LabelledData
from ..errors import DubitoError
from .annotators import checked

PSEUDO = (
    1.0  # pixels per class that tell what the others' do not: a class that nobody draws has a matrix row too
)
DIAGONAL = 0.9  # of the row of a class without a pixel
_CODES = 1 << 62


class MergedMasks(NamedTuple):
    """One mask per image, how sure it is, and what each annotator does to each class.

    Shapes: labels (N, H, W), -100 where nobody gave a label; confidence (N, H, W), the posterior of that label (0
    where there is none); matrices (R, K, K) as ``[annotator, true, drawn]`` and prior (K,), or (N, R, K, K) and
    (N, K) if every image has its own.
    """

    labels: Tensor
    confidence: Tensor
    matrices: Tensor
    prior: Tensor


def merge_masks(
    masks: Tensor,
    num_classes: int,
    *,
    per_image: bool = False,
    void: int = -100,
    iterations: int = 200,
    tolerance: float = 1e-7,
) -> MergedMasks:
    """The class of every pixel from all masks of an image, each annotator trusted as far as the masks bear him out.

        q_k ~ prior_k prod_r A_r[k, y_r],   A_r[k, j] ~ sum over pixels with y_r = j of q_k,   prior_k ~ sum of q_k

    Unlike in `vote`, the word of one who misses a class says little against it where others draw it. As the
    vote it takes pixels for independent: where most annotators err in the same way it errs with them.

    Shapes: masks ``(N, R, H, W)`` -> `MergedMasks`.

    Arguments:
        masks: class of every pixel for every image and annotator, 0 to num_classes - 1; `void` and -1 are no label.
        per_image: matrices and prior of every image on its own, as STAPLE has them. Those of the whole set know
            rare classes better; those of one image fit where annotators were careful with some images only.
        iterations, tolerance: EM stops where a step gains less than `tolerance` of log-likelihood per label.

    Reference:
        Warfield, Zou and Wells 2004; Dawid and Skene 1979

    Example:
        >>> truth = torch.arange(3).repeat(1, 4, 20)
        >>> blind = torch.where(truth == 2, 0, truth)  # the last of three never draws class 2
        >>> masks = torch.stack([truth, truth, blind], 1)
        >>> found = merge_masks(masks, 3)
        >>> bool((found.labels == truth).all()), found.matrices[:, 2, 2].round(decimals=1)
        (True, tensor([1., 1., 0.]))
    """
    given = checked(masks, num_classes, void)
    if iterations < 1 or not tolerance >= 0:
        raise DubitoError("iterations >= 1 and tolerance >= 0", got=f"{iterations} and {tolerance}")
    if not per_image:
        return MergedMasks(*_merged(given, num_classes, iterations, tolerance))
    each = [_merged(one, num_classes, iterations, tolerance) for one in given.split(1)]
    if not each:
        shape = (0, given.shape[1], num_classes, num_classes)
        return MergedMasks(
            *_merged(given, num_classes, 1, 0.0)[:2], torch.zeros(shape), torch.zeros(0, num_classes)
        )
    labels, confidence, matrices, prior = zip(*each)
    return MergedMasks(torch.cat(labels), torch.cat(confidence), torch.stack(matrices), torch.stack(prior))


def consensus(data: LabelledData) -> MergedMasks | None:
    """The masks of several annotators merged, with their matrices; None where each image has one mask."""
    if data.crowd is None:
        return None
    masks = data.labels.new_full((len(data), len(data.annotators), *data.labels.shape[1:]), IGNORED)
    masks[data.crowd.item, data.crowd.annotator] = data.crowd.label.to(masks.dtype)
    return merge_masks(masks, data.num_classes)


def _merged(
    masks: Tensor, K: int, iterations: int, tolerance: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, which, pixels = _rows(masks, K)
    matrices, prior = _fitted(rows, pixels, K, iterations, tolerance)
    q = _posterior(rows, matrices, prior)[0]
    confidence, label = q.max(-1)
    empty = (rows == K).all(-1)
    label, confidence = torch.where(empty, IGNORED, label), torch.where(empty, 0.0, confidence)
    shape = (len(masks), *masks.shape[2:])
    return label[which].view(shape), confidence.float()[which].view(shape), matrices.float(), prior.float()


def _rows(masks: Tensor, K: int) -> tuple[Tensor, Tensor, Tensor]:
    """The different rows of labels (P, R), K for none; which of them each pixel has; how many pixels have each."""
    columns = torch.where(masks < 0, K, masks).movedim(1, 0).flatten(1)
    which, distinct = torch.zeros_like(columns[0]), 1
    for column in columns:
        # Numbered anew before the codes leave 64 bits.
        if distinct * (K + 1) >= _CODES:
            found, which = which.unique(return_inverse=True)
            distinct = len(found)
        which, distinct = which * (K + 1) + column, distinct * (K + 1)
    found, which, pixels = which.unique(return_inverse=True, return_counts=True)
    first = torch.full_like(found, len(which)).scatter_reduce_(
        0, which, torch.arange(len(which), device=which.device), "amin"
    )
    return columns[:, first].T, which, pixels.double()


def _fitted(rows: Tensor, pixels: Tensor, K: int, iterations: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """EM from the shares of votes: matrices (R, K, K) and prior (K,)."""
    each = (rows < K).sum(1)
    labels, pixels = float((pixels * each).sum()), torch.where(each > 0, pixels, 0.0)
    votes = torch.zeros(len(rows), K + 1, dtype=pixels.dtype, device=rows.device)
    votes.scatter_add_(1, rows, torch.ones_like(rows, dtype=votes.dtype))
    q = votes[:, :K] / each.clamp(min=1).unsqueeze(-1)
    before = -torch.inf
    for _ in range(iterations):
        matrices, prior = _maximised(q, rows, pixels)
        q, evidence = _posterior(rows, matrices, prior)
        gain, before = float((pixels * evidence).sum()) - before, float((pixels * evidence).sum())
        if gain < tolerance * max(labels, 1.0):
            break
    return matrices, prior


def _maximised(q: Tensor, rows: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices and prior from posteriors (P, K), with `PSEUDO` pixels of each class drawn as all draw it."""
    K = q.shape[-1]
    weighted = pixels.unsqueeze(-1) * q
    empty = q.new_zeros(K + 1, K)
    counts = torch.stack([empty.index_add(0, column, weighted)[:K].T for column in rows.T])
    eye = torch.eye(K, dtype=q.dtype, device=q.device)
    start = eye * DIAGONAL + (1 - eye) * (1 - DIAGONAL) / max(K - 1, 1)
    pooled = (counts.sum(0) + PSEUDO * start) / (counts.sum((0, 2)) + PSEUDO).unsqueeze(-1)
    matrices = (counts + PSEUDO * pooled) / (counts.sum(-1, keepdim=True) + PSEUDO)
    of_class = weighted.sum(0) + PSEUDO
    return matrices / matrices.sum(-1, keepdim=True), of_class / of_class.sum()


def _posterior(rows: Tensor, matrices: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """(P, K) posteriors of rows of labels, and the log-likelihood of each row."""
    R, K, _ = matrices.shape
    # A last column of zeros: no label says nothing.
    logs = torch.cat([matrices.log(), matrices.new_zeros(R, K, 1)], -1)
    joint = prior.log().expand(len(rows), K).clone()
    for r in range(R):
        joint += logs[r].T[rows[:, r]]
    return joint.softmax(-1), joint.logsumexp(-1)
