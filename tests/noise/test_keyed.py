"""Classes drawn by inversion: the border of a class, the numbers gathered at once, the seed."""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch

from dubito.noise._keyed import draw_classes, draw_seed


def test_a_number_on_the_border_belongs_to_the_next_class():
    """The first class whose cumulative probability exceeds u; one of probability zero never."""
    rows = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]], dtype=torch.float64)
    which, u = np.array([0, 0, 0, 1, 1, 1]), np.array([0.0, 0.5, 0.999, 0.0, 0.25, 0.2])
    assert draw_classes(rows, which, u).tolist() == [0, 1, 1, 1, 2, 1]


def test_few_numbers_are_gathered_at_once():
    """4 million, 32 MiB, however many labels are drawn."""
    rows = torch.full((1, 1000), 1e-3, dtype=torch.float64)
    which, u = np.zeros(12_000, dtype=np.int64), np.linspace(0, 0.9999, 12_000)
    tracemalloc.start()
    found = draw_classes(rows, which, u)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 48 << 20
    assert np.abs(found - 1000 * u).max() <= 1.001


def test_seed_is_63_bits_of_the_generator():
    drawn, plain = (torch.Generator().manual_seed(5) for _ in range(2))
    for _ in range(20):
        assert draw_seed(drawn) == int(torch.randint(0, 2**63 - 1, (), generator=plain))
