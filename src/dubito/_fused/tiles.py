"""How the kernels cut a convolution into tiles: the arguments of their templates, grids, and shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

MOST_BLOCKS = 64  # of a gradient in weights: each leaves a part to add


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
    """A kernel with its template's arguments, and what it is started with."""

    name: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    parts: int = 0


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
    """The convolution, its gradient in the input, and that in the weights."""
    there, back = (convolution(shape, images, back) for back in (False, True))
    return there, back, weight_gradient(shape, images)


@cache
def convolution(shape: Shape, images: int, back: bool) -> Launch:
    """A convolution, or its gradient in the input."""
    inputs, outputs = (shape.outputs, shape.inputs) if back else (shape.inputs, shape.outputs)
    side = shape.side * shape.stride if back else shape.side
    pixels, columns, buffers, high = _how(shape, inputs, outputs, side, back)
    buffers = min(buffers, shape.taps)
    rows, count = min(side, pixels // side), max(1, pixels // side**2)
    width = 16 if columns < 32 else 32
    step = 1 if back or shape.taps == 1 else shape.stride
    window = 3 if shape.taps == 9 else 1
    if back and shape.stride == 2:  # without the zeros in between
        area = (rows // 2 + window // 2) * (side // 2 + window // 2) * count
    else:
        area = ((rows - 1) * step + window) * ((side - 1) * step + window) * count
    room = max(area * (inputs + 8), pixels * (columns + 8))
    tap = inputs * (columns + 8) if back else columns * (inputs + 8)
    template = (inputs, outputs, side, shape.stride, shape.taps, rows, count, columns, buffers, high)
    return Launch(
        f"conv<{', '.join(map(str, template))}, {str(back).lower()}>",
        (images * side * side // pixels, outputs // columns, 1),
        pixels // (16 * high) * (columns // width) * 32,
        2 * (room + buffers * tap),
        images * side * side // pixels,
    )


def _how(shape: Shape, inputs: int, outputs: int, side: int, back: bool) -> tuple[int, int, int, int]:
    """Pixels, columns, buffers, small matrices of a warp: the fastest on an H200 with four under way at a time."""
    parities, columns = back and shape.stride == 2, min(outputs, 64)
    if side == 32:
        pixels = 512 if columns == 16 or parities else 256
    else:
        pixels = 256 if side == 16 and (columns == 32 or parities) else 128
    high = 4 if side == 32 or parities or (side == 16 and inputs == 64 and not back) else 2
    return pixels, columns, 2 if inputs * columns >= 64 * 64 else 3, high


@cache
def weight_gradient(shape: Shape, images: int) -> Launch:
    """The gradient of a convolution in its weights."""
    side, rows_out, rows_in = shape.side, min(shape.outputs, 64), min(shape.inputs, 32)
    pixels = {16: 512, 32: 256}.get(shape.outputs, 128) // shape.stride
    rows, count = min(side, pixels // side), max(1, pixels // side**2)
    window, step = (3, shape.stride) if shape.taps == 9 else (1, 1)
    lines = ((rows - 1) * step + window) * count
    area, stage = lines * ((side - 1) * step + window), lines * side * step
    shared = 2 * (area * (rows_in + 8) + stage * rows_in + 2 * pixels * (rows_out + 8))
    groups = max(1, 8 // (max(1, rows_out // 32) * (rows_in // 8)))
    sums = shape.taps * rows_out * rows_in * 4 if groups > 1 else 0
    blocks = (shape.outputs // rows_out) * (shape.inputs // rows_in)
    tiles = images * side * side // pixels
    parts = min(tiles, max(8, MOST_BLOCKS // blocks))
    template = (shape.inputs, shape.outputs, side, shape.stride, shape.taps, rows, count, rows_out, rows_in)
    return Launch(
        f"conv_weight<{', '.join(map(str, template))}>",
        (parts, shape.outputs // rows_out, shape.inputs // rows_in),
        256,
        max(shared, sums),
        tiles,
    )
