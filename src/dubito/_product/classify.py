"""The task "classes": one class per item, learned from one label or from those of several annotators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._report import report
from .._session import describe
from ..data import LabelledData, read_npz
from ..errors import DubitoError
from ..estimate import fold_numbers
from ..evaluate import predict as predict_with
from ..methods import parse
from ..runs import RunFolder, read_config
from ..train import Run
from . import gold as golden
from . import overview, page, scores, stored, writing
from .choice import Choice, choose
from .findings import Findings, find
from .inputs import read_inputs
from .reading import Scale, network_for, read, scale_of, shape_of
from .sources import Source, from_plain
from .sources import find as find_source
from .tasks import FitJob, PredictJob, Say
from .training import Folds, Setting, budget, train

UPDATE_SHARE = 0.3  # of the epochs, for networks that go on from where they were
CONVOLUTIONAL_RATE = 1e-3
FRESH = "crossfit-em"  # its inner folds must not start from networks that saw everything


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


def fit(job: FitJob, say: Say) -> Path:
    """`dubito fit`: train on data, or take checked labels into a run."""
    if (job.data / "config.json").is_file():
        return update(job, say)
    if job.gold is not None:
        raise DubitoError("gold labels go into a run", got=str(job.data), remedy="dubito fit RUN --gold FILE")
    plan = prepare(job)
    if job.method != "auto":
        check_method(job.method, plan.data.crowd is not None)
    for line in overview.sentences(plan.data, plan.source, plan.setting, job.method, plan.folds):
        say(line)
    config = {
        "task": "classes",
        "source": plan.source.plain(),
        "method": plan.method,
        "setting": asdict(plan.setting),
        "folds": plan.folds,
        "data": describe(plan.data),
    }
    with RunFolder(job.out, config, seed=job.seed):
        return _complete(plan, {}, None, say)


def prepare(job: FitJob) -> Plan:
    """Read the data and settle what all networks share."""
    data, source = read(find_source(job))
    people = None if data.crowd is None else len(data.annotators) + 1  # one for gold, see `gold.lay_over`
    shape = shape_of(data)
    network = network_for(shape) if job.backbone == "auto" else job.backbone
    n = len(data) - overview.unlabelled(data)
    if not 2 <= job.folds <= max(2, n // 2):
        raise DubitoError("no such number of folds", expected=f"2 to {n // 2}", got=job.folds)
    setting = Setting(
        network,
        shape,
        data.num_classes,
        people,
        job.epochs or budget(n, 64),
        learning_rate=3e-3 if network in ("mlp", "linear") else CONVOLUTIONAL_RATE,
        seed=job.seed,
        device=job.device,
    )
    scale = scale_of(data)
    return Plan(
        job.out, scale.apply(data), source, scale, setting, job.method, job.folds, job.command, job.anonymise
    )


def check_method(text: str, crowd: bool) -> None:
    """Refuse an unknown method, and one that this data cannot feed."""
    method, _ = parse(text)
    if not crowd and "single" not in method.valid:
        raise DubitoError(
            f"{method.name} learns from several annotators",
            got="one label per item",
            remedy="name the column of annotators with --annotator",
        )


def update(job: FitJob, say: Say) -> Path:
    """`dubito fit RUN --gold FILE`: networks go on from where they were, with the checked labels."""
    if job.gold is None:
        raise DubitoError(
            "this is a run already", where=str(job.data), remedy="give it gold labels: --gold FILE"
        )
    folder = job.data
    config = read_config(folder)["config"]
    before = stored.load(folder)
    with RunFolder(folder, config, seed=before.setting.seed):
        data, source = read(replace(from_plain(config["source"]), size=before.source.size))
        new = golden.read_gold(job.gold, data, job.item, job.label)
        known = {**golden.kept(folder, data), **new}
        if known == golden.kept(folder, data):
            say("These labels are in the run already.")
            return folder / "report.html"
        say(f"{len(new):,} checked labels; {len(known):,} items are known for sure now.")
        setting = replace(before.setting, device=job.device)
        plan = Plan(
            folder,
            before.scale.apply(data),
            source,
            before.scale,
            setting,
            before.method,
            config["folds"],
            job.command,
            job.anonymise,
        )
        return _complete(plan, known, before, say)


def _complete(plan: Plan, known: Mapping[str, str], before: stored.Stored | None, say: Say) -> Path:
    """Train, judge, write; the same for a new run and for an update."""
    codes = golden.codes_of(known, plan.data)
    has = _has_label(plan.data) | (codes >= 0)
    rows = has.nonzero().flatten()
    labelled, codes = plan.data.subset(rows), codes[rows]
    learned = golden.lay_over(labelled, codes)
    judged = replace(labelled, extra={**learned.extra})
    number = _folds(plan, rows, learned, before)
    place = plan.folder / "training" / (f"gold-{golden.fingerprint(known)}" if known else "first")
    warm = before is not None and not before.method.startswith(FRESH)
    epochs = max(1, round(UPDATE_SHARE * plan.setting.epochs)) if warm else None
    starts = before.folds if warm and before is not None else {}
    folds = Folds(plan.setting, learned, number, place, say, starts=starts, epochs=epochs)
    if before is not None:
        choice = Choice(before.method, dict(before.given), why=tuple(before.facts.get("why", ())))
    elif plan.method == "auto":
        choice = choose(folds, plan.setting.seed)
    else:
        choice = Choice(plan.method, {}, why=(f"{plan.method} was asked for.",))
    log_p = folds.all(choice.method, choice.params)
    say(f"{choice.method}: final network on all {len(learned):,} labelled items")
    start = before.final if warm and before is not None else None
    run = train(
        plan.setting, choice.method, choice.params, learned, out=place / "final", start=start, epochs=epochs
    )
    say("judging the labels")
    found = find(judged, log_p, plan.setting.seed)
    return _write(plan, judged, found, run, folds, choice, number, rows, known, before, say)


def _has_label(data: LabelledData) -> Tensor:
    if data.crowd is None:
        return data.labels >= 0
    return torch.bincount(data.crowd.item, minlength=len(data)) > 0


def _folds(plan: Plan, rows: Tensor, learned: LabelledData, before: stored.Stored | None) -> Tensor:
    """The fold of each labelled item; in an update the same as before, so that no network has seen its own."""
    if before is None:
        return fold_numbers(learned, folds=plan.folds, seed=plan.setting.seed)
    old = torch.from_numpy(read_npz(plan.folder / "out_of_fold.npz")["fold"])
    return torch.where(old[rows] >= 0, old[rows], rows % plan.folds)


def _write(
    plan: Plan,
    data: LabelledData,
    found: Findings,
    run: Run,
    folds: Folds,
    choice: Choice,
    number: Tensor,
    rows: Tensor,
    known: Mapping[str, str],
    before: stored.Stored | None,
    say: Say,
) -> Path:
    folder, classes = plan.folder, list(plan.data.classes)
    given = {k: v for k, v in choice.params.items() if isinstance(v, Tensor)}
    if "transition" in run.extra and "transition" not in given:
        given["transition"] = run.extra["transition"]
    probs = predict_with(run.model.cpu(), plan.data).log_p.softmax(-1).double().numpy()
    metrics = scores.measure(data, found, plan.setting.seed)
    fold = torch.full((len(plan.data),), -1)
    fold[rows] = number
    writing.predictions(folder / "predictions.csv", list(plan.data.ids or ()), probs, classes)
    writing.label_quality(folder / "label_quality.csv", data, found)
    writing.relabel(folder / "relabel.csv", data, found)
    writing.write_arrays(folder / "out_of_fold.npz", probs=found.probs, rows=rows.numpy(), fold=fold.numpy())
    if found.people is not None:
        writing.consensus(folder / "consensus.csv", data, found)
        writing.matrices(folder / "confusion_matrices.csv", found.people, classes)
        writing.annotators(folder / "annotators.csv", found.people)
    writing.transition(folder / "transition.csv", found, classes)
    rate = found.audit.noise_rate
    facts = {"why": list(choice.why), "race": [asdict(e) for e in choice.race]}
    summary = {
        "method": choice.method,
        "noise_rate": {"value": rate.value, "low": rate.low, "high": rate.high},
        "kind_of_noise": found.audit.kind.name,
        "checked": len(known),
        **metrics,
    }
    writing.write_json(folder / "metrics.json", {**summary, **facts})
    made = page.content(
        data,
        found,
        overview.facts(plan.data, plan.source),
        metrics,
        title=f"{Path(plan.source.path).name}: labels and model",
        choice=choice,
        histories={
            "final network": run.history,
            **{
                f"fold {f + 1}": r.history for (m, f), r in folds.runs.items() if m == choice.method and f < 3
            },
        },
        command=plan.command,
        checked=_checked(data, found, known),
    )
    path = report(made, folder / "report.html", anonymise=plan.anonymise)
    revision = 0 if before is None else before.revision + 1
    final = {k: v.detach().cpu() for k, v in run.model.state_dict().items()}
    stored.save(
        folder / "model",
        stored.Stored(
            choice.method,
            plan.setting,
            plan.scale,
            plan.source,
            tuple(classes),
            final,
            folds.weights(choice.method),
            given,
            revision,
            facts,
        ),
    )
    if known:
        golden.keep(folder, known)
    for line in page.sentences(made):
        say(line)
    return path


def _checked(data: LabelledData, found: Findings, known: Mapping[str, str]) -> str:
    if not known:
        return ""
    rows = np.flatnonzero(found.gold >= 0)
    if data.crowd is not None:
        return f"{len(rows):,} items were checked and count as known."
    wrong = int((data.labels.numpy()[rows] != found.gold[rows]).sum())
    return (
        f"{len(rows):,} labels were checked, {wrong:,} of them were wrong; the figures are about the others."
    )


def predict(job: PredictJob, say: Say) -> Path:
    """`dubito predict RUN DATA`: classes and probabilities of new items."""
    saved = stored.load(job.run)
    data = saved.scale.apply(read_inputs(saved.source, job.data, job.images))
    shape = shape_of(data)
    if shape != saved.setting.shape:
        raise DubitoError(
            "the run was trained on other inputs",
            where=str(job.data),
            expected=saved.setting.shape,
            got=shape,
        )
    probs: Any = predict_with(saved.model(), data).log_p.softmax(-1).double().numpy()
    say(f"{len(data):,} items, {len(saved.classes)} classes, method {saved.method}")
    return writing.predictions(job.out, list(data.ids or ()), probs, list(saved.classes))
