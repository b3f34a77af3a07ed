"""Schedules at every step, Adam on rows, and the corners of LARS, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from dubito import optim
from dubito.errors import DubitoError


@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_cosine_at_every_step(warmup: int) -> None:
    for step in range(11):
        if step < warmup:
            wanted = (step + 1) / warmup
        else:
            wanted = (1 + math.cos(math.pi * (step - warmup) / (10 - warmup))) / 2
        assert optim.cosine(step, 10, warmup=warmup) == pytest.approx(wanted, abs=1e-15)
    assert optim.cosine(3, 3, warmup=3) == 1.0
    assert optim.cosine(4, 4, warmup=3) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("power", [0.9, 2.0])
def test_polynomial_at_every_step(power: float) -> None:
    for step in range(8):
        assert optim.polynomial(step, 7, power=power) == pytest.approx((1 - step / 7) ** power, abs=1e-15)
    assert optim.polynomial(9, 7, power=power) == 0.0
    assert optim.polynomial(0, 1) == 1.0
    assert optim.polynomial(3, 7, power=0.0) == 1.0


@pytest.mark.parametrize("schedule", [optim.cosine, optim.polynomial])
def test_steps_that_cannot_be(schedule: object) -> None:
    for step, steps in ((-1, 5), (0, 0)):
        with pytest.raises(DubitoError, match="no such step"):
            schedule(step, steps)  # type: ignore[operator]


def sparse(rows: list[int], values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([rows]), values, shape, check_invariants=True)


@pytest.mark.parametrize("shape", [(6, 4), (6, 2, 2)])
def test_row_adam_is_adam_on_the_rows_that_occur(shape: tuple[int, ...]) -> None:
    g = torch.Generator().manual_seed(0)
    table = nn.Parameter(torch.randn(shape, generator=g, dtype=torch.float64))
    dense = nn.Parameter(torch.randn(3, generator=g, dtype=torch.float64))
    idle = nn.Parameter(torch.ones(2, dtype=torch.float64))
    named = [("table", table), ("dense", dense), ("idle", idle)]
    opt = optim.row_adam(named, lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)
    p = {0: table.detach().numpy().copy(), 1: dense.detach().numpy().copy()}
    m, v = ({k: np.zeros_like(x) for k, x in p.items()} for _ in range(2))
    for t, rows in enumerate(([0, 2, 5], [2, 1, 2], [4], [5, 0], [1, 1, 3], [0, 1, 3, 4]), start=1):
        values = torch.randn(len(rows), *shape[1:], generator=g, dtype=torch.float64)
        table.grad = sparse(rows, values, table.shape)
        dense.grad = torch.randn(3, generator=g, dtype=torch.float64)
        whole = {0: table.grad.to_dense().numpy().copy(), 1: dense.grad.numpy() + 0.1 * p[1]}
        opt.step()
        assert table.grad is not None
        np.testing.assert_allclose(table.grad.to_dense(), whole[0])
        for k, places in ((0, sorted(set(rows))), (1, range(3))):
            for i in places:
                m[k][i] = 0.8 * m[k][i] + 0.2 * whole[k][i]
                v[k][i] = 0.95 * v[k][i] + 0.05 * whole[k][i] ** 2
                p[k][i] -= 0.1 * (m[k][i] / (1 - 0.8**t)) / (np.sqrt(v[k][i] / (1 - 0.95**t)) + 1e-3)
        np.testing.assert_allclose(table.detach(), p[0], atol=1e-12)
        np.testing.assert_allclose(dense.detach(), p[1], atol=1e-12)
    assert idle.tolist() == [1.0, 1.0]


def test_what_runs_in_one_kernel() -> None:
    named = [("w", nn.Parameter(torch.ones(2)))]
    assert optim.adam(named).param_groups[0]["fused"] is True
    assert optim.adam(named, foreach=True).param_groups[0]["fused"] is not True
    assert optim.sgd(named, lr=0.5).param_groups[0]["fused"] is True


def test_decay_leaves_the_channel_alone() -> None:
    w, c, b = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    named = [("head.weight", w), ("channel.weight", c), ("head.bias", b)]
    first, second = optim.groups(named, 0.3, "networks")
    assert (len(first["params"]), first["params"][0] is w, first["weight_decay"]) == (1, True, 0.3)
    assert ([p is q for p, q in zip(second["params"], (c, b))], second["weight_decay"]) == ([True] * 2, 0.0)
    matrices = optim.groups(named, 0.3, "matrices")[0]["params"]
    assert [p is q for p, q in zip(matrices, (w, c))] == [True, True]
    with pytest.raises(DubitoError, match="at least 0"):
        optim.groups(named, -0.1, "all")


def test_lars_where_a_norm_is_zero() -> None:
    still, empty = nn.Parameter(torch.full((2, 2), 0.5)), nn.Parameter(torch.zeros(2, 2))
    decaying = nn.Parameter(torch.full((2,), 2.0))
    still.grad, empty.grad, decaying.grad = torch.zeros(2, 2), torch.ones(2, 2), torch.tensor([3.0, 4.0])
    named = [("still", still), ("empty", empty), ("decaying", decaying)]
    optim.lars(named, lr=1.0, momentum=0.0, weight_decay=0.1, trust=0.5, decay="all").step()
    torch.testing.assert_close(still.detach(), torch.full((2, 2), 0.45))  # only the decay, at the plain rate
    torch.testing.assert_close(empty.detach(), -torch.ones(2, 2))
    small = nn.Parameter(torch.full((2, 2), 0.1))
    small.grad = torch.full((2, 2), 0.2)
    optim.lars([("small", small)], lr=1.0, momentum=0.0, weight_decay=0.0, trust=0.5).step()
    torch.testing.assert_close(small.detach(), torch.full((2, 2), 0.05))
    norm = math.sqrt(8)
    ratio = 0.5 * norm / (5 + 0.1 * norm)
    torch.testing.assert_close(decaying.detach(), 2 - ratio * torch.tensor([3.2, 4.2]))
    for bad in ({"lr": -1.0}, {"momentum": -0.1}, {"trust": -1e-3}):
        with pytest.raises(DubitoError, match="at least 0"):
            optim.lars(named, **bad)
    optim.lars(named, lr=0.0, momentum=0.0, trust=0.0)
    assert optim.LARS([still]).param_groups[0]["weight_decay"] == 0.0
