"""A crowd with known matrices."""

from __future__ import annotations

import torch

from dubito import noise
from dubito.data import LabelledData
from dubito.data._labelled import Triplets


def crowd_data(n, per_item, *, R=4, K=3, skill=0.7, seed=0, gap=3.0):
    source = torch.Generator().manual_seed(seed)
    y = torch.randint(0, K, (n,), generator=source)
    x = torch.randn(n, K, generator=source) + gap * torch.eye(K)[y]
    A = noise.pairwise_flippers(R, K, skill, source, dominant=True)
    found = Triplets(*noise.simulate(y, A, source, per_item))
    names = tuple(map(str, range(R)))
    return LabelledData(x, torch.full((n,), -1), clean=y, crowd=found, annotators=names), A
