"""Tiles of the kernels: they cover every pixel and channel once and fit into a processor's memory."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess

import pytest

from dubito._fused import kernels, tiles
from dubito._fused.networks import convolutions
from dubito._fused.tiles import Shape
from dubito.backbones import build

IMAGES = 128
SHARED = 227 * 1024  # bytes that a block may have on an H100 or H200
SHAPES = sorted(
    {
        s
        for name in ("wrn-28-2", "resnet32", "resnet56")
        for s in convolutions(build(name, (3, 32, 32))).values()
    },
    key=str,
)


def numbers(launch) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", launch.name.split("<")[1])]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("back", [False, True])
def test_convolutions(shape, back):
    launch = tiles.convolution(shape, IMAGES, back)
    inputs, outputs, side, stride, taps, rows, images, *cut = numbers(launch)
    columns, buffers, deep, high, blocks = cut
    assert (inputs, outputs) == ((shape.outputs, shape.inputs) if back else (shape.inputs, shape.outputs))
    assert (stride, taps) == (shape.stride, shape.taps)
    pixels = images * rows * side
    assert launch.grid[0] * pixels == IMAGES * side * side
    assert launch.grid[1] * columns == outputs
    assert images == 1 or rows == side
    warps = launch.threads // 32
    assert warps * 16 * high * min(columns, 32) == pixels * columns
    assert launch.threads % (inputs // 8) == 0
    assert launch.threads % outputs == 0
    assert launch.shared <= SHARED
    stages = (3 if taps == 9 else 1) * inputs // deep
    assert 2 <= buffers <= stages or buffers == stages == 1
    assert inputs % deep == 0
    assert blocks * launch.threads <= 2048
    assert high == 4 or not (back and stride == 2)
    assert launch.parts == launch.grid[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_of_weights(shape):
    launch = tiles.weight_gradient(shape, IMAGES)
    inputs, outputs, side, _, _, rows, images, out, into = numbers(launch)
    assert launch.grid[1:] == (outputs // out, inputs // into)
    assert launch.parts * images * rows * side == IMAGES * side * side
    assert launch.grid[0] <= launch.parts
    warps = math.ceil(out / 32) * (into // 8)
    assert 8 % warps == 0
    assert launch.shared <= SHARED


def test_cuts_that_are_not_as_the_rules_have_them(monkeypatch):
    shape, cut = Shape(64, 64, 16), tiles.Cut(256, 32, 3, 16, 4, 2)
    there, back, weight = tiles.launches(shape, IMAGES)
    monkeypatch.setitem(tiles.CUTS, (shape, True), cut)
    monkeypatch.setitem(tiles.WEIGHT_CUTS, shape, tiles.WeightCut(256, 32, 32, 64))
    found = tiles.launches(shape, IMAGES)
    assert found[0] == there
    assert found[1] == tiles.cut_convolution(shape, IMAGES, True, cut) != back
    assert numbers(found[2])[-2:] == [32, 32] != numbers(weight)[-2:]


def test_shapes_without_tiles():
    assert not tiles.known(Shape(24, 24, 32))
    assert not tiles.known(Shape(16, 16, 28))
    assert not tiles.known(Shape(16, 16, 32, stride=2))


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no CUDA compiler")
def test_the_source_compiles(tmp_path):
    names = {f"unpool<{c}>": "unpool" for c in (64, 128)}
    for shape, back in itertools.product(SHAPES, (False, True)):
        names[tiles.convolution(shape, IMAGES, back).name] = "conv"
        names[tiles.weight_gradient(shape, IMAGES).name] = "conv_weight"
    lines = [f"auto {kind}_{i} = &{name};" for i, (name, kind) in enumerate(names.items())]
    file = tmp_path / "all.cu"
    file.write_text(kernels._source() + "\n".join(lines))
    for architecture in ("sm_80", "sm_90"):
        command = [
            "nvcc",
            f"-arch={architecture}",
            "-std=c++17",
            "-cubin",
            "-o",
            str(tmp_path / "all"),
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
