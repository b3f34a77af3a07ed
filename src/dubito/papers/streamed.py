"""Runs of larger networks on one GPU, a few at a time on streams: the back end for networks with batch norm.

Each config is a `dubito.lanes.Lane` with its own data split, noise, start and order. A run that does not end within
the time given is left at the end of an epoch and taken up again from its checkpoint by the next call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import fast
from ..evaluate import scores
from ..lanes import Lane
from ..noise import resample
from ..procedures import Plain
from . import prepare, records
from .configs import Config, run_id
from .results import Result, finished
from .runner import invertible
from .stacked import estimated_matrix, place, read_matrix

EVERY = 10


def streamable(config: Config) -> bool:
    """Whether a config can be a lane: the last step reported, a plain procedure without a penalty."""
    if config.selection != "last" or config.annotators or config.balanced or "curves" in config.record:
        return False
    if config.method in ("distill", "oracle"):
        return False
    stages = prepare.stages(config)
    return stages.procedure is Plain and stages.penalty is None


class LaneRun:
    """One config as a lane, scored every tenth epoch.

    Arguments:
        folder: of the checkpoint that an earlier call may have left.
        first: results of plain cross-entropy, for a config that needs an estimated matrix.
    """

    def __init__(
        self, config: Config, folder: Path, *, root: str | None, device: str, first: dict[Any, Result]
    ) -> None:
        self.config, self.folder, self.device = config, folder / run_id(config)[:16], device
        train, valid, test = prepare.parts(config, root=root)
        self.parts = prepare.Parts(
            train.to(device), None if valid is None else valid.to(device), test.to(device)
        )
        self.found: dict[str, Any] = {}
        given = self._given(first)
        shape = tuple(self.parts.train.batch(torch.zeros(1, dtype=torch.int64, device=device)).shape[1:])
        model = prepare.model(config, shape, self.parts.train.num_classes, **given)
        self.lane = Lane(
            model,
            prepare.stages(config, **given),
            self.parts.train,
            seed=config.seed,
            device=device,
            augment=prepare.augmentation(config),
        )
        self.lane.memory["notes"] = {"seconds": 0.0, "history": {}}
        self.started = time.monotonic()

    def steps(self, leave: Callable[[], bool]) -> Iterator[None]:
        """Train from the last checkpoint to the end, or until `leave` says so at the end of an epoch."""
        config = self.config
        total = config.steps or -(-len(self.parts.train) * config.epochs // config.batch)

        def asked() -> bool:
            stop = leave()
            if stop:  # before the checkpoint is written
                self._note_time()
            return stop

        yield from self.lane.steps(
            epochs=self.epochs,
            batch_size=config.batch,
            optimizer=prepare.optimizer(config),
            schedule=prepare.schedule(config, total),
            visit=self._score,
            every=EVERY,
            folder=self.folder,
            leave=asked,
            steps=total,
        )
        self._note_time()

    @property
    def epochs(self) -> int:
        """Epochs begun by the end of the run."""
        count, config = len(self.parts.train), self.config
        return config.epochs or -(-config.steps * config.batch // count)

    @property
    def done(self) -> bool:
        """Whether the last epoch is behind it."""
        return self.lane.epoch == self.epochs

    def result(self) -> Result:
        """What a finished run left."""
        notes = self.lane.memory["notes"]
        name = f"{torch.cuda.get_device_name()}, bfloat16 autocast" if self.device == "cuda" else ""
        history = {**notes["history"], "every": EVERY, **self.found}
        if self.config.method == "ce":
            probabilities = self.lane.log_probs(prepare.still(self.config, self.parts.train)).exp().cpu()
            history["transition"] = read_matrix(self.config, probabilities).tolist()
        metrics = {name: values[-1] for name, values in notes["history"].items()}
        if self.config.record:
            numbers, analyses = self._records()
            metrics, history = {**numbers, **metrics}, {**history, **analyses}
        return finished(self.config, metrics, notes["seconds"], history=history, hardware=name)

    def _given(self, first: dict[Any, Result]) -> dict[str, Any]:
        """The matrix of a correction: of the printed strength, or estimated by a run of cross-entropy."""
        config = self.config
        if config.method not in ("forward", "backward"):
            return {}
        if config.param("transition") != "estimated":
            T = resample(self.parts.train.num_classes, float(config.param("alpha", 0.0) or 0.0))
        else:
            T = estimated_matrix(first, config)
            if config.method == "backward":
                T, self.found["mixed_with_identity"] = invertible(T)
        self.found["transition"] = T.tolist()
        return {"transition": T}

    def _records(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Scores and analyses as the plain runner makes them, in float32 and without fused kernels."""
        parts = self.parts._replace(train=prepare.still(self.config, self.parts.train))
        with self.lane.context(), torch.compiler.set_stance("force_eager"):
            numbers = records.scored(self.config, self.lane.model, parts)
            analyses, more = records.analysed(self.config, self.lane.model, parts)
        return {**numbers, **more}, analyses

    def _note_time(self) -> None:
        now = time.monotonic()
        self.lane.memory["notes"]["seconds"] += now - self.started
        self.started = now

    def _score(self, epoch: int) -> None:
        test, valid = self.parts.test, self.parts.valid
        clean = test.labels if test.clean is None else test.clean
        log_p = self.lane.log_probs(test)
        found = {f"test_{k}": v for k, v in scores(log_p, clean).items()}
        if self.config.noisy_test:
            found |= {f"noisy_test_{k}": v for k, v in scores(log_p, test.labels).items()}
        if valid is not None:
            seen = scores(self.lane.log_probs(valid), valid.labels)
            found |= {f"validation_{k}": v for k, v in seen.items()}
        for name, value in found.items():
            self.lane.memory["notes"]["history"].setdefault(name, []).append(value)


def run(
    configs: Sequence[Config],
    *,
    folder: str | Path,
    root: str | None = None,
    device: str = "cuda",
    at_once: int = 4,
    seconds: float = float("inf"),
    known: Sequence[Result] = (),
    report: Callable[[list[Result]], None] = lambda results: None,
) -> list[Result]:
    """Train configs on streams until all are done or `seconds` have passed; what is not done stays in `folder`.

    Arguments:
        seconds: after so many, every lane stops at the end of its epoch and leaves a checkpoint.
        known: results of earlier runs, which are skipped; forward correction takes its matrix from cross-entropy.
        report: gets the results of each group of lanes as it finishes.
    """
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    end = time.monotonic() + seconds
    have = {r.id for r in known}
    first = {place(r.config): r for r in known if r.config.method == "ce"}
    waiting = [c for c in configs if run_id(c) not in have]
    everything: list[Result] = []
    while waiting and time.monotonic() < end:
        group, waiting = waiting[:at_once], waiting[at_once:]
        runs = [LaneRun(c, Path(folder), root=root, device=device, first=first) for c in group]
        fast.together([r.steps(lambda: time.monotonic() > end) for r in runs])
        results = [r.result() for r in runs if r.done]
        first |= {place(r.config): r for r in results if r.config.method == "ce"}
        report(results)
        everything += results
    return everything
