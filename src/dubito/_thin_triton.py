# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Triton kernels of `_thin`: images with channels last, so that a pixel is a row. Imported only where Triton is.

A convolution is nine products of (pixels, channels in) and (channels in, channels out), one for each place of the
window. With so few channels all of the weights fit beside a block of pixels, and the nine looks at it mostly hit
the cache next to the processor. Weights are read as they are kept, in float32 and in memory order (O, 3, 3, C).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _convolve(
    x_ptr, weight_ptr, y_ptr, pixels, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr,
    OUT: tl.constexpr, TO_IN: tl.constexpr, TO_OUT: tl.constexpr, TO_PLACE: tl.constexpr, BACK: tl.constexpr,
    PIXELS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A block of pixels, all channels. `TO_*`: steps in the weights; BACK: the window turned round."""
    m = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    row, column = m // WIDTH % HEIGHT, m % WIDTH
    c, o = tl.arange(0, IN), tl.arange(0, OUT)
    total = tl.zeros([PIXELS, OUT], tl.float32)
    for place in tl.range(0, 9, num_stages=STAGES):
        down, right = place // 3 - 1, place % 3 - 1
        inside = (row + down >= 0) & (row + down < HEIGHT) & (column + right >= 0) & (column + right < WIDTH)
        at = m + down * WIDTH + right
        x = tl.load(x_ptr + at[:, None] * IN + c[None, :], mask=(inside & (m < pixels))[:, None], other=0.0)
        turned = 8 - place if BACK else place
        weight = tl.load(weight_ptr + c[:, None] * TO_IN + o[None, :] * TO_OUT + turned * TO_PLACE)
        total = tl.dot(x, weight.to(x_ptr.dtype.element_ty), total)
    y = y_ptr + m[:, None] * OUT + o[None, :]
    tl.store(y, total.to(y_ptr.dtype.element_ty), mask=(m < pixels)[:, None])


@triton.jit
def _weight_gradient(
    x_ptr, grad_ptr, out_ptr, pixels, share, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr,
    OUT: tl.constexpr, PIXELS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The sum over a share of the pixels, for one row of the window."""
    part, down = tl.program_id(0), tl.program_id(1) - 1
    c, o = tl.arange(0, IN), tl.arange(0, OUT)
    left = tl.zeros([OUT, IN], tl.float32)
    middle = tl.zeros([OUT, IN], tl.float32)
    right = tl.zeros([OUT, IN], tl.float32)
    for start in tl.range(part * share, tl.minimum((part + 1) * share, pixels), PIXELS, num_stages=STAGES):
        m = start + tl.arange(0, PIXELS)
        row, column = m // WIDTH % HEIGHT + down, m % WIDTH
        live = m < pixels
        inside = (row >= 0) & (row < HEIGHT) & live
        grad = tl.load(grad_ptr + m[None, :] * OUT + o[:, None], mask=live[None, :], other=0.0)
        at = x_ptr + (m + down * WIDTH)[:, None] * IN + c[None, :]
        left = tl.dot(grad, tl.load(at - IN, mask=(inside & (column > 0))[:, None], other=0.0), left)
        middle = tl.dot(grad, tl.load(at, mask=inside[:, None], other=0.0), middle)
        right = tl.dot(
            grad, tl.load(at + IN, mask=(inside & (column < WIDTH - 1))[:, None], other=0.0), right
        )
    at = out_ptr + (part * OUT + o)[:, None] * (9 * IN) + (down + 1) * (3 * IN) + c[None, :]
    tl.store(at, left)
    tl.store(at + IN, middle)
    tl.store(at + 2 * IN, right)


def convolve(x: Tensor, weight: Tensor, back: bool) -> Tensor:
    """`_thin.thin_conv` of tensors with channels last in memory."""
    count, inputs, height, width = x.shape
    outputs, columns = weight.shape[1 if back else 0], weight.shape[1]
    y = torch.empty(
        (count, outputs, height, width), dtype=x.dtype, device=x.device, memory_format=torch.channels_last
    )
    pixels = count * height * width
    block, warps = (64, 4) if pixels <= 1 << 14 else (256, 4 if inputs == 16 else 8)
    steps = (9 * columns, 1) if back else (1, 9 * columns)
    _convolve[(-(-pixels // block),)](
        x, weight, y, pixels, height, width, inputs, outputs, *steps, columns, back, block,
        2 if inputs == 16 else 3, num_warps=warps,
    )  # fmt: skip
    return y


def weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """`_thin.thin_conv_weight` of tensors with channels last in memory."""
    count, inputs, height, width = x.shape
    outputs, block = grad.shape[1], 64
    pixels = count * height * width
    share = block * min(max(pixels >> 13, 4), 16)
    parts = -(-pixels // share)
    out = torch.empty((parts, outputs, 3, 3, inputs), dtype=torch.float32, device=x.device)
    _weight_gradient[(parts, 3)](
        x, grad, out, pixels, share, height, width, inputs, outputs, block, 3, num_warps=4
    )
    return out.sum(0).permute(0, 3, 1, 2)
