"""Networks of other libraries without their last layer: timm, torchvision, segmentation-models-pytorch.

They are made by their own code, with the global generator seeded from ours and put back afterwards.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from ..errors import DubitoError, nearest
from ._layers import DEFAULT_SEED

Shape = tuple[int, ...]
SMP = "segmentation_models_pytorch"
# prefix of a name -> (module, extra to install)
LIBRARIES = {
    "timm": ("timm", "vision"),
    "torchvision": ("torchvision", "vision"),
    "smp": (SMP, "segmentation"),
}
_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []


class Foreign(nn.Module):
    """A network of another library with the number of its features."""

    def __init__(self, network: nn.Module, out_features: int) -> None:
        super().__init__()
        self.network, self.out_features = network, out_features

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> (N, out_features)."""
        return cast(Tensor, self.network(x)).flatten(1)


class FeatureMaps(nn.Module):
    """Encoder and decoder of a segmentation network: (N, C, H, W) -> (N, out_features, h, w).

    Images are padded at the right and below to the next size that the encoder takes, and so are the maps cut.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, out_features: int, multiple: int) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.out_features, self.multiple = out_features, multiple

    def forward(self, x: Tensor) -> Tensor:
        """Images to the decoder's last maps."""
        height, width = x.shape[-2:]
        below, right = -height % self.multiple, -width % self.multiple
        maps = cast(Tensor, self.decoder(self.encoder(nn.functional.pad(x, (0, right, 0, below)))))
        if not below and not right:
            return maps
        step = (height + below) / maps.shape[-2]
        return maps[..., : -(-height // int(step)), : -(-width // int(step))]


def build_foreign(
    library: str, name: str, shape: Shape, generator: Generator | None, **options: Any
) -> nn.Module:
    """A network by the prefix and the rest of its name."""
    makers: dict[str, Callable[..., nn.Module]] = {"timm": _timm, "torchvision": _torchvision, "smp": _smp}
    if library not in makers:
        raise DubitoError("unknown source of networks", got=repr(library), remedy=nearest(library, makers))
    module = _import(library, name)
    seed = DEFAULT_SEED if generator is None else int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return makers[library](module, name, shape, **options)


def _import(library: str, name: str) -> Any:
    module, extra = LIBRARIES[library]
    declare_operators()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DubitoError(
            f"{library}:{name} needs {module.replace('_', '-')}", remedy=f"pip install 'dubito[{extra}]'"
        ) from error


def declare_operators() -> None:
    """Let torchvision be imported beside a torch that its compiled part does not fit.

    torchvision's operators for boxes were built against one build of torch; beside another (a CPU build with the
    wheel of the package index) they do not load, and then its import fails. No network here uses them, so they are
    declared without a body. Nothing happens where they load.
    """
    if _declared or "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    if all(hasattr(torch.ops.torchvision, name) for name in _OPERATORS) or _loads():
        return
    library = torch.library.Library("torchvision", "DEF")  # kept in _declared as long as the process lives
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)


def _loads() -> bool:
    spec = importlib.util.find_spec("torchvision")
    for file in _compiled(Path(spec.origin).parent) if spec is not None and spec.origin else ():
        try:
            torch.ops.load_library(file)
        except OSError:
            return False
        return True
    return False


def _compiled(folder: Path) -> Iterator[Path]:
    return (p for p in sorted(folder.glob("_C.*")) if p.suffix in (".so", ".pyd", ".dylib"))


def _timm(timm: Any, name: str, shape: Shape, **options: Any) -> nn.Module:
    if not timm.is_model(name):
        raise DubitoError(
            "timm has no such network", got=repr(name), remedy=nearest(name, timm.list_models())
        )
    published = getattr(timm, "get_pretrained_cfg", lambda name: None)(name)
    if getattr(published, "fixed_input_size", False):
        options = {"img_size": tuple(shape[1:]), **options}
    network = timm.create_model(name, num_classes=0, in_chans=shape[0], **options)
    return Foreign(network, _width(network, shape, name))


def _torchvision(torchvision: Any, name: str, shape: Shape, **options: Any) -> nn.Module:
    models = importlib.import_module("torchvision.models")
    names = models.list_models(module=models)
    if name not in names:
        raise DubitoError("torchvision has no such network", got=repr(name), remedy=nearest(name, names))
    if shape[0] != 3:
        raise DubitoError("torchvision networks read three channels", got=shape[0], remedy="use timm:NAME")
    weights = "DEFAULT" if options.pop("pretrained", False) else None
    if name.startswith("vit_"):
        options = {"image_size": shape[1], **options}
    network = models.get_model(name, weights=weights, **options)
    layers = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Linear)]
    if not layers or hasattr(network, "aux_logits"):
        raise DubitoError(
            "this network does not end in one linear layer", got=repr(name), remedy="use one of timm"
        )
    last, _ = layers[-1]
    parent = network.get_submodule(last.rpartition(".")[0])
    setattr(parent, last.rpartition(".")[2], nn.Identity())
    return Foreign(network, _width(network, shape, name))


@torch.no_grad()
def _width(network: nn.Module, shape: Shape, name: str) -> int:
    """How many features an example gets: one goes through, since what a network says of itself is not always so."""
    device = next(network.parameters()).device
    training = network.training
    try:
        width = network.eval()(torch.zeros(1, *shape, device=device)).flatten(1).shape[1]
    except (RuntimeError, ValueError, TypeError, AssertionError, AttributeError) as error:
        raise DubitoError(
            "this network cannot read these examples",
            where=name,
            got=f"{shape}: {(str(error).splitlines() or [''])[0][:200]}",
        ) from error
    finally:
        network.train(training)
    if not width:
        raise DubitoError("this network has no features without its classes", got=repr(name))
    return int(width)


def _smp(
    smp: Any,
    name: str,
    shape: Shape,
    *,
    encoder: str = "resnet34",
    output_stride: int | None = None,
    pretrained: bool = False,
    **options: Any,
) -> nn.Module:
    """Encoder and decoder of a segmentation network; its own last layer is dropped.

    `encoder` is a name of that library, or ``tu-NAME`` for one of timm's. `output_stride` is 16 or 8, where the
    network has dilated convolutions (DeepLabV3, DeepLabV3Plus).
    """
    found = {
        n.lower(): getattr(smp, n) for n in dir(smp) if inspect.isclass(getattr(smp, n)) and n[0].isupper()
    }
    if name.lower() not in found:
        raise DubitoError("smp has no such network", got=repr(name), remedy=nearest(name, found))
    if output_stride is not None:
        options["encoder_output_stride"] = output_stride
    weights = "imagenet" if pretrained else None
    try:
        network = found[name.lower()](
            encoder_name=encoder, encoder_weights=weights, in_channels=shape[0], classes=1, **options
        )
    except (KeyError, ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        raise DubitoError(
            "smp cannot make this network", where=f"{name} on {encoder}", got=str(error).splitlines()[0][:200]
        ) from error
    last = next(m for m in network.segmentation_head.modules() if isinstance(m, nn.Conv2d))
    multiple = int(getattr(network.encoder, "output_stride", 32) or 32)
    return FeatureMaps(network.encoder, network.decoder, last.in_channels, multiple)
