"""Networks by name: ours from a literal table, others from timm, torchvision and segmentation-models-pytorch."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from torch import Generator, nn

from ..errors import DubitoError, nearest
from ._foreign import build_foreign
from .encoder_decoder import EncoderDecoder
from .resnet import ResNet50, ResNetCIFAR
from .small import CNN4, CNN9, MLP, LeNet5
from .wide import WideResNet

Shape = tuple[int, ...]

# name -> how it is made from the shape of one example and further options.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": lambda shape, **options: MLP(prod(shape), **options),
    "linear": lambda shape, **options: MLP(prod(shape), hidden=(), **options),
    "lenet5": lambda shape, **options: LeNet5(shape[0], _square(shape), **options),
    "cnn4": lambda shape, **options: CNN4(shape[0], **options),
    "cnn4-128": lambda shape, **options: CNN4(shape[0], (128, 128, 128, 128), **options),
    "cnn9": lambda shape, **options: CNN9(shape[0], **options),
    "resnet32": lambda shape, **options: ResNetCIFAR(shape[0], 32, **options),
    "resnet56": lambda shape, **options: ResNetCIFAR(shape[0], 56, **options),
    "resnet50": lambda shape, **options: ResNet50(shape[0], **options),
    "resnet50-cifar": lambda shape, **options: ResNet50(shape[0], stem="cifar", **options),
    "resnetv2-50": lambda shape, **options: ResNet50(shape[0], version=2, **options),
    # Feature maps for segmentation.
    "encoder-decoder": lambda shape, **options: EncoderDecoder(shape[0], **options),
    "encoder-decoder-small": lambda shape, **options: EncoderDecoder(
        shape[0], **{"widths": (16, 32, 64), "decoder": 32, **options}
    ),
    "wrn-28-2": lambda shape, **options: WideResNet(shape[0], 28, 2, **options),
}
_VECTORS = ("mlp", "linear")


def build(
    name: str,
    shape: Shape,
    *,
    init: str | None = None,
    generator: Generator | None = None,
    **options: Any,
) -> nn.Module:
    """A network by name, for examples of a given shape.

    Arguments:
        name: a key of `NETWORKS`, ``timm:NAME``, ``torchvision:NAME``, or ``smp:NAME`` for a network that returns
            feature maps (segmentation-models-pytorch).
        shape: of one example: (channels, height, width) or (features,).
        init: None is the start that the network's paper used; foreign networks keep their own.
        generator: source of the first weights; None is a fresh one with seed 0.
        options: what the network's class takes besides (``hidden=``, ``depth=``, ``pretrained=``; for ``smp:`` also
            ``encoder=`` and ``output_stride=``).

    Returns:
        A module with the attribute `out_features`.

    Example:
        >>> build("lenet5", (1, 28, 28)).out_features
        84
    """
    library, _, foreign = name.partition(":")
    if foreign:
        return build_foreign(library, foreign, shape, generator, **options)
    if name not in NETWORKS:
        raise DubitoError("unknown network", got=repr(name), remedy=nearest(name, NETWORKS))
    if name not in _VECTORS and len(shape) != 3:
        raise DubitoError(
            f"{name} reads images", expected="shape (channels, height, width)", got=shape,
            remedy="use 'mlp' for feature vectors",
        )  # fmt: skip
    chosen = {} if init is None else {"init": init}
    return NETWORKS[name](shape, generator=generator, **chosen, **options)


def _square(shape: Shape) -> int:
    if shape[1] != shape[2]:
        raise DubitoError("lenet5 reads square images", got=f"{shape[1]} x {shape[2]}")
    return shape[1]
