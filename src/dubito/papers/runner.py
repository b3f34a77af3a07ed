"""One run of a paper: from its config to a result, by the plain training loop.

    result = run(config, out="runs")

The result goes to ``OUT/paper/item/ID.json``; a run that has one is not repeated. While it trains, its lock and
checkpoints lie in ``OUT/.runs/ID``, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _lock
from .._json import parse_json
from ..errors import DubitoError, NotFiniteError
from ..estimate import anchor_transition
from ..evaluate import predict
from ..model import Model
from ..noise import resample
from ..procedures import Distillation, Plain, Teacher
from ..train import Run, fit
from . import crowds, pixels, prepare, records
from ._curves import WithCurves
from .configs import Config, run_id
from .prepare import Parts
from .results import DIVERGED, Result, finished, path_of, write_result

RUNS = ".runs"
Path_ = str | os.PathLike[str]


class Trained(NamedTuple):
    """A trained run before it is scored: its model and data on the device, and what its first stage found."""

    model: Model
    parts: Parts
    run: Run
    found: dict[str, Any]


def run(
    config: Config,
    *,
    root: Path_ | None = None,
    out: Path_ | None = None,
    device: str = "auto",
    half: bool = False,
) -> Result:
    """Train and score one config.

    Arguments:
        root: a folder of data to look into first, as in `dubito.data.load`.
        out: where results and checkpoints go; None keeps nothing. One process at a time works on a run.
        device: "auto", "cpu" or "cuda".
        half: train in bfloat16 where torch deems it safe; the result's hardware says so.

    Returns:
        the result, read back if the run is finished. With `out`, one that diverged has a result without scores.
    """
    if out is None:
        return _result(config, trained(config, root=root, device=device, half=half), device, half)
    if (done := load(config, out)) is not None:
        return done
    folder = folder_of(config, out)
    folder.mkdir(parents=True, exist_ok=True)
    lock = _lock.acquire(folder)
    try:
        if (done := load(config, out)) is not None:
            return done
        started = time.monotonic()
        try:
            state = trained(config, root=root, out=folder, device=device, half=half)
            result = _result(config, state, device, half)
        except NotFiniteError as error:  # a finding like a score, and the same however often it is repeated
            facts: dict[str, Any] = {"history": {DIVERGED: str(error)}, "hardware": _hardware(device, half)}
            result = finished(config, {}, time.monotonic() - started, **facts)
        write_result(result, Path(out))
        clean(folder)
        return result
    finally:
        _lock.release(lock)


def folder_of(config: Config, out: Path_) -> Path:
    """The working folder of a run: the first 16 digits of its id, among the runs under `out`."""
    return Path(out) / RUNS / run_id(config)[:16]


def load(config: Config, out: Path_) -> Result | None:
    """The result of a finished run, or None."""
    path = path_of(Path(out), config)
    if not path.is_file():
        return None
    return Result.from_json(parse_json(path.read_text(encoding="utf-8"), str(path)), str(path))


def clean(folder: Path) -> None:
    """Remove the checkpoints of a finished run; its locks stay."""
    for name in ("fit", "first"):
        shutil.rmtree(folder / name, ignore_errors=True)


def trained(
    config: Config,
    *,
    root: Path_ | None = None,
    out: Path | None = None,
    device: str = "auto",
    half: bool = False,
) -> Trained:
    """Data, first stage and training of one config; `out` is the run's own folder."""
    where = device_of(device)
    parts = prepare.parts(config, root=root)
    parts = Parts(*(None if p is None else p.to(where) for p in parts))  # type: ignore[arg-type]
    given, found, wrapped = _first_stage(config, parts, out, device)
    stages = prepare.stages(config, **given)
    procedure = wrapped or stages.procedure
    if pixels.is_pixels(config) and procedure is Plain:
        from ..segmentation import Pixels

        procedure = Pixels
    if "curves" in config.record and procedure is Plain and config.epochs:
        procedure = partial(WithCurves, epochs=config.epochs)
    done = _fit(config, parts, given, out and out / "fit", device, procedure=procedure, amp=half)
    parts = parts._replace(train=prepare.still(config, parts.train))
    if isinstance(done.procedure, WithCurves):
        found = {**found, "curves": done.procedure.finished(parts.train)}
    return Trained(done.model, parts, done, found)


def _fit(
    config: Config,
    parts: Parts,
    given: dict[str, Any],
    out: Path | None,
    device: str,
    *,
    procedure: Callable[..., Plain] = Plain,
    role: str = "",
    amp: bool = False,
) -> Run:
    shape = tuple(parts.train.batch(torch.zeros(1, dtype=torch.int64, device=parts.train.device)).shape[1:])
    people = len(parts.train.annotators) if parts.train.crowd is not None else None
    model = prepare.model(config, shape, parts.train.num_classes, role=role, annotators=people, **given)
    stages = prepare.stages(config, **given)
    count = config.balanced * parts.train.num_classes or len(parts.train)
    steps = config.steps or -(-count * config.epochs // min(config.batch or count, count))
    return fit(
        model,
        parts.train,
        valid=parts.valid,
        loss=stages.loss,
        target=stages.target,
        penalty=stages.penalty,
        procedure=procedure,
        optimizer=prepare.optimizer(config),
        schedule=prepare.schedule(config, steps),
        steps=steps,
        batch_size=config.batch or None,
        batching="stream",
        balanced=config.balanced or None,
        augment=prepare.augmentation(config),
        select=config.selection,
        patience=config.patience or None,
        amp=amp,
        seed=config.seed,
        device=device,
        out=out,
        evaluate_every=prepare.evaluate_every(config, steps, count),
        progress=False,
    )


class Stage(NamedTuple):
    """What a first stage hands on: parameters of the method, entries of the history, another procedure."""

    given: dict[str, Any]
    found: dict[str, Any]
    procedure: Callable[..., Plain] | None = None


def _first_stage(config: Config, parts: Parts, out: Path | None, device: str) -> Stage:
    """What a method needs before it can be trained."""
    if config.method == "distill":
        return _taught(config, parts, out, device)
    return stage_of(config, parts, lambda: _estimated(config, parts, out, device))


def stage_of(config: Config, parts: Parts, estimated: Callable[[], Tensor]) -> Stage:
    """The share of wrong labels, the true matrices, or the matrix of a correction: as stated, or `estimated`."""
    if config.method in ("coteaching", "mentornet"):
        train = parts.train
        rate = 0.0 if train.clean is None else float((train.labels != train.clean).double().mean())
        return Stage({"rate": rate}, {"noise_rate": rate})
    if config.method == "oracle":
        return Stage({"transition": crowds.matrices(config, parts.train.num_classes)}, {})
    if config.method not in ("forward", "backward"):
        return Stage({}, {})
    if config.param("transition") != "estimated":
        T = resample(parts.train.num_classes, float(config.param("alpha", 0.0) or 0.0))
        return Stage({"transition": T}, {"transition": T.tolist()})
    T, share = estimated(), 0.0
    if config.method == "backward":
        T, share = invertible(T)
    return Stage({"transition": T}, {"transition": T.tolist(), "mixed_with_identity": share})


def invertible(T: Tensor, limit: float = 100.0) -> tuple[Tensor, float]:
    """(T', a) with T' = a I + (1 - a) T of a condition number within `limit`, and the least such a in tenths.

    Silent: what is done with an estimate that cannot be inverted. One from a trained network is near the identity,
    and is left as it is.
    """
    eye = torch.eye(len(T), dtype=T.dtype)
    mixed = ((a / 10 * eye + (1 - a / 10) * T, a / 10) for a in range(11))
    return next(m for m in mixed if torch.linalg.cond(m[0]) <= limit)


def _plain(config: Config, method: str = "ce", **params: Any) -> Config:
    """The run of a first stage: the same data, network and schedule with another method."""
    return dataclasses.replace(config, method=method, params=tuple(params.items()), reading=(), record=())


def _estimated(config: Config, parts: Parts, out: Path | None, device: str) -> Tensor:
    """T read from the training inputs by a plainly trained network, in evaluation mode and without augmentation."""
    done = _fit(_plain(config), parts, {}, out and out / "first", device)
    p = predict(done.model, prepare.still(config, parts.train)).log_p.double().exp().cpu()
    at = "percentile" if dict(config.reading).get("example") == "at percentile" else "below"
    percentile = float(config.param("percentile", 100.0) or 100.0)
    if percentile == 100.0:
        at = "percentile"
    return anchor_transition(p / p.sum(-1, keepdim=True), percentile=percentile, at=at)  # type: ignore[arg-type]


def teacher_of(config: Config) -> Config:
    """The run that trains the teacher of a config of distillation."""
    how = str(config.param("teacher", "plain"))
    params = {} if how == "plain" else {"alpha": float(config.param("alpha", 0.0) or 0.0)}
    return _plain(config, {"plain": "ce"}.get(how, how), **params)


def student_of(config: Config, teacher: Model) -> Callable[..., Plain]:
    """The procedure of a config's student."""
    alpha, student = float(config.param("alpha", 0.0) or 0.0), str(config.param("student", "plain"))
    return partial(
        Distillation,
        teacher=Teacher(teacher),
        temperature=float(config.param("temperature", 2.0) or 2.0),
        smoothing=alpha if student == "smooth" else 0.0,
        correction=alpha if student == "forward" else 0.0,
    )


def _taught(config: Config, parts: Parts, out: Path | None, device: str) -> Stage:
    """Train the teacher; smoothing or correction by alpha acts on its training or on the student's."""
    teacher = teacher_of(config)
    given = _first_stage(teacher, parts, None, device).given
    done = _fit(teacher, parts, given, out and out / "first", device, role="/teacher", procedure=Plain)
    procedure = student_of(config, done.model)
    scored = records.scored(teacher, done.model, parts)
    return Stage({}, {"teacher_test_accuracy": scored["test_accuracy"]}, procedure)


def _result(config: Config, done: Trained, device: str, half: bool = False) -> Result:
    started = time.monotonic()
    numbers = records.scored(config, done.model, done.parts)
    analyses, more = records.analysed(config, done.model, done.parts, done.run.procedure)
    history = {**_course(done.run), **done.found, **analyses}
    seconds = done.run.seconds + time.monotonic() - started
    return finished(config, {**numbers, **more}, seconds, history=history, hardware=_hardware(device, half))


def _hardware(device: str, half: bool) -> str:
    name = torch.cuda.get_device_name() if device_of(device).type == "cuda" else ""
    return name + (", bfloat16 autocast" if name and half else "")


def _course(run: Run) -> dict[str, Any]:
    """Epochs, losses and validation scores as lists; at most a hundred points of a long run."""
    kept = run.history[:: max(1, len(run.history) // 100)]
    names = dict.fromkeys(key for record in kept for key in record)
    course = {name.replace("valid_", "validation_"): [r.get(name) for r in kept] for name in names}
    return {**course, "best_epoch": run.best_epoch, "steps": run.steps}


def device_of(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name not in ("auto", "cpu") and not name.startswith("cuda"):
        raise DubitoError("unknown device", expected="auto, cpu or cuda", got=repr(name))
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
