"""Lukasik, Bhojanapalli, Menon, Kumar 2020: label smoothing under label noise.

Tables 2 to 5 and 7, figures 2 to 9 (1 is a drawing), in the numbering of the arXiv version. Runs of ResNet-32
with smoothing, forward and backward correction belong to the sweep of figure 2; the other items share them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from .configs import Config
from .items import Item, base_of, no_runs, only_on, runs
from .tables import setting

PAPER = "lukasik2020"
SEEDS = {"paper": 5, "small": 2}
SWEPT = ("smooth", "forward", "backward")
# The sweep's grid is in the picture only; .1, .2 and .7 occur in the text, and the curves go to about .9.
ALPHAS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)

_CIFAR: dict[str, Any] = {
    "network": "resnet32",
    "init": "he",  # silent
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 1e-4,
    "decay": "all",  # silent
    "batch": 128,
    "steps": 64_000,
    "schedule": "step",
    "milestones": (0.5, 0.75),  # 32k and 48k steps
    "gamma": 0.1,
    "normalise": "cifar10",  # silent
    "augment": "pad4-crop-flip",  # random crops and flips; the padding is silent
    # Text and table 7 move labels to another class, section 4.1 seems to include the own one. The sizes of the
    # parts in table 3 fit exactly a fifth of the labels changed.
    "noise": "flip_to_other",
    "rate": 0.2,
    "exact": "changed",
}
_IMAGENET: dict[str, Any] = {
    **_CIFAR,
    "network": "resnetv2-50",
    "optimizer": "lars",
    "lr": 7.0,  # silent, as is the schedule: the usual three drops of 90 epochs
    "nesterov": False,
    "decay": "weights",
    "batch": 3500,
    "steps": 32_768,
    "milestones": (1 / 3, 2 / 3, 8 / 9),
    "normalise": "imagenet",
    "augment": "resize-crop-flip",
    "exact": "",
}
_PLANE: dict[str, Any] = {
    "network": "linear",
    "optimizer": "gd",
    "lr": 1.0,  # silent; the steps end near the best line, not on it
    "batch": 0,
    "epochs": 5_000,
    "train": 2_000,  # silent
    "normalise": "none",
    "noise": "one_sided",  # 5 per cent of the negatives are called positive
    "rate": 0.05,
}
BASES = {
    **dict.fromkeys(("cifar10", "cifar100"), _CIFAR),
    "mnist": {**_CIFAR, "normalise": "unit", "augment": "none"},
    "imagenet": _IMAGENET,
    "gaussians": _PLANE,
}
# What the figures read from the runs of the sweep: accuracy on parts of the training set, calibration,
# probabilities of true and given labels there, and the plane of three classes before the last layer.
_RECORD = ("parts", "ece", "probabilities", "features")


def _config(item: str, data: str, method: str, params: dict[str, Any] | None = None, **more: Any) -> Config:
    settings = {**base_of(BASES, data), **more}
    return Config(
        paper=PAPER, item=item, data=data, method=method, params=tuple((params or {}).items()), **settings
    )


def _small(config: Config) -> Config:
    """A quarter of the steps, on the same schedule."""
    return dataclasses.replace(config, steps=config.steps // 4)


def _swept(data: str, method: str, alpha: float = 0.0, network: str = "resnet32") -> Config:
    """A run of the sweep: plain training, or smoothing and correction by the symmetric matrix of `alpha`."""
    item = "figure2" if network == "resnet32" else "table7"
    params = {} if method == "ce" else {"alpha": alpha}
    return _config(item, data, method, params, network=network, record=_RECORD)


def _estimated(data: str, method: str, network: str) -> Config:
    """Correction with a matrix estimated from a first, plainly trained network."""
    params = {
        "transition": "estimated",
        "percentile": setting(PAPER, "patrini_percentile"),
    }
    # Silent: the example at the percentile, not the best one below it.
    return _config("table7", data, method, params, network=network, reading=(("example", "at percentile"),))


def _table2(data: str | None) -> Iterator[Config]:
    name = data or "imagenet"
    yield _config("table2", name, "ce")
    for method, alpha in product(("smooth", "forward"), (0.1, 0.2, 0.4, 0.6)):
        yield _config("table2", name, method, {"alpha": alpha})


def _table3(data: str | None) -> Iterator[Config]:
    yield _swept(data or "cifar100", "ce")
    yield from (_swept(data or "cifar100", "smooth", alpha) for alpha in (0.1, 0.2))


def _table4(data: str | None) -> Iterator[Config]:
    yield _swept(data or "cifar100", "ce")
    for method, alpha in product(SWEPT, (0.1, 0.2)):
        yield _swept(data or "cifar100", method, alpha)


def _rows(data: str | None) -> Iterator[tuple[str, str]]:
    yield from product([data] if data else ["cifar100", "cifar10"], ("resnet32", "resnet56"))


def _student(item: str, data: str, network: str, teacher: str, student: str, **params: Any) -> Config:
    """A student that sees only its teacher's softened outputs; the teacher is a network of the same kind."""
    options = {
        "teacher": teacher,  # "plain", or how the teacher was trained: "smooth", "forward"
        "student": student,  # "plain", or what is done to the student's own loss
        "temperature": float(setting(PAPER, "distillation_temperature_default")),
        **params,
    }
    reading = {
        "both_sides": True,  # silent: teacher and student are divided by the temperature, no factor T^2
        "same_view": True,  # silent: the teacher sees the student's augmented image
    }
    return _config(item, data, "distill", options, network=network, reading=tuple(reading.items()))


def _table5(data: str | None) -> Iterator[Config]:
    alpha = setting(PAPER, "alpha_table5")
    for name, network in _rows(data):
        yield _student("table5", name, network, "plain", "plain")
        for how, kind in product(("teacher", "student"), ("smooth", "forward")):
            ends = (kind, "plain") if how == "teacher" else ("plain", kind)
            yield _student("table5", name, network, *ends, alpha=alpha)


def _table7(data: str | None) -> Iterator[Config]:
    for name, network in _rows(data):
        yield _swept(name, "ce", network=network)
        yield from (_swept(name, method, setting(PAPER, "alpha_table7"), network) for method in SWEPT)
        yield from (_estimated(name, method, network) for method in ("forward", "backward"))


def _figure2(data: str | None) -> Iterator[Config]:
    for name in [data] if data else ["cifar100", "cifar10"]:
        yield _swept(name, "ce")
        yield from (_swept(name, method, alpha) for method, alpha in product(SWEPT, ALPHAS))


def _figure3(data: str | None) -> Iterator[Config]:
    yield _swept(data or "cifar100", "ce")
    yield from (_swept(data or "cifar100", method, setting(PAPER, "alpha_fig3_fig7")) for method in SWEPT)


def _projections(panels: list[tuple[str, str, str, float]], data: str | None) -> Iterator[Config]:
    for name, network, method, alpha in panels:
        yield _swept(data or name, method if alpha else "ce", alpha, network)


_FIGURE4 = [("cifar100", "resnet32", "smooth", alpha) for alpha in (0.0, 0.2, 0.7)]
_FIGURE8 = [("cifar100", "resnet56", "smooth", alpha) for alpha in (0.0, 0.2)] + [
    ("cifar10", "resnet32", "smooth", alpha) for alpha in (0.0, 0.2, 0.7)
]
_FIGURE9 = [
    ("cifar100", "resnet32", method, alpha) for method in ("forward", "backward") for alpha in (0.1, 0.7)
]


def _figure5(data: str | None) -> Iterator[Config]:
    """Separators of two Gaussians: without noise, with it, smoothed, and with a penalty on the weights."""
    only_on(data, "gaussians")
    make = partial(_config, "figure5", "gaussians", record=("separator",))
    yield make("ce", noise="none", rate=0.0)
    yield make("ce")
    yield from (make("smooth", {"alpha": alpha}) for alpha in (0.1, 0.3, 0.5, 0.7))
    yield from (make("ce", weight_decay=decay) for decay in (1e-3, 1e-2, 1e-1, 1.0))


def _figure6(data: str | None) -> Iterator[Config]:
    """Students of teachers smoothed by alpha, temperature 1; only the picture gives the values of alpha."""
    student = partial(_student, "figure6", data or "cifar100", "resnet32")
    temperature = float(setting(PAPER, "distillation_temperature_fig6"))
    yield student("plain", "plain", temperature=temperature)
    for alpha in (0.1, 0.2, 0.4, 0.6):
        yield student("smooth", "plain", temperature=temperature, alpha=alpha)


def _table(id_: str, title: str, hours: float, listing: Any, **layout: Any) -> Item:
    seeds = {"paper": 1, "small": 1} if id_ == "table2" else SEEDS
    return Item(
        id=id_,
        title=title,
        hours=hours,
        printed=f"{PAPER}.{id_}",
        make=runs(listing, seeds, small=_small),
        **layout,
    )


def _figure(id_: str, title: str, hours: float, listing: Any, seeds: int = 1, **layout: Any) -> Item:
    make = runs(listing, {"paper": seeds, "small": min(seeds, 2)}, small=_small)
    return Item(id=id_, title=title, hours=hours, make=make, **layout)


_PARTS = ("train_full_true", "train_clean_true", "train_noisy_true", "train_noisy_given")
_BY_ALPHA: dict[str, Any] = {"rows": ("method", "alpha"), "columns": ("data", "network")}
_DRAWN: dict[str, Any] = {"rows": ("method", "alpha")}
_BY_METHOD: dict[str, Any] = {"rows": ("data", "network"), "columns": ("method",)}

TABLES = {
    "table2": _table("table2", "smoothing and forward correction, ImageNet", 100, _table2, **_BY_ALPHA),
    "table3": _table(
        "table3", "accuracy on parts of the training set", 3, _table3, metrics=_PARTS, **_BY_ALPHA
    ),
    "table4": _table("table4", "calibration", 7, _table4, metrics=("ece",), **_BY_ALPHA),
    "table5": _table("table5", "distillation", 40, _table5, **_BY_METHOD),
    "table7": _table("table7", "smearing and estimated correction", 30, _table7, **_BY_METHOD),
}
FIGURES = {
    "figure1": Item(id="figure1", title="losses against the score", make=no_runs, hours=0),
    "figure2": _figure("figure2", "accuracy against alpha", 48, _figure2, 5, **_BY_ALPHA),
    "figure3": _figure("figure3", "probabilities on mislabelled examples", 1, _figure3),
    "figure4": _figure("figure4", "features, smoothing", 1, partial(_projections, _FIGURE4), **_DRAWN),
    "figure5": Item(
        id="figure5", title="separator of two Gaussians", hours=0.01, make=runs(_figure5, {"paper": 1, "small": 1}),
        rows=("method", "noise", "alpha", "weight_decay"),
    ),
    "figure6": _figure("figure6", "students of smoothed teachers", 10, _figure6, 5, rows=("teacher", "alpha")),
    "figure7": _figure("figure7", "probabilities on all training examples", 1, _figure3),
    "figure8": _figure("figure8", "features, other data and network", 2, partial(_projections, _FIGURE8), **_DRAWN),
    "figure9": _figure("figure9", "features, corrections", 1, partial(_projections, _FIGURE9), **_DRAWN),
}  # fmt: skip
