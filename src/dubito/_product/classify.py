"""The task "classes": one class per item, learned from one label or from those of several annotators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import checkpoint
from .._decay import FOREST
from .._identity import SINCE, describe
from ..backbones import build
from ..data import LabelledData, read_npz
from ..errors import DubitoError
from ..estimate import fold_numbers
from ..evaluate import predict as predict_with
from ..methods import parse
from ..runs import RunFolder, read_config
from . import gold as golden
from . import overview, stored, writing
from .choice import Choice, choose
from .findings import find
from .inputs import read_inputs
from .outcome import Outcome, Plan, write
from .reading import network_for, read, scale_of, shape_of
from .sources import find as find_source
from .tasks import FitJob, PredictJob, Say
from .training import Folds, Setting, budget, for_forest, train

UPDATE_SHARE = 0.3  # of the epochs, for networks that go on from where they were
CONVOLUTIONAL_RATE = 1e-3
FRESH = "crossfit-em"  # its inner folds must not start from a network that saw everything


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
    with RunFolder(job.out, config, seed=job.seed, since=SINCE) as folder:
        _without_gold(job.out)
        folder.resume()
        path = _complete(plan, {}, None, say)
        folder.finish(writing.read_json(job.out / "metrics.json"))
    return path


def _without_gold(run: Path) -> None:
    """Refuse to train anew, without its checked labels, a run that has taken some in."""
    count = golden.count(run)
    # A command killed just before gold.csv was written has left a model of a later revision.
    model = checkpoint.load_latest(run / "model")
    if count or (model is not None and model.step > 0):
        raise DubitoError(
            f"the run holds {f'{count:,} ' if count else ''}checked labels, which training anew would leave out",
            where=str(run),
            remedy=f"take in more with `dubito fit {run} --gold FILE`, or give another --out",
        )


def prepare(job: FitJob) -> Plan:
    """Read the data and settle what all networks share."""
    if job.size is not None and job.size < 1:
        raise DubitoError("--size is too small", expected="at least 1", got=job.size)
    data, source = read(find_source(job))
    people = None if data.crowd is None else len(data.annotators) + 1  # one for gold, see `gold.lay_over`
    shape = shape_of(data)
    network = network_for(shape) if job.backbone == "auto" else job.backbone
    n = len(data) - overview.unlabelled(data)
    if n < 4:
        raise DubitoError("too few items with a label", where=source.path, expected="at least 4", got=n)
    if not 2 <= job.folds <= n // 2:
        raise DubitoError("no such number of folds", expected=f"2 to {n // 2}", got=job.folds)
    check_training(job, network, shape)
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
    if network == FOREST:
        setting = replace(setting, **{**for_forest(n), **({"epochs": job.epochs} if job.epochs else {})})
    scale = scale_of(data)
    return Plan(
        job.out,
        scale.apply(data),
        source,
        scale,
        setting,
        job.method,
        job.folds,
        job.command,
        job.anonymise,
        job.options.get("beside"),
        job.options.get("title", ""),
        table=job.backbone == "auto" and network == "mlp",
    )


def check_training(job: FitJob, network: str, shape: tuple[int, ...]) -> None:
    """Refuse, before anything is trained, a length, a device or a network that there is not."""
    from .._context import device_of

    if job.epochs is not None and job.epochs < 1:
        raise DubitoError("--epochs is too small", expected="at least 1", got=job.epochs)
    device_of(job.device)
    if network not in ("mlp", FOREST):
        build(network, shape)


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
    if config.get("task") != "classes":
        raise DubitoError("gold labels are for runs with one class per item", where=str(folder))
    before = stored.load(folder)
    _same_training(job, before, config["folds"])
    with RunFolder(folder, config, seed=before.setting.seed) as held:
        held.resume()
        data, source = before.read(folder)
        new = golden.read_gold(job.gold, data, job.item, job.label, job.options.get("delimiter"))
        known = {**golden.kept(folder, data), **new}
        if known == golden.kept(folder, data):
            say("These labels are in the run already.")
            return folder / "report.html"
        say(f"{len(new):,} checked labels; {len(known):,} items are known for sure now.")
        setting = replace(before.setting, device=job.device)
        plan = Plan(
            folder,
            data,
            source,
            before.scale,
            setting,
            before.method,
            config["folds"],
            job.command,
            job.anonymise,
        )
        path = _complete(plan, known, before, say)
        held.finish(writing.read_json(folder / "metrics.json"))
    return path


def _same_training(job: FitJob, before: stored.Stored, folds: int) -> None:
    """Refuse options of training that an update would not heed."""
    was = {
        "method": (job.method, "auto", before.method),
        "backbone": (job.backbone, "auto", before.setting.backbone),
        "epochs": (job.epochs, None, before.setting.epochs),
        "folds": (job.folds, FitJob.folds, folds),
        "seed": (job.seed, FitJob.seed, before.setting.seed),
        "groups": (job.groups, None, before.source.groups),
    }
    for name, (asked, default, had) in was.items():
        if asked not in (default, had):
            raise DubitoError(
                f"checked labels go into the run as it was trained, --{name} is of a new run",
                expected=had,
                got=asked,
                remedy=f"leave out --{name}, or fit the data anew",
            )


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
    warm = before is not None and goes_on(before.method, before.setting.backbone)
    epochs = max(1, round(UPDATE_SHARE * plan.setting.epochs)) if warm else None
    starts = before.folds if warm and before is not None else {}
    folds = Folds(plan.setting, learned, number, place, say, starts=starts, epochs=epochs)
    network = {"backbone": plan.setting.backbone}
    if before is not None:
        choice = Choice(
            before.method, dict(before.given), why=tuple(before.facts.get("why", ())), network=network
        )
    elif plan.method == "auto":
        choice = choose(folds, plan.setting.seed, table=plan.table)
        folds = folds.on(**choice.network)
        plan = replace(plan, setting=folds.setting)
    else:
        choice = Choice(plan.method, {}, why=(f"{plan.method} was asked for.",), network=network)
    log_p = folds.all(choice.method, choice.params)
    say(f"{choice.method}: final network on all {len(learned):,} labelled items")
    start = before.final if warm and before is not None else None
    run = train(
        plan.setting, choice.method, choice.params, learned, out=place / "final", start=start, epochs=epochs
    )
    say("judging the labels")
    found = find(judged, log_p, plan.setting.seed)
    for note in found.audit.notes:
        say(f"note: {note}")
    fold = torch.full((len(plan.data),), -1)
    fold[rows] = number
    done = Outcome(judged, found, run, folds, choice, rows, fold, known)
    return write(plan, done, before, say)


def goes_on(method: str, backbone: str) -> bool:
    """Whether networks of a method can start from their old weights; a forest is grown anew."""
    found, _ = parse(method)
    return found.name != FRESH and found.needs != "teacher" and backbone != FOREST


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


def predict(job: PredictJob, say: Say) -> Path:
    """`dubito predict RUN DATA`: classes and probabilities of new items."""
    if job.out.exists() and job.data.exists() and job.out.samefile(job.data):
        raise DubitoError(
            "the predictions would overwrite their data", where=str(job.out), remedy="give another --out"
        )
    saved = stored.load(job.run)
    data = read_inputs(saved.source, job.data, job.images, job.delimiter, say)
    _same_inputs(data, saved.setting.shape, str(job.data))
    data = saved.scale.apply(data)
    probs: Any = predict_with(saved.model(), data).log_p.softmax(-1).double().numpy()
    say(f"{len(data):,} items, {len(saved.classes)} classes, method {saved.method}")
    return writing.predictions(job.out, list(data.ids or ()), probs, list(saved.classes))


def _same_inputs(data: LabelledData, shape: tuple[int, ...], where: str) -> None:
    """Refuse inputs that the network does not take, before a scale of another shape meets them."""
    if not len(data):
        raise DubitoError("there are no items to predict", where=where)
    if shape_of(data) != shape:
        raise DubitoError(
            "the run was trained on other inputs", where=where, expected=shape, got=shape_of(data)
        )
