"""Runs of one small network on one GPU, many at a time: the fast back end of the paper runner.

Configs that differ only in seed, noise and numeric parameters of their method form a stack (`dubito.fast`), and
several stacks advance together on streams of their own. Every run keeps its own data split, noise, start, order of
examples and hyper-parameters, exactly as the plain runner would give it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import fast
from ..data import LabelledData
from ..errors import DubitoError
from ..estimate import anchor_transition
from ..evaluate import scores
from . import STUDIES, prepare
from .configs import Config, alike
from .prepare import Parts
from .results import SHARE, TIME, Result, finished
from .streams import side_by_side

# What may differ between the runs of one stack.
_OWN = {"seed", "noise", "rate", "matrix", "labels", "item", "params"}
EVERY = 10
# Percentile, and which example stands for a class: those of the configs with an estimated matrix.
READINGS = {"englesson2023": (97.0, "below"), "lukasik2020": (99.9, "percentile")}
# In float32 throughout: in bfloat16 two of LN's columns were lower by points (docs/results/precision.md).
EXACT = ("ln",)


def stackable(config: Config) -> bool:
    """Whether a config can be part of a stack: no batch norm, whole epochs, a constant rate, scores alone."""
    return (
        config.network in ("lenet5", "cnn4", "mlp")
        and config.schedule == "constant"
        and config.selection == "last"
        and config.augment == "none"
        and config.epochs > 0
        and not config.annotators
        and not config.record
        and config.paper not in STUDIES
        and prepare.method_of(config)[0].name
        in ("ce", "smooth", "gce", "bi-tempered", "nan", "bootstrap", "forward", "het", "ln")
    )


def group(configs: Sequence[Config]) -> list[list[Config]]:
    """Configs that can share a stack, together; methods with a first stage come last."""

    def shared(config: Config) -> str:
        static = {k: v for k, v in config.params if not _numeric(k, v)}
        return repr(({k: v for k, v in config.to_json().items() if k not in _OWN}, static))

    return sorted(alike(configs, shared), key=lambda group: group[0].method == "forward")


class StackedRuns:
    """One stack of configs: their data and models on the device, the steps, and a result for each.

    Arguments:
        transitions: per config a matrix ``(K, K)`` for forward correction, estimated by a first stage.
    """

    Stack = fast.Stack

    def __init__(
        self,
        configs: Sequence[Config],
        data: Sequence[Parts],
        *,
        device: str = "cuda",
        transitions: Sequence[Tensor] | None = None,
        convolutions: torch.dtype = torch.bfloat16,
    ) -> None:
        self.configs, self.data, first = configs, data, data[0]
        inputs: Tensor = first.train.inputs  # type: ignore[assignment]
        tested: Tensor = first.test.inputs  # type: ignore[assignment]
        self.offset = len(inputs)
        everything = torch.cat([inputs, tested]).to(device)
        method, _ = prepare.method_of(configs[0])
        params = [self.parameters(c) for c in configs]
        static = {k: v for k, v in params[0].items() if not _numeric(k, v)}
        hyper = {k: torch.tensor([p[k] for p in params]) for k, v in params[0].items() if _numeric(k, v)}
        given: list[dict[str, Any]] = (
            [{"transition": T} for T in transitions] if transitions else [{} for _ in configs]
        )
        shape, classes = tuple(inputs.shape[1:]), first.train.num_classes
        self.stack = self.Stack(
            method=method,
            models=[prepare.model(c, shape, classes, **g) for c, g in zip(configs, given)],
            inputs=everything,
            rows=torch.stack([rows_of(p.train) for p in data]).to(device),
            labels=torch.stack([p.train.labels for p in data]).to(device),
            seeds=[c.seed for c in configs],
            hyper=hyper,
            static=static,
            mean=first.train.mean,
            std=first.train.std,
            convolutions=convolutions,
        )
        self.device, self.history = device, {}  # type: ignore[var-annotated]
        self.seconds = 0.0  # of the device's time, see `side_by_side`
        self.transitions: Sequence[Tensor] | None = transitions

    def steps(self) -> Iterator[None]:
        """Train; every tenth epoch is scored."""
        yield from self.train(EVERY)
        if self.configs[0].method == "ce":
            self.transitions = self._estimated_transitions()

    def parameters(self, config: Config) -> dict[str, Any]:
        """Those of a run's stages; the ones that are numbers may differ within the stack."""
        return prepare.method_of(config)[1]

    def train(self, every: int) -> Iterator[None]:
        """All steps; every so many epochs are scored."""
        config = self.configs[0]
        yield from self.stack.steps(
            epochs=config.epochs,
            batch_size=config.batch,
            optimizer=prepare.optimizer(config),
            visit=self.score,
            every=every,
        )

    def _estimated_transitions(self) -> list[Tensor]:
        """T of each run, read from its predictions on its own training inputs (Patrini et al. 2017)."""
        log_p = self.stack.log_probs(self.stack.rows)
        return [read_matrix(self.configs[0], p.exp().cpu()) for p in log_p]

    def results(self) -> list[Result]:
        """One result per config; the seconds of a stack are shared evenly, and so are those of stacks together."""
        share = self.seconds / len(self.configs)
        return [
            finished(
                config,
                {k: v[i][-1] for k, v in self.history.items()},
                share,
                history={k: v[i] for k, v in self.history.items()}
                | {"every": EVERY, TIME: SHARE}
                | self._extra(i),
                hardware=self.hardware,
            )
            for i, config in enumerate(self.configs)
        ]

    @property
    def hardware(self) -> str:
        """The GPU and the precision of convolutions; "" on a CPU."""
        precision = str(self.stack.convolutions).removeprefix("torch.")
        return f"{torch.cuda.get_device_name()}, convolutions in {precision}" if self.device == "cuda" else ""

    def _extra(self, run: int) -> dict[str, Any]:
        """What a second stage needs: the matrix that plain cross-entropy estimates."""
        return {} if self.transitions is None else {"transition": self.transitions[run].tolist()}

    def score(self, epoch: int) -> None:
        """Test and validation scores of every run, added to its course."""
        test = self.data[0].test
        log_p = self.stack.log_probs(rows_of(test).to(self.device) + self.offset)
        clean = test.labels if test.clean is None else test.clean
        for i, of_run in enumerate(log_p):
            self._add(i, "test", scores(of_run, clean.to(self.device)))
        valid = [p.valid for p in self.data if p.valid is not None]
        if valid:
            log_p = self.stack.log_probs(torch.stack([rows_of(v) for v in valid]).to(self.device))
            for i, (of_run, part) in enumerate(zip(log_p, valid)):
                self._add(i, "validation", scores(of_run, part.labels.to(self.device)))

    def _add(self, run: int, name: str, found: dict[str, float]) -> None:
        for key, value in found.items():
            self.history.setdefault(f"{name}_{key}", [[] for _ in self.configs])[run].append(value)


def run(
    configs: Sequence[Config],
    *,
    root: str | None = None,
    device: str = "cuda",
    at_once: int = 2,
    known: Sequence[Result] = (),
    report: Callable[[list[Result]], None] = lambda results: None,
    convolutions: torch.dtype | None = None,
) -> list[Result]:
    """Train all configs, `at_once` stacks at a time; `report` gets the results of each wave of stacks.

    Arguments:
        known: results of earlier runs; forward correction takes its matrix from those of plain cross-entropy on
            the same data, noise and seed, and where there is none such a run comes first.
        convolutions: their precision, by default that of each method; with float32 all else is in full float32 too.
    """
    first = {place(r.config): r for r in known if r.config.method == "ce" and not r.diverged}
    waiting = group(configs)
    everything: list[Result] = []
    while waiting:
        second_stage, precision = _kind(waiting[0])
        wave = [g for g in waiting if _kind(g) == (second_stage, precision)][:at_once]
        waiting = [g for g in waiting if g not in wave]
        dtype = _all_else(precision if convolutions is None else convolutions)
        stacks, since = [], time.monotonic()
        for configs_ in wave:
            data = [prepare.parts(c, root=root) for c in configs_]
            matrices = [estimated_matrix(first, c) for c in configs_] if second_stage else None
            stacks.append(
                StackedRuns(configs_, data, device=device, transitions=matrices, convolutions=dtype)
            )
        list(side_by_side(stacks, since))
        done = [result for stack in stacks for result in stack.results()]
        first |= {place(r.config): r for r in done if r.config.method == "ce"}
        report(done)
        everything += done
    return everything


def _kind(group: Sequence[Config]) -> tuple[bool, torch.dtype]:
    """What the stacks of a wave share: whether they need a first stage, and their precision."""
    method = group[0].method
    return method == "forward", torch.float32 if method in EXACT else torch.bfloat16


def _all_else(convolutions: torch.dtype) -> torch.dtype:
    """Set the precision of all but the convolutions: with theirs in float32, full float32 too."""
    exact = convolutions == torch.float32
    torch.set_float32_matmul_precision("highest" if exact else "high")
    torch.backends.cudnn.allow_tf32 = not exact
    return convolutions


def read_matrix(config: Config, probabilities: Tensor) -> Tensor:
    """T as the paper of a run of cross-entropy reads it from predictions on the training inputs."""
    percentile, at = READINGS.get(config.paper, READINGS["englesson2023"])
    return anchor_transition(probabilities.double(), percentile=percentile, at=at)  # type: ignore[arg-type]


def estimated_matrix(first: dict[Config, Result], config: Config) -> Tensor:
    """The matrix that a finished run of cross-entropy on the same data, noise and seed has estimated."""
    if place(config) not in first:
        raise DubitoError(
            "forward correction needs the matrix that cross-entropy estimates",
            where=f"{config.noise} {config.rate:g}, seed {config.seed}",
            remedy="run ce on the same data, noise and seed, in the same call or before",
        )
    percentile, _ = READINGS.get(config.paper, READINGS["englesson2023"])
    if config.param("percentile", percentile) != percentile:
        raise DubitoError(
            "the matrix was read at another percentile of the predictions", expected=config.param("percentile"),
            got=percentile, remedy="run it without --streams",
        )  # fmt: skip
    return torch.tensor(first[place(config)].history["transition"], dtype=torch.float64)


def place(config: Config) -> Config:
    """What a first stage and its second share: everything but the method and what is looked at afterwards."""
    return dataclasses.replace(
        config, item="", method="ce", params=(), reading=(), samples=0, eval_samples=0, record=()
    )


def _numeric(name: str, value: Any) -> bool:
    return isinstance(value, float) and name not in ("percentile", "smoothing")


def rows_of(part: LabelledData) -> Tensor:
    """Which rows of the inputs a part has."""
    return torch.arange(len(part), device=part.device) if part.rows is None else part.rows
