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
from ..data.augment import center_crop
from ..errors import DubitoError, nearest
from ..methods import METHODS, Method, Stages, parse
from ..model import Model
from . import crowds, pixels, planar
from .configs import Config
from .counted import ExactPrediction, TwoCounts

# Names used in the papers' tables for variants of one method.
VARIANTS = {"het-tau": "het", "het-full": "het"}
NOT_PARAMETERS = {"transition", "percentile", "teacher", "student", "alpha"}
# Matrices that are learned start as in the paper's listing (6 I - 5), not as the library's own default.
LISTING_START = ("trace", "no-trace")
# Smoothing has an alpha of its own; for corrections it names a matrix.
OWN_ALPHA = ("smooth",)
OWN_VALIDATION = {"labelme": "valid"}  # the name of that split, where it is not "val"
TESTED_ON = {"imagenet": "val"}  # labels of its test split are not public
HUMAN = {"aggregate": "aggre"}  # names of label sets in the papers -> in the published file

_CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}  # as in the released code
NORMALISATIONS: dict[str, dict[str, Any]] = {
    "unit": {"mean": None, "std": None},
    "none": {"mean": None, "std": None},
    "cifar10": _CIFAR,
    "imagenet": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    "clothing1m": {"mean": (0.6959, 0.6537, 0.6371), "std": (0.3113, 0.3192, 0.3214)},
}
AUGMENTATIONS: dict[str, Callable[..., Tensor] | None] = {
    "none": None,
    "pad2-crop-flip": partial(augment, pad=2, flip=True),
    "pad4-crop-flip": partial(augment, pad=4, flip=True),
    # Images are read at 256 pixels, trained on random windows and judged by their middle.
    "resize-crop-flip": partial(augment, pad=0, flip=True, size=224),
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
    train, valid, test = _clean_parts(config, place)
    T = transition(config, train.num_classes)
    exact: Any = config.exact or False
    if T is not None:
        train = with_noise(train, T, config.seed, "train", exact)
        if valid is not None and config.noisy_validation:
            valid = with_noise(valid, T, config.seed, "validation", exact)
        if config.noisy_test:
            test = with_noise(test, T, config.seed, "test", exact)
    elif config.annotators:
        train = crowds.annotated(config, train, "train")
        valid = None if valid is None else crowds.annotated(config, valid, "validation")
    elif train.crowd is not None:
        train = crowds.voted(config, train)
        valid = None if valid is None else crowds.voted(config, valid)
    scale = _scale(config, train)
    judged = None if valid is None else still(config, dataclasses.replace(valid, **scale))
    return Parts(
        dataclasses.replace(train, **scale), judged, still(config, dataclasses.replace(test, **scale))
    )


def _clean_parts(config: Config, root: str | None) -> Parts:
    """Training, validation and test examples before any noise is added (masks: with it)."""
    if pixels.is_pixels(config):
        return Parts(*pixels.parts(config, functools.partial(_read, root=root)))
    if config.data in planar.SETS:
        count = config.train + config.validation
        pool = planar.points(config.data, count, config.seed, "train")
        test = planar.points(config.data, config.test or planar.TEST_SIZE, config.seed, "test")
    else:
        pool = _labelled(config, _read(_images(config.data), "train", root), root)
        test = _read(_images(config.data), TESTED_ON.get(config.data, "test"), root)
    if config.pool:
        kept = min(config.pool, len(pool)) if config.size == "smoke" else config.pool
        pool = pool.subset(torch.arange(kept))
    if config.own_validation:
        valid = _read(config.data, OWN_VALIDATION.get(config.data, "val"), root)
        train = pool if not config.train else pool.split(min(config.train, len(pool)), seed=config.seed)[0]
        valid = valid.subset(torch.arange(min(config.validation, len(valid)))) if config.validation else valid
    else:
        count = config.train or len(pool) - config.validation
        train, valid = pool.split(count, config.validation, seed=config.seed, groups=_groups(config, pool))
    if config.test:
        test = test.subset(
            torch.arange(min(config.test, len(test)) if config.size == "smoke" else config.test)
        )
    return Parts(train, valid if len(valid) else None, test)


def _groups(config: Config, pool: LabelledData) -> Tensor | None:
    """Crops of one photograph stay on one side of the split, where sizes need not be exact."""
    return None if config.train else pool.extra.get("source_number")


def transition(config: Config, num_classes: int) -> Tensor | None:
    """The matrix of a config's synthetic noise; None without noise or where the labels are noisy by themselves."""
    if config.noise in ("none", "natural", "border") or config.annotators:
        return None
    if config.noise == "one_sided":
        return noise.flip_map(num_classes, {0: 1}, config.rate)
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
    dropped = NOT_PARAMETERS - {"alpha"} if name in OWN_ALPHA else NOT_PARAMETERS
    if ".py:" in name:
        return parse(name)[0], dict(config.params)
    params = {k: v for k, v in config.params if k not in dropped}
    if name not in METHODS:
        raise DubitoError("no such method", got=repr(config.method), remedy=nearest(config.method, METHODS))
    if name == "het":
        params["integration"] = "mc" if config.samples else "auto"
        params["samples"] = config.samples or 1000
    if name in LISTING_START:
        params["init"] = "paper"
    if dict(config.reading).get("label_noise") == "centred":
        params["centred"] = True
    if name == "no-trace":
        params.pop("trace", None)  # it is 0, and says so in the name
    return METHODS[name], params


def stages(config: Config, **given: Any) -> Stages:
    """The stages of a config's method. `given` are estimated parameters: a transition matrix, a noise rate."""
    method, params = method_of(config)
    return method.build(**params, **given)


def model(
    config: Config,
    shape: tuple[int, ...],
    num_classes: int,
    *,
    role: str = "",
    annotators: int | None = None,
    **given: Any,
) -> Model:
    """The untrained model of a run, initialised by its seed.

    Arguments:
        role: tells networks of one run apart, which then start from weights of their own.
        annotators: their number, for methods that know them.
        given: as in `stages`.
    """
    made = stages(config, **given)
    options = dict(config.network_options)
    if config.pretrained:
        options["pretrained"] = True
    backbone = build(
        config.network,
        shape,
        init=config.init,
        generator=generator(config.seed, 0, f"backbone{role}"),
        **options,
    )
    width: int = backbone.out_features  # type: ignore[assignment]
    source = generator(config.seed, 0, f"head{role}")
    head = made.make_head(width, num_classes, annotators, generator=source, init=config.head_init)
    channel = made.make_channel(num_classes, annotators)
    if pixels.is_pixels(config):
        return pixels.model(config, backbone, head, channel, dict(made.model))
    if dict(config.reading).get("prediction") == "exact":
        return ExactPrediction(backbone, head, channel=channel, **made.model)
    if config.samples and config.eval_samples not in (0, config.samples):
        return TwoCounts(backbone, head, channel=channel, eval_samples=config.eval_samples, **made.model)
    return Model(backbone, head, channel=channel, **made.model)


class Middles:
    """The middle of every image, cut out when it is asked for."""

    def __init__(self, inputs: Any, size: int) -> None:
        self.inputs, self.size = inputs, size

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return center_crop(self.inputs[rows], self.size)


def still(config: Config, part: LabelledData) -> LabelledData:
    """A part as a network judges it: images as large as the windows it was trained on."""
    window = augmentation(config)
    size = window.keywords.get("size") if isinstance(window, partial) else None
    return part if size is None else dataclasses.replace(part, inputs=Middles(part.inputs, size))


def augmentation(config: Config) -> Callable[..., Tensor] | None:
    """What happens to training images, None for nothing."""
    known = dict(AUGMENTATIONS)
    if pixels.is_pixels(config):
        known.update(pixels.augmentations())
    if config.augment not in known:
        close = nearest(config.augment, known)
        raise DubitoError("no such augmentation on this path", got=repr(config.augment), remedy=close)
    return known[config.augment]


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
    if config.schedule == "poly":
        return optim.polynomial
    at = tuple(round(share * steps) for share in config.milestones)
    return partial(optim.milestones, at=at, factor=config.gamma)


def evaluate_every(config: Config, steps: int, count: int) -> int:
    """Epochs between evaluations: each one where they decide or are drawn, else ten in all."""
    if config.selection == "best" or config.patience or "curves" in config.record:
        return 1
    return max(1, (config.epochs or steps * config.batch // count) // 10)


def _images(data: str) -> str:
    return {"cifar10n": "cifar10", "cifar100n": "cifar100"}.get(data, data)


def _labelled(config: Config, images: LabelledData, root: str | None) -> LabelledData:
    """Human labels on the images they belong to, the published ones kept for scoring."""
    if config.data not in ("cifar10n", "cifar100n"):
        return images
    return load(config.data, "train", root=root, labels=HUMAN.get(config.labels, config.labels))


def _scale(config: Config, train: LabelledData) -> dict[str, Any]:
    """Mean and deviation that inputs are measured by: of a set's pixels, or of each feature in training."""
    if config.normalise == "features":
        x = train.gather(torch.arange(len(train)))
        std = x.std(0)
        return {"mean": tuple(x.mean(0).tolist()), "std": tuple(torch.where(std > 0, std, 1.0).tolist())}
    known = NORMALISATIONS
    if config.normalise not in known:
        remedy = nearest(config.normalise, [*known, "features"])
        raise DubitoError("unknown normalisation", got=repr(config.normalise), remedy=remedy)
    return known[config.normalise]
