"""The CUDA kernels against the same operations in float32, layer by layer and as whole networks.

On a GPU, and on a CPU by emulation, which computes what the kernels compute with other units: there a barrier or a
wait that is missing shows as NaN, or as a result that depends on the order in which threads take turns.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import emulation
import pytest
import torch
from torch import nn

from dubito._fused import Fused
from dubito._fused.networks import convolutions
from dubito._fused.plain import Plain, _norm, _norm_back
from dubito._fused.tiles import Shape
from dubito.backbones import build
from dubito.backbones.resnet import ResNetCIFAR
from dubito.backbones.wide import WideResNet

ROUNDING = 4e-3  # bfloat16 keeps eight bits
NAMES = ("wrn-28-2", "resnet32")
SHAPES = sorted({s for n in NAMES for s in convolutions(build(n, (3, 32, 32))).values()}, key=str)
# By emulation on each commit: every kind of tile; the others each night.
SOME = (Shape(16, 16, 32), Shape(32, 64, 16, 2), Shape(32, 64, 16, 2, 1), Shape(128, 128, 8))
GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
)
CPU = pytest.mark.skipif(not emulation.available(), reason="no C++ compiler")


@dataclass
class Machine:
    """Where kernels run, and on how many images."""

    kind: str
    images: int
    kernels: Plain

    @property
    def device(self):
        return "cuda" if self.kind == "gpu" else "cpu"


@pytest.fixture(scope="session")
def machines(tmp_path_factory):
    """Machines by kind; for each set of shapes the kernels are compiled once."""
    made = {}

    def machine(kind, shapes):
        key = kind, tuple(shapes)
        if key not in made and kind == "gpu":
            from dubito._fused.kernels import Kernels

            made[key] = Machine(kind, 128, Kernels(shapes))
        elif key not in made:
            folder = tmp_path_factory.mktemp("emulated")
            made[key] = Machine(kind, 4, emulation.Emulated(shapes, folder, 4, turned=kind == "turned"))
        return made[key]

    return machine


def everywhere(cases, often):
    """Each case on a GPU and by emulation, on each commit or each night: parameters of `at` and of the test."""
    found = []
    for case in cases:
        shapes, rest = (SOME, ()) if case in often else (SHAPES, (pytest.mark.nightly,))
        found += [
            pytest.param(("gpu", SHAPES), case, marks=GPU, id=f"gpu-{case}"),
            pytest.param(("cpu", shapes), case, marks=(CPU, *rest), id=f"cpu-{case}"),
        ]
    return found


each_shape = pytest.mark.parametrize(("at", "shape"), everywhere(SHAPES, SOME), indirect=["at"])


@pytest.fixture
def at(request, machines):
    """The machine of a case."""
    return machines(*request.param)


@pytest.fixture
def draw(at):
    g = torch.Generator(at.device).manual_seed(0)

    def normal(*size, scale=1.0):
        return torch.randn(*size, generator=g, device=at.device) * scale

    return normal


@pytest.fixture(autouse=True)
def _exactly():
    """The reference without TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def apart(found, expected):
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())


def record(draw, channels):
    return torch.stack([draw(channels), *(draw(channels).abs() + 0.5 for _ in range(2)), draw(channels)])


def layer(draw, channels):
    norm = nn.BatchNorm2d(channels).to(draw(1).device)
    with torch.no_grad():
        norm.weight.copy_(draw(channels).abs() + 0.5)
        norm.bias.copy_(draw(channels))
    return norm


def images(draw, at, side, channels):
    return (draw(at.images, side, side, channels) + 0.3).bfloat16()


@each_shape
def test_convolution(at, shape, draw):
    x = images(draw, at, shape.side * shape.stride, shape.inputs)
    residual = images(draw, at, shape.side, shape.outputs)
    weight = draw(shape.outputs, shape.taps, shape.inputs, scale=0.1).bfloat16()
    active, ours = record(draw, shape.inputs), layer(draw, shape.outputs)
    theirs = copy.deepcopy(ours)
    wide = torch.relu(active[2] * x.float() + active[3]).bfloat16().float()
    for a, r, given in ((active, residual, wide), (None, None, x.float())):
        y, found = at.kernels.conv(x, weight, shape, a, r, ours)
        expected, _ = Plain().conv(given, weight.float(), shape, None, None if r is None else r.float())
        assert apart(y, expected) < ROUNDING
        assert apart(found, _norm(y.float(), theirs)) < 1e-5  # the moments of what was written
    for a, b in zip(ours.buffers(), theirs.buffers()):
        assert apart(a, b) < 1e-5 or not a.is_floating_point()


@each_shape
def test_gradient_in_the_input(at, shape, draw):
    side = shape.side * shape.stride
    grad, weight = (
        images(draw, at, shape.side, shape.outputs),
        draw(shape.outputs, shape.taps, shape.inputs, scale=0.1),
    )
    residual, mask, x = (images(draw, at, side, shape.inputs) for _ in range(3))
    active, norm = record(draw, shape.inputs), record(draw, shape.inputs)
    weight = weight.bfloat16()
    for r, m, stat in (
        (residual, (mask, active), (x, norm)), (None, (mask, None), (x, norm)), (None, None, None),
    ):  # fmt: skip
        found, back = at.kernels.conv_input(grad, weight, shape, r, m, stat)
        wide = [None if r is None else r.float(), None if m is None else (m[0].float(), m[1])]
        expected, _ = Plain().conv_input(grad.float(), weight.float(), shape, *wide)
        assert apart(found, expected) < ROUNDING
        if stat is not None:
            for a, b in zip(back, _norm_back(found.float(), (x.float(), norm))):
                assert apart(a, b) < 1e-4


@each_shape
def test_gradient_in_the_weights(at, shape, draw):
    x, grad = (
        images(draw, at, shape.side * shape.stride, shape.inputs),
        images(draw, at, shape.side, shape.outputs),
    )
    active = record(draw, shape.inputs)
    wide = torch.relu(active[2] * x.float() + active[3]).bfloat16().float()
    for a, given in ((active, wide), (None, x.float())):
        found = at.kernels.conv_weight(x, grad, shape, a)
        assert apart(found, Plain().conv_weight(given, grad.float(), shape)) < 2e-4
        assert torch.equal(found, at.kernels.conv_weight(x, grad, shape, a))


SIZES = ((16, 32), (32, 16), (64, 8), (128, 8))


@pytest.mark.parametrize(("at", "size"), everywhere(SIZES, SIZES), indirect=["at"])
def test_what_goes_over_all_pixels(at, size, draw):
    channels, side = size
    x, g, shortcut = (images(draw, at, side, channels) for _ in range(3))
    norm, factors = record(draw, channels), draw(3, channels)
    ours, plain = at.kernels, Plain()
    for r in (None, shortcut):
        wide = None if r is None else r.float()
        expected = plain.norm_input(g.float(), x.float(), factors, wide)
        assert apart(ours.norm_input(g, x, factors, r), expected) < ROUNDING
        assert apart(ours.join(x, norm, r), plain.join(x.float(), norm, wide)) < ROUNDING
    if channels in (32, 64):
        larger = images(draw, at, 2 * side, channels // 2)
        assert apart(ours.join(x, norm, larger), plain.join(x.float(), norm, larger.float())) < ROUNDING
    if channels >= 64:
        assert apart(ours.pool(x, norm), plain.pool(x.float(), norm)) < 1e-5
        grad = draw(at.images, channels)
        found, back = ours.unpool(grad, (x, norm), (g, norm))
        expected, _ = plain.unpool(grad, (x.float(), norm), (g.float(), norm))
        assert apart(found, expected) < ROUNDING
        for a, b in zip(back, _norm_back(found.float(), (g.float(), norm))):
            assert apart(a, b) < 1e-4


NETWORKS = [
    *(pytest.param("gpu", lambda n=n: build(n, (3, 32, 32)), marks=GPU, id=f"gpu-{n}") for n in NAMES),
    pytest.param("cpu", lambda: ResNetCIFAR(depth=8), marks=CPU, id="cpu-cifar"),
    pytest.param("cpu", lambda: WideResNet(depth=10), marks=(CPU, pytest.mark.nightly), id="cpu-wide"),
]


@pytest.mark.parametrize(("kind", "make"), NETWORKS)
def test_a_network_is_as_near_to_float32_as_autocast_is(kind, make, machines):
    exact = make()
    at = machines(kind, SHAPES if kind == "gpu" else tuple(dict.fromkeys(convolutions(exact).values())))
    g = torch.Generator(at.device).manual_seed(0)
    exact = exact.to(at.device, memory_format=torch.channels_last).train()
    ours, theirs, again = (copy.deepcopy(exact) for _ in range(3))
    x = torch.randn(at.images, 3, 32, 32, generator=g, device=at.device)
    weight = torch.randn(at.images, exact.out_features, generator=g, device=at.device) / at.images
    expected = exact(x)
    with torch.autocast(at.device, torch.bfloat16):
        half = theirs(x.contiguous(memory_format=torch.channels_last)).float()
    found = [Fused(network, at.kernels)(x) for network in (ours, again)]
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
    more = torch.randn(at.images * 7, 3, 32, 32, generator=g, device=at.device)
    assert apart(Fused(ours.eval(), at.kernels)(more), exact.eval()(more)) < 0.02


@CPU
def test_the_order_in_which_threads_take_turns_changes_nothing(machines):
    """A barrier that is missing would show: what one thread wrote, another would read too early."""
    shape, g = Shape(32, 64, 16, 2), torch.Generator().manual_seed(0)
    x, grad = (torch.randn(4, 32, 32, 32, generator=g), torch.randn(4, 16, 16, 64, generator=g))
    weight, norm = torch.randn(64, 9, 32, generator=g).bfloat16(), torch.rand(4, 32, generator=g)
    x, grad, found = x.bfloat16(), grad.bfloat16(), []
    for kind in ("cpu", "turned"):
        ops, then = machines(kind, SOME).kernels, nn.BatchNorm2d(64)
        y, moments = ops.conv(x, weight, shape, norm, then=then)
        back, going = ops.conv_input(grad, weight, shape, None, (x, norm), (x, norm))
        found.append([y, moments, *then.buffers(), back, *going, ops.conv_weight(x, grad, shape, norm)])
    assert all(torch.equal(a, b) for a, b in zip(*found))
    assert all(t.isfinite().all() for t in found[0])
