"""Sizes, first weights and behaviour of the networks."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dubito.backbones import CNN4, CNN9, MLP, LeNet5, ResNet50, ResNetCIFAR, WideResNet, build
from dubito.errors import DubitoError

SHAPES = {
    "mlp": (2,),
    "linear": (5,),
    "lenet5": (1, 28, 28),
    "cnn4": (1, 28, 28),
    "cnn4-128": (1, 32, 32),
    "cnn9": (3, 32, 32),
    "resnet32": (3, 32, 32),
    "resnet56": (3, 32, 32),
    "wrn-28-2": (3, 32, 32),
    "resnet50": (3, 64, 64),
    "resnet50-cifar": (3, 32, 32),
    "resnetv2-50": (3, 64, 64),
}
SMALL = ("mlp", "lenet5", "cnn4", "cnn9", "resnet32", "wrn-28-2")


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def with_head(network: nn.Module, classes: int) -> int:
    return count(network) + (network.out_features + 1) * classes


def conv_size(inputs: int, outputs: int, kernel: int) -> int:
    return (inputs * kernel * kernel + 1) * outputs


@pytest.mark.parametrize(
    ("name", "classes", "known"),
    [
        # The counts other implementations report, each with its usual linear head.
        pytest.param("resnet32", 10, 464_154, marks=pytest.mark.paper("lukasik2020 table 6")),
        pytest.param("resnet56", 10, 853_018, marks=pytest.mark.paper("lukasik2020 table 6")),
        pytest.param("resnetv2-50", 1000, 25_549_352, marks=pytest.mark.paper("lukasik2020 table 6")),
        ("resnet50", 1000, 25_557_032),
        ("wrn-28-2", 10, 1_467_610),
    ],
)
def test_known_parameter_counts(name, classes, known):
    assert with_head(build(name, SHAPES[name]), classes) == known


def test_counts_by_hand():
    assert count(MLP(2)) == 3 * 2000 + 2001 * 2000
    lenet = conv_size(1, 6, 5) + conv_size(6, 16, 5) + conv_size(16, 120, 5) + (7 * 7 * 120 + 1) * 84
    assert count(LeNet5()) == lenet == 544_696
    assert count(CNN4()) == sum(conv_size(a, b, 3) for a, b in ((1, 32), (32, 32), (32, 64), (64, 64)))
    assert count(CNN4(1, (128,) * 4)) == conv_size(1, 128, 3) + 3 * conv_size(128, 128, 3)


@pytest.mark.paper("collier2020 table 7")
def test_nine_layers_by_hand():
    widths = (3, 128, 128, 128, 256, 256, 256, 512, 256, 128)
    convs = sum(conv_size(a, b, 3) for a, b in pairwise(widths))
    net = CNN9()
    assert count(net) == convs + 2 * sum(widths[1:])
    assert {m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)} == {2}
    assert [m.padding[0] for m in net.convs] == [1] * 6 + [0] * 3
    assert net.dropout.p == 0.25
    assert net.slope == 0.01


@pytest.mark.parametrize(("size", "side"), [(28, 1), (32, 2)])
def test_last_block_is_unpadded(size, side):
    seen = []
    net = CNN9(1).eval()
    net.convs[-1].register_forward_hook(lambda *args: seen.append(tuple(args[2].shape)))
    net(torch.zeros(1, 1, size, size))
    assert seen == [(1, 128, side, side)]


@pytest.mark.parametrize(("kind", "whole"), [("channel", True), ("element", False)])
def test_what_is_dropped_as_one(kind, whole):
    torch.manual_seed(0)
    dropped = CNN9(1, dropout_of=kind).dropout(torch.ones(4, 64, 6, 6)) == 0
    share = dropped.float().mean((-2, -1))
    assert bool(((share == 0) | (share == 1)).all()) == whole
    assert 0.15 < share.mean() < 0.35
    with pytest.raises(DubitoError, match="channel"):
        CNN9(1, dropout_of="row")


def test_norm_before_or_after_the_activation():
    x = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    for last in (False, True):
        net, seen = CNN9(1, norm_last=last).eval(), []
        net.norms[1].register_forward_hook(lambda *args, seen=seen: seen.append(args[1][0]))
        net.norms[0].register_forward_hook(lambda *args, seen=seen: seen.append(args[2]))
        net(x)
        into = seen[0] if last else F.leaky_relu(seen[0], 0.01)
        expected = net.convs[1](into)
        assert torch.allclose(seen[1], F.leaky_relu(expected, 0.01) if last else expected, atol=1e-5)


def test_depths_and_strides():
    wide = WideResNet()
    assert len(wide.blocks) == 12
    assert [b.conv1.stride[0] for b in wide.blocks] == [1] * 4 + [2, 1, 1, 1] * 2
    assert len(ResNetCIFAR(depth=56).blocks) == 27
    # The stride sits in the 3x3 convolution of a bottleneck.
    assert [b.conv2.stride[0] for b in ResNet50().blocks if b.conv2.stride[0] == 2] == [2, 2, 2]
    assert all(b.conv1.stride[0] == 1 for b in ResNet50().blocks)


def test_batch_norm_constants_and_no_bias():
    for net in (WideResNet(), ResNetCIFAR(), ResNet50()):
        norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
        assert {(m.eps, m.momentum) for m in norms} == {(1e-5, 0.1)}
        assert all(m.bias is None for m in net.modules() if isinstance(m, nn.Conv2d))


def test_options():
    projected = with_head(ResNetCIFAR(shortcut="project"), 10)
    assert projected == 464_154 + (16 * 32 + 64) + (32 * 64 + 128)
    once = CNN4(pool="once")
    assert once(torch.zeros(1, 1, 28, 28)).shape == (1, 64)
    assert once.pool_after == (1,)
    assert CNN9(1, padded=True).eval()(torch.zeros(1, 1, 8, 8)).shape == (1, 128)
    assert LeNet5(3, 33)(torch.zeros(1, 3, 33, 33)).shape == (1, 84)
    assert MLP(4, hidden=())(torch.eye(4)).equal(torch.eye(4))


@pytest.mark.parametrize("name", SHAPES)
def test_shape_and_determinism(name):
    def make(seed: int) -> nn.Module:
        return build(name, SHAPES[name], generator=torch.Generator().manual_seed(seed)).eval()

    first, second, other = make(1), make(1), make(2)
    x = torch.randn(2, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = first(x)
        assert features.shape == (2, first.out_features)
        assert features.isfinite().all()
        assert features.equal(second(x))
    if list(first.parameters()):
        assert not all(a.equal(b) for a, b in zip(first.parameters(), other.parameters()))


def test_global_generator_untouched():
    before = torch.random.get_rng_state()
    for name in SMALL:
        build(name, SHAPES[name])
    assert torch.random.get_rng_state().equal(before)


@pytest.mark.parametrize("init", ["glorot", "he", "torch"])
def test_first_weights_have_the_stated_law(init):
    net = MLP(400, hidden=(600,), init=init, generator=torch.Generator().manual_seed(0))
    weight, bias = net.layers[0].weight, net.layers[0].bias
    variance = {"glorot": 2 / 1000, "he": 2 / 400, "torch": 1 / (3 * 400)}[init]
    assert weight.var().item() == pytest.approx(variance, rel=0.02)
    if init == "torch":
        assert 0.9 / 20 < bias.abs().max().item() <= 1 / 20
    else:
        assert not bias.any()
    bound = {"glorot": math.sqrt(6 / 1000), "he": math.inf, "torch": 1 / 20}[init]
    assert weight.abs().max().item() <= bound


def test_paper_starts():
    assert not LeNet5().dense.bias.any()
    fan = 16 * 25 + 120 * 25
    assert LeNet5().conv3.weight.abs().max().item() == pytest.approx(math.sqrt(6 / fan), rel=0.01)
    assert WideResNet().blocks[5].conv1.weight.var().item() == pytest.approx(2 / (64 * 9), rel=0.05)


def test_refusals():
    with pytest.raises(DubitoError, match="did you mean 'lenet5'"):
        build("lenet", (1, 28, 28))
    with pytest.raises(DubitoError, match="did you mean 'glorot'"):
        build("lenet5", (1, 28, 28), init="glorott")
    with pytest.raises(DubitoError, match="reads images"):
        build("wrn-28-2", (10,))
    with pytest.raises(DubitoError, match="square"):
        build("lenet5", (1, 28, 30))
    for bad in (
        lambda: WideResNet(depth=27),
        lambda: ResNetCIFAR(depth=33),
        lambda: ResNetCIFAR(shortcut="none"),
        lambda: CNN4(pool="twice"),
        lambda: ResNet50(stem="tiny"),
        lambda: ResNet50(version=3),
    ):
        with pytest.raises(DubitoError):
            bad()
