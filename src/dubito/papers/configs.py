"""One run of a paper, described by plain values and named by their hash.

A `Config` says everything that a run depends on and nothing about how it is computed. It turns into JSON and
back without loss; `run_id` is the SHA-256 of that JSON, so equal configs are one run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._json import config_hash
from ..errors import DubitoError, nearest

Value = str | int | float | bool | None
Pairs = tuple[tuple[str, Value], ...]

SIZES = ("paper", "small", "smoke")
PAIRS = ("params", "reading", "network_options")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What one run is. Fields that a paper leaves open say so, with the choice made."""

    # -- what it belongs to
    paper: str  # key of the paper, "englesson2023"
    item: str  # table or figure that the run was made for, "table1-mnist"; shared runs keep their first home
    size: str = "paper"  # "paper", "small" or "smoke"

    # -- data
    data: str  # "mnist", "cifar10", "cifar100", "svhn", "cifar10n", "two-moons", ...
    labels: str = ""  # which label set, where the data has several: "random1", "worst", "noisy"
    pool: int = 0  # only the first `pool` training examples are used at all; 0: all
    train: int = 0  # training examples; 0: what validation leaves over
    validation: int = 0  # examples held out by a permutation keyed by the seed; 0: none
    own_validation: bool = False  # the set brings its own validation part
    test: int = 0  # test examples, the first ones; 0: all
    balanced: int = 0  # examples per class drawn anew for each epoch; 0: an epoch is the training set
    # "unit": pixels / 255; "cifar10", "clothing1m", "imagenet": and standardised; "features": each one standardised
    # by the training items; "none"
    normalise: str = "unit"
    augment: str = "none"  # "pad2-crop-flip", "pad4-crop-flip", "resize-crop-flip"

    # -- noise: names of builders in dubito.noise, or "natural" (the label set is noisy by itself)
    noise: str = "none"
    rate: float = 0.0
    matrix: str = ""  # "mnist" for asymmetric, "main" for class_dependent
    exact: str = ""  # "": every label by itself; "redrawn" / "changed": exact numbers (dubito.noise.corrupt)
    noisy_validation: bool = True
    noisy_test: bool = False  # the test labels go through the same noise; clean ones are scored as well

    # -- annotators
    annotators: int = 0  # 0: one label per example and no annotator model
    skill: float = 0.0  # mean probability of a right label
    jitter: float = 0.0  # standard deviation of skills in a group
    dominant: bool = False  # groups are drawn until their mean matrix is dominant
    per_item: int = 0  # labels per example, by annotators drawn uniformly; 0: every annotator labels it

    # -- network
    network: str  # name in dubito.backbones
    network_options: Pairs = ()
    pretrained: bool = False
    init: str = "torch"  # start of backbone layers: "glorot", "he", "torch"
    head_init: str = "glorot"  # start of the linear layers on top

    # -- method
    method: str  # our name, see dubito.papers.tables.METHODS
    params: Pairs = ()  # its parameters, sorted by name
    reading: Pairs = ()  # points of the protocol that are no parameters: which network is reported, and the like
    samples: int = 0  # Monte Carlo samples in training; 0: the method draws none, or the exact integral
    eval_samples: int = 0  # and at prediction

    # -- optimisation
    optimizer: str = "sgd"  # "sgd", "adam", "gd" (full batch, no momentum), "lars"
    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8  # Adam's
    weight_decay: float = 0.0
    decay: str = "all"  # weight decay acts on "all" parameters or on "weights" (no norms, no biases)
    batch: int = 128  # 0: full batch
    epochs: int = 0  # exactly one of epochs and steps is given
    steps: int = 0
    schedule: str = "constant"  # "constant", "step" or "poly" (falls to 0 with the power .9)
    milestones: tuple[float, ...] = ()  # shares of the whole length at which the rate drops
    gamma: float = 0.1  # by this factor

    # -- what is reported
    selection: str = "last"  # "last" epoch, or the epoch "best" in noisy validation accuracy
    patience: int = 0  # stop when validation accuracy has not improved for so many epochs; 0: never
    tune_on: str = (
        "accuracy"  # hyper-parameters are chosen by noisy validation "accuracy" or "log_likelihood"
    )
    record: tuple[
        str, ...
    ] = ()  # analyses beyond the scores: "curves", "parts", "residuals", "features", ...
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise DubitoError("unknown size", got=repr(self.size), remedy=nearest(self.size, SIZES))
        if (self.epochs > 0) == (self.steps > 0):
            raise DubitoError("a run has either epochs or steps", got=f"{self.epochs} and {self.steps}")
        if self.batch < 0:
            raise DubitoError("a batch has some examples", expected="1 or more; 0 is all", got=self.batch)
        for name in PAIRS:
            object.__setattr__(self, name, pairs(dict(getattr(self, name))))
        for field in dataclasses.fields(self):  # 0 and 0.0 are one rate, and must be one run
            if field.type == "float":
                object.__setattr__(self, field.name, float(getattr(self, field.name)))

    def param(self, name: str, default: Value = None) -> Value:
        """A parameter of the method."""
        return dict(self.params).get(name, default)

    def with_params(self, **params: Value) -> Config:
        """The same run with some parameters of its method set."""
        return dataclasses.replace(self, params=pairs({**dict(self.params), **params}))

    def to_json(self) -> dict[str, Any]:
        """Plain values: tuples as lists, parameters as an object."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name, value in fields.items():
            if name in PAIRS:
                fields[name] = dict(value)
            elif isinstance(value, tuple):
                fields[name] = list(value)
        return fields

    @property
    def cell(self) -> Config:
        """What runs of several seeds have in common: the config with seed 0."""
        return dataclasses.replace(self, seed=0)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Config:
        """The inverse of `to_json`; unknown fields are refused."""
        known = {f.name for f in dataclasses.fields(cls)}
        for name in fields:
            if name not in known:
                raise DubitoError("unknown field of a config", got=repr(name), remedy=nearest(name, known))
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        for name in PAIRS:
            values[name] = pairs(values.get(name, {}))
        return cls(**values)


def pairs(values: Mapping[str, Any]) -> Pairs:
    """A mapping as sorted pairs: hashable, and equal whatever the order it was written in."""
    return tuple(sorted(values.items()))


def identity(config: Config) -> dict[str, Any]:
    """The JSON that names a run: required fields, and others where they differ from their default.

    A field that is added later therefore leaves the names of finished runs as they are; a default, once set,
    stays for ever.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(Config)}
    return {k: v for k, v in config.to_json().items() if getattr(config, k) != defaults[k]}


def run_id(config: Config) -> str:
    """SHA-256 of the canonical JSON of `identity`, in hexadecimal; its first 16 digits name the run's folder."""
    return config_hash(identity(config))


def describe(config: Config) -> str:
    """A run in a few words, with the name of its folder."""
    noise = config.noise if config.rate == 0 else f"{config.noise} {config.rate:g}"
    place = [config.data, config.labels, noise]
    params = [f"{k}={v}" for k, v in config.params]
    words = [config.method, *params, *filter(None, place), f"seed {config.seed}"]
    return f"{run_id(config)[:16]} ({', '.join(map(str, words))})"


def with_seeds(configs: Iterable[Config], seeds: Iterable[int]) -> tuple[Config, ...]:
    """Every config with every seed."""
    seeds = tuple(seeds)
    return tuple(dataclasses.replace(c, seed=seed) for c in configs for seed in seeds)


def alike(configs: Iterable[Config], key: Callable[[Config], Hashable]) -> list[list[Config]]:
    """Configs with one key, together, in their order."""
    found: dict[Hashable, list[Config]] = {}
    for config in configs:
        found.setdefault(key(config), []).append(config)
    return list(found.values())


def override(config: Config, key: str, text: str) -> Config:
    """A config with one field set from text, as `key=value` on a command line.

    `key` is a field, or a parameter of the method. Values are read as the type they replace.

    Example:
        >>> q = (("q", 0.7),)
        >>> c = Config(paper="p", item="t", data="mnist", network="mlp", method="gce", params=q, epochs=1)
        >>> override(c, "q", "0.5").param("q"), override(c, "lr", "1e-3").lr
        (0.5, 0.001)
    """
    known = {f.name for f in dataclasses.fields(Config)} - set(PAIRS)
    params = dict(config.params)
    if key in params:
        return config.with_params(**{key: _read(text, params[key], key)})
    if key not in known:
        raise DubitoError("unknown field", got=repr(key), remedy=nearest(key, known | set(params)))
    return dataclasses.replace(config, **{key: _read(text, getattr(config, key), key)})


def _read(text: str, old: Any, key: str) -> Any:
    if isinstance(old, tuple):
        example = old[0] if old else 0.0
        return tuple(_read(part, example, key) for part in text.split("+") if part)
    if isinstance(old, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise DubitoError("cannot read the value", where=key, expected="true or false", got=repr(text))
    if isinstance(old, int | float):
        try:
            return type(old)(text)
        except ValueError:
            kind = "a whole number" if isinstance(old, int) else "a number"
            raise DubitoError("cannot read the value", where=key, expected=kind, got=repr(text)) from None
    return text


LIGHT = ("linear", "mlp", "lenet5", "cnn4")  # networks that can see more in a smoke run


def smoke(config: Config) -> Config:
    """The same run with little data, few epochs and a batch of 32; everything else is untouched."""
    rounds = int(config.param("rounds", 0) or 0)  # of EM: each needs something to do
    most = 64 if config.network in LIGHT else 16
    pool = 256 if config.balanced else most  # in which every class must occur; an epoch draws from it
    return dataclasses.replace(
        config,
        size="smoke",
        train=min(config.train or pool, pool),
        validation=min(config.validation, most // 2),
        test=min(config.test or most, most),
        balanced=min(config.balanced, 1),
        batch=min(config.batch, 32),
        epochs=min(config.epochs, max(2, rounds)),
        steps=min(config.steps, max(3, rounds)),
    )


# What `smoke` may change; a test holds every table and figure to it.
SMOKE_MAY_CHANGE = ("size", "train", "validation", "test", "balanced", "batch", "epochs", "steps", "seed")
