"""The published iterations of the tempered softmax after a few steps, in plain numbers; the edge of its support."""

from __future__ import annotations

import math

import pytest
import torch

from dubito.losses._deformed import log_deformed_exp
from dubito.losses._normalizer import Normalizer

F64 = torch.float64
SCORES = [[0.0, -0.3, -1.2, -5.0], [0.0, -2.0, -2.5, -9.0], [0.0, -0.1, -0.2, -0.3]]


def exp_t(x, t):
    return math.exp(x) if t == 1 else max(1 + (1 - t) * x, 0.0) ** (1 / (1 - t))


def log_t(x, t):
    return math.log(x) if t == 1 else (x ** (1 - t) - 1) / (1 - t)


def fixed_point(a, t, steps):
    scaled = a
    for _ in range(steps):
        total = sum(exp_t(x, t) for x in scaled)
        scaled = [x * total ** (1 - t) for x in a]
    return -log_t(1 / sum(exp_t(x, t) for x in scaled), t)


def bisection(a, t, steps):
    size = sum((1 - t) * x > -1 for x in a)
    low, high = 0.0, -log_t(1 / size, t)
    for _ in range(steps):
        middle = (low + high) / 2
        if sum(exp_t(x - middle, t) for x in a) < 1:
            high = middle
        else:
            low = middle
    return (low + high) / 2


@pytest.mark.parametrize("t", [0.3, 0.5, 0.8, 1.0, 1.4, 2.5])
@pytest.mark.parametrize("steps", [0, 1, 3, 6])
def test_so_many_steps(t, steps):
    """Below t = 1 halving between 0 and where all that can have mass share it equally; else the fixed point."""
    a, s = torch.tensor(SCORES, dtype=F64), torch.full((3, 1), 1 - t, dtype=F64)
    found = Normalizer.apply(a, s, steps)
    rule = bisection if t < 1 else fixed_point
    assert found.flatten().tolist() == pytest.approx(
        [rule(row, t, steps) for row in SCORES], rel=1e-12, abs=1e-14
    )


def test_a_score_at_the_edge_of_the_support():
    """1 + s x = 0 is outside: minus infinity, with zero gradient."""
    x = torch.tensor([-2.0, -1.9, -2.1], dtype=F64, requires_grad=True)
    logs = log_deformed_exp(x, torch.full((3,), 0.5, dtype=F64))
    assert logs.tolist() == [-math.inf, pytest.approx(2 * math.log(0.05)), -math.inf]
    (grad,) = torch.autograd.grad(logs[[0, 2]].sum() + logs[1], x)
    assert grad.tolist() == [0.0, pytest.approx(1 / 0.05), 0.0]
