"""The nine-layer network with cuDNN's convolutions in bfloat16 and our own kernels between them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..backbones.small import CNN9
from .grouped import Channels, How, Plain, normed


def available() -> bool:
    """Whether there is a GPU that computes in bfloat16, and Triton."""
    return (
        find_spec("triton") is not None
        and torch.cuda.is_available()
        and torch.version.cuda is not None
        and torch.cuda.get_device_capability() >= (8, 0)
    )


class FusedCNN9:
    """A network's features, (N, C, H, W) -> (N, 128) in float32 at least, in training and in evaluation.

    Uses the parameters of the network; autograd gives a gradient for the images too. `ops` are the operations: the
    kernels, or `Plain()` for a CPU.

    Example:
        >>> FusedCNN9(CNN9(), Plain())(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """

    def __init__(self, network: CNN9, ops: Plain | None = None) -> None:
        if ops is None:
            from .triton_grouped import Kernels

            ops = Kernels()
        self.network, self.ops = network, ops

    def takes(self, x: Tensor) -> bool:
        """Whether the kernels can take this batch: any batch of images."""
        return x.dim() == 4

    def __call__(self, x: Tensor) -> Tensor:
        """Features of a batch; dropout draws from the global generator of its device, as the network's own does."""
        network, x = self.network, self.ops.image(x)
        layers: list[Any] = list(zip(network.convs, network.norms))
        for i, (weight, (conv, norm)) in enumerate(zip(self._weights(x), layers)):
            y = F.conv2d(x, weight, padding=conv.padding)
            how = How(norm.num_groups, float(network.slope), float(norm.eps), bool(network.norm_last))
            x = normed(y, Channels(conv.bias, norm.weight, norm.bias), how, self.ops)
            if i in network.POOLED:
                x = network.dropout(self.ops.pool(x))
        return x.mean((-2, -1), dtype=torch.promote_types(x.dtype, torch.float32))

    def _weights(self, image: Tensor) -> tuple[Tensor, ...]:
        """The weights in the type of the images, the first padded to their number of channels."""
        convs: list[Any] = list(self.network.convs)
        first, *rest = (conv.weight for conv in convs)
        first = F.pad(first, (0, 0, 0, 0, 0, image.shape[1] - first.shape[1]))
        found: tuple[Tensor, ...] = _Cast.apply(image.dtype, first, *rest)  # type: ignore[no-untyped-call]
        return found


class _Cast(torch.autograd.Function):
    """Tensors cast to another type, and their gradients back to that of the first; one kernel for all on a GPU."""

    @staticmethod
    def forward(ctx: Any, kind: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.kind = tensors[0].dtype
        return _cast(tensors, kind)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return None, *_cast(grads, ctx.kind)


def _cast(tensors: tuple[Tensor, ...], kind: torch.dtype) -> tuple[Tensor, ...]:
    found = [torch.empty_like(t, dtype=kind) for t in tensors]
    torch._foreach_copy_(found, tensors)
    return tuple(found)
