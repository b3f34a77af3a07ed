# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The largest of each two by two pixels, for images in channels-last. Imported only where Triton is.

torch also writes the index of each largest pixel, in 64 bits, and reads it again; here the backward pass finds it
again.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..integrals.triton_launch import Launcher

TILE, WARPS = 2048, 4  # elements that a program writes, sixteen by each thread


@triton.jit
def _window(pixel, HIGH: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """The place of the first element of the upper left pixel in the window of a pooled one."""
    line = pixel // (WIDE // 2)
    row = (line // (HIGH // 2)) * HIGH + 2 * (line % (HIGH // 2))
    return (row.to(tl.int64) * WIDE + 2 * (pixel % (WIDE // 2))) * CHANNELS


@triton.jit
def _wide(x, live):
    return tl.load(x, mask=live, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["pixels"])
def pool_kernel(
    x_ptr, p_ptr, pixels,
    HIGH: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live, channel = (pixel < pixels)[:, None], tl.arange(0, CHANNELS)[None, :]
    x = x_ptr + _window(pixel, HIGH, WIDE, CHANNELS)[:, None] + channel
    above = tl.maximum(_wide(x, live), _wide(x + CHANNELS, live))
    x += WIDE * CHANNELS
    p = tl.maximum(above, tl.maximum(_wide(x, live), _wide(x + CHANNELS, live)))
    at = pixel.to(tl.int64)[:, None] * CHANNELS + channel
    tl.store(p_ptr + at, p.to(p_ptr.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["pixels"])
def pool_back_kernel(
    x_ptr, grad_ptr, d_ptr, pixels,
    HIGH: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """To the first of the largest, as torch has it."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live, channel = (pixel < pixels)[:, None], tl.arange(0, CHANNELS)[None, :]
    at = _window(pixel, HIGH, WIDE, CHANNELS)[:, None] + channel
    below = at + WIDE * CHANNELS
    g = tl.load(grad_ptr + pixel.to(tl.int64)[:, None] * CHANNELS + channel, mask=live)
    a, b = _wide(x_ptr + at, live), _wide(x_ptr + at + CHANNELS, live)
    c, d = _wide(x_ptr + below, live), _wide(x_ptr + below + CHANNELS, live)
    up, zero = tl.maximum(a, b) >= tl.maximum(c, d), tl.zeros_like(g)
    tl.store(d_ptr + at, tl.where(up & (a >= b), g, zero), mask=live)
    tl.store(d_ptr + at + CHANNELS, tl.where(up & (a < b), g, zero), mask=live)
    tl.store(d_ptr + below, tl.where(up, zero, tl.where(c >= d, g, zero)), mask=live)
    tl.store(d_ptr + below + CHANNELS, tl.where(up, zero, tl.where(c >= d, zero, g)), mask=live)


_run, _run_back = Launcher(pool_kernel), Launcher(pool_back_kernel)


def pooled(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, C, H // 2, W // 2); the channels are a power of two."""
    found: Tensor = _Pool.apply(x)
    return found


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = last(x)
        high, wide = x.shape[2] // 2, x.shape[3] // 2
        p = empty((*x.shape[:2], high, wide), x.dtype, x)
        _over_pixels(_run, p, (x,), p)
        ctx.save_for_backward(x)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor]:
        (x,) = ctx.saved_tensors
        whole = x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0
        d = torch.empty_like(x) if whole else torch.zeros_like(x)
        grad = last(grad)
        _over_pixels(_run_back, grad, (x, grad), d)
        return (d,)


def _over_pixels(run: Launcher, pooled: Tensor, given: tuple[Tensor, ...], found: Tensor) -> None:
    channels, pixels = pooled.shape[1], pooled[:, 0].numel()
    rows = max(1, TILE // channels)
    constants = (*given[0].shape[2:], channels, rows)
    run(triton.cdiv(pixels, rows), given, (found, pixels), constants, WARPS)


def last(x: Tensor) -> Tensor:
    """In channels-last."""
    return x.contiguous(memory_format=torch.channels_last)


def empty(size: tuple[int, ...], kind: torch.dtype, beside: Tensor) -> Tensor:
    """Room for images in channels-last."""
    return torch.empty(size, dtype=kind, device=beside.device, memory_format=torch.channels_last)
