"""The training loop: one page of plain PyTorch that a reader follows from top to bottom.

Everything random in a step is drawn from generators keyed by (seed, step, purpose), so a run has no hidden
state: weights, optimiser and the step number are enough to go on from any instant, byte for byte.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import optim
from ._batches import Batches, Order
from ._nonfinite import Watch
from ._random import generator, key
from ._session import Session
from .data import LabelledData
from .errors import DubitoError
from .evaluate import evaluate
from .losses import nll
from .model import Loss, Model
from .procedures import Plain, Target

Optimizer = Callable[..., torch.optim.Optimizer]
Schedule = Callable[[int, int], float]


@dataclass
class Run:
    """What a fit leaves behind: the selected model, one record per evaluated epoch, and where it is on disk.

    `extra` holds what compositions of several fits found on the way (`compose`).
    """

    model: Model
    procedure: Plain
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int | None = None
    steps: int = 0
    seconds: float = 0.0
    folder: Path | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def fit(
    model: Model,
    data: LabelledData,
    *,
    valid: LabelledData | None = None,
    loss: Loss = nll,
    target: Target | None = None,
    penalty: Callable[..., Tensor] | None = None,
    procedure: Callable[..., Plain] = Plain,
    optimizer: Optimizer = optim.adam,
    schedule: Schedule | None = None,
    epochs: int = 10,
    steps: int | None = None,
    batch_size: int | None = 128,
    batching: str = "epoch",
    augment: Callable[..., Tensor] | None = None,
    select: str = "last",
    patience: int | None = None,
    clip: float | None = None,
    ema: float | None = None,
    amp: bool = False,
    compile: bool = False,
    seed: int = 0,
    device: str = "auto",
    deterministic: bool = False,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    evaluate_every: int = 1,
    progress: bool | None = None,
) -> Run:
    """Train a model on labels that may be wrong.

    Arguments:
        data, valid: training and validation examples; validation labels are as noisy as they come.
        loss, target, penalty: the stages of the loss, see `procedures.Plain`.
        procedure: what a step minimises: Plain, or partial(CoTeaching, ...), partial(SelfPaced, ...).
        optimizer: a function of named parameters, see `optim`; schedule: a factor on its rate per step.
        steps: the length of the run in steps, where it is not a number of epochs.
        batching: how epochs are cut into batches, see `_batches.Order`; batch_size=None takes all at once.
        augment: called as ``augment(x, seed=, epoch=, index=)``.
        select: ``"last"`` keeps the final weights, ``"best"`` those with the best accuracy on `valid`.
        patience: stop after so many evaluations without a better accuracy on `valid`.
        clip: largest norm of the gradient. ema: decay of an average of the weights, which is then evaluated.
        amp: bfloat16 where torch deems it safe. compile: run the step through torch.compile.
        deterministic: refuse operations whose result depends on scheduling, for this call only.
        out: folder for config, metrics and checkpoints; a run that is there already goes on where it stopped.
        checkpoint_every: steps between checkpoints, besides one at the end of each epoch.

    Returns:
        a `Run`; its model is on the CPU or GPU it was trained on, in evaluation mode.

    Example:
        >>> from dubito import heads
        >>> data = LabelledData(torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8))
        >>> run = fit(Model(nn.Identity(), heads.Point(4, 4)), data, epochs=2, batch_size=8)
        >>> [round(record["epoch"]) for record in run.history]
        [1, 2]
    """
    options = {k: v for k, v in locals().items() if k not in ("model", "data", "valid", "out", "progress")}
    _check(model, data, valid, select, patience)
    where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    started = time.monotonic()
    data, valid = data.to(where), None if valid is None else valid.to(where)
    trained = procedure(model.to(where), loss=loss, target=target, penalty=penalty).to(where)
    trained.begin(data)
    average = copy.deepcopy(trained.model) if ema is not None else None
    opt = optimizer(trained.named_parameters())
    rates = [group["lr"] for group in opt.param_groups]
    order, batches = Order(len(data), batch_size, batching, seed=seed), Batches(data)
    steps = order.steps(epochs) if steps is None else steps
    epochs = order.epoch(max(steps - 1, 0)) + 1
    step_loss = torch.compile(trained) if compile else trained
    watch = Watch(opt, where)
    run = Run(trained.model, trained)

    with ExitStack() as stack:
        stack.enter_context(_deterministic(deterministic))
        session = stack.enter_context(Session(out, options, model, data, epochs, progress))
        step = session.resume(run, trained, opt, average, where)
        while step < steps and not session.finished:
            epoch = trained.epoch = order.epoch(step)
            if step == 0 or order.ends_epoch(step - 1):
                trained.best = session.best
                trained.begin_epoch(epoch, data)
            trained.train()
            for group, rate in zip(opt.param_groups, rates):
                group["lr"] = rate if schedule is None else rate * schedule(step, steps)

            positions = order.positions(step)
            batch = batches(positions)
            if augment is not None:
                batch = batch._replace(x=augment(batch.x, seed=seed, epoch=epoch, index=batch.positions))
            opt.zero_grad(set_to_none=True)
            with _forked(seed, step, where), _autocast(amp, where):
                total = step_loss(batch, lambda purpose, s=step: generator(seed, s, purpose, device=where))
            total.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(trained.parameters(), clip)
            watch.step(total, step, positions)
            if average is not None and ema is not None:
                _update_average(average, trained.model, ema)
            step += 1

            if order.ends_epoch(step - 1) or step == steps:
                watch.report()
                if (order.epoch(step - 1) + 1) % evaluate_every == 0 or step == steps:
                    judged = average if average is not None else trained.model
                    session.record(
                        run, judged, epoch + 1, float(total.detach()), evaluate_both(judged, data, valid)
                    )
                    session.stop_early(run, patience)
                session.save(step, run, trained, opt, average)
            elif session.due(step, checkpoint_every):
                watch.report()
                session.save(step, run, trained, opt, average)
        run.model = session.select(run, average if average is not None else trained.model, select)
        run.steps, run.folder, run.seconds = step, session.folder, time.monotonic() - started
    run.model.eval()
    return run


def evaluate_both(model: Model, data: LabelledData, valid: LabelledData | None) -> Mapping[str, float]:
    """Accuracy and log-likelihood of the observed labels on the validation set (and of clean ones if known)."""
    return {} if valid is None else {f"valid_{name}": value for name, value in evaluate(model, valid).items()}


def _check(
    model: Model, data: LabelledData, valid: LabelledData | None, select: str, patience: int | None
) -> None:
    if select not in ("last", "best"):
        raise DubitoError("unknown selection rule", expected="last or best", got=repr(select))
    if valid is None and (select == "best" or patience is not None):
        raise DubitoError("choosing an epoch needs validation data", remedy="pass valid=, or select='last'")
    for name, part in (("data", data), ("valid", valid)):
        if part is None:
            continue
        labels = part.labels if part.crowd is None else part.crowd.label
        if labels.numel() and (int(labels.max()) >= model.num_classes or int(labels.min()) < -1):
            bad = ((labels >= model.num_classes) | (labels < -1)).flatten().nonzero()[0].item()
            raise DubitoError(
                "label out of range",
                where=f"{name}.labels[{bad}]",
                expected=f"0 to {model.num_classes - 1}, or -1 for none",
                got=int(labels.flatten()[int(bad)]),
            )
        inputs = part.inputs
        if isinstance(inputs, Tensor) and inputs.is_floating_point() and not bool(inputs.isfinite().all()):
            row = (~inputs.isfinite()).flatten(1).any(1).nonzero()[0].item()
            raise DubitoError(
                "inputs are not finite", where=f"{name}.inputs[{row}]", remedy="impute or drop them"
            )


@contextmanager
def _forked(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators for one step, for dropout that knows no other, and put them back after."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed((key("dropout") ^ (seed * 0x9E3779B97F4A7C15 + step)) & ((1 << 63) - 1))
        yield


def _autocast(amp: bool, device: torch.device) -> Any:
    return torch.autocast(device.type, torch.bfloat16) if amp else nullcontext()


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@torch.no_grad()
def _update_average(average: Model, model: Model, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model, for parameters and floating buffers; others are copied."""
    now = model.state_dict()
    for name, value in average.state_dict().items():
        if value.is_floating_point():
            value.lerp_(now[name].to(value.dtype), 1 - decay)
        else:
            value.copy_(now[name])
