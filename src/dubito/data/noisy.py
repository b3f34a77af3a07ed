"""Noise applied by index: an example has the same noisy label in every epoch, batch and order."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .._random import generator
from ..noise import corrupt
from ._labelled import LabelledData


def with_noise(
    data: LabelledData,
    T: Tensor,
    seed: int,
    purpose: str = "train",
    exact: bool | Literal["redrawn", "changed"] = False,
) -> LabelledData:
    """Observed labels drawn from T[label, .]; the labels as they were stay as `clean`, for scoring only.

    The draw is keyed by (seed, purpose) and by the row of each example in the original set, so a subset, a
    reordering or another split does not change an example's fate (`exact` counts do depend on the set).
    Negative labels (none given, void) stay as they are.

    Arguments:
        T: (K, K) transition matrix, rows sum to one.
        purpose: names the set: train, validation and test get independent noise.
        exact: as in `dubito.noise.corrupt`.

    Example:
        >>> from dubito.noise import resample
        >>> data = LabelledData(torch.zeros(100, 1), torch.zeros(100, dtype=torch.int64))
        >>> noisy = with_noise(data, resample(4, 0.4), seed=0, exact=True)
        >>> int((noisy.labels != noisy.clean).sum()) <= 40
        True
    """
    rows = torch.arange(len(data)) if data.rows is None else data.rows.cpu()
    labels = data.labels.cpu()
    within = labels[0].numel() if len(labels) else 1
    shape = (-1,) + (1,) * (labels.dim() - 1)
    index = (rows * within).view(shape) + torch.arange(within).view(1, *labels.shape[1:])
    kept = labels >= 0
    noisy = labels.clone()
    noisy[kept] = corrupt(
        labels[kept],
        T,
        generator(seed, 0, f"noise/{purpose}"),
        exact=exact,
        index=index.view(labels.shape)[kept],
    )
    clean = data.labels if data.clean is None else data.clean
    return data.with_labels(noisy.to(data.device), clean)
