"""The segmentation of Collier et al. 2020: runs of table 2 and figures 2 to 4.

The paper starts from weights that are not public, so its numbers cannot be met; the protocol is here as far as it
is stated. CamVid and simulated shapes are for machines without its data; no value of the paper stands beside them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product
from typing import Any

from .configs import Config
from .items import Item, base_of, runs, search_of
from .tables import setting

PAPER = "collier2020"
SEEDS = {"paper": 25, "small": 3}
METHODS = ("ce", "het", "het-tau")
TAU = setting(PAPER, "seg_tau_star")["Cityscapes"]  # the same for both sets

_DEEPLAB: dict[str, Any] = {
    "network": "smp:DeepLabV3Plus",
    "network_options": (("encoder", "tu-xception65"), ("output_stride", 16)),  # 8 for the test server
    "pretrained": True,  # on ImageNet; the paper's weights, from the end of its second training phase, are private
    "optimizer": "sgd",
    "lr": setting(PAPER, "seg_learning_rate"),
    "momentum": 0.9,  # silent, as is the batch
    "batch": 16,
    "steps": setting(PAPER, "seg_final_stage_steps"),
    "own_validation": True,
    "normalise": "imagenet",
    "tune_on": "miou",
}
_SMALL: dict[str, Any] = {
    **_DEEPLAB,
    "pretrained": False,
    "optimizer": "adam",
    "lr": 2e-3,
    "weight_decay": 1e-4,
    "schedule": "poly",
    "batch": 16,
}
BASES: dict[str, dict[str, Any]] = {
    # Silent: augmentation and crops; DeepLab's own.
    "cityscapes": {**_DEEPLAB, "augment": "scale-crop769-flip", "validation": 500},
    "voc": {**_DEEPLAB, "augment": "scale-crop513-flip", "labels": "train_aug", "validation": 1_449},
    # From scratch, with the exact integral in place of samples.
    "camvid": {
        **_SMALL, "network": "encoder-decoder", "network_options": (), "steps": 1200, "validation": 101,
        "augment": "scale-crop160x208-flip",
    },
    "shapes": {
        **_SMALL, "network": "encoder-decoder-small", "network_options": (("stride", 2),), "steps": 40,
        "validation": 16, "augment": "scale-crop-flip",
    },
}  # fmt: skip


def configs(data: str | None) -> Iterator[Config]:
    """Plain training, temperature 1, and a temperature to be chosen."""
    for name, method in product([data] if data else ["cityscapes", "voc"], METHODS):
        exact = name in ("camvid", "shapes") or method == "ce"
        draws: dict[str, Any] = {} if exact else {"samples": 1000, "eval_samples": 1000}
        params = (("temperature", 1.0),) if method == "het" else ()
        yield Config(
            paper=PAPER, item="table2", data=name, method=method, params=params, record=("pixels",),
            **draws, **base_of(BASES, name),
        )  # fmt: skip


def at_tau(config: Config) -> Config:
    """With the paper's temperature; a search of one's own replaces it."""
    return config.with_params(temperature=TAU) if config.method == "het-tau" else config


def grid(config: Config) -> list[dict[str, Any]]:
    """The temperatures of figure 2 are in its picture only: 0.01 and those of the images, up to 10."""
    taus = [0.01, *(tau for tau in setting(PAPER, "temperature_grid_images") if tau <= 10)]
    return [{"temperature": tau} for tau in taus] if config.method == "het-tau" else []


def _points(config: Config) -> list[dict[str, Any]]:
    """The curve of figure 2: a grid for the tuned model, one point for plain training."""
    return grid(config) or ([{}] if config.method == "ce" else [])


def small(config: Config) -> Config:
    """A tenth of the steps of the large networks; what is small already stays."""
    return dataclasses.replace(config, steps=min(config.steps, 3_000))


def _item(id_: str, title: str, **more: Any) -> Item:
    return Item(
        id=id_, title=title, hours=500, reference="het-tau",
        **{
            "printed": f"{PAPER}.table2", "metrics": ("miou", "miou_test"),
            "make": runs(configs, SEEDS, choose=at_tau, small=small),
            "search": search_of(configs, grid, seeds=SEEDS["paper"], small=small), **more,
        },
    )  # fmt: skip


TABLE2 = _item("table2", "segmentation")
FIGURES = {
    "figure2": _item(
        "figure2", "segmentation against temperature", rows=("method", "temperature"), metrics=("miou",),
        search=None, printed="", make=search_of(configs, _points, seeds=SEEDS["paper"], small=small),
    ),
    "figure3": _item("figure3", "segmented photographs"),
    "figure4": _item("figure4", "variance of the prediction"),
}  # fmt: skip
