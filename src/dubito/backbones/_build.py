"""Networks by name: ours from a literal table, others from timm and torchvision."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from math import prod
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from ..errors import DubitoError, nearest
from ._layers import DEFAULT_SEED
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
        name: a key of `NETWORKS`, ``timm:NAME`` or ``torchvision:NAME``.
        shape: of one example: (channels, height, width) or (features,).
        init: None is the start that the network's paper used; foreign networks keep their own.
        generator: source of the first weights; None is a fresh one with seed 0.
        options: what the network's class takes besides (``hidden=``, ``depth=``, ``pretrained=``).

    Returns:
        A module with the attribute `out_features`.

    Example:
        >>> build("lenet5", (1, 28, 28)).out_features
        84
    """
    library, _, foreign = name.partition(":")
    if foreign:
        return _foreign(library, foreign, shape, generator, **options)
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


class _Foreign(nn.Module):
    """A network of another library with the number of its features."""

    def __init__(self, network: nn.Module, out_features: int) -> None:
        super().__init__()
        self.network, self.out_features = network, out_features

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> (N, out_features)."""
        return cast(Tensor, self.network(x)).flatten(1)


def _foreign(library: str, name: str, shape: Shape, generator: Generator | None, **options: Any) -> nn.Module:
    """Make it with their code, with the global generator seeded from ours and put back afterwards."""
    makers: dict[str, Callable[..., nn.Module]] = {"timm": _timm, "torchvision": _torchvision}
    if library not in makers:
        raise DubitoError("unknown source of networks", got=repr(library), remedy=nearest(library, makers))
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise DubitoError(
            f"{library}:{name} needs {library}", remedy="pip install 'dubito[vision]'"
        ) from error
    seed = DEFAULT_SEED if generator is None else int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return makers[library](module, name, shape, **options)


def _timm(timm: Any, name: str, shape: Shape, **options: Any) -> nn.Module:
    if not timm.is_model(name):
        raise DubitoError(
            "timm has no such network", got=repr(name), remedy=nearest(name, timm.list_models())
        )
    network = timm.create_model(name, num_classes=0, in_chans=shape[0], **options)
    return _Foreign(network, int(network.num_features))


def _torchvision(torchvision: Any, name: str, shape: Shape, **options: Any) -> nn.Module:
    models = importlib.import_module("torchvision.models")
    names = models.list_models()
    if name not in names:
        raise DubitoError("torchvision has no such network", got=repr(name), remedy=nearest(name, names))
    if shape[0] != 3:
        raise DubitoError("torchvision networks read three channels", got=shape[0], remedy="use timm:NAME")
    weights = "DEFAULT" if options.pop("pretrained", False) else None
    network = models.get_model(name, weights=weights, **options)
    last, layer = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Linear)][-1]
    parent = network.get_submodule(last.rpartition(".")[0])
    setattr(parent, last.rpartition(".")[2], nn.Identity())
    return _Foreign(network, layer.in_features)
