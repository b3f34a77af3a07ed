"""When to distrust the numbers of an audit, in sentences."""

from __future__ import annotations

import numpy as np

from .border import Inputs
from .likelihood import Array
from .result import HIDDEN

UNSURE = 0.7  # mean certainty of the calibrated model below which its verdicts deserve doubt themselves
FEW = 10  # labels per class below which a row of the matrix is mostly prior
BLIND = (
    "the model foretells the labels no better than how frequent they are: it cannot tell which of them are wrong; "
    "see whether features, labels and the columns of probs belong together, or train a better model; how many are "
    "wrong a spot sample tells (spot_check; --gold; in Python checked=)"
)
APART = 1 / 3  # of the items may have another likeliest class once calibrated


def notes(
    inputs: Inputs, T: Array, log_p: Array, high: float, missed: float, informed: float, corrected: bool
) -> tuple[str, ...]:
    """What to keep in mind when reading an audit.

    Arguments:
        T: ``(K, K)`` fitted to the labels; log_p: ``(N, K)`` calibrated.
        high: upper end of the noise rate; missed: share of labels that cannot be foretold.
        informed: probability that the model tells labels apart at all.
        corrected: whether checked labels have put the probabilities right.
    """
    y, K = inputs.labels, log_p.shape[1]
    certainty = float(np.exp(log_p.max(1)).mean())
    if informed < 0.5:
        return (BLIND,)
    out = [] if corrected else _exchanged(T, log_p, inputs.probs, inputs.classes)
    if certainty < UNSURE and not corrected:
        out.append(
            f"the model is only {100 * certainty:.0f} % sure of the true class on average and cannot well tell "
            "wrong labels from hard items: rely on the order, and on the noise rate only roughly"
        )
    if not corrected and missed > high + HIDDEN:
        out.append(
            f"errors on the very items that the model finds hard look like difficulty: up to {100 * missed:.0f} % "
            "of the labels could be wrong without showing; to know, check a spot sample (spot_check) and give it "
            "back (--gold; in Python checked=)"
        )
    if not corrected and bool((inputs.probs.argmax(1) == y).all()):
        out.append(
            "the model agrees with every label, so nothing can be found: if it was trained on these very labels, "
            "predict them out of fold"
        )
    few = np.flatnonzero(np.bincount(y, minlength=K) < FEW)
    if len(few):
        out.append(f"{len(few)} of {K} classes have fewer than {FEW} labels: their rows are mostly prior")
    return tuple(out)


def _exchanged(T: Array, log_p: Array, probs: Array, classes: Array) -> list[str]:
    """Whether classes may have changed places: the likelihood of labels does not know their names."""
    lost = np.flatnonzero(T.argmax(1) != np.arange(len(T)))
    apart = float((log_p.argmax(1) != probs.argmax(1)).mean())
    if len(lost):
        k = int(lost[0])
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        sign = f"the commonest label of class {classes[k]} would be {classes[T[k].argmax()]}{more}"
    elif apart > APART:
        sign = f"audit and model name different classes for {100 * apart:.0f} % of the items"
    else:
        return []
    return [
        f"{sign}: with so much noise classes can change places, and then the right labels are called wrong; look "
        "at the first labels of the order before relying on it"
    ]
