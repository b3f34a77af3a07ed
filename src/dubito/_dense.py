"""Linear layers drawn from a generator of our own, so that building a model moves no global state."""

from __future__ import annotations

import math

import torch
from torch import Generator, nn

from ._numbers import check_choice
from .errors import DubitoError

INITS = ("glorot", "torch", "zeros")


def source_of(generator: Generator | None) -> Generator:
    """The given generator, or a fresh one with seed 0."""
    return torch.Generator().manual_seed(0) if generator is None else generator


def dense(inputs: int, outputs: int, source: Generator, init: str, *, bias: bool = True) -> nn.Linear:
    """A linear layer: ``"glorot"`` is U(-a, a), a^2 = 6 / (inputs + outputs), with zero bias (Keras' start);
    ``"torch"`` is U(-a, a), a^2 = 1 / inputs, for weight and bias; ``"zeros"`` is for linear models."""
    check_choice(init, INITS, "init")
    # Made without values: torch would fill them from the global generator.
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device=source.device)
    bound = {"glorot": math.sqrt(6 / (inputs + outputs)), "torch": 1 / math.sqrt(inputs), "zeros": 0.0}[init]
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=source)
        if bias and init == "torch":
            layer.bias.uniform_(-bound, bound, generator=source)
        elif bias:
            layer.bias.zero_()
    return layer


def noise_start(init: str) -> str:
    """The start of layers that make factors of noise: at 0 no gradient would lead away."""
    return "glorot" if init == "zeros" else init


def check_sizes(**sizes: int) -> None:
    """Refuse a size below one, or one that no memory holds."""
    for name, size in sizes.items():
        if size > 2**40:
            raise DubitoError(f"{name} is too large", expected="at most 2**40", got=size)
        if size < 1:
            raise DubitoError(f"{name} is too small", expected="at least 1", got=size)
