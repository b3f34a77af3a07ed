"""Which method was used for an integral, why, and how large the error may be."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Report:
    """How an integral was computed.

    Attributes:
        method: "quadrature", "qmc", "mc", or "factors x quadrature" (a rule over the factors around quadrature).
        reason: why this method, in a few words.
        points: nodes per row (the most any row took) or draws.
        error: estimated absolute error per example: of log p for a likelihood, of the probabilities (largest over
            classes) for all classes. Of draws it is one standard error, which some rows exceed. None where nothing
            was estimated.
        tol: the tolerance asked for.
    """

    method: str
    reason: str
    points: int
    error: Tensor | None
    tol: float

    @property
    def reached(self) -> bool:
        """Whether every example is within the tolerance, as far as is known."""
        if self.error is None:
            return False
        return self.error.numel() == 0 or bool((self.error <= self.tol).all())

    def __str__(self) -> str:
        if self.error is None or self.error.numel() == 0:
            worst = "not estimated"
        else:
            worst = f"at most {float(torch.nan_to_num(self.error, nan=float('inf')).max()):.1e}"
        return f"{self.method} ({self.reason}), {self.points} points, error {worst}, asked {self.tol:.1e}"


def warn_of(report: Report) -> None:
    """Warn if the tolerance asked for is not reached; always in the same words, so that Python shows it once."""
    if not report.reached:
        warnings.warn(
            "an expected softmax is less exact than asked for: the most points that are taken do not reach `tol` "
            "(report= says by how much)",
            RuntimeWarning,
            stacklevel=5,  # the caller of the public function, outside its two wrappers
        )
