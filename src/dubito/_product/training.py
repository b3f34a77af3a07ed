"""Networks of one run: how they are made and trained, one by one and out of fold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .. import checkpoint, optim
from .._crowd_methods import row_by_row
from .._decay import FOREST
from .._estimators import forest_of, length
from .._files import make_folder
from .._identity import SINCE, describe, digest
from .._json import as_before, config_hash
from .._loop.admission import has_labels
from ..backbones import MLP, Forest, build
from ..compose import assemble, fit_stages, train_method, voted
from ..data import LabelledData
from ..evaluate import predict
from ..methods import parse
from ..model import Model
from ..procedures import Plain
from ..train import Run
from .tasks import Say

GOLD = "gold"  # the name in `LabelledData.extra` of the classes that are known for sure, -1 elsewhere
HIDDEN = (128,)
LONG = 2_000_000  # examples seen in training, above which a network is saved on the way
MOST_EPOCHS, FEWEST_EPOCHS, FEWEST_STEPS, USUAL_STEPS = 50, 10, 400, 4000


@dataclass(frozen=True)
class Setting:
    """What all networks of a run share; JSON values only."""

    backbone: str
    shape: tuple[int, ...]
    classes: int
    annotators: int | None
    epochs: int
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    seed: int = 0
    device: str = "auto"


def budget(n: int, batch_size: int) -> int:
    """Epochs that n examples get: 50, fewer where these are more than 4,000 steps, more where below 400."""
    steps = math.ceil(n / batch_size)
    if steps * MOST_EPOCHS < FEWEST_STEPS:
        return math.ceil(FEWEST_STEPS / steps)
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(USUAL_STEPS / steps)))


def for_forest(n: int) -> dict[str, Any]:
    """What changes in the setting of n examples for a head on a forest."""
    epochs, batch = length(FOREST, n, 64)
    return {
        "backbone": FOREST,
        "epochs": epochs,
        "batch_size": batch,
        "learning_rate": 0.01,
        "weight_decay": 0.0,
    }


def make_backbone(setting: Setting, source: Generator, data: LabelledData | None = None) -> nn.Module:
    """An untrained network; a forest of this data, or one without trees, for those of a file to be put in."""
    if setting.backbone == FOREST:
        if data is None:
            return Forest(math.prod(setting.shape), setting.classes)
        return forest_of(data, setting.classes, source)
    if setting.backbone == "mlp":
        return MLP(math.prod(setting.shape), HIDDEN, init="glorot", generator=source)
    return build(setting.backbone, setting.shape, generator=source)


def train(
    setting: Setting,
    method: str,
    params: Mapping[str, Any],
    data: LabelledData,
    valid: LabelledData | None = None,
    *,
    out: Path | None = None,
    start: Mapping[str, Tensor] | None = None,
    epochs: int | None = None,
) -> Run:
    """One network by a method, from scratch or from the weights `start`.

    With `out` a finished network is kept there and not trained again; a long one is also saved on the way.
    """
    epochs = epochs or setting.epochs
    if out is None:
        return _train(setting, method, params, data, valid, None, start, epochs)
    facts = {"method": method, "params": dict(params), "setting": asdict(setting), "epochs": epochs}
    parts = {"data": describe(data), "valid": describe(valid), "start": digest(start) if start else None}
    config = {**facts, **parts}
    key, before = config_hash(config), config_hash(as_before(config, {}, SINCE))
    found = _remembered(out / "done", (key, before), setting, method, params)
    if found is None:
        make_folder(out)
        long = len(data) * epochs > LONG
        found = _train(setting, method, params, data, valid, out / "steps" if long else None, start, epochs)
        _remember(out / "done", key, found)
    return found


def _train(
    setting: Setting,
    method: str,
    params: Mapping[str, Any],
    data: LabelledData,
    valid: LabelledData | None,
    out: Path | None,
    start: Mapping[str, Tensor] | None,
    epochs: int,
) -> Run:
    found, spelled = parse(method)
    params = {**spelled, **params}
    if valid is not None and not has_labels(valid):
        valid = None  # a fold of unlabelled examples, to be predicted
    if data.crowd is not None and found.build(**params).labels == "vote":
        data, valid = settled(data, setting.seed), None if valid is None else settled(valid, setting.seed)
    adam = optim.adam if data.crowd is None else optim.row_adam
    options: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": setting.batch_size,
        "optimizer": partial(
            adam, lr=setting.learning_rate, weight_decay=setting.weight_decay, decay="networks"
        ),
        "device": setting.device,
        "out": out,
        "evaluate_every": max(1, epochs // 25),
    }
    if start is None:
        return train_method(
            found,
            params,
            partial(make_backbone, setting, data=data),
            data,
            valid,
            seed=setting.seed,
            num_classes=setting.classes,
            **options,
        )
    model = empty(setting, method, params)
    model.load_state_dict(dict(start))
    if data.crowd is not None and row_by_row(found, params, setting.annotators or 0):
        params = {**params, "sparse": True}
    return fit_stages(found.build(**params), model, data, valid, seed=setting.seed, **options)


def _remember(place: Path, key: str, run: Run) -> None:
    T = run.extra.get("transition")
    tensors = {"model": run.model.state_dict(), "extra": {"none": torch.zeros(1)}}
    if T is not None:
        tensors["extra"] = {"transition": T}
    checkpoint.save(place, 0, tensors, {"key": key, "history": run.history})


def _remembered(
    place: Path, keys: tuple[str, ...], setting: Setting, method: str, params: Mapping[str, Any]
) -> Run | None:
    """The finished network of this description, as it is written now or was before, if there is one."""
    found = checkpoint.load_latest(place)
    if found is None or found.state.get("key") not in keys:
        return None
    model = empty(setting, method, params)
    model.load_state_dict(found.tensors["model"])
    extra = {k: v for k, v in found.tensors["extra"].items() if k == "transition"}
    chosen, spelled = parse(method)
    trained = Plain(model, loss=chosen.build(**{**spelled, **params}).loss)
    return Run(model.eval(), trained, list(found.state["history"]), extra=extra)


def empty(setting: Setting, method: str, params: Mapping[str, Any]) -> Model:
    """The model of a method before training, for weights to be put into."""
    found, spelled = parse(method)
    params = {**spelled, **params}
    if setting.annotators is not None and row_by_row(found, params, setting.annotators):
        params = {**params, "sparse": True}
    if found.needs == "transition" and params.get("transition") is None and params.get("alpha") is None:
        params = {**params, "transition": torch.eye(setting.classes, dtype=torch.float64)}
    stages = found.build(**params)
    return assemble(
        stages,
        partial(make_backbone, setting),
        setting.classes,
        seed=setting.seed,
        num_annotators=setting.annotators,
    )


def settled(data: LabelledData, seed: int) -> LabelledData:
    """The majority label of every item, or its gold label where that is known."""
    known = data.extra.get(GOLD)
    made = voted(data, seed)
    if known is None:
        return made
    return replace(made, labels=torch.where(known >= 0, known, made.labels))


def slug(method: str) -> str:
    """A method as the name of a folder.

    Example:
        >>> slug("ln:temperature=0.5,lam=1.0")
        'ln-temperature-0.5-lam-1.0'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", method).strip("-.")[:80] or "method"


class Folds:
    """Networks that each leave one fold out, trained when asked for and only once.

    Arguments:
        number: the fold of each example.
        folder: for their run folders.
        starts: weights to start from, by fold, for a run that is being updated.
    """

    def __init__(
        self,
        setting: Setting,
        data: LabelledData,
        number: Tensor,
        folder: Path | None,
        say: Say,
        *,
        starts: Mapping[int, Mapping[str, Tensor]] | None = None,
        epochs: int | None = None,
    ) -> None:
        self.setting, self.data, self.number, self.folder, self.say = setting, data, number, folder, say
        self.starts, self.epochs = starts or {}, epochs
        self.count = int(number.max()) + 1
        self._log_p: dict[tuple[str, int], Tensor] = {}
        self.runs: dict[tuple[str, int], Run] = {}
        self._others: dict[str, Folds] = {}

    def on(self, **changes: Any) -> Folds:
        """The same folds under another setting, in a folder beside; without changes these folds."""
        if not changes:
            return self
        name = slug("-".join(str(value) for value in changes.values()))
        if name not in self._others:
            setting, folder = (
                replace(self.setting, **changes),
                None if self.folder is None else self.folder / name,
            )
            self._others[name] = Folds(setting, self.data, self.number, folder, self.say)
        return self._others[name]

    def log_p(self, method: str, params: Mapping[str, Any], fold: int) -> Tensor:
        """Log-probabilities of the examples of a fold by the network that did not see them."""
        place = method, fold
        if place not in self._log_p:
            inside = self.data.subset((self.number == fold).nonzero().flatten())
            others = self.data.subset((self.number != fold).nonzero().flatten())
            self.say(f"  {method}: fold {fold + 1} of {self.count}")
            out = None if self.folder is None else self.folder / slug(method) / f"fold-{fold}"
            options: dict[str, Any] = {"out": out, "start": self.starts.get(fold), "epochs": self.epochs}
            run = train(self.setting, method, params, others, inside, **options)
            run.model = run.model.cpu()
            self.runs[place] = run
            self._log_p[place] = predict(run.model, inside.to("cpu")).log_p.double()
        return self._log_p[place]

    def all(self, method: str, params: Mapping[str, Any]) -> Tensor:
        """Out-of-fold log-probabilities of every example, in order, ``(N, K)``."""
        found = torch.zeros(len(self.data), self.setting.classes, dtype=torch.float64)
        for fold in range(self.count):
            found[self.number == fold] = self.log_p(method, params, fold)
        return found

    def weights(self, method: str) -> dict[int, dict[str, Tensor]]:
        """The weights of a method's networks, by fold."""
        return {fold: run.model.state_dict() for (name, fold), run in self.runs.items() if name == method}
