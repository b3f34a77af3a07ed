"""From a `Config` to data, stages and a model: what the plain and the stacked runner share."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import noise, optim
from .._random import generator
from ..backbones import build
from ..data import LabelledData, augment, load, with_noise
from ..errors import DubitoError, nearest
from ..methods import METHODS, Method
from ..model import Model
from .configs import Config

# Names used in the papers' tables for variants of one method.
VARIANTS = {"het-tau": "het", "het-full": "het"}
NOT_PARAMETERS = {"transition", "percentile", "teacher", "student"}

_CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}  # as in the released code
NORMALISATIONS: dict[str, dict[str, Any]] = {
    "unit": {"mean": None, "std": None},
    "none": {"mean": None, "std": None},
    "cifar10": _CIFAR,
}
AUGMENTATIONS: dict[str, Callable[..., Tensor] | None] = {
    "none": None,
    "pad2-crop-flip": partial(augment, pad=2, flip=True),
    "pad4-crop-flip": partial(augment, pad=4, flip=True),
}


class Parts(NamedTuple):
    """The three sets of a run; observed labels are noisy where the config says so, clean ones are for scoring."""

    train: LabelledData
    valid: LabelledData | None
    test: LabelledData


@functools.lru_cache(maxsize=8)
def _read(name: str, split: str, root: str | None) -> LabelledData:
    return load(name, split, root=root)


def parts(config: Config, *, root: str | os.PathLike[str] | None = None) -> Parts:
    """Load, cut and corrupt the data of a run. Training, validation and test noise are drawn apart."""
    place = None if root is None else os.fspath(root)
    pool = _labelled(config, _read(_images(config.data), "train", place), place)
    test = _read(_images(config.data), "test", place)
    if config.pool:
        pool = pool.subset(torch.arange(config.pool))
    count = config.train or len(pool) - config.validation
    train, valid = pool.split(count, config.validation, seed=config.seed)
    if config.test:
        test = test.subset(torch.arange(config.test))
    T = transition(config, train.num_classes)
    if T is not None:
        exact: Any = config.exact or False
        train = with_noise(train, T, config.seed, "train", exact)
        if config.noisy_validation:
            valid = with_noise(valid, T, config.seed, "validation", exact)
        if config.noisy_test:
            test = with_noise(test, T, config.seed, "test", exact)
    return Parts(*(_normalised(config, p) for p in (train, valid if config.validation else None, test)))  # type: ignore[arg-type]


def transition(config: Config, num_classes: int) -> Tensor | None:
    """The matrix of a config's synthetic noise; None without noise or where the labels are noisy by themselves."""
    if config.noise in ("none", "natural"):
        return None
    if config.noise == "asymmetric":
        return noise.asymmetric(config.matrix, config.rate)
    if config.noise == "class_dependent":
        return noise.class_dependent(config.matrix)
    builders = {
        "resample": noise.resample,
        "flip_to_other": noise.flip_to_other,
        "pair_flip": noise.pair_flip,
    }
    if config.noise not in builders:
        raise DubitoError("unknown noise", got=repr(config.noise), remedy=nearest(config.noise, builders))
    return builders[config.noise](num_classes, config.rate)


def method_of(config: Config) -> tuple[Method, dict[str, Any]]:
    """The method of a config and the parameters of its stages."""
    name = VARIANTS.get(config.method, config.method)
    if name not in METHODS:
        raise DubitoError("no such method", got=repr(config.method), remedy=nearest(config.method, METHODS))
    params = {k: v for k, v in config.params if k not in NOT_PARAMETERS}
    if name == "het":
        params["integration"] = "mc" if config.samples else "auto"
        params["samples"] = config.samples or 1000
    return METHODS[name], params


def model(config: Config, shape: tuple[int, ...], num_classes: int, **given: Any) -> Model:
    """The untrained model of a run, initialised by its seed. `given` are estimated parameters (a transition)."""
    method, params = method_of(config)
    stages = method.build(**params, **given)
    backbone = build(
        config.network,
        shape,
        init=config.init,
        generator=generator(config.seed, 0, "backbone"),
        **dict(config.network_options),
    )
    width: int = backbone.out_features  # type: ignore[assignment]
    head = stages.head(width, num_classes, generator=generator(config.seed, 0, "head"), init=config.head_init)
    channel = None if stages.channel is None else stages.channel(num_classes)
    return Model(backbone, head, channel=channel, **stages.model)


def optimizer(config: Config) -> Callable[..., torch.optim.Optimizer]:
    """The optimiser of a config, as a function of named parameters."""
    decay = "matrices" if config.decay == "weights" else "all"
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "decay": decay}
    if config.optimizer == "adam":
        return partial(optim.adam, betas=config.betas, eps=config.eps, **common)
    if config.optimizer == "lars":
        return partial(optim.lars, momentum=config.momentum, **common)
    if config.optimizer == "gd":
        return partial(optim.sgd, momentum=0.0, nesterov=False, **common)
    return partial(optim.sgd, momentum=config.momentum, nesterov=config.nesterov, **common)


def schedule(config: Config, steps: int) -> Callable[[int, int], float] | None:
    """The factor on the learning rate, None for a constant rate."""
    if config.schedule == "constant":
        return None
    at = tuple(round(share * steps) for share in config.milestones)
    return partial(optim.milestones, at=at, factor=config.gamma)


def _images(data: str) -> str:
    return {"cifar10n": "cifar10", "cifar100n": "cifar100", "svhn": "svhn_crops"}.get(data, data)


def _labelled(config: Config, images: LabelledData, root: str | None) -> LabelledData:
    """Human labels on the images they belong to, the published ones kept for scoring."""
    if config.data not in ("cifar10n", "cifar100n"):
        return images
    human = load(config.data, "train", root=root).extra[config.labels]
    return dataclasses.replace(images, labels=human, clean=images.labels)


def _normalised(config: Config, part: LabelledData | None) -> LabelledData | None:
    if part is None:
        return None
    known = NORMALISATIONS
    if config.normalise not in known:
        raise DubitoError(
            "unknown normalisation", got=repr(config.normalise), remedy=nearest(config.normalise, known)
        )
    return dataclasses.replace(part, **known[config.normalise])
