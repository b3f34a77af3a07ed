"""What a trained run leaves behind: tables, metrics, the report, the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._audit.result import FEW_WRONG
from .._report import Fact, report
from ..data import LabelledData
from ..evaluate import predict
from ..methods import parse
from ..model import Model
from ..train import Run
from . import gold as golden
from . import overview, page, scores, stored, writing
from .choice import Choice
from .findings import Findings
from .reading import Scale
from .sources import Source
from .tasks import Say
from .training import Folds, Setting

Beside = Callable[[Model, Scale, Tensor], list[Fact]]


@dataclass(frozen=True)
class Plan:
    """A run about to be trained."""

    folder: Path
    data: LabelledData
    source: Source
    scale: Scale
    setting: Setting
    method: str
    folds: int
    command: str
    anonymise: bool
    beside: Beside | None = None  # further facts for the report
    title: str = ""
    table: bool = False  # whether `auto` may choose a linear network, weight decay or a forest


@dataclass(frozen=True)
class Outcome:
    """A run after training.

    Fields:
        data: the labelled items, under their original labels.
        rows: which items of the whole these are; fold: the fold of every item of the whole, -1 without a label.
        known: checked labels by item.
    """

    data: LabelledData
    found: Findings
    run: Run
    folds: Folds
    choice: Choice
    rows: Tensor
    fold: Tensor
    known: Mapping[str, str]


def write(plan: Plan, done: Outcome, before: stored.Stored | None, say: Say) -> Path:
    """Everything into the folder of the run; the model last, so that what it stands for is there."""
    folder, classes = plan.folder, list(plan.data.classes)
    metrics = scores.measure(done.data, done.found, plan.setting.seed)
    tables(plan, done)
    facts = {"why": list(done.choice.why), "race": [asdict(e) for e in done.choice.race]}
    rate = done.found.audit.noise_rate
    summary = {
        "method": done.choice.method,
        "noise_rate": {"value": rate.value, "low": rate.low, "high": rate.high},
        "kind_of_noise": done.found.audit.kind.name,
        "checked": len(done.known),
    }
    writing.write_json(folder / "metrics.json", {**summary, **metrics, **facts})
    made = page.content(
        done.data,
        done.found,
        overview.facts(plan.data, plan.source),
        metrics,
        title=plan.title or f"{Path(plan.source.path).name}: labels and model",
        choice=done.choice,
        histories=_histories(done),
        command=plan.command,
        checked=_checked(done),
    )
    made = replace(made, notes=[*made.notes, *_meaning(done)])
    if plan.beside is not None:
        more = plan.beside(done.run.model, plan.scale, torch.from_numpy(done.found.posterior))
        made = replace(made, metrics=[*more, *made.metrics])
    path = report(made, folder / "report.html", anonymise=plan.anonymise)
    stored.save(
        folder / "model",
        stored.Stored(
            done.choice.method,
            plan.setting,
            plan.scale,
            plan.source,
            tuple(classes),
            {k: v.detach().cpu() for k, v in done.run.model.state_dict().items()},
            done.folds.weights(done.choice.method),
            _given(done),
            0 if before is None else before.revision + 1,
            {**facts, "base": os.getcwd() if before is None else before.facts.get("base", "")},
        ),
    )
    if done.known:
        golden.keep(folder, done.known)
    for line in page.sentences(made):
        say(line)
    return path


def tables(plan: Plan, done: Outcome) -> None:
    """predictions, label_quality, relabel, spot_check, out_of_fold, transition; of a crowd, its people."""
    folder, classes, found = plan.folder, list(plan.data.classes), done.found
    probs: Any = predict(done.run.model.cpu(), plan.data).log_p.softmax(-1).double().numpy()
    writing.predictions(folder / "predictions.csv", list(plan.data.ids or ()), probs, classes)
    writing.label_quality(folder / "label_quality.csv", done.data, found)
    writing.relabel(folder / "relabel.csv", done.data, found)
    if found.spot:
        writing.spot_check(folder / "spot_check.csv", found)
    writing.write_arrays(
        folder / "out_of_fold.npz", probs=found.probs, rows=done.rows.numpy(), fold=done.fold.numpy()
    )
    writing.transition(folder / "transition.csv", found, classes)
    if found.people is not None:
        writing.consensus(folder / "consensus.csv", done.data, found)
        writing.matrices(folder / "confusion_matrices.csv", found.people, classes)
        writing.annotators(folder / "annotators.csv", found.people)


def _meaning(done: Outcome) -> list[str]:
    """What the network's probabilities are about, where that is not the true class."""
    method, _ = parse(done.choice.method)
    modelled = done.run.model.channel is not None or method.needs == "transition"
    if modelled or done.data.crowd is not None or done.found.audit.noise_rate.value < FEW_WRONG:
        return []
    return [
        f"{method.name} has no model of the noise: the probabilities in predictions.csv and of `dubito predict` "
        "are about labels as they are given, and usually too low for the true class. p_wrong in "
        "label_quality.csv is calibrated to the true class."
    ]


def _given(done: Outcome) -> dict[str, Tensor]:
    """Parameters of the method that are tensors: those of the choice, or found on the way."""
    given = {k: v for k, v in done.choice.params.items() if isinstance(v, Tensor)}
    if "transition" in done.run.extra:
        given.setdefault("transition", done.run.extra["transition"])
    return given


def _histories(done: Outcome) -> dict[str, Any]:
    mine = {
        f: run.history for (name, f), run in done.folds.runs.items() if name == done.choice.method and f < 3
    }
    return {"final network": done.run.history, **{f"fold {f + 1}": h for f, h in mine.items()}}


def _checked(done: Outcome) -> str:
    if not done.known:
        return ""
    rows = np.flatnonzero(done.found.gold >= 0)
    if done.data.crowd is not None:
        return f"{len(rows):,} items were checked and count as known."
    wrong = int((done.data.labels.numpy()[rows] != done.found.gold[rows]).sum())
    return (
        f"{len(rows):,} labels were checked, {wrong:,} of them were wrong; the figures are about the others."
    )
