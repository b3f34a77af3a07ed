"""3x3 convolutions of 16 channels on a GPU, where cuDNN's are at their worst.

cuDNN takes 20 microseconds for a layer that these kernels do in 8, and 35 against 16 for the gradient in its
weights (one H200, 128 images of 32 x 32, bfloat16; results/benchmarks/thin-tuning.txt); with 32 channels the gain
is a quarter, with 128 a loss. A third of a residual network for small images consists of such layers. Sums are
accumulated in float32, in a fixed order.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

CHANNELS = 16
_TRITON_IS_THERE = find_spec("triton") is not None


def _small(x: Tensor, other: Tensor) -> bool:
    """Whether places in images of so many channels can be counted in 32 bits."""
    pixels, channels = x[:, 0].numel(), max(x.shape[1], *other.shape[:2])
    return bool(pixels * channels < 1 << 31)


@torch.library.custom_op("dubito::thin_conv", mutates_args=())
def thin_conv(x: Tensor, weight: Tensor, back: bool) -> Tensor:
    """x (N, C, H, W) with weight (O, C, 3, 3), zeros around it; `back`: x has O channels, gradient in the input.

    The result has the type of x, which the weight is cast to, and channels last in memory.
    """
    x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
    if x.is_cuda and _small(x, weight):
        from ._thin_triton import convolve

        return convolve(x, weight, back)
    rounded = weight.to(x.dtype)
    kernel = rounded.flip(2, 3).transpose(0, 1) if back else rounded
    return F.conv2d(x, kernel, padding=1).contiguous(memory_format=torch.channels_last)


@thin_conv.register_fake
def _(x: Tensor, weight: Tensor, back: bool) -> Tensor:
    shape = (x.shape[0], weight.shape[1 if back else 0], *x.shape[2:])
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


@torch.library.custom_op("dubito::thin_conv_weight", mutates_args=())
def thin_conv_weight(x: Tensor, grad: Tensor) -> Tensor:
    """Gradient in the weight, (O, C, 3, 3) in float32, from the input (N, C, H, W) and that of the output."""
    x, grad = (t.contiguous(memory_format=torch.channels_last) for t in (x, grad))
    shape = (grad.shape[1], x.shape[1], 3, 3)
    if x.is_cuda and _small(x, grad):
        from ._thin_triton import weight_gradient

        found = weight_gradient(x, grad)
    else:
        found = conv2d_weight(x.float(), shape, grad.float(), padding=1)
    return found.contiguous(memory_format=torch.channels_last)


@thin_conv_weight.register_fake
def _(x: Tensor, grad: Tensor) -> Tensor:
    shape = (grad.shape[1], x.shape[1], 3, 3)
    return torch.empty(shape, device=x.device, memory_format=torch.channels_last)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight = ctx.saved_tensors
    grad = grad.to(x.dtype)
    return thin_conv(grad, weight, True), thin_conv_weight(x, grad).to(weight.dtype), None


thin_conv.register_autograd(_backward, setup_context=_remember)


class ThinConv2d(nn.Conv2d):
    """A convolution by `thin_conv`, in the precision that autocast asks for; parameters as in `nn.Conv2d`."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, O, H, W)."""
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        y: Tensor = thin_conv(x, self.weight, False)
        return y


def suits(layer: nn.Module) -> bool:
    """Whether a layer is a 3x3 convolution of 16 channels to 16, at stride 1, without bias."""
    return (
        type(layer) is nn.Conv2d
        and layer.kernel_size == (3, 3)
        and layer.stride == layer.dilation == layer.padding == (1, 1)
        and layer.padding_mode == "zeros"
        and layer.groups == 1
        and layer.bias is None
        and layer.in_channels == layer.out_channels == CHANNELS
    )


def adopt(module: nn.Module) -> int:
    """Let all layers of a module that `suits` names be computed by `thin_conv`; how many there were.

    Parameters, their names and what a checkpoint holds stay as they are. Without Triton nothing changes.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, bias=False))
        >>> [suits(layer) for layer in net]
        [False, True]
    """
    layers = [layer for layer in module.modules() if suits(layer)] if _TRITON_IS_THERE else []
    for layer in layers:
        layer.__class__ = ThinConv2d
    return len(layers)
