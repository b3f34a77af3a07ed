"""What a command was asked to do, and who does it: the table of tasks.

A task is a module with two functions; the table holds its name, so that nothing is imported before it is needed:

    def fit(job: FitJob, say: Say) -> Path          # trains, writes job.out, returns the path of the report
    def predict(job: PredictJob, say: Say) -> Path  # reads job.run, writes job.out, returns its path

`fit` writes ``{"task": name, ...}`` into the configuration of the run (`config.json`); `predict`, `audit` and a
second `fit` with gold labels find the task there. To add one, write the module, name it in `TASKS`, and give
`task_for` the option it is recognised by.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DubitoError

Say = Callable[[str], None]

# name -> module. "classes": one class per item, from one label or from several annotators; "pixels": masks.
TASKS = {
    "classes": "dubito._product.classify",
    "pixels": "dubito.segmentation.command",
}


@dataclass(frozen=True)
class FitJob:
    """`dubito fit`: where the data is, what its columns mean, how to train."""

    data: Path
    out: Path
    images: Path | None = None
    masks: Path | None = None
    label: str | None = None
    annotator: str | None = None
    item: str | None = None
    features: tuple[str, ...] = ()
    clean: str | None = None
    groups: str | None = None
    method: str = "auto"
    backbone: str = "auto"
    size: int | None = None
    epochs: int | None = None
    folds: int = 5
    seed: int = 0
    device: str = "auto"
    gold: Path | None = None
    anonymise: bool = False
    command: str = ""
    options: dict[str, Any] = field(default_factory=dict)  # of a task of its own


@dataclass(frozen=True)
class PredictJob:
    """`dubito predict`: a run, new data, and the file to write."""

    run: Path
    data: Path
    out: Path
    images: Path | None = None
    device: str = "auto"
    delimiter: str | None = None


def task_for(job: FitJob) -> str:
    """The task of a fit, by its options."""
    if job.masks is not None:
        return "pixels"
    return "classes"


def task_of(run: Path) -> str:
    """The task that a run was made by."""
    from ..runs import read_config

    if not (run / "config.json").is_file():
        raise DubitoError("not a run", where=str(run), remedy="make one with `dubito fit DATA --out RUN`")
    config = read_config(run)["config"]
    task = config.get("task") if isinstance(config, dict) else None
    if not isinstance(task, str) or task not in TASKS:
        raise DubitoError("not a run of `dubito fit`", where=str(run), got=repr(task))
    return task


def module(task: str) -> Any:
    """The module of a task."""
    if task not in TASKS:
        raise DubitoError("no such task", got=task, expected=", ".join(TASKS))
    return importlib.import_module(TASKS[task])


def fit(job: FitJob, say: Say) -> Path:
    """Train as asked; returns the path of the report."""
    path: Path = module(task_for(job)).fit(job, say)
    return path


def predict(job: PredictJob, say: Say) -> Path:
    """Predict with a run; returns the path of the predictions."""
    path: Path = module(task_of(job.run)).predict(job, say)
    return path
