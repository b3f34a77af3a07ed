"""Promises about formulas: against naive transcriptions, at their limits, at extremes, and without side effects."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import losses, noise
from ._card import Check, Outcome


def _naive(name: str, z: list[float], y: int) -> float:
    """Each loss of one example as its equation reads, in Python's floats."""
    total = math.fsum(math.exp(v) for v in z)
    p = [math.exp(v) / total for v in z]
    if name == "nll":
        return -math.log(p[y])
    if name == "gce":
        return float((1 - p[y] ** 0.7) / 0.7)
    if name == "soft":
        return -sum((0.95 * (k == y) + 0.05 * p[k]) * math.log(p[k]) for k in range(len(p)))
    return -0.8 * math.log(p[y]) - 0.2 * math.log(max(p))


_LOSSES: dict[str, Callable[..., Tensor]] = {
    "nll": losses.nll,
    "gce": losses.gce,
    "soft": losses.bootstrap,
    "hard": lambda z, y, **options: losses.bootstrap(z, y, kind="hard", **options),
}


def transcription(folder: Path) -> Outcome:
    """Losses equal a transcription of their equation written with nothing but `math`."""
    z, y = _examples(torch.float64)
    worst, cases = 0.0, 0
    for name, loss in _LOSSES.items():
        for got, row, label in zip(loss(z, y, reduction="none").tolist(), z.tolist(), y.tolist()):
            expected = _naive(name, row, label)
            worst, cases = max(worst, abs(got - expected) / abs(expected)), cases + 1
    return Outcome(f"{worst:.1e} over {cases} cases", worst < 1e-10)


def _examples(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return 3 * torch.randn(200, 7, generator=g, dtype=dtype), torch.randint(0, 7, (200,), generator=g)


def limits(folder: Path) -> Outcome:
    """Where a parameter switches a method off, the plain method remains."""
    z, y = _examples(torch.float64)
    plain = losses.nll(z, y)
    found = {
        "gce q -> 0": losses.gce(z, y, q=1e-9),
        "gce q = 0": losses.gce(z, y, q=0.0),
        "bootstrap beta = 1": losses.bootstrap(z, y, beta=1.0),
        "hard bootstrap beta = 1": losses.bootstrap(z, y, beta=1.0, kind="hard"),
        "bi-tempered at 1, 1": losses.bi_tempered(z, y, t1=1.0, t2=1.0),
        "one-hot weights": losses.nll(z, torch.nn.functional.one_hot(y, 7).double()),
    }
    worst = max(found, key=lambda name: float((found[name] - plain).abs()))
    error = float((found[worst] - plain).abs())
    return Outcome(f"{error:.1e} over {len(found)} identities (worst: {worst})", error < 1e-6)


def extremes(folder: Path) -> Outcome:
    """Loss and gradient stay finite at logits of 0, +-1e4 and ties, in every precision."""
    cases = bad = 0
    patterns = (
        [0, 0, 0],
        [1e4, -1e4, 0],
        [-1e4, 1e4, 0],
        [1e4, 1e4, -1e4],
        [-1e4, -1e4, -1e4],
        [200, -200, 1e-7],
    )
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for loss in (*_LOSSES.values(), losses.bi_tempered):
            for pattern in patterns:
                for label in range(3):
                    z = torch.tensor([pattern], dtype=dtype, requires_grad=True)
                    value = loss(z, torch.tensor([label]))
                    (slope,) = torch.autograd.grad(value, z)
                    bad += not bool(value.isfinite() and slope.isfinite().all())
                    cases += 1
    return Outcome(f"{bad} not finite in {cases} cases", bad == 0)


def generators(folder: Path) -> Outcome:
    """No call moves the global generators of torch, numpy or Python."""
    g = torch.Generator().manual_seed(0)
    z, y = _examples(torch.float32)
    calls: list[Callable[[], object]] = [
        lambda: losses.nll(z, y),
        lambda: losses.bi_tempered(z, y),
        lambda: noise.corrupt(y, noise.resample(7, 0.3), g),
        lambda: noise.corrupt(y, noise.pair_flip(7, 0.3), g, exact=True),
        lambda: noise.hammer_spammers(4, 7, 0.8, generator=g),
    ]
    moved = 0
    for call in calls:
        before = _states()
        call()
        moved += before != _states()
    return Outcome(f"{moved} of {len(calls)} calls moved one", moved == 0)


def _states() -> tuple[bytes, bytes, int, object]:
    legacy: Any = np.random.get_state(legacy=False)
    twister = legacy["state"]
    return (
        torch.get_rng_state().numpy().tobytes(),
        twister["key"].tobytes(),
        twister["pos"],
        random.getstate(),
    )


CHECKS = (
    Check(1, "losses equal a naive transcription", "relative error < 1e-10", transcription),
    Check(3, "methods that are switched off change nothing", "error < 1e-6", limits),
    Check(4, "finite in, finite out, in every precision", "0 not finite", extremes),
    Check(24, "global generators are not touched", "0 moved", generators),
)
