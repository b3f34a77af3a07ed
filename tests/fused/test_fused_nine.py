"""The nine-layer network with operations of ours: against autograd in float64, and where it is used."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

from dubito._fused import nine, suits
from dubito._fused.grouped import Channels, How, Plain, normed
from dubito._fused.nine import FusedCNN9
from dubito.backbones import CNN9

DIGITS = {"padded": False, "norm_eps": 1e-5}
PHOTOGRAPHS = {"padded": True, "norm_eps": 1e-3, "dropout_of": "element", "norm_last": True}
NETWORKS = {
    "digits": (DIGITS, (1, 28, 28)),
    "photographs": (PHOTOGRAPHS, (3, 12, 12)),
    "four groups, odd sides": ({**PHOTOGRAPHS, "groups": 4, "slope": 0.2}, (9, 15, 13)),
}
EXACT = {"rtol": 1e-8, "atol": 1e-8}


def draws(*size, seed=0, device="cpu", kind=torch.float64):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(*size, generator=g, device=device, dtype=kind)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("size", "groups"), [((3, 8, 5, 4), 2), ((2, 4, 1, 1), 2), ((2, 6, 3, 3), 1)])
def test_one_operation_equals_its_layers(size, groups, last):
    how = How(groups, 0.1, 1e-3, last)
    y, w = draws(*size).requires_grad_(), draws(*size, seed=1)
    by = [t.requires_grad_() for t in draws(3, size[1], seed=2).unbind()]
    bias, gamma, beta = by
    u = y + bias[:, None, None]
    if last:
        expected = F.group_norm(F.leaky_relu(u, 0.1), groups, gamma, beta, 1e-3)
    else:
        expected = F.leaky_relu(F.group_norm(u, groups, gamma, beta, 1e-3), 0.1)
    found = normed(y, Channels(*by), how, Plain())
    torch.testing.assert_close(found, expected, **EXACT)
    ours, theirs = (torch.autograd.grad((z * w).sum(), [y, *by]) for z in (found, expected))
    torch.testing.assert_close(ours, theirs, **EXACT)


def network_of(name):
    """In float64, with biases, scales and shifts that are not 0, 1 and 0; and images."""
    options, size = NETWORKS[name]
    network = CNN9(size[0], **options).double()
    with torch.no_grad():
        for i, layer in enumerate([*network.convs, *network.norms]):
            layer.bias.copy_(0.3 * draws(len(layer.bias), seed=i))
        for i, norm in enumerate(network.norms):
            norm.weight.copy_(1 + 0.3 * draws(len(norm.weight), seed=99 + i))
    return network, draws(2, *size, seed=5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_features_and_gradients_are_those_of_autograd(name, training):
    """With dropout: both draw the same numbers."""
    theirs, x = network_of(name)
    ours = copy.deepcopy(theirs.train(training))
    features = []
    for network in (theirs, FusedCNN9(ours, Plain())):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            features.append(network(x))
    torch.testing.assert_close(features[1], features[0], **EXACT)
    for each in features:
        (each * draws(2, 128, seed=7)).sum().backward()
    for (place, a), b in zip(theirs.named_parameters(), ours.parameters()):
        torch.testing.assert_close(b.grad, a.grad, **EXACT, msg=lambda m, p=place: f"{p}: {m}")


def test_a_gradient_in_the_images():
    network, x = network_of("photographs")
    x.requires_grad_()
    ours, theirs = (
        torch.autograd.grad(net(x).sum(), x)[0]
        for net in (FusedCNN9(network.eval(), Plain()), network.eval())
    )
    torch.testing.assert_close(ours, theirs, **EXACT)


def test_where_it_is_used(monkeypatch):
    """A GPU with bfloat16, a CUDA build of torch, and Triton: else the network goes the way of all others."""
    network = CNN9(3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(nine, "find_spec", lambda name: name == "triton" or None)
    assert suits(network, (128, 3, 32, 32))
    assert suits(network, (3, 3, 28, 29))
    assert FusedCNN9(network, Plain()).takes(torch.zeros(5, 3, 30, 30))
    assert not FusedCNN9(network, Plain()).takes(torch.zeros(5, 3))
    for module, name, value in (
        (torch.cuda, "is_available", lambda: False),
        (torch.cuda, "get_device_capability", lambda: (7, 5)),
        (torch.version, "cuda", None),
        (nine, "find_spec", lambda name: None),
    ):
        with monkeypatch.context() as other:
            other.setattr(module, name, value)
            assert not suits(network, (128, 3, 32, 32))
