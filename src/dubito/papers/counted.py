"""Models that integrate otherwise in training than in prediction."""

from __future__ import annotations

from typing import Any

from ..model import Model


class TwoCounts(Model):
    """A model that draws `eval_samples` in evaluation mode and `samples` in training."""

    def __init__(self, *stages: Any, eval_samples: int, **options: Any) -> None:
        self._counts = {True: 0, False: eval_samples}
        super().__init__(*stages, **options)

    @property
    def samples(self) -> int:
        """Draws per example in the present mode."""
        return self._counts[self.training]

    @samples.setter
    def samples(self, value: int) -> None:
        self._counts[True] = value


class ExactPrediction(Model):
    """A model that draws samples in training and predicts by the exact integral."""

    @property
    def integration(self) -> str:
        """How the expected softmax is computed in the present mode."""
        return self._integration if self.training else "auto"

    @integration.setter
    def integration(self, value: str) -> None:
        self._integration = value
