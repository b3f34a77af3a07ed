"""The CUDA kernels against the same operations in float32, layer by layer and as whole networks."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import nn

from dubito._fused import Fused
from dubito._fused.networks import convolutions
from dubito._fused.plain import Plain, _norm, _norm_back
from dubito.backbones import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
IMAGES, ROUNDING = 128, 4e-3  # bfloat16 keeps eight bits
NAMES = ("wrn-28-2", "resnet32")
SHAPES = sorted({s for n in NAMES for s in convolutions(build(n, (3, 32, 32))).values()}, key=str)


@cache
def kernels():
    from dubito._fused.kernels import Kernels

    return Kernels(SHAPES)


@pytest.fixture
def draw():
    g = torch.Generator("cuda").manual_seed(0)

    def normal(*size, scale=1.0):
        return torch.randn(*size, generator=g, device="cuda") * scale

    return normal


@pytest.fixture(autouse=True)
def _exactly():
    """The reference without TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def apart(found, expected):
    found, expected = found.double(), expected.double()
    return float((found - expected).norm() / expected.norm())


def record(draw, channels):
    return torch.stack([draw(channels), *(draw(channels).abs() + 0.5 for _ in range(2)), draw(channels)])


def layer(draw, channels):
    norm = nn.BatchNorm2d(channels).cuda()
    with torch.no_grad():
        norm.weight.copy_(draw(channels).abs() + 0.5)
        norm.bias.copy_(draw(channels))
    return norm


def images(draw, side, channels):
    return (draw(IMAGES, side, side, channels) + 0.3).bfloat16()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolution(shape, draw):
    x = images(draw, shape.side * shape.stride, shape.inputs)
    residual = images(draw, shape.side, shape.outputs)
    weight = draw(shape.outputs, shape.taps, shape.inputs, scale=0.1).bfloat16()
    active, ours = record(draw, shape.inputs), layer(draw, shape.outputs)
    theirs = copy.deepcopy(ours)
    wide = torch.relu(active[2] * x.float() + active[3]).bfloat16().float()
    for a, r, given in ((active, residual, wide), (None, None, x.float())):
        y, found = kernels().conv(x, weight, shape, a, r, ours)
        expected, _ = Plain().conv(given, weight.float(), shape, None, None if r is None else r.float())
        assert apart(y, expected) < ROUNDING
        assert apart(found, _norm(y.float(), theirs)) < 1e-5  # the moments of what was written
    for a, b in zip(ours.buffers(), theirs.buffers()):
        assert apart(a, b) < 1e-5 or not a.is_floating_point()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient_in_the_input(shape, draw):
    side = shape.side * shape.stride
    grad, weight = (
        images(draw, shape.side, shape.outputs),
        draw(shape.outputs, shape.taps, shape.inputs, scale=0.1),
    )
    residual, mask, x = (images(draw, side, shape.inputs) for _ in range(3))
    active, norm = record(draw, shape.inputs), record(draw, shape.inputs)
    weight = weight.bfloat16()
    for r, m, stat in (
        (residual, (mask, active), (x, norm)), (None, (mask, None), (x, norm)), (None, None, None),
    ):  # fmt: skip
        found, back = kernels().conv_input(grad, weight, shape, r, m, stat)
        wide = [None if r is None else r.float(), None if m is None else (m[0].float(), m[1])]
        expected, _ = Plain().conv_input(grad.float(), weight.float(), shape, *wide)
        assert apart(found, expected) < ROUNDING
        if stat is not None:
            for a, b in zip(back, _norm_back(found.float(), (x.float(), norm))):
                assert apart(a, b) < 1e-4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient_in_the_weights(shape, draw):
    x, grad = images(draw, shape.side * shape.stride, shape.inputs), images(draw, shape.side, shape.outputs)
    active = record(draw, shape.inputs)
    wide = torch.relu(active[2] * x.float() + active[3]).bfloat16().float()
    for a, given in ((active, wide), (None, x.float())):
        found = kernels().conv_weight(x, grad, shape, a)
        assert apart(found, Plain().conv_weight(given, grad.float(), shape)) < 2e-4
        assert torch.equal(found, kernels().conv_weight(x, grad, shape, a))


@pytest.mark.parametrize(("channels", "side"), [(16, 32), (32, 16), (64, 8), (128, 8)])
def test_what_goes_over_all_pixels(channels, side, draw):
    x, g, shortcut = (images(draw, side, channels) for _ in range(3))
    norm, factors = record(draw, channels), draw(3, channels)
    ours, plain = kernels(), Plain()
    for r in (None, shortcut):
        wide = None if r is None else r.float()
        expected = plain.norm_input(g.float(), x.float(), factors, wide)
        assert apart(ours.norm_input(g, x, factors, r), expected) < ROUNDING
        assert apart(ours.join(x, norm, r), plain.join(x.float(), norm, wide)) < ROUNDING
    if channels in (32, 64):
        larger = images(draw, 2 * side, channels // 2)
        assert apart(ours.join(x, norm, larger), plain.join(x.float(), norm, larger.float())) < ROUNDING
    if channels >= 64:
        assert apart(ours.pool(x, norm), plain.pool(x.float(), norm)) < 1e-5
        grad = draw(IMAGES, channels)
        found, back = ours.unpool(grad, (x, norm), (g, norm))
        expected, _ = plain.unpool(grad, (x.float(), norm), (g.float(), norm))
        assert apart(found, expected) < ROUNDING
        for a, b in zip(back, _norm_back(found.float(), (g.float(), norm))):
            assert apart(a, b) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_as_near_to_float32_as_autocast_is(name, draw):
    exact = build(name, (3, 32, 32)).cuda().to(memory_format=torch.channels_last).train()
    ours, theirs, again = (copy.deepcopy(exact) for _ in range(3))
    x, weight = draw(IMAGES, 3, 32, 32), draw(IMAGES, exact.out_features) / IMAGES
    expected = exact(x)
    with torch.autocast("cuda", torch.bfloat16):
        half = theirs(x.contiguous(memory_format=torch.channels_last)).float()
    found = [Fused(network)(x) for network in (ours, again)]
    for features in (expected, half, *found):
        (features * weight).sum().backward()
    assert apart(found[0], expected) < 1.5 * apart(half, expected)
    errors = [
        [apart(p.grad, q.grad) for p, q in zip(network.parameters(), exact.parameters())]
        for network in (ours, theirs)
    ]
    assert sum(errors[0]) < 1.2 * sum(errors[1])
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(ours.parameters(), again.parameters()))
    for a, b in zip(ours.buffers(), exact.buffers()):
        assert not a.is_floating_point() or apart(a, b) < 0.02
        assert a.is_floating_point() or torch.equal(a, b)
    exact.load_state_dict(ours.state_dict())
    more = draw(1000, 3, 32, 32)
    assert apart(Fused(ours.eval())(more), exact.eval()(more)) < 0.02
