"""The nine-layer network's kernels: in Triton's interpreter, and on a GPU alone, in networks and in lanes."""

from __future__ import annotations

import copy
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from dubito import fast, optim
from dubito._fused.nine import FusedCNN9
from dubito._random import generator
from dubito.backbones import CNN9
from dubito.data import LabelledData
from dubito.lanes import Lane, settings
from dubito.methods import parse
from dubito.model import Model
from interpreted import run

WITH_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
DIGITS, PHOTOGRAPHS = {}, {"padded": True, "norm_eps": 1e-3, "dropout_of": "element", "norm_last": True}
KINDS = (torch.float32, torch.bfloat16)

INTERPRETED = """
import torch
from grouped_cases import SMALL, check_image, check_norms, check_pool

for kind in (torch.float32, torch.bfloat16):
    for last in (False, True):
        check_norms(SMALL, last, kind)
    for size in ((2, 8, 6, 6), (2, 8, 7, 5), (1, 4, 2, 2)):
        check_pool(size, kind)
check_image()
"""


@WITH_TRITON
def test_in_the_interpreter():
    run(INTERPRETED)


def gpu(test):
    """A test on a GPU with Triton."""
    missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    return pytest.mark.gpu(missing(WITH_TRITON(test)))


@gpu
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_norms_on_a_gpu(last, kind):
    from grouped_cases import LAYERS, SMALL, check_norms

    check_norms((*LAYERS, *SMALL), last, kind, "cuda")


@gpu
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pools_on_a_gpu(kind):
    from grouped_cases import check_image, check_pool

    for size in ((35, 128, 32, 32), (35, 256, 14, 14), (3, 128, 15, 9), (1, 8, 2, 2)):
        check_pool(size, kind, "cuda")
    check_image("cuda")


def apart(found, expected):
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())


@gpu
@pytest.mark.parametrize(
    ("options", "side"), [(DIGITS, 28), (PHOTOGRAPHS, 32)], ids=["digits", "photographs"]
)
def test_a_network_is_as_near_to_float32_as_autocast_is(options, side):
    """Without dropout, which draws other numbers."""
    exact = CNN9(3, dropout=0.0, **options).to("cuda", memory_format=torch.channels_last).train()
    g = torch.Generator("cuda").manual_seed(0)
    with torch.no_grad():
        for norm in exact.norms:
            norm.weight.uniform_(0.5, 1.5, generator=g)
            norm.bias.uniform_(-0.5, 0.5, generator=g)
    ours, theirs, again = (copy.deepcopy(exact) for _ in range(3))
    x = torch.randn(128, 3, side, side, generator=g, device="cuda")
    weight = torch.randn(128, 128, generator=g, device="cuda") / 128
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        expected = exact(x)
        with torch.autocast("cuda", torch.bfloat16):
            half = theirs(x.contiguous(memory_format=torch.channels_last)).float()
        found = [FusedCNN9(network)(x) for network in (ours, again)]
        for features in (expected, half, *found):
            (features * weight).sum().backward()
        more = torch.randn(1001, 3, side, side, generator=g, device="cuda")
        with torch.no_grad():
            wider, right = FusedCNN9(ours.eval())(more), exact.eval()(more)
    assert found[0].dtype == torch.float32
    assert apart(found[0], expected) < 1.5 * apart(half, expected)
    errors = [
        [apart(p.grad, q.grad) for p, q in zip(network.parameters(), exact.parameters())]
        for network in (ours, theirs)
    ]
    assert sum(errors[0]) < 1.2 * sum(errors[1])
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(ours.parameters(), again.parameters()))
    assert apart(wider, right) < 0.05


def data_of(images=384, side=16):
    """Noise, brighter in the channel that the class names."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randint(0, 128, (images, 3, side, side), generator=g), torch.arange(images) % 4
    for c in range(3):
        x[y == c, c] += 100
    return LabelledData(x.to(torch.uint8), y)


def lane_of(seed=0, name="ce", **options):
    method, params = parse(name)
    stages = method.build(**params)
    backbone = CNN9(3, **PHOTOGRAPHS, **options, generator=generator(seed, 0, "backbone"))
    head = stages.head(backbone.out_features, 4, generator=generator(seed, 0, "head"))
    return Lane(Model(backbone, head, **stages.model), stages, data_of(), seed=seed, device="cuda")


def steps(lane, epochs, batch=64):
    return lane.steps(epochs=epochs, batch_size=batch, optimizer=partial(optim.adam, lr=1e-3))


@gpu
def test_a_lane_learns():
    """Captured steps with dropout; scores in batches of another size."""
    with settings(4):
        lane = lane_of()
        fast.together([steps(lane, 15)])
    assert [type(each) for each in lane.fused.values()] == [FusedCNN9]
    log_p = lane.log_probs(lane.data, batch_size=100)
    assert float((log_p.argmax(1) == lane.data.labels).double().mean()) > 0.9
    assert all(p.dtype == torch.float32 for p in lane.model.parameters())


@gpu
def test_lanes_of_two_networks_beside_others():
    names = ["coteaching:rate=0.2,ramp=3", "het:temperature=2,integration=mc,samples=100", "ce"]
    with settings(3):
        lanes = [lane_of(seed, name) for seed, name in enumerate(names)]
        before = [p.clone() for p in lanes[0].procedure.parameters()]
        fast.together([steps(lane, 3) for lane in lanes])
    assert [len(lane.fused) for lane in lanes] == [2, 1, 1]
    assert not any(torch.equal(p, q) for p, q in zip(lanes[0].procedure.parameters(), before))
    assert all(bool(lane.log_probs(lane.data).isfinite().all()) for lane in lanes)


@gpu
def test_a_lane_makes_the_same_steps_again_and_beside_others():
    """Bit for bit, without dropout, whose numbers lanes draw from one generator in turn."""

    def last(lanes):
        made = [lane_of(seed, dropout=0.0) for seed in range(lanes)]
        fast.together([steps(lane, 6) for lane in made])
        return {k: v.cpu() for k, v in made[0].procedure.state_dict().items()}

    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True):
        alone, again, beside = last(1), last(1), last(3)
    assert all(torch.equal(again[k], alone[k]) for k in alone)
    assert all(torch.equal(beside[k], alone[k]) for k in alone)
