"""The state of a run around its steps: history, checkpoints, early stopping, the best weights, progress."""

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
from torch import Tensor, nn

from .._distributed import Ranks
from .._identity import SINCE, digest
from ..checkpoint import optimizer_tensors, restore_optimizer
from ..model import Model
from ..runs import RunFolder, read_result
from ..signals import Stopped, StopRequest, stop_on_signals
from .progress import Progress

if TYPE_CHECKING:
    from ..train import Run

SCORE = "valid_accuracy"
# A checkpoint at the end of an epoch waits until the run has worked this many times as long as the last one took.
WORK_PER_SAVE = 20


class Session:
    """One fit, with or without a folder.

    Without a folder it only keeps the history, the best weights and the progress bar. With one it also holds the
    lock, appends records, saves and resumes, and turns SIGINT and SIGTERM into a checkpoint and an exit. Of several
    processes only the first opens the folder; all of them stop together.
    """

    def __init__(
        self,
        out: str | Path | None,
        config: Mapping[str, Any],
        *,
        epochs: int,
        progress: bool | None,
        ranks: Ranks,
        device: torch.device,
    ) -> None:
        self.ranks, self.device, self.saves = ranks, device, out is not None
        self.folder = None if out is None else Path(out)
        self.run_folder: RunFolder | None = None
        if out is not None and ranks.rank == 0:
            self.run_folder = RunFolder(out, config, seed=config["seed"], since=SINCE)
        self.progress = Progress(epochs, progress if ranks.rank == 0 else False)
        self.stop: StopRequest | None = None
        self.asked: int | None = None  # the signal that all processes have agreed on
        self.best: dict[str, Tensor] | None = None
        self.best_score, self.stale, self.finished, self.improved = -math.inf, 0, False, False
        self.loss_sum, self.loss_steps = self._no_loss(), 0
        self._stack = ExitStack()
        self._since = self._saved_at = time.monotonic()
        self._cost = 0.0  # seconds that the last checkpoint took

    def __enter__(self) -> Session:
        if self.run_folder is not None:
            self._stack.enter_context(self.run_folder)
        if self.saves:
            self.stop = self._stack.enter_context(stop_on_signals())
        self._stack.enter_context(self.progress)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def resume(
        self, run: Run, trained: nn.Module, optimizer: torch.optim.Optimizer, average: Model | None
    ) -> int:
        """Load the latest checkpoint, if there is one; returns the number of steps done."""
        found = None if self.run_folder is None else self.run_folder.resume()
        if self.saves:
            found = self.ranks.same_checkpoint(found, self.device)
        if found is None:
            return 0
        trained.load_state_dict(found.tensors["model"])
        restore_optimizer(optimizer, found.tensors["optimizer"], found.state["optimizer"])
        if average is not None:
            average.load_state_dict(found.tensors["ema"])
        if "best" in found.tensors:
            self.best = {name: value.to(self.device) for name, value in found.tensors["best"].items()}
        run.history, run.best_epoch = list(found.state["history"]), found.state["best_epoch"]
        self.best_score = found.state["best_score"] if run.best_epoch is not None else -math.inf
        self.stale, self.finished = found.state["stale"], found.state["finished"]
        self.loss_sum = self._no_loss() + found.state["loss_sum"]
        self.loss_steps = found.state["loss_steps"]
        return found.step

    @property
    def signal(self) -> int | None:
        """The signal that this process has received."""
        return None if self.stop is None else self.stop.number

    def _no_loss(self) -> Tensor | float:
        """Zero: a number on the CPU, a tensor on a GPU, so that adding losses does not wait for it."""
        on_cpu = self.device.type == "cpu"
        return 0.0 if on_cpu else torch.zeros((), dtype=torch.float64, device=self.device)

    def observe(self, total: Tensor | float, asked: int | None) -> None:
        """Take in the loss of a step, and the signal that the processes have agreed on."""
        self.loss_sum = self.loss_sum + total
        self.loss_steps += 1
        self.asked = asked

    def record(self, run: Run, judged: Model, epoch: int, scores: Mapping[str, float]) -> None:
        """Add a record to the history; keeps the weights if the noisy validation accuracy is a new best."""
        record = {"epoch": epoch, "loss": float(self.loss_sum) / max(1, self.loss_steps), **scores}
        record = dict(sorted(record.items()))  # as they come back from a checkpoint
        self.loss_sum, self.loss_steps = self._no_loss(), 0
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

    def choose_anew(self, run: Run) -> None:
        """Forget the best epoch and its weights."""
        self.best, self.best_score, self.stale, run.best_epoch = None, -math.inf, 0, None

    def stop_early(self, patience: int | None) -> None:
        """Finish when the score has not improved for `patience` evaluations."""
        self.finished = patience is not None and self.stale >= patience

    def due(self, step: int, every: int | None) -> bool:
        """Whether to save at any step: every so many steps, or because a signal asks to stop."""
        if self.ranks.alone:
            self.asked = self.signal
        return self.asked is not None or (self.saves and every is not None and step % every == 0)

    def save(
        self,
        step: int,
        run: Run,
        trained: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: Model | None,
        *,
        due: bool,
    ) -> None:
        """Write a checkpoint if it is due, the run ends, or the last one is long ago; leave if asked to."""
        began = time.monotonic()
        long_ago = began - self._saved_at >= WORK_PER_SAVE * self._cost
        if self.run_folder is not None and (due or self.finished or long_ago):
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
                "loss_sum": float(self.loss_sum),
                "loss_steps": self.loss_steps,
            }
            self.run_folder.save(step, tensors, state, best=self.improved)
            self._saved_at = time.monotonic()
            self._cost = self._saved_at - began
        self.improved = False
        self.leave()

    def leave(self) -> None:
        """Raise `Stopped` if a signal asks for it: of several processes all at the same step."""
        if self.asked is not None:
            raise Stopped(self.asked)

    def select(self, run: Run, last: Model, rule: str) -> Model:
        """The model to hand out: the last one, or the one with the best validation accuracy."""
        if rule == "best" and self.best is not None:
            last.load_state_dict(self.best)
        if self.run_folder is not None and read_result(self.run_folder.path) is None:
            result = {"history": run.history, "best_epoch": run.best_epoch, "steps": run.steps}
            self.run_folder.finish({**result, "weights": digest(last.state_dict())})
        self.ranks.wait()
        if self.saves and self.ranks.alone:
            self.asked = self.signal
        self.leave()
        return last
