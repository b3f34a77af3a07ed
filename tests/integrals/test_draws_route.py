"""Given draws on the way to their kernels: how far they reach, and how runs are put side by side."""

from __future__ import annotations

import sys

import plain_kernels
import pytest
import torch

from dubito import integrals
from dubito.integrals import draws, fused


@pytest.fixture
def kernels(monkeypatch):
    """Kernels for 8 classes and 4 factors."""
    made = plain_kernels.draws()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(integrals, "triton_draws", made, raising=False)
    monkeypatch.setattr(fused, "ready", lambda *tensors: True)
    return made


def fits(rows, classes, rank=0, **others):
    given = {
        "mean": torch.zeros(rows, classes),
        "scale": torch.ones(rows, classes),
        "noise": torch.zeros(5, 1, classes),
        "factors": torch.zeros(rows, classes, rank) if rank else None,
        "factor_noise": torch.zeros(5, 1, rank) if rank else None,
    }
    return draws.fit(**(given | others))


def test_what_the_kernels_take(kernels, monkeypatch):
    assert fits(9, 8)
    assert fits(9, 3, 4)
    assert fits(2, 8, 4)
    assert not fits(2, 9)
    assert not fits(2, 9, 4)
    assert not fits(2, 3, 5)
    assert not fits(4, 3, 2, factor_noise=torch.zeros(5, 4, 2))
    assert not fits(4, 3, 2, noise=torch.zeros(5, 4, 3))
    assert not fits(4, 3, factors=torch.zeros(4, 3, 2).double(), factor_noise=torch.zeros(5, 1, 2))
    assert not fits(4, 3, scale=torch.ones(4, 1))
    monkeypatch.setattr(fused, "ready", lambda *tensors: False)
    assert not fits(9, 8)


def test_runs_become_groups():
    """A mapped axis, wherever it is, goes before the groups and joins them; what is not mapped is repeated."""
    x = torch.arange(24.0).reshape(2, 3, 4)
    for dim in range(3):
        parts = [x.select(dim, i) for i in range(x.shape[dim])]
        assert torch.equal(draws._merge(x, dim, len(parts)), torch.cat(parts))
    assert torch.equal(draws._merge(x, None, 3), torch.cat([x, x, x]))
    assert draws._merge(None, None, 3) is None
    row, none = draws._contiguous(x.movedim(0, 2), None)
    assert row.is_contiguous()
    assert none is None


@pytest.mark.parametrize("rank", [0, 2])
def test_mapped_runs_with_their_own_draws(kernels, rank):
    """The same as one run after the other, groups and all."""
    g = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(3, 4, 5, generator=g), torch.rand(3, 4, 5, generator=g)
    noise = torch.randn(3, 6, 1, 5, generator=g)
    factors = torch.randn(3, 4, 5, rank, generator=g) if rank else None
    shared = torch.randn(3, 6, 1, rank, generator=g) if rank else None
    dims = (0, 0, 0, 0 if rank else None, 0 if rank else None)
    found = torch.vmap(lambda *given: draws.average(*given, 0.7), dims)(mean, scale, noise, factors, shared)
    for i in range(3):
        u = mean[i] + scale[i] * noise[i]
        if rank:
            u = u + torch.einsum("bkr,sr->sbk", factors[i], shared[i, :, 0])
        torch.testing.assert_close(found[i], torch.softmax(u / 0.7, -1).mean(0).log())
    one = draws.average(mean[0], scale[0], noise[0], None, None, torch.full((4, 1), 0.7))
    wanted = torch.softmax((mean[0] + scale[0] * noise[0]) / 0.7, -1).mean(0).log()
    torch.testing.assert_close(one, wanted)
