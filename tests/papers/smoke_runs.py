"""Every run of every table and figure at smoke size, and how the nightly set trains one of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from dubito.papers import PAPERS, Config, items, prepare, run_id

# Networks by the time of a step, so that the longest runs begin first.
SLOWEST = (
    "resnetv2-50",
    "torchvision:resnet50",
    "resnet50-cifar",
    "cnn9",
    "resnet56",
    "resnet32",
    "wrn-28-2",
)
# Segmentation has data and a network of its own, and a nightly test of its own.
PIXELS = ("cityscapes", "voc")


def everything() -> list[Config]:
    """Runs of items and of the searches behind them, each once, the longest first."""
    found: dict[str, Config] = {}
    for name in PAPERS:
        for entry in items(name).values():
            for make in filter(None, (entry.make, entry.search)):
                for config in make("smoke", None, None):
                    if config.data not in PIXELS:
                        found.setdefault(run_id(config), config)
    place = {network: i for i, network in enumerate(SLOWEST)}
    return sorted(found.values(), key=lambda c: place.get(c.network, len(place)))


def train(config: Config, *, out: Path, **options: Any) -> None:
    """The plain runner; our own ResNet-50 stands in for the one whose published weights may not be at hand."""
    import torch

    from dubito.backbones import build
    from dubito.papers import runner

    torch.set_num_threads(1)
    if config.pretrained:
        prepare.build = partial(_without_weights, build)  # type: ignore[assignment]
    try:
        runner.run(config, out=out, **options)
    finally:
        prepare.build = build


def _without_weights(build: Any, name: str, shape: Any, *, pretrained: bool = False, **options: Any) -> Any:
    return build(name.partition(":")[2] or name, shape, **options)
