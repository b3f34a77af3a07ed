"""What predicted masks are worth: sums over pixels that add up over batches and processes, exactly.

Every sum is a whole number (likelihoods and confidences in units of 2^-20), so neither the order of batches nor the
number of processes can change a digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._batches import Batches
from .._distributed import Ranks
from ..data import IGNORED, NONE_GIVEN, LabelledData
from ..errors import DubitoError
from ..evaluate import ALONE, _judging
from ..metrics import confusion_counts, iou, mean_iou
from ..metrics._inputs import indices
from .model import SegmentationModel

_UNIT = 1 << 20
_MOST_CLASSES = 1 << 20
_BOUNDARY = 0.02


class SegmentationScores:
    """Running sums of predicted masks against labels.

        IoU_c = n_cc / (sum_j n_cj + sum_i n_ic - n_cc) over all pixels of the set, mIoU its mean over classes
        boundary IoU_c: the same ratio for the pixels of class c within d of its border, in either mask

    mIoU is that of the accumulated counts, not a mean over images; classes that occur nowhere do not enter. The
    width d of a border is a share of the image's diagonal, and the edge of the image is a border.

    Arguments:
        num_classes: K.
        bins: of confidence, for the calibration error.
        boundary: d as a share of the diagonal; 0 leaves boundary IoU out.
        ignore_index: the void label, besides -1 (none given) and -100.

    Reference:
        collier2020 table 2
        Cheng et al. 2021, boundary IoU; Guo et al. 2017, calibration

    Example:
        >>> scores = SegmentationScores(2)
        >>> sure = torch.tensor([[[[0.9, 0.1], [0.2, 0.8]]]]).log()
        >>> scores.add(sure, torch.tensor([[[0, 0]]]))
        >>> round(scores.results()["mean_iou"], 4), scores.results()["accuracy"]
        (0.25, 0.5)
    """

    def __init__(
        self,
        num_classes: int,
        *,
        bins: int = 15,
        boundary: float = _BOUNDARY,
        ignore_index: int = -100,
        device: torch.device | str = "cpu",
    ) -> None:
        if not 1 <= num_classes <= _MOST_CLASSES:
            raise DubitoError(
                "there must be a class, and a table of counts",
                expected=f"num_classes from 1 to {_MOST_CLASSES}",
                got=num_classes,
            )
        try:
            device = torch.device(device)
        except RuntimeError:
            raise DubitoError("no such device", expected="cpu, cuda, ...", got=repr(device)) from None
        if bins < 1 or not 0 <= boundary < 1:
            raise DubitoError(
                "no such bins or borders", expected="bins >= 1, 0 <= boundary < 1", got=(bins, boundary)
            )
        self.num_classes, self.bins, self.boundary, self.ignore_index = (
            num_classes,
            bins,
            boundary,
            ignore_index,
        )
        K = num_classes
        self._shapes = {"counts": (K, K), "likelihood": (1,), "bin": (3, bins), "border": (2, K)}
        self._sums = torch.zeros(
            sum(math.prod(s) for s in self._shapes.values()), dtype=torch.int64, device=device
        )

    def sums(self, name: str) -> Tensor:
        """A view of the sums: counts, likelihood, bin (size, right, confidence) or border (both, either)."""
        start = 0
        for part, shape in self._shapes.items():
            if part == name:
                return self._sums[start : start + math.prod(shape)].view(shape)
            start += math.prod(shape)
        raise DubitoError("no such sum", got=repr(name))

    def add(self, log_p: Tensor, labels: Tensor) -> None:
        """Take in log-probabilities ``(..., H, W, K)`` and labels ``(..., H, W)``."""
        if log_p.shape != (*labels.shape, self.num_classes) or labels.dim() < 2:
            raise DubitoError(
                "predictions do not fit the masks", expected=(*labels.shape, self.num_classes),
                got=tuple(log_p.shape),
            )  # fmt: skip
        log_p = log_p.detach().to(self._sums.device)
        labels = indices(labels, tuple(labels.shape), self._sums.device)
        labels = torch.where((labels == NONE_GIVEN) | (labels == IGNORED), self.ignore_index, labels)
        kept, guess = labels != self.ignore_index, log_p.argmax(-1)
        counts = confusion_counts(guess, labels, self.num_classes, ignore_index=self.ignore_index)
        self.sums("counts").add_(counts.to(self._sums.device))
        picked = log_p.gather(-1, torch.where(kept, labels, 0).unsqueeze(-1)).squeeze(-1)[kept]
        self.sums("likelihood").add_((picked.double().clamp(min=-1e6) * _UNIT).round().long().sum())
        confidence = log_p.amax(-1).exp()[kept].double()
        # The rule of `metrics.reliability_curve`: edges in the precision of the confidences.
        edges = torch.arange(self.bins + 1, dtype=torch.float64, device=confidence.device) / self.bins
        edges = edges.to(log_p.dtype).double()
        place = (torch.searchsorted(edges, confidence) - 1).clamp(0, self.bins - 1)
        right = (guess == labels)[kept].long()
        for row, values in enumerate((torch.ones_like(right), right, (confidence * _UNIT).round().long())):
            self.sums("bin")[row].index_add_(0, place, values)
        if self.boundary > 0:
            self._add_border(torch.where(kept, guess, self.ignore_index), labels)

    def _add_border(self, guess: Tensor, labels: Tensor) -> None:
        height, width = labels.shape[-2:]
        d = max(1, round(self.boundary * math.hypot(height, width)))
        ours = inner_border(guess.reshape(-1, height, width), self.num_classes, d)
        theirs = inner_border(labels.reshape(-1, height, width), self.num_classes, d)
        self.sums("border")[0].add_((ours & theirs).sum((0, 2, 3)))
        self.sums("border")[1].add_((ours | theirs).sum((0, 2, 3)))

    def merge(self, other: SegmentationScores) -> SegmentationScores:
        """Both taken together; neither is changed."""
        if self._shapes != other._shapes or self.boundary != other.boundary:
            raise DubitoError("scores of different kinds cannot be added")
        whole = SegmentationScores(
            self.num_classes,
            bins=self.bins,
            boundary=self.boundary,
            ignore_index=self.ignore_index,
            device=self._sums.device,
        )
        whole._sums += self._sums + other._sums.to(self._sums.device)
        return whole

    def across(self, ranks: Ranks) -> SegmentationScores:
        """The sums of all processes, in every one of them."""
        ranks.sum(self._sums)
        return self

    def class_iou(self) -> tuple[Tensor, Tensor]:
        """IoU of each class and which of them occur, ``(K,)`` each."""
        return iou(self.sums("counts"))

    def boundary_iou(self) -> tuple[Tensor, Tensor]:
        """Boundary IoU of each class and which of them have a border, ``(K,)`` each."""
        both, either = self.sums("border").cpu().double()
        return both / either.clamp(min=1), either > 0

    def results(self) -> dict[str, float]:
        """mean_iou, boundary_iou, accuracy, log_likelihood (per pixel), ece, and the number of pixels."""
        counts = self.sums("counts").cpu()
        pixels = int(counts.sum())
        if pixels == 0:
            raise DubitoError("there is no labelled pixel to score", remedy="every label was void")
        size, right, confidence = self.sums("bin").cpu().double()
        found = {
            "mean_iou": mean_iou(counts),
            "accuracy": int(counts.diagonal().sum()) / pixels,
            "log_likelihood": int(self.sums("likelihood")) / _UNIT / pixels,
            "ece": float((right - confidence / _UNIT).abs().sum() / size.sum()),
            "pixels": float(pixels),
        }
        values, present = self.boundary_iou()
        if self.boundary > 0:
            found["boundary_iou"] = float(values[present].mean())
        return found


def inner_border(masks: Tensor, num_classes: int, d: int) -> Tensor:
    """Pixels of each class within d steps of another class, void or the edge: ``(N, H, W)`` -> ``(N, K, H, W)``.

    Example:
        >>> inner_border(torch.zeros(1, 5, 5, dtype=torch.int64), 1, 1)[0, 0].sum()
        tensor(16)
    """
    classes = torch.arange(num_classes, device=masks.device).view(-1, 1, 1)
    inside = masks.unsqueeze(1) == classes
    outside = F.pad((~inside).to(torch.float32), (d, d, d, d), value=1.0)
    near = F.max_pool2d(F.max_pool2d(outside, (2 * d + 1, 1), stride=1), (1, 2 * d + 1), stride=1)
    return inside & (near > 0)


@torch.no_grad()
def score_masks(
    model: SegmentationModel,
    data: LabelledData,
    *,
    clean: bool = False,
    batch_size: int | None = None,
    ranks: Ranks = ALONE,
    **options: Any,
) -> SegmentationScores:
    """The scores of a model's masks over a data set, in evaluation mode; with several processes each takes a share.

    Arguments:
        clean: against the clean masks in place of the observed ones.
        batch_size: images at a time; few, as every pixel has a probability for every class.
        options: bins, boundary, ignore_index of `SegmentationScores`.
    """
    truth = data.clean if clean else data.labels
    if truth is None:
        raise DubitoError("the clean masks are not known", where=data.name)
    scores = SegmentationScores(model.num_classes, device=data.device, **options)
    batches, size = Batches(data), batch_size or model.evaluation_batch
    starts: Sequence[int] = range(0, len(data), size)
    with _judging(model):
        for start in starts[ranks.rank :: ranks.size]:
            positions = torch.arange(start, min(start + size, len(data)), device=data.device)
            scores.add(model(batches(positions).x), truth[positions].long())
    return scores.across(ranks)
