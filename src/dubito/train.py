"""The training loop: one page of plain PyTorch that a reader follows from top to bottom.

Everything random in a step is drawn from generators keyed by (seed, step, purpose), so a run has no hidden
state: weights, optimiser and the step number are enough to resume it at any step, byte for byte.
"""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, cast

import torch
from torch import Tensor, nn

from . import _distributed, optim
from ._batches import Batches, Order, augmented
from ._context import autocast, compiled, device_of, forked, update_average, without_denormals
from ._context import deterministic as deterministically
from ._identity import describe, settings
from ._loop.admission import check_data
from ._loop.nonfinite import Watch, check_weights, rate_factor
from ._loop.options import check_augment, check_options
from ._loop.quick import backward
from ._loop.session import Session
from ._loop.trial import check_norms, check_parameters, try_model
from ._random import generator
from .data import LabelledData
from .data import balanced as balanced_epoch
from .errors import DubitoError
from .evaluate import evaluate
from .losses import nll
from .model import Loss, Model
from .procedures import Plain, Target, Weight

if TYPE_CHECKING:  # Python 3.11 has no default for a type variable, which makes a plain `Run` a `Run[Model]`
    from typing_extensions import TypeVar

    Kind = TypeVar("Kind", bound=Model, default=Model, covariant=True)
else:
    from typing import TypeVar

    Kind = TypeVar("Kind", bound=Model, covariant=True)
Given = TypeVar("Given", bound=Model)
Optimizer = Callable[..., torch.optim.Optimizer]
Schedule = Callable[[int, int], float]

# Options that may differ when a run is resumed.
_NOT_THE_RUN = ("out", "progress", "checkpoint_every")
# Options added after the first release: left out of the config where unused, so that older runs can be resumed.
_SINCE = ("balanced", "weight")


@dataclass
class Run(Generic[Kind]):
    """The result of a fit: the selected model, one record per evaluated epoch, and the folder, if there is one.

    For a type checker the model has the type that was given to `fit`. `extra` holds what compositions of several
    fits report besides (`compose`).
    """

    model: Kind
    procedure: Plain
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int | None = None
    steps: int = 0
    seconds: float = 0.0
    folder: Path | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def fit(
    model: Given,
    data: LabelledData,
    *,
    valid: LabelledData | None = None,
    loss: Loss = nll,
    target: Target | None = None,
    weight: Weight | None = None,
    penalty: Callable[..., Tensor] | None = None,
    procedure: Callable[..., Plain] = Plain,
    optimizer: Optimizer = optim.adam,
    schedule: Schedule | None = None,
    epochs: int = 10,
    steps: int | None = None,
    batch_size: int | None = 128,
    batching: str = "epoch",
    balanced: int | None = None,
    augment: Callable[..., Any] | None = None,
    select: str = "last",
    patience: int | None = None,
    clip: float | None = None,
    ema: float | None = None,
    amp: bool = False,
    compile: bool | str = False,
    seed: int = 0,
    device: str = "auto",
    deterministic: bool = False,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    evaluate_every: int = 1,
    progress: bool | None = None,
) -> Run[Given]:
    """Train a model on labels that may be wrong.

    Arguments:
        model: trained as a whole, in training mode: a batch norm that was frozen by ``eval()`` is switched back,
            unless its own `train` keeps it in evaluation mode.
        data, valid: training and validation examples, at least some of them labelled; the labels of `valid` may be
            as noisy as those of `data`.
        loss, target, weight, penalty: the stages of the loss, see `procedures.Plain`.
        procedure: what a step minimises: Plain, or partial(CoTeaching, ...), partial(SelfPaced, ...).
        optimizer: a function of named parameters, see `optim`; schedule: a factor on its rate per step, 0 or more.
        steps: the length of the run in steps, instead of `epochs`.
        batching: how epochs are cut into batches, see `_batches.Order`; batch_size=None takes all at once.
        balanced: examples of each class that an epoch shows, drawn anew every time; None shows all examples.
        augment: called as ``augment(x, seed=, epoch=, index=)``; with a parameter ``masks`` it gets and returns the
            masks too, which labels of pixels require, see `segmentation.augment`.
        select: ``"last"`` keeps the final weights, ``"best"`` those with the best accuracy on `valid`.
        patience: stop after this many evaluations without a better accuracy on `valid`, or go on to the next stage
            of a procedure that has one (`DoctorNet`).
        clip: largest norm of the gradient. ema: decay of an average of the weights, which is then evaluated.
        amp: bfloat16 where torch deems it safe. compile: backbone and head go through torch.compile; the name of a
            backend, or True for the usual one.
        deterministic: refuse operations whose result depends on scheduling, for this call only.
        out: folder for config, metrics and checkpoints; a run that is already there is resumed.
        checkpoint_every: steps between checkpoints, besides one at the end of an epoch if the last one is 20 times
            as long ago as it took to write, and one at the end. Each holds the best weights so far as ``best``.

    Returns:
        a `Run`; its model is on the CPU or GPU it was trained on, in evaluation mode.

    Example:
        >>> from dubito import heads
        >>> data = LabelledData(torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8))
        >>> run = fit(Model(nn.Identity(), heads.Point(4, 4)), data, epochs=2, batch_size=8)
        >>> [round(record["epoch"]) for record in run.history]
        [1, 2]
    """
    options = {k: v for k, v in locals().items() if k not in ("model", "data", "valid")}
    check_options(options, valid is not None)
    check_data(model, data, "data", training=True)
    check_augment(augment, data, "data")
    if valid is not None:
        check_data(model, valid, "valid", training=False)
    where = device_of(device)
    ranks = _distributed.ranks(where)
    started = time.monotonic()
    data, valid = data.to(where), None if valid is None else valid.to(where)
    with forked(seed, 0, 0, where):
        try_model(model.to(where), data, "data")
    trained = procedure(model, loss=loss, target=target, weight=weight, penalty=penalty).to(where)
    check_parameters(trained)
    _distributed.check_module(trained, ranks)
    ranks.same_start(trained)
    trained.begin(data)
    average = copy.deepcopy(trained.model) if ema is not None else None
    judged = trained.model if average is None else average
    opt = _optimizer(optimizer, trained)
    parameters, rates = list(trained.parameters()), [group["lr"] for group in opt.param_groups]
    order = _order(data, model.num_classes, balanced, batch_size, batching, seed)
    batches = Batches(data, ranks)
    steps = order.steps(epochs) if steps is None else steps
    with forked(seed, 0, 0, where):
        check_norms(model, data, order, steps)
    epochs = trained.epochs = order.epoch(steps - 1) + 1
    watch = Watch(opt, where, clip)
    run: Run = Run(trained.model, trained)
    config = {} if out is None else _config(options, model, data, valid)

    with ExitStack() as stack:
        stack.enter_context(deterministically(deterministic, where))
        stack.enter_context(without_denormals(where))
        stack.enter_context(compiled(trained, compile))
        session = Session(out, config, epochs=epochs, progress=progress, ranks=ranks, device=where)
        stack.enter_context(session)
        step = session.resume(run, trained, opt, average)
        random = stack.enter_context(forked(seed, step, ranks.rank, where))
        trained.train()
        begins = step == 0 or order.ends_epoch(step - 1)
        while step < steps and not session.finished:
            epoch = trained.epoch = order.epoch(step)
            random.at(step)
            if begins:
                _begin_epoch(trained, epoch, data, session, run, average)
            if schedule is not None:
                for group, rate in zip(opt.param_groups, rates):
                    group["lr"] = rate * rate_factor(schedule, step, steps)

            positions = order.positions(step)
            batch = batches(positions)
            for p in parameters:
                p.grad = None
            if augment is not None:
                batch = augmented(batch, augment, seed=seed, epoch=epoch)
            with autocast(amp, where):
                total = trained(batch, partial(_draw, seed, step, ranks.rank, where))
            backward(total)
            total, asked = ranks.reduce(parameters, total, session.signal)
            session.observe(watch.step(total, step, positions), asked)
            if average is not None and ema is not None:
                update_average(average, trained.model, ema)
            step += 1

            begins = order.ends_epoch(step - 1)
            ends, due = begins or step == steps, session.due(step, checkpoint_every) or step == steps
            if not ends and not due:
                continue
            watch.report()
            check_weights(trained.parameters(), step - 1)
            if step == steps or (ends and (epoch + 1) % evaluate_every == 0):
                session.record(run, judged, epoch + 1, _validation(judged, valid, ranks))
                session.stop_early(patience)
                if session.finished and trained.later is not None:
                    step, session.finished = order.steps(trained.later), False
            session.save(step, run, trained, opt, average, due=due)
        random.at(step)
        trained.end(data)
        run.steps, run.folder = step, session.folder
        run.model = session.select(run, judged, select)
        check_weights(run.model.parameters(), step - 1)  # not yet checked if a finished run was resumed
    run.seconds = time.monotonic() - started
    run.model.eval()
    return cast("Run[Given]", run)


def _config(
    options: dict[str, Any], model: Model, data: LabelledData, valid: LabelledData | None
) -> dict[str, Any]:
    """What identifies the run in its folder."""
    kept = {k: v for k, v in options.items() if k not in _NOT_THE_RUN and not (k in _SINCE and v is None)}
    known = {"model": str(model), "settings": settings(model)}
    return {**kept, **known, "data": describe(data), "valid": describe(valid)}


def _order(
    data: LabelledData, classes: int, balanced: int | None, size: int | None, batching: str, seed: int
) -> Order:
    """Which examples each step sees."""
    if balanced is None:
        return Order(len(data), size, batching, seed=seed)
    labels = data.labels.cpu()

    def shown(epoch: int) -> Tensor:
        return balanced_epoch(labels, classes, balanced, seed=seed, epoch=epoch)

    return Order(balanced * classes, size, batching, seed=seed, shown=shown)


def _begin_epoch(
    trained: Plain, epoch: int, data: LabelledData, session: Session, run: Run, average: Model | None
) -> None:
    """Tell the procedure; where it begins a new stage, the choice of the best epoch begins again."""
    trained.best = session.best
    trained.begin_epoch(epoch, data)
    if not trained.anew:
        return
    if average is not None and session.best is not None:  # the stage starts from these weights
        average.load_state_dict(trained.model.state_dict())
    session.choose_anew(run)


def _validation(model: Model, valid: LabelledData | None, ranks: _distributed.Ranks) -> dict[str, float]:
    """Accuracy and log-likelihood of the observed labels on the validation set (and of clean ones if known)."""
    found = {} if valid is None else evaluate(model, valid, ranks=ranks)
    return {f"valid_{name}": value for name, value in found.items()}


def _draw(seed: int, step: int, rank: int, device: torch.device, purpose: str) -> torch.Generator:
    """The generator for one purpose in one step; each process has its own."""
    return generator(seed, step, purpose if rank == 0 else f"{purpose} of process {rank}", device=device)


def _optimizer(make: Optimizer, trained: nn.Module) -> torch.optim.Optimizer:
    try:
        made = make(trained.named_parameters())
    except DubitoError:
        raise
    except (ValueError, TypeError) as error:
        raise DubitoError("the optimiser refuses its settings", got=str(error)) from error
    closure = inspect.signature(made.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise DubitoError(
            "this optimiser asks for the loss several times in a step, and training computes it once",
            where="optimizer",
            expected="one whose step() can be called alone, as Adam's or SGD's",
            got=type(made).__name__,
        )
    return made
