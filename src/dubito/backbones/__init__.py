"""Networks that map inputs to features: (N, ...) -> (N, out_features).

Heads (`dubito.heads`) come on top. Every network takes `generator=` (a CPU `torch.Generator`; None is a fresh
one with seed 0) and `init=`: "glorot", "he" or "torch". `build` makes one by name; names that start with
``timm:`` or ``torchvision:`` come from those libraries.
"""

from __future__ import annotations

from ._build import NETWORKS, build
from .encoder_decoder import EncoderDecoder
from .forest import Forest
from .resnet import ResNet50, ResNetCIFAR
from .small import CNN4, CNN9, MLP, LeNet5
from .wide import WideResNet

__all__ = [
    "CNN4",
    "CNN9",
    "MLP",
    "NETWORKS",
    "EncoderDecoder",
    "Forest",
    "LeNet5",
    "ResNet50",
    "ResNetCIFAR",
    "WideResNet",
    "build",
]
