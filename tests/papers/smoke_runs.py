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
# Segmentation runs on drawn shapes: its photographs are behind a registration, its network behind an extra.
SHAPES = {f"collier2020.{item}": "shapes" for item in ("table2", "figure2", "figure3", "figure4")}


def everything() -> list[Config]:
    """Runs of items and of the searches behind them, each once, the longest first."""
    found: dict[str, Config] = {}
    for name in PAPERS:
        for key, entry in items(name).items():
            for make in filter(None, (entry.make, entry.search)):
                for config in make("smoke", SHAPES.get(f"{name}.{key}"), None):
                    found.setdefault(run_id(config), config)
    place = {network: i for i, network in enumerate(SLOWEST)}
    return sorted(found.values(), key=lambda c: place.get(c.network, len(place)))


def train(config: Config, *, out: Path, **options: Any) -> None:
    """The plain runner. Our own ResNet-50 stands in for the one whose published weights may not be at hand;
    large networks write no checkpoints, which would take longer than their three steps.
    """
    import torch

    from dubito.backbones import build
    from dubito.papers import runner
    from dubito.papers.results import write_result

    torch.set_num_threads(1)
    if config.pretrained:
        prepare.build = partial(_without_weights, build)  # type: ignore[assignment]
    try:
        if config.network in SLOWEST:
            write_result(runner.run(config, **options), out)
        else:
            runner.run(config, out=out, **options)
    finally:
        prepare.build = build


def _without_weights(build: Any, name: str, shape: Any, *, pretrained: bool = False, **options: Any) -> Any:
    return build(name.partition(":")[2] or name, shape, **options)
