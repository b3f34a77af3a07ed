"""Small problems with a known answer: separable classes, probabilities from a simulated out-of-fold model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest


class Problem(NamedTuple):
    labels: Any
    true: Any
    probs: Any
    T: Any


def make(T: Any, N: int = 3000, seed: int = 0, sharp: float = 3.0) -> Problem:
    """Probabilities as a model trained on the noisy labels gives them: the observed class, seen with an error."""
    T = np.asarray(T, dtype=float)
    K, rng = len(T), np.random.default_rng(seed)
    true = rng.integers(0, K, N)
    labels = np.array([rng.choice(K, p=T[k]) for k in true])
    scores = sharp * np.eye(K)[true] + rng.normal(size=(N, K))
    p_true = np.exp(scores - scores.max(1, keepdims=True))
    p_true /= p_true.sum(1, keepdims=True)
    probs = (p_true @ T) ** 0.8 * np.exp(0.4 * rng.normal(size=(N, K)))  # not well calibrated, and not exact
    return Problem(labels, true, probs / probs.sum(1, keepdims=True), T)


@pytest.fixture(scope="session")
def symmetric() -> Problem:
    return make(np.eye(4) * 0.72 + 0.07)


@pytest.fixture(scope="session")
def pairwise() -> Problem:
    return make(np.eye(4) * 0.7 + 0.3 * np.roll(np.eye(4), 1, axis=1))


@pytest.fixture(scope="session")
def problem() -> Any:
    return make
