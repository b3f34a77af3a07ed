"""The networks under vmap, torch.compile and channels-last memory."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from dubito.backbones import CNN9, LeNet5, ResNetCIFAR, WideResNet


def images(channels: int, size: int) -> torch.Tensor:
    return torch.randn(4, channels, size, size, generator=torch.Generator().manual_seed(3))


NETS = {
    "lenet5": (lambda g: LeNet5(generator=g), (1, 28)),
    "cnn9": (lambda g: CNN9(1, generator=g), (1, 28)),
    "resnet8": (lambda g: ResNetCIFAR(1, 8, generator=g), (1, 16)),
    "wrn-10-1": (lambda g: WideResNet(1, 10, 1, generator=g), (1, 16)),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("training", [False, True])
def test_vmap_over_networks_equals_a_loop(name, training):
    make, shape = NETS[name]
    nets = [make(torch.Generator().manual_seed(seed)).train(training) for seed in (0, 1)]
    if name == "cnn9":
        for net in nets:
            net.dropout.p = 0.0
    x = images(*shape)
    params, buffers = stack_module_state(nets)
    params = {k: v.detach() for k, v in params.items()}
    skeleton = copy.deepcopy(nets[0]).to("meta")

    def call(p, b):
        return functional_call(skeleton, (p, b), (x,))

    with torch.no_grad():
        together = vmap(call, randomness="different")(params, buffers)
        one_by_one = torch.stack([net(x) for net in nets])
    assert torch.allclose(together, one_by_one, atol=1e-4, rtol=1e-4)
    if training and buffers:
        running = [dict(net.named_buffers()) for net in nets]
        for key in buffers:
            assert torch.allclose(buffers[key], torch.stack([r[key] for r in running]), atol=1e-4)


@pytest.mark.parametrize("name", ["lenet5", "wrn-10-1"])
def test_compiles_without_a_break(name):
    make, shape = NETS[name]
    net, x = make(None), images(*shape)
    net.eval()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.allclose(compiled(x), net(x), atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_channels_last_gives_the_same_numbers(name):
    make, shape = NETS[name]
    net, x = make(None).eval(), images(*shape)
    with torch.no_grad():
        plain = net(x)
        turned = net.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last))
    assert torch.allclose(plain, turned, atol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_inputs_stay_as_they_are_and_every_weight_learns(name):
    make, shape = NETS[name]
    net, x = make(torch.Generator().manual_seed(5)), images(*shape)
    before = x.clone()
    net(x).square().sum().backward()
    assert x.equal(before)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_dropout_is_off_at_prediction():
    net, x = CNN9(1), images(1, 28)
    net.eval()
    assert net(x).equal(net(x))
    net.train()
    with torch.random.fork_rng(devices=[]):
        assert not net(x).equal(net(x))
