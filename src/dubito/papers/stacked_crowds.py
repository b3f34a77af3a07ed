"""Runs with simulated annotators on one GPU, many at a time: the fast back end for crowds of small networks.

Configs that differ only in seed and in their group of annotators form a `fast_crowd.CrowdStack`, one per method;
stacks advance together on streams of their own. Split, labels, start, order and choice of the epoch are those of
the plain runner, and so are the scores.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..data import LabelledData
from ..fast_crowd import CrowdStack
from ..procedures import Plain
from . import crowds, prepare, records
from .configs import Config, alike
from .prepare import Parts
from .results import SHARE, TIME, Result, finished
from .stacked import rows_of
from .streams import side_by_side

METHODS = ("trace", "no-trace", "oracle", "gem", "mbem", "wdn", "single-cm", "bootstrap", "ce")
# What may differ between the runs of one stack.
_OWN = {"seed", "noise", "skill", "jitter", "dominant", "item"}


def stackable(config: Config) -> bool:
    """Whether a config can be part of a stack: simulated annotators, a small network, whole batches, one rate."""
    return (
        config.annotators > 0
        and config.method in METHODS
        and config.network in ("lenet5", "cnn4", "mlp")
        and config.schedule == "constant"
        and config.augment == "none"
        and not config.patience
        and config.train > 0
        and config.train % config.batch == 0
    )


def group(configs: Sequence[Config]) -> list[list[Config]]:
    """Configs that can share a stack, together, in their order."""
    return alike(configs, lambda c: repr({k: v for k, v in c.to_json().items() if k not in _OWN}))


class Data:
    """The parts of runs on a device. Runs that differ in method only, share them; all share the images."""

    def __init__(self, root: str | None, device: str) -> None:
        self.root, self.device = root, device
        self._parts: dict[Config, Parts] = {}
        self._inputs: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, config: Config) -> Parts:
        """Training, validation and test examples of a run."""
        place = dataclasses.replace(config, method="", params=(), item="", record=())
        if place not in self._parts:
            made = prepare.parts(config, root=self.root)
            self._parts[place] = Parts(*(self._placed(part) for part in made))  # type: ignore[arg-type]
        return self._parts[place]

    def _placed(self, part: LabelledData | None) -> LabelledData | None:
        if part is None or not isinstance(part.inputs, Tensor):
            return part
        if id(part.inputs) not in self._inputs:
            self._inputs[id(part.inputs)] = part.inputs, part.inputs.to(self.device)
        return dataclasses.replace(part, inputs=self._inputs[id(part.inputs)][1]).to(self.device)


class CrowdRuns:
    """One stack of configs: data and models on the device, the steps, the best epochs, and a result for each."""

    def __init__(self, configs: Sequence[Config], data: Data, **options: Any) -> None:
        self.configs, self.device = configs, data.device
        self.parts = [data.of(c) for c in configs]
        procedures = [_procedure(c, p.train).to(data.device) for c, p in zip(configs, self.parts)]
        for procedure, part in zip(procedures, self.parts):
            procedure.begin(part.train)
        train = [p.train for p in self.parts]
        self.stack = CrowdStack(procedures, train, [c.seed for c in configs], **options)
        self.best: dict[str, Tensor] | None = None
        self.scores: list[list[float]] = [[] for _ in configs]
        self.best_epoch = [0] * len(configs)
        self.seconds = 0.0  # of the device's time, see `side_by_side`
        self.epochs: list[int] = []  # that were evaluated
        self.since = 0  # evaluations that are no longer in the choice of the best

    def steps(self) -> Iterator[None]:
        """Train; at evaluations the weights are kept of every run whose validation accuracy is a new best."""
        config = self.configs[0]
        per_epoch = config.train // config.batch
        steps = config.steps or per_epoch * config.epochs
        self.every = prepare.evaluate_every(config, steps, config.train)
        yield from self.stack.steps(
            steps=steps,
            batch_size=config.batch,
            optimizer=prepare.optimizer(config),
            visit=self._visit,
        )
        if config.selection == "last" or self.best is None:
            self.best = self.stack.snapshot()

    def _visit(self, epoch: int) -> None:
        """As between epochs of the plain runner: evaluate, and take up the best weights where a stage begins."""
        procedure = self.stack.template
        valid = [p.valid for p in self.parts if p.valid is not None]
        if valid and (epoch % self.every == 0 or epoch == procedure.epochs):
            self._evaluate(epoch, valid)
        if procedure.later == epoch and self.best is not None:
            self.stack.restore(self.best)
            self.best, self.since = None, len(self.epochs)

    def _evaluate(self, epoch: int, valid: Sequence[LabelledData]) -> None:
        self.epochs.append(epoch)
        log_p = self.stack.log_probs(torch.stack([rows_of(v) for v in valid]))
        accuracies = [_accuracy(of_run.argmax(-1), part) for of_run, part in zip(log_p, valid)]
        better = [a > max(before[self.since :], default=-1.0) for a, before in zip(accuracies, self.scores)]
        now = self.stack.snapshot()
        if self.best is None:
            self.best = now
        chosen = torch.tensor(better, device=log_p.device)
        for name, value in now.items():
            which = chosen.view(-1, *[1] * (value.dim() - 1))
            self.best[name] = torch.where(which, value, self.best[name])
        for i, accuracy in enumerate(accuracies):
            self.scores[i].append(accuracy)
            self.best_epoch[i] = epoch if better[i] else self.best_epoch[i]

    def results(self) -> list[Result]:
        """One result per config, scored as by the plain runner; its runs share the seconds of a stack evenly."""
        on_gpu = self.device.startswith("cuda")
        kind = str(self.stack.convolutions).removeprefix("torch.")
        name = f"{torch.cuda.get_device_name()}, convolutions in {kind}" if on_gpu else ""
        return [
            self._result(i, config, name, self.seconds / len(self.configs))
            for i, config in enumerate(self.configs)
        ]

    def _result(self, i: int, config: Config, hardware: str, seconds: float) -> Result:
        procedure, parts = self.stack.procedures[i], self.parts[i]
        procedure.model.load_state_dict({k: v[i] for k, v in (self.best or {}).items()})
        history: dict[str, Any] = {
            "epoch": self.epochs,
            "validation_accuracy": self.scores[i],
            "best_epoch": self.best_epoch[i],
            TIME: SHARE,
        }
        analyses, more = records.analysed(config, procedure.model, parts, procedure)
        numbers = records.scored(config, procedure.model, parts) | more
        return finished(config, numbers, seconds, history=history | analyses, hardware=hardware)


def run(
    configs: Sequence[Config],
    *,
    root: str | None = None,
    device: str = "cuda",
    largest: int = 48,
    at_once: int = 9,
    until: float = float("inf"),
    report: Callable[[list[Result]], None] = lambda results: None,
    **options: Any,
) -> list[Result]:
    """Train all configs, `at_once` stacks at a time; `report` gets the results of each stack as it ends.

    Arguments:
        largest: runs in one stack.
        until: on the clock of `time.monotonic`; what has not ended by then is given up.
        options: of `CrowdStack`: capture, convolutions, pixel_rows.
    """
    torch.set_float32_matmul_precision("high")
    parts = [g[i : i + largest] for g in group(configs) for i in range(0, len(g), largest)]
    found: list[Result] = []
    data = Data(root, device)
    for i in range(0, len(parts), at_once):
        since = time.monotonic()
        stacks = [CrowdRuns(p, data, **options) for p in parts[i : i + at_once]]
        for stack in side_by_side(stacks, since, until):
            done = stack.results()
            report(done)
            found += done
    return found


def _procedure(config: Config, train: LabelledData) -> Plain:
    """The untrained procedure of a run, as the plain runner makes it."""
    K = train.num_classes
    given: dict[str, Any] = {"transition": crowds.matrices(config, K)} if config.method == "oracle" else {}
    shape = tuple(train.batch(torch.zeros(1, dtype=torch.int64, device=train.device)).shape[1:])
    people = len(train.annotators) if train.crowd is not None else None
    model = prepare.model(config, shape, K, annotators=people, **given)
    stages = prepare.stages(config, **given)
    return stages.procedure(model, loss=stages.loss, target=stages.target, penalty=stages.penalty)


def _accuracy(predicted: Tensor, part: LabelledData) -> float:
    """Share of the given labels (of all annotators, or of the vote) that the predicted class agrees with."""
    if part.crowd is None:
        return float((predicted == part.labels).double().mean())
    return float((predicted[part.crowd.item] == part.crowd.label).double().mean())
