"""How good a run is: against noisy labels, with the noise taken out, and against the truth where it is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .._audit.plan import Z, around
from .._random import generator
from .._report import Bin, Fact
from ..data import LabelledData
from ..metrics import bootstrap_interval, reliability_curve
from .choice import scores
from .findings import Findings

Array = np.ndarray[Any, Any]

BINS, RESAMPLES = 10, 1000


def measure(data: LabelledData, found: Findings, seed: int) -> dict[str, dict[str, float | None]]:
    """Name -> value and interval, where there is one; all by networks that did not see the item."""
    log_p = torch.from_numpy(found.probs).clamp(min=1e-30).log()
    best = found.probs.argmax(1)
    everyone = np.arange(len(data))
    out = {
        "noisy_accuracy": _interval(scores(data, log_p, torch.from_numpy(everyone)), seed),
        "estimated_accuracy": _estimated(found, found.posterior[everyone, best]),
        "noisy_log_likelihood": _interval(_likelihood(data, found), seed),
    }
    confidence, right = _observed(data, found)
    curve = reliability_curve(confidence, right, BINS)
    gap = float(((curve.accuracy - curve.confidence).abs() * curve.size).sum() / curve.size.sum())
    out["calibration_error"] = {"value": gap, "low": None, "high": None}  # resampling would only add to it
    if data.clean is not None and bool((data.clean >= 0).any()):
        known = (data.clean >= 0).numpy()
        true = data.clean.numpy()
        out["true_accuracy"] = _interval((best == true)[known].astype(float), seed)
        if data.crowd is not None:
            out["true_consensus_accuracy"] = _interval(
                (found.posterior.argmax(1) == true)[known].astype(float), seed
            )
    return out


NAMES = {
    "noisy_accuracy": ("held-out labels predicted", "the labels are noisy: a perfect model does not reach 1"),
    "estimated_accuracy": (
        "true classes predicted (estimate)",
        "with the estimated noise taken out; as uncertain as the noise rate",
    ),
    "noisy_log_likelihood": ("log-likelihood of a held-out label", "seen through the estimated noise"),
    "calibration_error": ("calibration error", "of the predicted given label, below"),
    "true_accuracy": ("true classes predicted", "against the true labels of the data"),
    "true_consensus_accuracy": ("true classes in the consensus", "against the true labels of the data"),
}


def as_facts(metrics: Mapping[str, Mapping[str, float | None]]) -> list[Fact]:
    """The scores for a report."""
    return [Fact(NAMES[k][0], m["value"], m["low"], m["high"], note=NAMES[k][1]) for k, m in metrics.items()]


def bins(data: LabelledData, found: Findings) -> list[Bin]:
    """Reliability of the predicted given label, after the estimated noise: no truth is needed to see it."""
    confidence, right = _observed(data, found)
    curve = reliability_curve(confidence, right, BINS)
    rows = zip(curve.confidence.tolist(), curve.accuracy.tolist(), curve.size.tolist())
    return [Bin(c, a, n) for c, a, n in rows if n]


def _observed(data: LabelledData, found: Findings) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of each given label ``(labels, K)``, and the label."""
    if data.crowd is None or found.people is None:
        rows = np.flatnonzero(data.labels.numpy() >= 0) if data.crowd is None else found.rows
        p = found.probs[rows] @ found.audit.transition
        return torch.from_numpy(p / p.sum(1, keepdims=True)), data.labels[torch.from_numpy(rows)]
    item, who, label = (t.numpy() for t in data.crowd)
    p = np.einsum("nk,nkj->nj", found.probs[item], found.people.matrices[who])
    return torch.from_numpy(p / p.sum(1, keepdims=True)), torch.from_numpy(label)


def _likelihood(data: LabelledData, found: Findings) -> Array:
    p, label = _observed(data, found)
    value: Array = p.gather(1, label.unsqueeze(1)).clamp(min=1e-12).log().squeeze(1).numpy()
    return value


def _estimated(found: Findings, values: Array) -> dict[str, float | None]:
    """The mean of probabilities, as uncertain as so many items and the noise rate leave it.

    To call another share of the labels wrong changes the true class of at most as many items.
    """
    rate, unchecked = found.audit.noise_rate, float((found.gold < 0).mean())
    error = (
        max(rate.high - rate.value, rate.value - rate.low) / Z
    )  # the longer half: the other may end at 0 or 1
    value = float(values.mean())
    chance = math.sqrt(max(value * (1 - value), 0.0) / len(values))
    mean = around(value, math.hypot(chance, unchecked * error))
    return {"value": mean.value, "low": mean.low, "high": mean.high}


def _interval(values: Array, seed: int) -> dict[str, float | None]:
    found = bootstrap_interval(values, np.mean, generator(seed, 0, "scores"), resamples=RESAMPLES)
    return {"value": found.estimate, "low": found.low, "high": found.high}
