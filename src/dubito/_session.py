"""The memory of a run: what is recorded, saved, taken up again, chosen and shown."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import _files
from ._progress import Progress
from .checkpoint import optimizer_tensors, restore_optimizer
from .data import LabelledData
from .model import Model
from .runs import RunFolder
from .signals import StopRequest, stop_on_signals

if TYPE_CHECKING:
    from .train import Run

SCORE = "valid_accuracy"


class Session:
    """One fit, with or without a folder.

    Without a folder it only keeps the history, the best weights and the progress bar. With one it also holds the
    lock, appends records, saves and resumes, and turns SIGINT and SIGTERM into a checkpoint and an exit.
    """

    def __init__(
        self,
        out: str | Path | None,
        options: Mapping[str, Any],
        model: Model,
        data: LabelledData,
        epochs: int,
        progress: bool | None,
    ) -> None:
        self.run_folder: RunFolder | None = None
        if out is not None:
            config = {**options, "model": str(model), "data": describe(data)}
            self.run_folder = RunFolder(out, config, seed=options["seed"])
        self.progress = Progress(epochs, progress)
        self.stop: StopRequest | None = None
        self.best: dict[str, torch.Tensor] | None = None
        self.best_score, self.stale, self.finished, self.improved = -math.inf, 0, False, False
        self._stack = ExitStack()
        self._since = time.monotonic()

    @property
    def folder(self) -> Path | None:
        """Where the run lives on disk."""
        return None if self.run_folder is None else self.run_folder.path

    def __enter__(self) -> Session:
        if self.run_folder is not None:
            self._stack.enter_context(self.run_folder)
            self.stop = self._stack.enter_context(stop_on_signals())
        self._stack.enter_context(self.progress)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def resume(
        self,
        run: Run,
        trained: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: Model | None,
        device: torch.device,
    ) -> int:
        """Take up the latest checkpoint, if there is one; returns the number of steps done."""
        found = None if self.run_folder is None else self.run_folder.resume()
        if found is None:
            return 0
        trained.load_state_dict(found.tensors["model"])
        restore_optimizer(optimizer, found.tensors["optimizer"], found.state["optimizer"])
        if average is not None:
            average.load_state_dict(found.tensors["ema"])
        if "best" in found.tensors:
            self.best = {name: value.to(device) for name, value in found.tensors["best"].items()}
        run.history, run.best_epoch = list(found.state["history"]), found.state["best_epoch"]
        self.best_score = found.state["best_score"] if run.best_epoch is not None else -math.inf
        self.stale, self.finished = found.state["stale"], found.state["finished"]
        return found.step

    def record(self, run: Run, judged: Model, epoch: int, loss: float, scores: Mapping[str, float]) -> None:
        """One line of history; remembers the weights if the noisy validation accuracy is a new best."""
        record = {"epoch": epoch, "loss": loss, **scores}
        run.history.append(record)
        if self.run_folder is not None:
            self.run_folder.log(**record)
            self.run_folder.log_time(epoch=epoch, seconds=time.monotonic() - self._since)
        self.improved = scores.get(SCORE, -math.inf) > self.best_score
        if self.improved:
            self.best_score, self.stale, run.best_epoch = scores[SCORE], 0, epoch
            self.best = copy.deepcopy(judged.state_dict())
        else:
            self.stale += 1
        self.progress.update(record)

    def stop_early(self, run: Run, patience: int | None) -> None:
        """Finish when the score has not improved for `patience` evaluations."""
        self.finished = patience is not None and self.stale >= patience

    def due(self, step: int, every: int | None) -> bool:
        """Whether to save between epochs: asked for by number, or because a signal asks to stop."""
        return bool(self.stop) or (every is not None and step % every == 0)

    def save(
        self,
        step: int,
        run: Run,
        trained: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: Model | None,
    ) -> None:
        """Write a checkpoint; leave with status 130 or 143 if a signal asked for it."""
        if self.run_folder is None:
            return
        moments, meta = optimizer_tensors(optimizer)
        tensors = {"model": trained.state_dict(), "optimizer": moments}
        if average is not None:
            tensors["ema"] = average.state_dict()
        if self.best is not None:
            tensors["best"] = self.best
        state = {
            "optimizer": meta,
            "history": run.history,
            "best_epoch": run.best_epoch,
            "best_score": self.best_score if run.best_epoch is not None else None,
            "stale": self.stale,
            "finished": self.finished,
        }
        self.run_folder.save(step, tensors, state, best=self.improved)
        self.improved = False
        if self.stop is not None:
            self.stop.leave()

    def select(self, run: Run, last: Model, rule: str) -> Model:
        """The model to hand out: the last one, or the one with the best validation accuracy."""
        if rule == "best" and self.best is not None:
            last.load_state_dict(self.best)
        if self.run_folder is not None:
            self.run_folder.finish({"history": run.history, "best_epoch": run.best_epoch})
        return last


def describe(data: LabelledData) -> dict[str, Any]:
    """What identifies a data set in a config: its size and the SHA-256 of its labels."""
    labels = data.labels if data.crowd is None else torch.stack(list(data.crowd))
    digest = _files.sha256(labels.cpu().contiguous().numpy().tobytes())
    return {"name": data.name, "examples": len(data), "labels": digest}
