"""How well an audit did: calibration over all labels, over those called wrong, and once some were checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

Array = Any


def reliability(p_wrong: Array, wrong: Array) -> tuple[float, list[list[float]]]:
    """Expected calibration error over ten bins of equal width, and the bins: labels, mean p_wrong, share wrong."""
    place = np.minimum((p_wrong * 10).astype(int), 9)
    bins = [
        [int((place == b).sum()), float(p_wrong[place == b].mean()), float(wrong[place == b].mean())]
        for b in range(10)
        if (place == b).any()
    ]
    return sum(n * abs(p - w) for n, p, w in bins) / len(wrong), [
        [n, round(p, 4), round(w, 4)] for n, p, w in bins
    ]


def after(p_wrong: Array, wrong: Array, rows: Any) -> dict[str, Any]:
    """The audit once some labels were checked, scored on all others: as `audit(checked=)` corrects them."""
    from dubito._audit.checked import correct

    rows = np.asarray(rows)
    rest = np.setdiff1d(np.arange(len(wrong)), rows)
    p, wrong = correct(p_wrong[rows], wrong[rows])(p_wrong[rest]), wrong[rest]
    error, bins = reliability(p, wrong)
    return {
        "noise_rate": round(float(wrong.mean()), 4),
        "estimated_rate": round(float(p.mean()), 4),
        "calibration_error": round(error, 4),
        "bins": bins,
    }


def code() -> str:
    """A fingerprint of the audit itself: lines with one fingerprint are of one audit."""
    import dubito._audit

    files = sorted(Path(dubito._audit.__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


def share(chosen: Array, wrong: Array) -> list[float]:
    """How many labels, and what share of them is wrong."""
    return [int(chosen.sum()), round(float(wrong[chosen].mean()), 4) if chosen.any() else 0.0]
