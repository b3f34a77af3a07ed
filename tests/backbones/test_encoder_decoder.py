"""The compact encoder-decoder: sizes, strides, starts, and what an output pixel sees."""

from __future__ import annotations

import pytest
import torch

from dubito import DubitoError
from dubito.backbones import EncoderDecoder


@pytest.mark.parametrize("stride", [2, 4, 8])
@pytest.mark.parametrize("size", [(32, 48), (33, 47), (7, 9)])
def test_sizes(stride, size):
    network = EncoderDecoder(3, widths=(4, 8, 8), decoder=6, stride=stride, norm="group")
    found = network(torch.randn(2, 3, *size))
    assert found.shape == (2, 6, -(-size[0] // stride), -(-size[1] // stride))
    assert network.out_features == 6


def test_starts_from_its_generator():
    state = torch.get_rng_state()
    a, b, c = (
        EncoderDecoder(3, widths=(4, 8), decoder=4, generator=torch.Generator().manual_seed(s))
        for s in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), state)
    weights = [next(n.parameters()) for n in (a, b, c)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_every_parameter_learns():
    network = EncoderDecoder(3, widths=(4, 8, 8), decoder=4)
    network(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())
    assert all(float(p.grad.abs().max()) > 0 for p in network.parameters() if p.dim() > 1)


def test_images_are_independent_with_group_norm():
    network = EncoderDecoder(3, widths=(4, 8), decoder=4, norm="group").double()
    x = torch.randn(3, 3, 16, 20, dtype=torch.float64)
    torch.testing.assert_close(network(x)[1:2], network(x[1:2]))


def test_default_size_is_compact():
    parameters = sum(p.numel() for p in EncoderDecoder().parameters())
    assert 2_000_000 < parameters < 4_000_000


def test_refusals():
    with pytest.raises(DubitoError, match="stride"):
        EncoderDecoder(3, widths=(4, 8), stride=3)
    with pytest.raises(DubitoError, match="norm"):
        EncoderDecoder(3, norm="layer")
