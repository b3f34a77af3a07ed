"""One config of a paper as a lane: what it trains, how it is scored, what it leaves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..evaluate import scores
from ..lanes import Lane
from ..procedures import Plain
from . import prepare, records
from .configs import Config, run_id
from .results import Result, finished
from .runner import stage_of
from .stacked import estimated_matrix, read_matrix

EVERY = 10
SAVE_EVERY = 20  # epochs


class LaneRun:
    """One config as a lane, scored every tenth epoch; where the best epoch is kept, validated after each.

    Arguments:
        folder: of the checkpoint that an earlier call may have left. Runs that keep their best epoch are short and
            begin anew instead.
        first: results of plain cross-entropy, for a config that needs an estimated matrix.
        role: tells networks of one run apart, which then start from weights of their own.
        procedure: in place of the method's own.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        root: str | None,
        device: str,
        first: dict[Any, Result],
        role: str = "",
        procedure: Callable[..., Plain] | None = None,
    ) -> None:
        self.config, self.folder, self.device = config, folder / run_id(config)[:16], device
        train, valid, test = prepare.parts(config, root=root)
        self.parts = prepare.Parts(
            train.to(device), None if valid is None else valid.to(device), test.to(device)
        )
        stage = stage_of(config, self.parts, lambda: estimated_matrix(first, config))
        self.found: dict[str, Any] = dict(stage.found)
        shape = tuple(self.parts.train.batch(torch.zeros(1, dtype=torch.int64, device=device)).shape[1:])
        model = prepare.model(config, shape, self.parts.train.num_classes, role=role, **stage.given)
        stages = prepare.stages(config, **stage.given)
        if procedure is not None:
            stages = dataclasses.replace(stages, procedure=procedure)
        self.lane = Lane(
            model,
            stages,
            self.parts.train,
            seed=config.seed,
            device=device,
            augment=prepare.augmentation(config),
        )
        self.lane.memory["notes"] = {"seconds": 0.0, "history": {}}
        self.best: dict[str, Tensor] = {}
        self.best_score, self.best_epoch, self.stopped = -1.0, 0, False

    @property
    def notes(self) -> dict[str, Any]:
        """Seconds and scores; they travel with the lane's checkpoint."""
        found: dict[str, Any] = self.lane.memory["notes"]
        return found

    def steps(self, leave: Callable[[], bool]) -> Iterator[None]:
        """Train from the last checkpoint to the end, or until `leave` says so at the end of an epoch."""
        config, picks = self.config, self.config.selection == "best"
        total = config.steps or -(-len(self.parts.train) * config.epochs // config.batch)
        training = self.lane.steps(
            epochs=self.epochs,
            batch_size=config.batch,
            optimizer=prepare.optimizer(config),
            schedule=prepare.schedule(config, total),
            visit=self._pick if picks else self._score,
            every=1 if picks else EVERY,
            folder=None if picks else self.folder,
            leave=leave,
            steps=total,
            save_every=SAVE_EVERY,
        )
        for _ in training:
            if self.stopped or (picks and leave()):
                break
            yield
        if picks and self.done:
            with self.lane.context():
                self.lane.model.load_state_dict(self.best)

    @property
    def epochs(self) -> int:
        """Epochs begun by the end of the run."""
        count, config = len(self.parts.train), self.config
        return config.epochs or -(-config.steps * config.batch // count)

    @property
    def done(self) -> bool:
        """Whether the last epoch is behind it."""
        return self.stopped or self.lane.epoch == self.epochs

    def result(self) -> Result:
        """What a finished run left; one whose predictions are not numbers is refused."""
        metrics = self.scores()
        if not all(map(math.isfinite, metrics.values())):
            raise records.diverged(self.config)
        name = f"{torch.cuda.get_device_name()}, bfloat16 backbone" if self.device == "cuda" else ""
        history = {**self.notes["history"], "every": EVERY, **self.found}
        if self.config.selection == "best":
            history |= {"every": 1, "best_epoch": self.best_epoch}
        if self.config.method == "ce":
            probabilities = self.lane.log_probs(prepare.still(self.config, self.parts.train)).exp().cpu()
            history["transition"] = read_matrix(self.config, probabilities).tolist()
        if self.config.record:
            numbers, analyses = self._records()
            metrics, history = {**numbers, **metrics}, {**history, **analyses}
        return finished(self.config, metrics, self.notes["seconds"], history=history, hardware=name)

    def _records(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Scores and analyses as the plain runner makes them, in float32 and without fused kernels."""
        parts = self.parts._replace(train=prepare.still(self.config, self.parts.train))
        with self.lane.context(), torch.compiler.set_stance("force_eager"):
            numbers = records.scored(self.config, self.lane.model, parts)
            analyses, more = records.analysed(self.config, self.lane.model, parts)
        return {**numbers, **more}, analyses

    def _pick(self, epoch: int) -> None:
        """Keep the weights of the best validation accuracy; stop after `patience` epochs without a better one."""
        valid = self.parts.valid
        assert valid is not None
        seen = scores(self.lane.log_probs(valid), valid.labels)
        self._note({f"validation_{k}": v for k, v in seen.items()})
        if seen["accuracy"] > self.best_score:
            self.best_score, self.best_epoch = seen["accuracy"], epoch
            self.best = {k: v.detach().clone() for k, v in self.lane.model.state_dict().items()}
        self.stopped = bool(self.config.patience) and epoch - self.best_epoch >= self.config.patience

    def _score(self, epoch: int) -> None:
        self._note(self.scores())

    def _note(self, found: dict[str, float]) -> None:
        for name, value in found.items():
            self.notes["history"].setdefault(name, []).append(value)

    def scores(self) -> dict[str, float]:
        """Test and validation scores of the present weights."""
        test, valid = self.parts.test, self.parts.valid
        clean = test.labels if test.clean is None else test.clean
        log_p = self.lane.log_probs(test)
        found = {f"test_{k}": v for k, v in scores(log_p, clean).items()}
        if self.config.noisy_test:
            found |= {f"noisy_test_{k}": v for k, v in scores(log_p, test.labels).items()}
        if valid is not None:
            seen = scores(self.lane.log_probs(valid), valid.labels)
            found |= {f"validation_{k}": v for k, v in seen.items()}
        return found
