"""A few float32 rows for tests of single steps, and how close they must come."""

from __future__ import annotations

import torch

F64 = torch.float64


def made(tau=0.5, rows=3, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    mean = torch.randn(rows, classes, generator=g)
    scale = torch.rand(rows, classes, generator=g) + 0.2
    return mean, scale, torch.full((rows, 1), tau), torch.arange(rows) % classes


def close(found, wanted, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(found.double(), torch.as_tensor(wanted, dtype=F64), rtol=rtol, atol=atol)
