"""Inputs that break careless code, and the sentence that is raised when they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def promise(kept: bool | Tensor, sentence: str) -> None:
    """Raise AssertionError with the broken promise, unless it was kept."""
    if not bool(kept):
        raise AssertionError(f"broken promise: {sentence}")


@contextmanager
def during(sentence: str) -> Iterator[None]:
    """Note on any exception which promise was being tried."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while checking: {sentence}")
        raise


def close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Same shape, and equal up to tolerance relative to the larger of 1 and |b|."""
    if a.shape != b.shape:
        return False
    a, b = a.detach().double(), b.detach().double()
    return bool(((a - b).abs() <= tolerance * b.abs().clamp(min=1)).all())


def extreme_scores(size: int, dtype: torch.dtype, largest: float) -> Tensor:
    """Rows ``(n, size)`` of scores: zeros, ties, and +-1 to +-`largest` in patterns that saturate a softmax."""
    one, positions = torch.ones(size, dtype=torch.float64), torch.arange(size)
    shapes = [
        one,
        -one,
        torch.where(positions == 0, 1.0, -1.0),
        torch.where(positions == size - 1, 1.0, 0.0),
        torch.where(positions == 0, -1.0, 0.0),
        torch.where(positions % 2 == 0, 1.0, -1.0),
        torch.where(positions < 2, 1.0, -1.0),
        torch.linspace(-1, 1, size),
        torch.linspace(1, 0, size),
    ]
    # a quarter of the range leaves room for differences of two scores and a sum over a few rows
    top = min(largest, torch.finfo(dtype).max / 4)
    sizes = [m for m in (1.0, 100.0, 1e4) if m < top] + [top]
    rows = [0.0 * one] + [m * shape.double() for m in sizes for shape in shapes]
    return torch.stack(rows).to(dtype)


def random_scores(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Gaussian scores of standard deviation 2 from a generator of their own."""
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
