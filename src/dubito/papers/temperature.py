"""Does the best softmax temperature survive exact integration? A study beside Collier et al. 2020.

The paper explains the best temperature by a trade: low ones give gradients of high variance, high ones a bias. Here
the same small network is trained on the paper's class-dependent noise and over its 18 temperatures, with 1, 10, 100
and 1,000 samples and with the exact integral, from the same seeds. Predictions are exact for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from .collier2020 import SAMPLES, grid
from .configs import Config
from .items import Item, search_of
from .tables import setting

PAPER, HOME = "temperature", "collier2020"
SEEDS = 3
EXACT = 0  # "so many samples"
EPOCHS = {
    "mnist": 6,
    "cifar10": 8,
}  # some 2,400 steps; the paper trains to the best epoch of a larger network

_COMMON: dict[str, Any] = {
    "network": "lenet5",
    "init": "glorot",
    "optimizer": "adam",
    "lr": 1e-3,
    "eps": 1e-7,
    "batch": 128,
    "noise": "class_dependent",
    "matrix": "main",
    "noisy_validation": True,
    "noisy_test": True,
    "tune_on": "log_likelihood",
    "normalise": "unit",
}


def _listing(name: str, data: str | None) -> Iterator[Config]:
    """Plain training, then one curve per number of samples."""
    train, validation, _ = setting(HOME, f"{name}_train_val_test")
    common = {**_COMMON, "train": train, "validation": validation, "epochs": EPOCHS[name]}
    yield Config(paper=PAPER, item=name, data=data or name, method="ce", **common)
    for samples in (EXACT, *SAMPLES):
        yield Config(
            paper=PAPER, item=name, data=data or name, method="het-tau", samples=samples,
            reading=(("prediction", "exact"),), **common,
        )  # fmt: skip


def _item(name: str, title: str) -> Item:
    return Item(
        id=name, title=title, hours=0.04, rows=("method", "samples", "temperature"),
        metrics=("noisy_log_likelihood", "noisy_accuracy", "accuracy_clean"),
        make=search_of(partial(_listing, name), lambda config: grid(config) or [{}], seeds=SEEDS),
    )  # fmt: skip


TABLES: dict[str, Item] = {}
FIGURES = {
    "mnist": _item("mnist", "sampled and exact, MNIST"),
    "cifar10": _item("cifar10", "sampled and exact, CIFAR-10"),
}
