"""How the kernels cut a convolution into tiles: template arguments, grids, and shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Shape:
    """A convolution from (N, `stride` * side, `stride` * side, inputs) to (N, side, side, outputs), 3x3 or 1x1."""

    inputs: int
    outputs: int
    side: int
    stride: int = 1
    taps: int = 9


@dataclass(frozen=True)
class Launch:
    """A kernel with its template arguments, its launch configuration, and its number of partial sums or tiles."""

    name: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    parts: int = 0


@dataclass(frozen=True)
class Cut:
    """How blocks share a convolution: each computes `pixels` pixels of `columns` output channels.

    Weights are loaded in stages of one column of the window and `deep` input channels, of which shared memory holds
    `buffers`. A warp has `high` small matrices, one below the other. Registers are limited so that `blocks` blocks
    fit on a processor.
    """

    pixels: int
    columns: int
    buffers: int
    deep: int
    high: int
    blocks: int


@dataclass(frozen=True)
class WeightCut:
    """How blocks share a gradient for weights: pixels per tile, output and input channels, and blocks in all.

    Blocks of the same channels each write a partial sum.
    """

    pixels: int
    outputs: int
    inputs: int
    blocks: int


# Measured exceptions to the rule of `_cut`, by shape and whether it is the gradient for the input.
CUTS: dict[tuple[Shape, bool], Cut] = {
    (Shape(32, 32, 32, 1, 9), False): Cut(512, 32, 2, 32, 4, 2),
    (Shape(32, 32, 32, 1, 9), True): Cut(512, 32, 6, 16, 4, 2),
    (Shape(64, 64, 16, 1, 9), False): Cut(256, 64, 2, 64, 4, 2),
    (Shape(64, 64, 16, 1, 9), True): Cut(256, 64, 3, 32, 4, 2),
    (Shape(128, 128, 8, 1, 9), False): Cut(128, 64, 2, 64, 2, 2),
    (Shape(128, 128, 8, 1, 9), True): Cut(128, 64, 2, 64, 2, 2),
    (Shape(16, 32, 32, 1, 9), False): Cut(512, 32, 3, 16, 4, 2),
    (Shape(16, 32, 32, 1, 1), False): Cut(512, 32, 1, 16, 4, 2),
    (Shape(32, 64, 16, 2, 9), False): Cut(128, 64, 2, 32, 2, 3),
    (Shape(32, 64, 16, 2, 9), True): Cut(512, 32, 6, 32, 4, 2),
    (Shape(32, 64, 16, 2, 1), False): Cut(128, 64, 1, 32, 2, 3),
    (Shape(64, 128, 8, 2, 9), True): Cut(256, 64, 2, 64, 4, 2),
    (Shape(64, 128, 8, 2, 1), False): Cut(128, 128, 2, 32, 2, 1),
    (Shape(64, 128, 8, 2, 1), True): Cut(256, 64, 2, 64, 4, 2),
}
WEIGHT_CUTS: dict[Shape, WeightCut] = {
    Shape(32, 64, 16, 2, 1): WeightCut(128, 64, 32, 64),
}


def known(shape: Shape) -> bool:
    """Whether there are tiles for a convolution."""
    channels = (16, 32, 64, 128)
    return (
        shape.inputs in channels
        and shape.outputs in channels
        and shape.side in (8, 16, 32)
        and (shape.stride == 1 or (shape.stride == 2 and shape.side < 32))
        and shape.taps in (1, 9)
    )


def launches(shape: Shape, images: int) -> tuple[Launch, Launch, Launch]:
    """The convolution, its gradient for the input, and that for the weights."""
    there, back = (convolution(shape, images, back) for back in (False, True))
    return there, back, weight_gradient(shape, images)


def convolution(shape: Shape, images: int, back: bool) -> Launch:
    """A convolution, or with `back` its gradient for the input."""
    return cut_convolution(shape, images, back, CUTS.get((shape, back)) or _cut(shape, back))


@cache
def cut_convolution(shape: Shape, images: int, back: bool, cut: Cut) -> Launch:
    """A convolution, or its gradient for the input, with this cut."""
    inputs, outputs, side = _sizes(shape, back)
    rows, count = min(side, cut.pixels // side), max(1, cut.pixels // side**2)
    step = 1 if back or shape.taps == 1 else shape.stride
    window = 3 if shape.taps == 9 else 1
    if back and shape.stride == 2:  # the gradient is read without zeros between its pixels
        area = (rows // 2 + window // 2) * (side // 2 + window // 2) * count
    else:
        area = ((rows - 1) * step + window) * ((side - 1) * step + window) * count
    room = max(area * (inputs + 8), cut.pixels * (cut.columns + 8))
    stage = window * (cut.deep * (cut.columns + 8) if back else cut.columns * (cut.deep + 8))
    template = (
        *(inputs, outputs, side, shape.stride, shape.taps, rows, count),
        *(cut.columns, cut.buffers, cut.deep, cut.high, cut.blocks),
    )
    return Launch(
        f"conv<{', '.join(map(str, template))}, {str(back).lower()}>",
        (images * side * side // cut.pixels, outputs // cut.columns, 1),
        _threads(cut.pixels, cut.columns, cut.high),
        2 * (room + cut.buffers * stage),
        images * side * side // cut.pixels,
    )


def _cut(shape: Shape, back: bool) -> Cut:
    """The default for shapes without a measured cut in `CUTS` (see `benchmarks/tiles.py`)."""
    inputs, outputs, side = _sizes(shape, back)
    parities, columns = back and shape.stride == 2, min(outputs, 64)
    deep = 16 if inputs == 32 and (back or shape.stride == 2) else min(inputs, 32)
    if side == 32:
        pixels = 512 if columns == 16 or parities else 256
    else:
        pixels = 256 if side == 16 and (columns == 32 or parities) else 128
    high = 4 if side == 32 or parities or (side == 16 and shape.stride == 1) else 2
    stages = (3 if shape.taps == 9 else 1) * inputs // deep
    buffers = min(stages, 6 if max(inputs, outputs) <= 32 else 2)
    light = columns == 16 or (high == 2 and inputs <= 32 and side > 8)
    return Cut(
        pixels, columns, buffers, deep, high, (768 if light else 512) // _threads(pixels, columns, high)
    )


def _sizes(shape: Shape, back: bool) -> tuple[int, int, int]:
    """Channels of the input and of the output, and the side of the output."""
    if back:
        return shape.outputs, shape.inputs, shape.side * shape.stride
    return shape.inputs, shape.outputs, shape.side


def _threads(pixels: int, columns: int, high: int) -> int:
    return pixels // (16 * high) * (columns // (16 if columns < 32 else 32)) * 32


def weight_gradient(shape: Shape, images: int) -> Launch:
    """The gradient of a convolution for its weights."""
    return cut_weight_gradient(shape, images, WEIGHT_CUTS.get(shape) or _weight_cut(shape))


@cache
def cut_weight_gradient(shape: Shape, images: int, cut: WeightCut) -> Launch:
    """The gradient of a convolution for its weights, with this cut."""
    side = shape.side
    rows, count = min(side, cut.pixels // side), max(1, cut.pixels // side**2)
    window, step = (3, shape.stride) if shape.taps == 9 else (1, 1)
    area = ((rows - 1) * step + window) * ((side - 1) * step + window) * count
    shared = 4 * (area * (cut.inputs + 8) + cut.pixels * (cut.outputs + 8)) + 8 * cut.inputs
    groups = max(1, 8 // (max(1, cut.outputs // 32) * (cut.inputs // 8)))
    sums = shape.taps * cut.outputs * cut.inputs * 4 if groups > 1 else 0
    channels = (shape.outputs // cut.outputs, shape.inputs // cut.inputs)
    tiles = images * side * side // cut.pixels
    parts = min(tiles, max(8, cut.blocks // (channels[0] * channels[1])))
    template = (
        *(shape.inputs, shape.outputs, side, shape.stride, shape.taps),
        *(rows, count, cut.outputs, cut.inputs),
    )
    return Launch(
        f"conv_weight<{', '.join(map(str, template))}>", (parts, *channels), 256, max(shared, sums), tiles
    )


def _weight_cut(shape: Shape) -> WeightCut:
    pixels = {16: 512, 32: 256}.get(shape.outputs, 128) // shape.stride
    return WeightCut(pixels, min(shape.outputs, 64), min(shape.inputs, 32), 64)
