"""Collier, Mustafa, Kokiopoulou, Berent 2020: softmax temperature in heteroscedastic classifiers.

Tables 1 and 3 to 6 with the searches behind them, figures 1 and 6; segmentation (table 2, figures 2
to 4) is in `collier_pixels`.
Figure 5 is a drawing whose missing-not-at-random case runs as `dubito.noise.hidden_feature_task`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from . import collier_pixels
from .configs import Config
from .items import Item, base_of, no_runs, runs, search_of
from .tables import DATASETS, setting, table

PAPER = "collier2020"
SEEDS = {"paper": 25, "small": 5}
METHODS = ("ce", "het", "het-tau", "coteaching", "mentornet", "bootstrap")
DATA = ("cifar10", "mnist", "svhn")
# Training samples of figures 1 and 6: the legend is in the picture only.
SAMPLES = (1, 10, 100, 1000)

# Fields on which the paper is silent; benchmarks/silent_points.py tries readings of them.
SILENT = ("network_options", "init", "batch", "weight_decay", "noisy_validation")
# Silent: padding of the last block, kind of dropout, eps and place of the norm. Photographs take the reading that
# is best on noisy validation labels (docs/results/collier2020.md); the digits keep the co-teaching network's.
_DIGITS = (("padded", False), ("norm_eps", 1e-5))
_PHOTOGRAPHS = (("padded", True), ("norm_eps", 1e-3), ("dropout_of", "element"), ("norm_last", True))
_COMMON: dict[str, Any] = {
    "network": "cnn9",
    "init": "glorot",  # silent; the authors' framework starts so
    "optimizer": "adam",
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-7,
    "batch": 128,  # silent; co-teaching's
    "weight_decay": 0.0,  # silent; co-teaching has none
    "epochs": 1_000,
    "patience": 5,
    "selection": "best",  # epochs by validation accuracy ...
    "tune_on": "log_likelihood",  # ... and the temperature by validation log-likelihood
    "noisy_validation": True,  # silent
    "noisy_test": True,
    "normalise": "unit",
    "augment": "none",
}
BASES: dict[str, dict[str, Any]] = {
    name: {
        **_COMMON,
        "network_options": _DIGITS if name == "mnist" else _PHOTOGRAPHS,
        "train": sizes[0],
        "validation": sizes[1],
    }
    for name in DATA
    for sizes in (setting(PAPER, f"{name}_train_val_test"),)
}
# The cropped digits of a smaller set, in the same proportion.
BASES["svhn_crops"] = {**_COMMON, "network_options": _PHOTOGRAPHS, "validation": 2_184}

NOISE: dict[str, tuple[str, float, str]] = {
    "table1": ("class_dependent", 0.0, "main"),
    "table3": ("none", 0.0, ""),
    "table4": ("resample", setting(PAPER, "noise_uniform_rate"), ""),
    "table5": ("class_dependent", 0.0, "reduced"),
    "table6": ("class_dependent", 0.0, "increased"),
}
_PARAMS: dict[str, dict[str, Any]] = {
    "het": {"temperature": 1.0},
    # Its rate is the realised share of wrong labels, read from the corrupted training set.
    "coteaching": {"ramp": setting(PAPER, "coteaching_T_k_epochs")},
    "mentornet": {"decay": setting(PAPER, "mentornet_loss_ema_decay")},
    "bootstrap": {"beta": setting(PAPER, "bootstrap_beta"), "kind": "hard"},  # .8 is the hard form's value
}


def _config(item: str, data: str, method: str, samples: int = 1000, **params: Any) -> Config:
    """One run of a table; figures share the noise of table 1."""
    noise, rate, matrix = NOISE[item if item in NOISE else "table1"]
    draws: dict[str, Any] = {"samples": samples, "eval_samples": 1000} if method.startswith("het") else {}
    if method == "coteaching":
        draws["reading"] = (("network", "first"),)  # silent: which of the two networks is measured
    return Config(
        paper=PAPER, item=item, data=data, method=method, noise=noise, rate=rate, matrix=matrix,
        params=tuple({**_PARAMS.get(method, {}), **params}.items()), **draws, **base_of(BASES, data),
    )  # fmt: skip


def _listing(item: str, data: str | None) -> Iterator[Config]:
    """Six methods on three data sets; without noise the paper has three methods."""
    methods = METHODS[:3] if item == "table3" else METHODS
    for name, method in product([data] if data else DATA, methods):
        yield _config(item, name, method)


def _chosen(config: Config) -> Config:
    """With the paper's temperature. It does not print MentorNet's choice: the middle of the grid until searched."""
    if config.method == "het-tau":
        stars = table(f"{PAPER}.{config.item}")["tau_star"]
        printed = {DATASETS[name]: value for name, value in stars.items()}
        return config.with_params(temperature=printed.get(config.data.removesuffix("_crops"), 5.0))
    return config.with_params(lambda2=1.0, burn_in=5) if config.method == "mentornet" else config


def grid(config: Config) -> list[dict[str, Any]]:
    """18 temperatures; 12 settings of MentorNet."""
    if config.method == "het-tau":
        return [{"temperature": tau} for tau in setting(PAPER, "temperature_grid_images")]
    if config.method == "mentornet":
        axes = setting(PAPER, "mentornet_lambda2_grid"), setting(PAPER, "mentornet_burn_in_epochs_grid")
        return [{"lambda2": lambda2, "burn_in": burn_in} for lambda2, burn_in in product(*axes)]
    return []


def _small(config: Config) -> Config:
    """At most 100 epochs; early stopping usually ends sooner."""
    return dataclasses.replace(config, epochs=100)


def _figure1(data: str | None) -> Iterator[Config]:
    """The temperature curve for each number of training samples; with 1,000 it is the search of table 1."""
    for name in [data] if data else DATA:
        yield _config("table1", name, "ce")
        for samples in SAMPLES:
            yield _config("table1" if samples == 1000 else "figure1", name, "het-tau", samples)


def _curve_points(config: Config) -> list[dict[str, Any]]:
    return grid(config) or [{}]


def _table(id_: str, title: str, hours: float) -> Item:
    listing = partial(_listing, id_)
    metrics = ("noisy_log_likelihood", "noisy_accuracy")
    return Item(
        id=id_, title=title, hours=hours, printed=f"{PAPER}.{id_}", reference="het-tau",
        make=runs(listing, SEEDS, choose=_chosen, small=_small),
        search=search_of(listing, grid, seeds=SEEDS["paper"], small=_small),
        metrics=metrics if id_ == "table3" else (*metrics, "accuracy_clean"),
    )  # fmt: skip


def _curve(id_: str, metric: str) -> Item:
    return Item(
        id=id_, title=f"{metric.replace('_', ' ')} against temperature", hours=300, metrics=(metric,),
        make=search_of(_figure1, _curve_points, seeds=SEEDS["paper"], small=_small),
        rows=("method", "samples", "temperature"),
    )  # fmt: skip


TABLES = {
    "table1": _table("table1", "class-dependent noise", 85),
    "table2": collier_pixels.TABLE2,
    "table3": _table("table3", "no added noise", 10),
    "table4": _table("table4", "uniform noise", 85),
    "table5": _table("table5", "reduced class-dependent noise", 85),
    "table6": _table("table6", "increased class-dependent noise", 85),
}
FIGURES = {
    "figure1": _curve("figure1", "noisy_log_likelihood"),
    **collier_pixels.FIGURES,
    "figure5": Item(id="figure5", title="where input-dependent noise comes from", make=no_runs, hours=0),
    "figure6": _curve("figure6", "noisy_accuracy"),
}
