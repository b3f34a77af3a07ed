"""Convolutions of few channels: the op and its gradients, the layers it takes over, the kernels interpreted."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dubito import _thin as thin
from dubito.backbones import build
from integrals import interpreted

SHAPES = [
    (2, 16, 16, 8, 8),
    (3, 32, 16, 5, 7),
    (1, 16, 64, 4, 9),
]  # images, channels in and out, height, width


def tensors(shape, device="cpu", dtype=torch.float32):
    count, inputs, outputs, height, width = shape
    g = torch.Generator().manual_seed(0)
    x = torch.randn(count, inputs, height, width, generator=g)
    grad = torch.randn(count, outputs, height, width, generator=g)
    weight = torch.randn(outputs, inputs, 3, 3, generator=g) / 10
    return x.to(device, dtype), weight.to(device), grad.to(device, dtype)


def both(function, x, weight, grad):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = function(x, weight)
    return (y, *torch.autograd.grad(y, (x, weight), grad))


@pytest.mark.parametrize("shape", SHAPES)
def test_op_and_gradients_are_those_of_a_convolution(shape):
    x, weight, grad = tensors(shape)
    ours = both(lambda x, w: thin.thin_conv(x, w, False), x, weight, grad)
    theirs = both(lambda x, w: F.conv2d(x, w, padding=1), x, weight, grad)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert ours[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["thin_conv", "thin_conv_weight"])
def test_what_the_compiler_is_told(name):
    """Shapes, types and memory order of the results, and that the gradient is registered as torch wants it."""
    x, weight, grad = tensors(SHAPES[1])
    arguments = (x.requires_grad_(), weight.requires_grad_(), False) if name == "thin_conv" else (x, grad)
    torch.library.opcheck(getattr(thin, name), arguments)


def test_layers_that_are_taken_over():
    """The first ten of a residual network after its stem; names stay."""
    net = build("resnet32", (3, 32, 32))
    chosen = [layer for layer in net.modules() if thin.suits(layer)]
    assert len(chosen) == 10
    assert not thin.suits(nn.Conv2d(16, 16, 3, padding=1))  # a bias
    assert not thin.suits(nn.Conv2d(16, 32, 3, padding=1, bias=False))
    assert not thin.suits(nn.Conv2d(16, 16, 3, padding=1, stride=2, bias=False))
    assert not thin.suits(nn.Conv2d(16, 16, 3, padding=1, bias=False, padding_mode="circular"))
    before = net.state_dict()
    count = thin.adopt(net)
    assert count == (len(chosen) if find_spec("triton") else 0)
    assert net.state_dict().keys() == before.keys()
    assert all(layer.weight is not None for layer in chosen)


def test_a_network_with_thin_layers_computes_the_same():
    net = build("resnet32", (3, 8, 8)).eval()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = net(x)
    for layer in net.modules():
        if thin.suits(layer):
            layer.__class__ = thin.ThinConv2d
    torch.testing.assert_close(net(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
def test_kernels_in_the_interpreter():
    interpreted.run(f"""
import torch
from torch.nn import functional as F
from dubito._thin_triton import convolve, weight_gradient
for count, inputs, outputs, height, width in {SHAPES}:
    g = torch.Generator().manual_seed(0)
    last = torch.channels_last
    x = torch.randn(count, inputs, height, width, generator=g).contiguous(memory_format=last).requires_grad_()
    w = torch.randn(outputs, inputs, 3, 3, generator=g).contiguous(memory_format=last).requires_grad_()
    grad = torch.randn(count, outputs, height, width, generator=g).contiguous(memory_format=last)
    y = F.conv2d(x, w, padding=1)
    d_x, d_w = torch.autograd.grad(y, (x, w), grad)
    x, w = x.detach(), w.detach()
    ours = convolve(x, w, False), convolve(grad, w, True), weight_gradient(x, grad)
    for ours, theirs in zip(ours, (y, d_x, d_w)):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-4)
""")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "shape", [*SHAPES, (128, 16, 16, 32, 32), (128, 64, 64, 8, 8), (100, 32, 64, 16, 16)]
)
def test_kernels_on_a_gpu(shape):
    """bfloat16 in and out, against a convolution in float32 of the same rounded numbers."""
    x, weight, grad = tensors(shape, "cuda", torch.bfloat16)
    rounded = weight.bfloat16().float()
    ours = both(lambda x, w: thin.thin_conv(x, w, False), x, weight, grad)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        theirs = both(lambda x, w: F.conv2d(x, w, padding=1), x.float(), rounded, grad.float())
    for a, b in zip(ours, theirs):
        assert float((a.float() - b).abs().max() / b.abs().max()) < 6e-3
