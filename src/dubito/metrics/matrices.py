"""Distance between true and estimated confusion matrices."""

from __future__ import annotations

from typing import Literal

import torch

from ..errors import DubitoError
from ._inputs import Array, as_tensor


def confusion_error(true: Array, estimated: Array, *, per: Literal["row", "entry"] = "row") -> float:
    """Squared difference of confusion matrices, averaged over annotators and rows, or over entries.

    per="row": ``1/(R K) sum_r sum_ij (A_ij - B_ij)^2``, the formula of the paper, at most 2.
    per="entry": ``1/(R K^2) sum_r sum_ij (A_ij - B_ij)^2``, the only scale that fits the paper's printed figures
    (which are 100 times that).

    Arguments:
        true: A (R, K, K), or (K, K) for one annotator.
        estimated: B of the same shape.

    Reference:
        tanno2019 sec. 3.2, table 1

    Example:
        >>> confusion_error(torch.eye(2), torch.full((2, 2), 0.5))
        0.5
    """
    A, B = (as_tensor(m, n).to("cpu", torch.float64) for m, n in ((true, "true"), (estimated, "estimated")))
    if A.dim() not in (2, 3) or A.shape[-1] != A.shape[-2] or A.numel() == 0:
        raise DubitoError("confusion matrices must be square", expected="(R, K, K)", got=tuple(A.shape))
    if A.shape != B.shape:
        raise DubitoError("the two groups differ in shape", expected=tuple(A.shape), got=tuple(B.shape))
    if not bool(A.isfinite().all() and B.isfinite().all()):
        raise DubitoError("a confusion matrix is not finite")
    if per not in ("row", "entry"):
        raise DubitoError("unknown average", where="per", expected="'row' or 'entry'", got=repr(per))
    mean = (A - B).square().mean()
    return float(mean * A.shape[-1] if per == "row" else mean)
