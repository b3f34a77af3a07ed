"""Convolutions with pixels as rows against torch's own."""

import pytest
import torch
from torch.nn import functional as F

from dubito._lanes.convolutions import HalfConvolutions
from dubito._lanes.pixel_rows import conv_rows


@pytest.mark.parametrize(("size", "padding"), [((3, 3), (1, 1)), ((3, 3), (0, 0)), ((5, 3), (2, 0))])
def test_value_and_gradients(size, padding):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 9, 8, generator=g, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 3, *size, generator=g, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, generator=g, dtype=torch.float64, requires_grad=True)
    found, wanted = conv_rows(x, weight, bias, padding), F.conv2d(x, weight, bias, padding=padding)
    torch.testing.assert_close(found, wanted)
    upstream = torch.randn(wanted.shape, generator=g, dtype=torch.float64)
    for a, b in zip(*(torch.autograd.grad(y, (x, weight, bias), upstream) for y in (found, wanted))):
        torch.testing.assert_close(a, b)


def test_many_networks_at_once():
    """Mapped over networks, with inputs of their own that need no gradient, through the switch that stacks use."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(3, 4, 1, 7, 7, generator=g)
    weight = torch.randn(3, 5, 1, 3, 3, generator=g, requires_grad=True)
    with HalfConvolutions(torch.float32, rows=True):
        found = torch.vmap(lambda a, w: F.conv2d(a, w, None, 1, 1).relu())(x, weight)
    wanted = torch.stack([F.conv2d(a, w, padding=1).relu() for a, w in zip(x, weight)])
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(y.square().sum(), weight)[0] for y in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
