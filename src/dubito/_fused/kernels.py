"""The operations of `plain` as CUDA kernels: bfloat16 images, float32 sums, a fixed order of addition."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor, nn

from . import tiles
from .nvrtc import Argument, Kernel, compiled
from .plain import Back, Mask, Pair, Plain
from .tiles import Launch, Shape

FILES = ("machine.cuh", "common.cuh", "conv.cu", "weight.cu", "norm.cu")
SIMPLE = ("norm_input", "join", "pool", "add_parts")
BLOCKS = 528  # of the kernels that pass over all pixels: four to each of 132 processors
UNPOOL_PARTS = 64


class _Norm(ctypes.Structure):
    """The arguments about a norm, laid out as `Norm` in common.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("given", "beta", "first", "second", "out")),
        *((name, ctypes.c_float) for name in ("count", "eps", "momentum")),
        ("ended", ctypes.c_void_p),
    )


@cache
def _source(names: tuple[str, ...] = FILES) -> str:
    return "\n".join(files(__package__).joinpath(name).read_text() for name in names)


class Kernels(Plain):
    """`Plain` on a GPU, for convolutions of the given shapes; batches must have a multiple of four images."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        names = {launch.name for shape in shapes for launch in tiles.launches(shape, 4)}
        self.ended = torch.zeros(1, dtype=torch.int32, device="cuda")
        every = (*SIMPLE, "unpool<64>", "unpool<128>", *sorted(names))
        self.kernels = _compiled(every, torch.cuda.current_device())

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
        then: nn.BatchNorm2d | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        launch = tiles.convolution(shape, len(x), False)
        y = x.new_empty(len(x), shape.side, shape.side, shape.outputs)
        norm, sums, found = _Norm(), None, None
        if then is not None:
            sums = x.new_empty((launch.parts, 2, shape.outputs), dtype=torch.float32)
            found = sums.new_empty(4, shape.outputs)
            norm = self._norm(y, then.weight, then.bias, then.running_mean, then.running_var, found)
            norm.eps, norm.momentum = then.eps, then.momentum
        self._start(
            launch, x, weight, *_pointers(record), y, residual, None, None, None, None, None, sums, norm
        )
        return y, found

    def conv_input(
        self,
        grad: Tensor,
        weight: Tensor,
        shape: Shape,
        residual: Tensor | None = None,
        mask: Mask | None = None,
        stat: Pair | None = None,
    ) -> tuple[Tensor, Back | None]:
        launch, side = tiles.convolution(shape, len(grad), True), shape.side * shape.stride
        g = grad.new_empty(len(grad), side, side, shape.inputs)
        where, active = mask or (None, None)
        norm, sums, found, (x, record) = _Norm(), None, None, stat or (None, None)
        if record is not None:
            sums = record.new_empty(launch.parts, 2, shape.inputs)
            norm, found = self._back(g, record)
        self._start(
            launch, grad, weight, None, None, g, residual, where, *_pointers(active), x, record, sums, norm
        )
        return g, found

    def conv_weight(self, x: Tensor, grad: Tensor, shape: Shape, record: Tensor | None = None) -> Tensor:
        launch = tiles.weight_gradient(shape, len(x))
        size = (launch.grid[0], shape.outputs, shape.taps, shape.inputs)
        parts = x.new_empty(size, dtype=torch.float32)
        self._start(launch, x, *_pointers(record), grad, parts, launch.parts)
        found = parts.new_empty(size[1:])
        size4 = found.numel() // 4
        self.kernels["add_parts"]((-(-size4 // 64), 1, 1), 64, 0, parts, found, len(parts), size4)
        return found

    def norm_input(self, g: Tensor, x: Tensor, factors: Tensor, residual: Tensor | None = None) -> Tensor:
        out = torch.empty_like(g)
        self._simple("norm_input", BLOCKS, g, x, factors, residual, out, g.shape[-1], g.numel() // 8)
        return out

    def join(self, y: Tensor, record: Tensor, shortcut: Tensor | None = None) -> Tensor:
        out, side, channels = torch.empty_like(y), y.shape[1], y.shape[-1]
        larger = y if shortcut is None else shortcut
        stride, before = larger.shape[1] // side, (channels - larger.shape[-1]) // 2
        size, active = y.numel() // 8, _pointers(record)
        self._simple("join", BLOCKS, y, *active, shortcut, out, channels, side, stride, before, size)
        return out

    def pool(self, x: Tensor, record: Tensor | None = None) -> Tensor:
        images, side, _, channels = x.shape
        out = x.new_empty((images, channels), dtype=torch.float32)
        self.kernels["pool"]((images, 1, 1), channels, 0, x, *_pointers(record), out, channels, side * side)
        return out

    def unpool(self, grad: Tensor, mask: Mask, stat: Pair) -> tuple[Tensor, Back]:
        x, active = mask
        channels, pixels = x.shape[-1], x.shape[1] * x.shape[2]
        g, sums = torch.empty_like(x), grad.new_empty(UNPOOL_PARTS, 2, channels)
        norm, found = self._back(g, stat[1])
        self._simple(
            f"unpool<{channels}>", UNPOOL_PARTS, grad.contiguous(), x, *_pointers(active), *stat, g, sums, pixels,
            len(x) * pixels, norm,
        )  # fmt: skip
        return g, found

    def _back(self, g: Tensor, record: Tensor) -> tuple[_Norm, Back]:
        found = record.new_empty(5, g.shape[-1])
        back = Back(found[:3], found[3], found[4])
        return self._norm(g, record, None, back.scale, back.shift, back.factors), back

    def _norm(self, of: Tensor, *tensors: Tensor | None) -> _Norm:
        where = [None if t is None else t.data_ptr() for t in tensors]
        return _Norm(*where, of[..., 0].numel(), 0.0, 0.0, self.ended.data_ptr())

    def _start(self, launch: Launch, *arguments: Argument) -> None:
        self.kernels[launch.name](launch.grid, launch.threads, launch.shared, *arguments)

    def _simple(self, name: str, blocks: int, *arguments: Argument) -> None:
        self.kernels[name]((blocks, 1, 1), 256, 0, *arguments)


@cache
def _compiled(names: tuple[str, ...], device: int) -> dict[str, Kernel]:
    """The kernels by name; the device is an argument so that each has its own in the cache."""
    return compiled(_source(), names)


def _pointers(record: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Scale and shift of a record."""
    return (None, None) if record is None else (record[2], record[3])
