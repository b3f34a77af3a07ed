"""Small crowds with known truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dubito.crowd import CrowdLabels


@pytest.fixture
def simulate() -> Callable[..., tuple[CrowdLabels, Any, Any]]:
    """simulate(seed, items, annotators, classes, each) -> (crowd, truth, A[r, true, given])."""

    def make(
        seed: int, items: int = 60, annotators: int = 7, classes: int = 3, each: int = 4, sharp: float = 8.0
    ) -> tuple[CrowdLabels, Any, Any]:
        rng = np.random.default_rng(seed)
        truth = rng.integers(classes, size=items)
        skill = rng.beta(6, 2.5, size=annotators)
        A = np.empty((annotators, classes, classes))
        for r in range(annotators):
            mean = np.full((classes, classes), (1 - skill[r]) / (classes - 1))
            np.fill_diagonal(mean, skill[r])
            A[r] = [rng.dirichlet(sharp * row + 1e-2) for row in mean]
        item = np.repeat(np.arange(items), each)
        who = np.concatenate([rng.choice(annotators, each, replace=False) for _ in range(items)])
        rows = A[who, truth[item]].cumsum(1)
        label = (rng.random((len(item), 1)) > rows).sum(1).clip(max=classes - 1)
        return CrowdLabels(item, who, label, classes=classes, annotator_ids=annotators), truth, A

    return make
