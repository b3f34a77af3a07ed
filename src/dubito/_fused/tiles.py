"""How the kernels cut a convolution into tiles: the arguments of their templates, grids, and shared memory."""

from __future__ import annotations

from dataclasses import dataclass

MOST_PARTS = 128  # of the sum over pixels in a gradient of weights


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


def convolution(shape: Shape, images: int, back: bool) -> Launch:
    """A convolution, or its gradient in the input."""
    inputs, outputs = (shape.outputs, shape.inputs) if back else (shape.inputs, shape.outputs)
    side = shape.side * shape.stride if back else shape.side
    columns = min(outputs, 64)
    pixels = 128 if side == 8 or inputs == 128 else 512 if side == 32 and inputs <= 32 else 256
    rows, count = min(side, pixels // side), max(1, pixels // side**2)
    buffers = shape.taps if shape.taps == 1 or inputs * columns <= 32 * 32 else 3
    width = 16 if columns < 32 else 32
    step = 1 if back or shape.taps == 1 else shape.stride
    window = 3 if shape.taps == 9 else 1
    area = ((rows - 1) * step + window) * ((side - 1) * step + window) * count
    room = max(area * (inputs + 8), pixels * (columns + 8))
    tap = inputs * (columns + 8) if back else columns * (inputs + 8)
    template = (inputs, outputs, side, shape.stride, shape.taps, rows, count, columns, buffers)
    return Launch(
        f"conv<{', '.join(map(str, template))}, {str(back).lower()}>",
        (images * side * side // pixels, outputs // columns, 1),
        pixels // 64 * (columns // width) * 32,
        2 * (room + buffers * tap),
        images * side * side // pixels,
    )


def weight_gradient(shape: Shape, images: int) -> Launch:
    """The gradient of a convolution in its weights."""
    side, rows_out, rows_in = shape.side, min(shape.outputs, 64), min(shape.inputs, 32)
    rows = 8 if side == 32 else side
    count = 4 if side == 8 else 1
    pixels = rows * side * count
    window, step = (3, shape.stride) if shape.taps == 9 else (1, 1)
    area = ((rows - 1) * step + window) * ((side - 1) * step + window) * count
    shared = 2 * (area * (rows_in + 8) + pixels * (rows_out + 8))
    groups = max(1, 8 // (max(1, rows_out // 32) * (rows_in // 8)))
    sums = shape.taps * rows_out * rows_in * 4 if groups > 1 else 0
    blocks = (shape.outputs // rows_out) * (shape.inputs // rows_in)
    tiles = images * side * side // pixels
    parts = min(tiles, max(8, MOST_PARTS // blocks))
    template = (shape.inputs, shape.outputs, side, shape.stride, shape.taps, rows, count, rows_out, rows_in)
    return Launch(
        f"conv_weight<{', '.join(map(str, template))}>",
        (parts, shape.outputs // rows_out, shape.inputs // rows_in),
        256,
        max(shared, sums),
        tiles,
    )
