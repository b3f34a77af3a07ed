"""The operations of a residual network and its gradient in torch: what `kernels` must equal, and what runs on a CPU.

Images are (N, H, W, C). A `record` of a batch norm is (4, C): mean, 1 / deviation, scale and shift; what has one is
activated by relu(scale x + shift) before it is used. Sums over pixels are (parts, 2, C).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from .tiles import Shape

Pair = tuple[Tensor, Tensor]


class Plain:
    """Each operation as torch has it, in the type of the images."""

    def image(self, x: Tensor) -> Tensor:
        """(N, C, H, W) with at most 16 channels -> (N, H, W, 16)."""
        return F.pad(x.permute(0, 2, 3, 1), (0, 16 - x.shape[1]))

    def weights(self, weights: list[Tensor]) -> list[Tensor]:
        """(O, C, k, k) -> (O, k k, C), with the type that images have."""
        return [_padded(w).permute(0, 2, 3, 1).flatten(1, 2) for w in weights]

    def conv(
        self,
        x: Tensor,
        weight: Tensor,
        shape: Shape,
        record: Tensor | None = None,
        residual: Tensor | None = None,
    ) -> Pair:
        """The convolution of the activated x, plus a residual, and its sums with those of its square."""
        y = F.conv2d(_first(activated(x, record)), _kernel(weight), stride=shape.stride, padding=_pad(shape))
        y = _last(y) if residual is None else _last(y) + residual
        return y, _sums(y, y)

    def conv_input(
        self,
        grad: Tensor,
        weight: Tensor,
        shape: Shape,
        residual: Tensor | None = None,
        mask: tuple[Tensor, Tensor | None] | None = None,
        stat: Pair | None = None,
    ) -> Pair:
        """The gradient in the input plus a residual, where the activation of the mask is positive, and its sums.

        `stat` are what was normalised and its record: sums are of the gradient, and of its product with x - mean.
        """
        side = shape.side * shape.stride
        size = (len(grad), shape.inputs, side, side)
        kernel, stride = _kernel(weight), shape.stride
        g = _last(conv2d_input(size, kernel, _first(grad), stride=stride, padding=_pad(shape)))  # type: ignore[arg-type]
        g = g if residual is None else g + residual
        return _kept(g, mask), self._sums_with(_kept(g, mask), stat)

    def conv_weight(self, x: Tensor, grad: Tensor, shape: Shape, record: Tensor | None = None) -> Tensor:
        """The gradient in the weights, (O, k k, C) in float32 at least."""
        k = 3 if shape.taps == 9 else 1
        size, wide = (shape.outputs, shape.inputs, k, k), torch.promote_types(x.dtype, torch.float32)
        x, grad = _first(activated(x, record)).to(wide), _first(grad).to(wide)
        found = conv2d_weight(x, size, grad, stride=shape.stride, padding=_pad(shape))
        return found.permute(0, 2, 3, 1).flatten(1, 2)

    def norm(self, sums: Tensor, count: int, layer: nn.BatchNorm2d) -> Tensor:
        """The record of a batch norm, from sums over `count` pixels; moves the running moments."""
        assert layer.running_mean is not None
        assert layer.running_var is not None
        assert layer.momentum is not None
        total = sums.double().sum(0)
        mean = total[0] / count
        var = (total[1] / count - mean**2).clamp(min=0)
        layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), layer.momentum)
        layer.running_var.lerp_((var * count / (count - 1)).to(layer.running_var.dtype), layer.momentum)
        inverse = (var + layer.eps).rsqrt()
        scale = layer.weight.double() * inverse
        record = torch.stack([mean, inverse, scale, layer.bias.double() - mean * scale])
        return record.to(torch.promote_types(sums.dtype, torch.float32)).detach()

    def norm_back(self, sums: Tensor, count: int, record: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Factors (3, C) of the gradient A g + B x + C, and the gradients in scale and shift of the layer."""
        (one, two), (mean, inverse, scale, _) = sums.double().sum(0), record.double()
        slope = -scale * inverse**2 * two / count
        factors = torch.stack([scale, slope, -scale * one / count - slope * mean])
        return factors.to(record.dtype), (two * inverse).to(record.dtype), one.to(record.dtype)

    def norm_input(self, g: Tensor, x: Tensor, factors: Tensor, residual: Tensor | None = None) -> Tensor:
        """A g + B x + C, plus a residual."""
        a, b, c = factors
        wide = a * g + (b * x + c)
        return (wide if residual is None else wide + residual).to(g.dtype)

    def join(self, y: Tensor, record: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """relu(scale y + shift + shortcut), the shortcut thinned out and padded where it is larger."""
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

    def unpool(self, grad: Tensor, mask: tuple[Tensor, Tensor | None], stat: Pair) -> Pair:
        """The gradient of `pool`, masked, and its sums, as `conv_input` has them."""
        x = mask[0]
        spread = grad[:, None, None] / (x.shape[1] * x.shape[2])
        g = _kept(spread.expand(x.shape).to(x.dtype), mask)
        return g, self._sums_with(g, stat)

    def _sums_with(self, g: Tensor, stat: Pair | None) -> Tensor:
        return _sums(g, g if stat is None else stat[0] - stat[1][0])


def activated(x: Tensor, record: Tensor | None) -> Tensor:
    """relu(scale x + shift) in the type of x; x itself without a record."""
    return x if record is None else F.relu(record[2] * x + record[3]).to(x.dtype)


def _kept(g: Tensor, mask: tuple[Tensor, Tensor | None] | None) -> Tensor:
    if mask is None:
        return g
    x, record = mask
    return g * ((x if record is None else record[2] * x + record[3]) > 0)


def _sums(one: Tensor, two: Tensor) -> Tensor:
    wide = one.to(torch.promote_types(one.dtype, torch.float32))
    return torch.stack([wide.flatten(0, 2).sum(0), (wide * two).flatten(0, 2).sum(0)])[None]


def _padded(weight: Tensor) -> Tensor:
    return F.pad(weight, (0, 0, 0, 0, 0, 16 - weight.shape[1])) if weight.shape[1] < 16 else weight


def _kernel(weight: Tensor) -> Tensor:
    size = 3 if weight.shape[1] == 9 else 1
    return weight.unflatten(1, (size, size)).permute(0, 3, 1, 2)


def _pad(shape: Shape) -> int:
    return 1 if shape.taps == 9 else 0


def _first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)
