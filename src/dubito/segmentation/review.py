"""Which masks to look at first, and where: what a network that has not seen a mask says against it.

A network soon knows the masks by heart that it learned from, wrong ones as well; so each is judged by one that
learned from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._random import permutation
from ..data import IGNORED, LabelledData
from ..metrics import confusion_counts, mean_iou
from . import outputs
from .model import SegmentationModel
from .pictures import Array

Trained = Callable[[int, LabelledData, LabelledData], SegmentationModel]


class Region(NamedTuple):
    """A patch of pixels of one given class that the network calls by one other name.

    `doubt` is the sum over them of p(suggested) - p(given), `p_wrong` the mean of 1 - p(given), and `box` is (first
    row, first column, height, width).
    """

    given: int
    suggested: int
    pixels: int
    doubt: float
    p_wrong: float
    box: tuple[int, int, int, int]
    thickness: float

    @property
    def weight(self) -> float:
        """How grave it is: doubt times thickness."""
        return self.doubt * self.thickness


class Doubted(NamedTuple):
    """One mask and what is said against it.

    Arguments:
        row: of the data. annotator: who drew it, None where each image has one mask.
        doubt: the mean over labelled pixels of p(the likeliest class) - p(given), 0 where they are the same.
        iou: mean IoU of the mask with the prediction. wrong: the share of pixels that are predicted otherwise.
        regions: where, the gravest first.
        guess, map: the prediction (h, w), and p(likeliest) - p(given) of every pixel.
    """

    row: int
    annotator: int | None
    doubt: float
    iou: float
    wrong: float
    regions: list[Region]
    given: Tensor
    guess: Tensor
    map: Tensor


def fold_numbers(count: int, folds: int, seed: int) -> Tensor:
    """The part of each example ``(N,)``: sizes differ by one at most."""
    numbers = torch.empty(count, dtype=torch.int64)
    numbers[permutation(count, seed, purpose="folds of masks")] = torch.arange(count) % folds
    return numbers


def out_of_fold(data: LabelledData, train: Trained, *, folds: int, seed: int) -> Iterator[Doubted]:
    """Every mask as a network sees it that learned from the other parts only.

    Arguments:
        data: images in files with masks, each with a labelled pixel.
        train: called with the number of the part, what to learn from and the part itself, returns a model.
        folds: parts, at least 2.
    """
    numbers = fold_numbers(len(data), folds, seed)
    for fold in range(folds):
        rows = (numbers == fold).nonzero().flatten()
        part = data.subset(rows)
        model = train(fold, data.subset((numbers != fold).nonzero().flatten()), part)
        for found in judged(model, part):
            yield found._replace(row=int(rows[found.row]))


def judged(model: SegmentationModel, data: LabelledData) -> Iterator[Doubted]:
    """Every mask of a set as a model sees it, by images, then annotators."""
    for found in outputs.judge(model, data, variance=False):
        if data.crowd is None:
            yield doubted(found.log_p, outputs.given(data, found), found.row)
            continue
        h, w = found.log_p.shape[:2]
        for entry in (data.crowd.item == found.row).nonzero().flatten().tolist():
            given = data.crowd.label[entry, :h, :w].long()
            yield doubted(found.log_p, given, found.row, int(data.crowd.annotator[entry]))


def doubted(log_p: Tensor, given: Tensor, row: int = 0, annotator: int | None = None) -> Doubted:
    """What a prediction says against a mask.

        d = p(guess) - p(given) where guess = argmax p differs from given, else 0

    Shapes: log_p (h, w, K), given (h, w) with negative numbers for void.

    Example:
        >>> p = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
        >>> found = doubted(p.log(), torch.tensor([[1, 1]]))
        >>> round(found.doubt, 4), found.regions[0].suggested
        (0.4, 0)
    """
    p, kept = log_p.exp(), given >= 0
    top, guess = p.max(-1)
    of_given = p.gather(-1, given.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    gap = torch.where(kept & (guess != given), top - of_given, 0.0)
    pixels = max(1, int(kept.sum()))
    counts = confusion_counts(guess, torch.where(kept, given, IGNORED), log_p.shape[-1])
    patches = regions(given.numpy(), guess.numpy(), gap.numpy(), of_given.numpy())
    wrong = int((kept & (guess != given)).sum()) / pixels
    doubt = float(gap.double().sum()) / pixels
    # Those of all masks are held until they are ranked: in 6 bytes per pixel.
    seen = given.short(), guess.short(), gap.half()
    return Doubted(row, annotator, doubt, mean_iou(counts), wrong, patches, *seen)


def regions(given: Array, guess: Array, gap: Array, p_given: Array) -> list[Region]:
    """Connected patches of one given and one suggested class, those with most doubt times thickness first.

    Thickness is the largest distance of a pixel of the patch from its outside: borders that are drawn a pixel off
    are thin, objects that are missing or called by another name are thick.
    """
    from scipy import ndimage

    wrong, K = gap > 0, int(guess.max()) + 1
    pairs = np.where(wrong, given.astype(np.int64) * K + guess, -1)
    found = []
    for pair in np.unique(pairs[wrong]).tolist():
        patches, _ = ndimage.label(pairs == pair, structure=np.ones((3, 3)))
        depth = ndimage.distance_transform_edt(np.pad(patches > 0, 1))[1:-1, 1:-1]  # beyond the image it ends
        for number, place in enumerate(ndimage.find_objects(patches), 1):
            inside, (rows, columns) = patches[place] == number, place
            found.append(
                Region(
                    given=pair // K,
                    suggested=pair % K,
                    pixels=int(inside.sum()),
                    doubt=float(gap[place][inside].sum(dtype=np.float64)),
                    p_wrong=float(1 - p_given[place][inside].mean(dtype=np.float64)),
                    box=(rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start),
                    thickness=float(depth[place][inside].max()),
                )
            )
    return sorted(found, key=lambda r: (-r.weight, r.box))
