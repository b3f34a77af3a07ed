"""The operations of a residual network and its gradient, in torch: the reference that `kernels` must equal.

Images are (N, H, W, C). The `record` of a batch norm is (4, C): mean, 1 / deviation, scale and shift. A tensor that
comes with a record is activated by relu(scale x + shift) before it is used.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from .tiles import Shape

Pair = tuple[Tensor, Tensor]  # what a norm has read, and its record
# x and its record, if any: a gradient passes where the activation of x is positive.
Mask = tuple[Tensor, Tensor | None]


class Back(NamedTuple):
    """The backward pass of a batch norm: dx = A g + B x + C per channel, and the gradients of its parameters."""

    factors: Tensor  # A, B and C, (3, C)
    scale: Tensor
    shift: Tensor


class Plain:
    """Each operation in torch, in the type of the images."""

    def image(self, x: Tensor) -> Tensor:
        """(N, C, H, W) with at most 16 channels -> (N, H, W, 16)."""
        return F.pad(x.permute(0, 2, 3, 1), (0, 16 - x.shape[1]))

    def weights(self, weights: list[Tensor]) -> list[Tensor]:
        """(O, C, k, k) -> (O, k k, C), in the type of the images."""
        return [_padded(w).permute(0, 2, 3, 1).flatten(1, 2) for w in weights]

    def conv(
        self,
        x: Tensor,
        weight: Tensor,
        shape: Shape,
        record: Tensor | None = None,
        residual: Tensor | None = None,
        then: nn.BatchNorm2d | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The convolution of the activated x, plus a residual; and the record of the norm `then` that reads it."""
        y = F.conv2d(_first(activated(x, record)), _kernel(weight), stride=shape.stride, padding=_pad(shape))
        y = _last(y) if residual is None else _last(y) + residual
        return y, None if then is None else _norm(y, then)

    def conv_input(
        self,
        grad: Tensor,
        weight: Tensor,
        shape: Shape,
        residual: Tensor | None = None,
        mask: Mask | None = None,
        stat: Pair | None = None,
    ) -> tuple[Tensor, Back | None]:
        """The gradient for the input, plus a residual, where the activation of `mask` is positive, else 0.

        With `stat`, of the norm whose output the input was, the backward pass of that norm comes with it.
        """
        side = shape.side * shape.stride
        size = (len(grad), shape.inputs, side, side)
        kernel, stride = _kernel(weight), shape.stride
        g = _last(conv2d_input(size, kernel, _first(grad), stride=stride, padding=_pad(shape)))
        g = _kept(g if residual is None else g + residual, mask)
        return g, None if stat is None else _norm_back(g, stat)

    def conv_weight(self, x: Tensor, grad: Tensor, shape: Shape, record: Tensor | None = None) -> Tensor:
        """The gradient for the weights, (O, k k, C) in float32 at least."""
        k = 3 if shape.taps == 9 else 1
        size, wide = (shape.outputs, shape.inputs, k, k), torch.promote_types(x.dtype, torch.float32)
        x, grad = _first(activated(x, record)).to(wide), _first(grad).to(wide)
        found: Tensor = conv2d_weight(x, size, grad, stride=shape.stride, padding=_pad(shape))
        return _last(found).reshape(shape.outputs, shape.taps, shape.inputs)

    def norm_input(self, g: Tensor, x: Tensor, factors: Tensor, residual: Tensor | None = None) -> Tensor:
        """A g + B x + C, plus a residual."""
        a, b, c = factors.unbind()
        wide = a * g + (b * x + c)
        return (wide if residual is None else wide + residual).to(g.dtype)

    def join(self, y: Tensor, record: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """relu(scale y + shift + shortcut); a larger shortcut is subsampled, and padded with channels of zeros."""
        wide = record[2] * y + record[3]
        if shortcut is not None:
            before = (y.shape[-1] - shortcut.shape[-1]) // 2
            step = shortcut.shape[1] // y.shape[1]
            wide = wide + F.pad(shortcut[:, ::step, ::step], (before, before))
        return F.relu(wide).to(y.dtype)

    def pool(self, x: Tensor, record: Tensor | None = None) -> Tensor:
        """The mean over pixels of the activated x, (N, C), in float32 at least."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide if record is None else F.relu(record[2] * wide + record[3])).mean((1, 2))

    def unpool(self, grad: Tensor, mask: Mask, stat: Pair) -> tuple[Tensor, Back]:
        """The gradient of `pool`, masked, and the backward pass of the norm `stat`, as in `conv_input`."""
        x = mask[0]
        spread = grad[:, None, None] / (x.shape[1] * x.shape[2])
        g = _kept(spread.expand(x.shape).to(x.dtype), mask)
        return g, _norm_back(g, stat)


def activated(x: Tensor, record: Tensor | None) -> Tensor:
    """relu(scale x + shift) in the type of x; x itself without a record."""
    return x if record is None else F.relu(record[2] * x + record[3]).to(x.dtype)


def _norm(y: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    """The record of a norm that reads y; updates its running moments."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.momentum is not None
    wide = y.double().flatten(0, 2)
    mean, var = wide.mean(0), wide.var(0, correction=0)
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), layer.momentum)
    layer.running_var.lerp_(wide.var(0).to(layer.running_var.dtype), layer.momentum)
    inverse = (var + layer.eps).rsqrt()
    scale = layer.weight.double() * inverse
    record = torch.stack([mean, inverse, scale, layer.bias.double() - mean * scale])
    return record.to(torch.promote_types(y.dtype, torch.float32)).detach()


def _norm_back(g: Tensor, stat: Pair) -> Back:
    x, record = stat
    mean, inverse, scale, _ = record.double()
    wide = g.double().flatten(0, 2)
    one, two = wide.sum(0), (wide * (x.double().flatten(0, 2) - mean)).sum(0)
    slope = -scale * inverse**2 * two / len(wide)
    factors = torch.stack([scale, slope, -scale * one / len(wide) - slope * mean])
    return Back(*(t.to(record.dtype) for t in (factors, two * inverse, one)))


def _kept(g: Tensor, mask: Mask | None) -> Tensor:
    if mask is None:
        return g
    x, record = mask
    return torch.where((x if record is None else record[2] * x + record[3]) > 0, g, 0)


def _padded(weight: Tensor) -> Tensor:
    return F.pad(weight, (0, 0, 0, 0, 0, 16 - weight.shape[1])) if weight.shape[1] < 16 else weight


def _kernel(weight: Tensor) -> Tensor:
    size = 3 if weight.shape[1] == 9 else 1
    return weight.view(len(weight), size, size, -1).permute(0, 3, 1, 2)


def _pad(shape: Shape) -> int:
    return 1 if shape.taps == 9 else 0


def _first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)
