"""Layers that are made without drawing a number, and one place that draws their first weights.

`torch.nn` fills weights from the global generator when a layer is made. Here layers start empty and
`initialise` fills them in the order of `Module.modules()`, on the CPU, from a generator of our own: the same
seed gives the same weights on every device, and nobody else's random numbers move.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from .._dense import check_sizes
from ..errors import DubitoError, nearest

DEFAULT_SEED = 0


def conv(
    inputs: int, outputs: int, size: int, *, stride: int = 1, padding: int | None = None, bias: bool = False
) -> nn.Conv2d:
    """A convolution without weights yet; `padding=None` keeps the image size at stride 1 (odd `size`)."""
    check_sizes(inputs=inputs, outputs=outputs)
    pad = size // 2 if padding is None else padding
    layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=pad, bias=bias, device="meta")
    return layer.to_empty(device="cpu")


def dense(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer with bias, without weights yet."""
    check_sizes(inputs=inputs, outputs=outputs)
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm with eps 1e-5 and torch's momentum .1 (Keras calls it .9)."""
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)


def _glorot(layer: nn.Conv2d | nn.Linear, generator: Generator) -> None:
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _he(layer: nn.Conv2d | nn.Linear, generator: Generator) -> None:
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _torch(layer: nn.Conv2d | nn.Linear, generator: Generator) -> None:
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


INITS: dict[str, Callable[[nn.Conv2d | nn.Linear, Generator], None]] = {
    "glorot": _glorot,
    "he": _he,
    "torch": _torch,
}


def initialise(network: nn.Module, init: str, generator: Generator | None) -> None:
    """Fill every convolution and linear layer of `network`; norms keep scale 1 and shift 0.

    Arguments:
        init: ``"glorot"`` (uniform, variance 2/(fan in + fan out), zero bias: Keras' default), ``"he"``
            (normal, variance 2/fan in, zero bias), ``"torch"`` (what `torch.nn` does by itself).
        generator: a CPU generator; None is a fresh one with seed 0.
    """
    if init not in INITS:
        raise DubitoError("unknown initialisation", got=repr(init), remedy=nearest(init, INITS))
    source = torch.Generator().manual_seed(DEFAULT_SEED) if generator is None else generator
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            INITS[init](layer, source)


def global_average(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, C)."""
    return x.mean((-2, -1))
