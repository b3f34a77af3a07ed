"""Plain training that also keeps the accuracy on the two parts of its training set, epoch by epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..data import LabelledData
from ..evaluate import predict
from ..model import Model
from ..procedures import Plain

AT_MOST = 2_000  # examples of each part


class WithCurves(Plain):
    """`Plain`, and before each epoch the accuracy on rightly and wrongly labelled training examples.

    The curves are a buffer ``(epochs, 2)``, so that a resumed run has them whole.

    Reference:
        englesson2023 fig. 4
    """

    curves: Tensor

    def __init__(self, model: Model, *, epochs: int, **stages: Any) -> None:
        super().__init__(model, **stages)
        self.register_buffer("curves", torch.full((epochs, 2), float("nan")))

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """Measure what the epochs so far have left."""
        if 0 < epoch <= len(self.curves):
            self.curves[epoch - 1] = by_part(self.model, data).to(self.curves)

    def finished(self, data: LabelledData) -> dict[str, list[float]]:
        """The curves, with the last epoch measured now."""
        self.curves[-1] = by_part(self.model, data).to(self.curves)
        done = ~self.curves[:, 0].isnan()
        clean, noisy = self.curves[done].double().T.tolist()
        return {
            "epoch": (done.nonzero().flatten() + 1).tolist(),
            "train_clean": clean,
            "train_noisy": [None if n != n else n for n in noisy],
        }


def by_part(model: Model, data: LabelledData) -> Tensor:
    """Accuracy against the given labels on rightly and on wrongly labelled examples; NaN for an empty part."""
    if data.clean is None:
        return torch.full((2,), float("nan"))
    wrong = data.labels != data.clean
    found = []
    for part in (~wrong, wrong):
        some = data.subset(part.nonzero().flatten()[:AT_MOST])
        right = predict(model, some).labels == some.labels if len(some) else some.labels.new_zeros(0)
        found.append(float(right.double().mean()))
    return torch.tensor(found)
