# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The operations of `grouped` as Triton kernels: bfloat16 images in channels-last. Imported only where Triton is.

A program has one group of one image and passes over its pixels twice, from the first tile to the last and back. The
64 channels of 32 x 32 pixels are 128 KB: too much for registers in float32, but the first-level cache still holds
many of them on the second pass, and the second-level cache the rest.

A batch of 128 in two groups makes 256 programs, two for each of 132 processors. Tiles and warps are chosen so that
two programs fit on one processor: 64 registers for each of 512 threads forward, up to 128 for each of 256 backward,
where sums by channel are kept. So 64 and 32 KB are being loaded on each processor, where about 30 keep memory busy.
Sums are added in a fixed order; a last sum adds those of the images.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..integrals.triton_launch import Launcher
from .grouped import Channels, How, Plain
from .triton_pool import empty, last, pooled

# Elements of a tile at most, and for each warp; forward and backward.
THERE, BACK = (16384, 1024), (4096, 512)
CHANNELS_OF_IMAGE = 8  # at least: the unit in which cuDNN's kernels for tensor cores read


@triton.jit
def _read(ptr, first, start, channel, PIXELS: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr):
    """A tile (ROWS, channels) in float32, and which of its pixels lie in the image."""
    pixel = start + tl.arange(0, ROWS)
    live = pixel < PIXELS
    at = pixel[:, None] * CHANNELS + channel[None, :]
    return tl.load(ptr + first + at, mask=live[:, None], other=0.0).to(tl.float32), live


@triton.jit
def _write(ptr, first, start, channel, x, PIXELS: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr):
    pixel = start + tl.arange(0, ROWS)
    at = pixel[:, None] * CHANNELS + channel[None, :]
    tl.store(ptr + first + at, x.to(ptr.dtype.element_ty), mask=(pixel < PIXELS)[:, None])


@triton.jit
def _leaky(x, slope):
    return tl.where(x > 0, x, slope * x)


@triton.jit
def _place(PIXELS: tl.constexpr, CHANNELS: tl.constexpr, GROUPS: tl.constexpr):
    """The image of this program, the place of its first number, and the channels of the group."""
    WIDE: tl.constexpr = CHANNELS // GROUPS
    program = tl.program_id(0)
    image = program // GROUPS
    channel = (program % GROUPS) * WIDE + tl.arange(0, WIDE)
    return image, image.to(tl.int64) * (PIXELS * CHANNELS), channel


@triton.jit
def _moments(
    y_ptr, first, channel, bias, slope,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Mean and variance: first of each pixel, within a warp; then, as Welford has it, of the pixels."""
    count = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS], tl.float32)
    apart = tl.zeros([ROWS], tl.float32)  # sums of squared distances from the mean
    for start in range(0, PIXELS, ROWS):
        x, live = _read(y_ptr, first, start, channel, PIXELS, CHANNELS, ROWS)
        x += bias[None, :]
        if LAST:
            x = _leaky(x, slope)
        here = tl.sum(x, 1) / WIDE
        x -= here[:, None]
        count += tl.where(live, 1.0, 0.0)
        step = here - mean
        mean = tl.where(live, mean + step / tl.maximum(count, 1.0), mean)
        apart += tl.where(live, tl.sum(x * x, 1) + WIDE * step * (here - mean), 0.0)
    whole = tl.sum(mean * count) / PIXELS
    mean -= whole
    return whole, tl.sum(apart + WIDE * count * mean * mean) / (PIXELS * WIDE)


@triton.jit
def norm_kernel(
    y_ptr, bias_ptr, gamma_ptr, beta_ptr, z_ptr, record_ptr, slope, eps,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, GROUPS: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    image, first, channel = _place(PIXELS, CHANNELS, GROUPS)
    bias = tl.load(bias_ptr + channel).to(tl.float32)
    mean, var = _moments(y_ptr, first, channel, bias, slope, PIXELS, CHANNELS, CHANNELS // GROUPS, LAST, ROWS)
    inverse = 1 / tl.sqrt(var + eps)
    record = record_ptr + 2 * tl.program_id(0)
    tl.store(record, mean)
    tl.store(record + 1, inverse)
    scale = tl.load(gamma_ptr + channel).to(tl.float32) * inverse
    shift = tl.load(beta_ptr + channel).to(tl.float32) - mean * scale
    if not LAST:
        shift += bias * scale
    TILES: tl.constexpr = (PIXELS + ROWS - 1) // ROWS
    for turn in range(TILES):
        start = (TILES - 1 - turn) * ROWS
        x, live = _read(y_ptr, first, start, channel, PIXELS, CHANNELS, ROWS)
        if LAST:
            x = _leaky(x + bias[None, :], slope)
        x = x * scale[None, :] + shift[None, :]
        if not LAST:
            x = _leaky(x, slope)
        _write(z_ptr, first, start, channel, x, PIXELS, CHANNELS, ROWS)


@triton.jit
def _normal_and_gradient(
    y_ptr, grad_ptr, first, start, channel, bias, gamma, beta, mean, inverse, slope,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A tile of y + bias, of what gamma scales, and of the gradient in the result; and which pixels there are."""
    g, live = _read(grad_ptr, first, start, channel, PIXELS, CHANNELS, ROWS)
    u, live = _read(y_ptr, first, start, channel, PIXELS, CHANNELS, ROWS)
    u += bias[None, :]
    if LAST:
        normal = (_leaky(u, slope) - mean) * inverse
    else:
        normal = (u - mean) * inverse
        g = tl.where(normal * gamma[None, :] + beta[None, :] > 0, g, slope * g)
    return u, normal, g, live


@triton.jit
def norm_back_kernel(
    y_ptr, grad_ptr, bias_ptr, gamma_ptr, beta_ptr, record_ptr, d_ptr, parts_ptr, slope,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, GROUPS: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    WIDE: tl.constexpr = CHANNELS // GROUPS
    image, first, channel = _place(PIXELS, CHANNELS, GROUPS)
    bias = tl.load(bias_ptr + channel).to(tl.float32)
    gamma = tl.load(gamma_ptr + channel).to(tl.float32)
    beta = tl.load(beta_ptr + channel).to(tl.float32)
    record = record_ptr + 2 * tl.program_id(0)
    mean, inverse = tl.load(record), tl.load(record + 1)
    plain = tl.zeros([ROWS, WIDE], tl.float32)
    times = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(0, PIXELS, ROWS):
        u, normal, g, live = _normal_and_gradient(
            y_ptr, grad_ptr, first, start, channel, bias, gamma, beta, mean, inverse, slope,
            PIXELS, CHANNELS, LAST, ROWS,
        )  # fmt: skip
        plain += g  # of pixels that are not there it is 0
        times += g * normal
    d_beta, d_gamma = tl.sum(plain, 0), tl.sum(times, 0)
    part = parts_ptr + image.to(tl.int64) * (3 * CHANNELS) + channel
    tl.store(part + CHANNELS, d_gamma)
    tl.store(part + 2 * CHANNELS, d_beta)
    # d = inverse (gamma g - mean(gamma g) - normal mean(gamma g normal))
    scale = gamma * inverse
    same = tl.sum(scale * d_beta) / (PIXELS * WIDE)
    slant = tl.sum(scale * d_gamma) / (PIXELS * WIDE)
    total = tl.zeros([ROWS, WIDE], tl.float32)
    TILES: tl.constexpr = (PIXELS + ROWS - 1) // ROWS
    for turn in range(TILES):
        start = (TILES - 1 - turn) * ROWS
        u, normal, g, live = _normal_and_gradient(
            y_ptr, grad_ptr, first, start, channel, bias, gamma, beta, mean, inverse, slope,
            PIXELS, CHANNELS, LAST, ROWS,
        )  # fmt: skip
        d = scale[None, :] * g - (slant * normal + same)
        if LAST:
            d = tl.where(u > 0, d, slope * d)
        total += tl.where(live[:, None], d, 0.0)
        _write(d_ptr, first, start, channel, d, PIXELS, CHANNELS, ROWS)
    tl.store(part, tl.sum(total, 0))


_run_norm, _run_back = Launcher(norm_kernel), Launcher(norm_back_kernel)


class Kernels(Plain):
    """What `Plain` does, on a GPU; the channels of a group are a power of two."""

    def image(self, x: Tensor) -> Tensor:
        found = empty((len(x), max(x.shape[1], CHANNELS_OF_IMAGE), *x.shape[2:]), torch.bfloat16, x)
        found.zero_()[:, : x.shape[1]] = x
        return found

    def norm(self, y: Tensor, by: Channels, how: How) -> tuple[Tensor, Tensor]:
        y = last(y)
        z, record = torch.empty_like(y), y.new_empty((len(y), how.groups, 2), dtype=torch.float32)
        constants, warps = _constants(y, how, THERE)
        _run_norm(len(y) * how.groups, (y, *by), (z, record, how.slope, how.eps), constants, warps)
        return z, record

    def norm_back(
        self, grad: Tensor, y: Tensor, record: Tensor, by: Channels, how: How
    ) -> tuple[Tensor, Channels]:
        y, grad = last(y), last(grad)
        d, parts = torch.empty_like(y), record.new_empty(len(y), 3, y.shape[1])
        constants, warps = _constants(y, how, BACK)
        found = record, d, parts
        _run_back(len(y) * how.groups, (y, grad, *by), (*found, how.slope), constants, warps)
        return d, Channels(*parts.sum(0))

    def pool(self, x: Tensor) -> Tensor:
        return pooled(x)


def _constants(y: Tensor, how: How, tile: tuple[int, int]) -> tuple[tuple[Any, ...], int]:
    """The constants of a norm's kernel, and its warps."""
    channels, pixels = y.shape[1], y[0, 0].numel()
    wide, (most, of_warp) = channels // how.groups, tile
    rows = min(max(1, most // wide), triton.next_power_of_2(pixels))
    return (pixels, channels, how.groups, how.last, rows), max(1, min(most, rows * wide) // of_warp)
