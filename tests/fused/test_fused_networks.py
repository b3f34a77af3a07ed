"""Residual networks as one function: against autograd in float64, and where they are used."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from dubito._fused import Fused, known, suits
from dubito._fused.plain import Plain
from dubito.backbones import build
from dubito.backbones.resnet import ResNetCIFAR
from dubito.backbones.wide import WideResNet

NETWORKS = {
    "wide": lambda: WideResNet(depth=10),
    "wide, two blocks a group": lambda: WideResNet(depth=16),
    "cifar": lambda: ResNetCIFAR(depth=8),
    "cifar, two blocks a stage": lambda: ResNetCIFAR(depth=14),
    "grey": lambda: ResNetCIFAR(1, depth=8),
}


def network_of(name):
    """In float64, with scales and shifts of the norms that are not 1 and 0."""
    network, g = NETWORKS[name]().double(), torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            with torch.no_grad():
                layer.weight.uniform_(0.5, 1.5, generator=g)
                layer.bias.uniform_(-0.5, 0.5, generator=g)
    return network.train()


@pytest.mark.parametrize("name", NETWORKS)
def test_features_gradients_and_moments_are_those_of_autograd(name):
    theirs = network_of(name)
    ours = copy.deepcopy(theirs)
    fused, g = Fused(ours, Plain()), torch.Generator().manual_seed(1)
    for _ in range(2):  # also when the running moments have moved, and gradients are there
        x = torch.randn(4, theirs.stem.in_channels, 32, 32, generator=g, dtype=torch.float64)
        weight = torch.randn(4, theirs.out_features, generator=g, dtype=torch.float64)
        expected, found = theirs(x), fused(x)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        (expected * weight).sum().backward()
        (found * weight).sum().backward()
    for (place, a), b in zip(theirs.named_parameters(), ours.parameters()):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-8, atol=1e-9, msg=lambda m, p=place: f"{p}: {m}")
    for (place, a), b in zip(theirs.named_buffers(), ours.named_buffers()):
        torch.testing.assert_close(b[1], a, rtol=1e-8, atol=1e-9, msg=lambda m, p=place: f"{p}: {m}")


@pytest.mark.parametrize("name", NETWORKS)
def test_evaluation_goes_by_the_running_moments(name):
    network, g = network_of(name), torch.Generator().manual_seed(2)
    x = torch.randn(8, network.stem.in_channels, 32, 32, generator=g, dtype=torch.float64)
    network(x)
    before = {k: v.clone() for k, v in network.state_dict().items()}
    network.eval()
    found = Fused(network, Plain())(x)
    torch.testing.assert_close(found, network(x).detach(), rtol=1e-10, atol=1e-10)
    assert not found.requires_grad
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())


def test_networks_that_are_known():
    assert known(build("wrn-28-2", (3, 32, 32)))
    assert known(build("resnet32", (3, 32, 32)))
    assert not known(build("lenet5", (1, 28, 28)))
    assert not known(ResNetCIFAR(depth=8, shortcut="project"))
    assert not known(WideResNet(depth=10, width=10))
    assert not known(WideResNet(32, depth=10))
    other = WideResNet(depth=10)
    other.norm.eps = 1e-3  # evaluation takes one for all
    assert not known(other)


def test_batches_that_are_taken():
    fused = Fused(WideResNet(depth=10, width=1), Plain())
    assert fused.takes(torch.zeros(4, 3, 32, 32))
    assert fused.takes(torch.zeros(8, 3, 32, 32))
    assert not fused.takes(torch.zeros(5, 3, 32, 32))
    assert not fused.takes(torch.zeros(4, 3, 28, 28))
    assert not fused.takes(torch.empty(1 << 14, 3, 32, 32, device="meta"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_nothing_suits_without_a_gpu():
    assert not suits(build("wrn-28-2", (3, 32, 32)), (128, 3, 32, 32))
