"""The operations of `plain` as CUDA kernels: bfloat16 images, float32 sums, a fixed order of addition."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor, nn

from . import tiles
from .nvrtc import Kernel, compiled
from .plain import Pair, Plain
from .tiles import Launch, Shape

FILES = ("common.cuh", "conv.cu", "weight.cu", "norm.cu")
SIMPLE = ("norm_forward", "norm_backward", "norm_input", "join", "pool", "add_parts")
BLOCKS = 528  # of the kernels that go over all pixels: four to each of 132 processors
UNPOOL_PARTS = 64


@cache
def _source() -> str:
    return "\n".join(files(__package__).joinpath(name).read_text() for name in FILES)


class Kernels(Plain):
    """What `Plain` does, on a GPU, for batches of one size and the convolutions of one network."""

    def __init__(self, shapes: Iterable[Shape], images: int) -> None:
        self.images, self.launches = images, {}
        for shape in shapes:
            both = [tiles.convolution(shape, images, back) for back in (False, True)]
            self.launches[shape] = (*both, tiles.weight_gradient(shape, images))
        names = {launch.name for launches in self.launches.values() for launch in launches}
        self.kernels = _compiled((*SIMPLE, "unpool<64>", "unpool<128>", *sorted(names)))

    def image(self, x: Tensor) -> Tensor:
        return super().image(x.bfloat16()).contiguous()

    def weights(self, weights: list[Tensor]) -> list[Tensor]:
        flat = super().weights(weights)
        together = torch.cat([w.flatten() for w in flat]).bfloat16()
        parts = together.split([w.numel() for w in flat])
        return [part.view(w.shape) for part, w in zip(parts, flat)]

    def conv(
        self,
        x: Tensor,
        weight: Tensor,
        shape: Shape,
        record: Tensor | None = None,
        residual: Tensor | None = None,
    ) -> Pair:
        launch = self.launches[shape][0]
        y = x.new_empty(self.images, shape.side, shape.side, shape.outputs)
        sums = x.new_empty((launch.parts, 2, shape.outputs), dtype=torch.float32)
        self._start(launch, x, weight, *_pointers(record), y, residual, None, None, None, None, None, sums)
        return y, sums

    def conv_input(
        self,
        grad: Tensor,
        weight: Tensor,
        shape: Shape,
        residual: Tensor | None = None,
        mask: tuple[Tensor, Tensor | None] | None = None,
        stat: Pair | None = None,
    ) -> Pair:
        launch, side = self.launches[shape][1], shape.side * shape.stride
        g = grad.new_empty(self.images, side, side, shape.inputs)
        sums = grad.new_empty((launch.parts, 2, shape.inputs), dtype=torch.float32)
        where, record = mask or (None, None)
        x, normalised = stat or (None, None)
        self._start(
            launch, grad, weight, None, None, g, residual, where, *_pointers(record), x, normalised,
            None if stat is None else sums,
        )  # fmt: skip
        return g, sums

    def conv_weight(self, x: Tensor, grad: Tensor, shape: Shape, record: Tensor | None = None) -> Tensor:
        launch = self.launches[shape][2]
        size = (launch.grid[0], shape.outputs, shape.taps, shape.inputs)
        parts = x.new_empty(size, dtype=torch.float32)
        self._start(launch, x, *_pointers(record), grad, parts, launch.parts)
        found = parts.new_empty(size[1:])
        size4 = found.numel() // 4
        self.kernels["add_parts"]((-(-size4 // 64), 1, 1), 64, 0, parts, found, len(parts), size4)
        return found

    def norm(self, sums: Tensor, count: int, layer: nn.BatchNorm2d) -> Tensor:
        channels = sums.shape[-1]
        record = sums.new_empty(4, channels)
        assert layer.momentum is not None
        self._simple(
            "norm_forward", channels // 16, sums, len(sums), channels, float(count), layer.weight, layer.bias,
            layer.eps, layer.momentum, record, layer.running_mean, layer.running_var,
        )  # fmt: skip
        return record

    def norm_back(self, sums: Tensor, count: int, record: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        channels = sums.shape[-1]
        found = sums.new_empty(5, channels)
        factors, scale, shift = found[:3], found[3], found[4]
        self._simple(
            "norm_backward",
            channels // 16,
            sums,
            len(sums),
            channels,
            float(count),
            record,
            factors,
            scale,
            shift,
        )
        return factors, scale, shift

    def norm_input(self, g: Tensor, x: Tensor, factors: Tensor, residual: Tensor | None = None) -> Tensor:
        out = torch.empty_like(g)
        self._simple("norm_input", BLOCKS, g, x, factors, residual, out, g.shape[-1], g.numel() // 8)
        return out

    def join(self, y: Tensor, record: Tensor, shortcut: Tensor | None = None) -> Tensor:
        out, side, channels = torch.empty_like(y), y.shape[1], y.shape[-1]
        larger = y if shortcut is None else shortcut
        stride, before = larger.shape[1] // side, (channels - larger.shape[-1]) // 2
        self._simple("join", BLOCKS, y, record, shortcut, out, channels, side, stride, before, y.numel() // 8)
        return out

    def pool(self, x: Tensor, record: Tensor | None = None) -> Tensor:
        images, side, _, channels = x.shape
        out = x.new_empty((images, channels), dtype=torch.float32)
        self.kernels["pool"]((images, 1, 1), channels, 0, x, *_pointers(record), out, channels, side * side)
        return out

    def unpool(self, grad: Tensor, mask: tuple[Tensor, Tensor | None], stat: Pair) -> Pair:
        x, record = mask
        channels, pixels = x.shape[-1], x.shape[1] * x.shape[2]
        g, sums = torch.empty_like(x), grad.new_empty(UNPOOL_PARTS, 2, channels)
        self._simple(
            f"unpool<{channels}>", UNPOOL_PARTS, grad.contiguous(), x, *_pointers(record), *stat, g, sums, pixels,
            len(x) * pixels,
        )  # fmt: skip
        return g, sums

    def _start(self, launch: Launch, *arguments: Tensor | int | float | None) -> None:
        self.kernels[launch.name](launch.grid, launch.threads, launch.shared, *arguments)

    def _simple(self, name: str, blocks: int, *arguments: Tensor | int | float | None) -> None:
        self.kernels[name]((blocks, 1, 1), 256, 0, *arguments)


@cache
def _compiled(names: tuple[str, ...]) -> dict[str, Kernel]:
    return compiled(_source(), names)


def _pointers(record: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Scale and shift of a record."""
    return (None, None) if record is None else (record[2], record[3])
