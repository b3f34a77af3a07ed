"""Compositions of fits, each a few lines on top of `train.fit`: a method of several stages, a search.

| composition | stages |
|---|---|
| estimated transition (`forward`, `backward`) | cross-entropy; T read at anchor examples; the method from scratch |
| distillation (`distill`) | a teacher by any method; a student that sees only its softened outputs |
| `search` | one run per value; the best by log-likelihood of the noisy validation labels |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from . import optim
from ._crowd_methods import row_by_row
from ._random import generator
from .backbones.forest import begin
from .crowd import majority_vote
from .data import LabelledData
from .errors import DubitoError
from .estimate import anchor_transition, out_of_fold
from .evaluate import evaluate, predict
from .methods import METHODS, Method, Stages, _matrix, parse
from .metrics import confusion_error
from .model import Model
from .procedures import Teacher
from .procedures.em import count_annotators
from .train import Run, fit

MakeBackbone = Callable[[Generator], nn.Module]


def train_method(
    method: Method | str,
    params: Mapping[str, Any],
    make_backbone: MakeBackbone,
    data: LabelledData,
    valid: LabelledData | None = None,
    *,
    seed: int = 0,
    num_classes: int | None = None,
    head_init: str = "glorot",
    **options: Any,
) -> Run:
    """Train a method of `methods.METHODS` from scratch, with the stages that come before it.

    Arguments:
        method: a `Method`, or the text of one as `methods.parse` reads it.
        params: its parameters, which add to those in the text.
        make_backbone: generator -> untrained network with the attribute `out_features`; called once per stage.
        data, valid: examples with noisy labels, of one or of several annotators; methods that know no annotators
            learn from the majority vote. Clean labels of `data` are never used for training; where they are
            known, the error of an estimated matrix is reported.
        seed: keys the start of every network, and everything random in `fit`.
        num_classes: K; by default that of the data.
        head_init: start of the head, see `heads`.
        options: for every stage, as `fit` takes them. With ``out=`` the first stage has the folder ``out-first``.

    Returns:
        the run of the last stage. `run.extra` holds ``first``, the run before it, and for a correction its matrix,
        ``transition``; with ``transition_error`` (`metrics.confusion_error`) if that is estimated and clean labels
        are known.

    Reference:
        lukasik2020 table 5, table 7

    Example:
        >>> from dubito.backbones import MLP
        >>> x = torch.tensor([[-2.0], [2.0]]).repeat(100, 1)
        >>> data = LabelledData(x, (x[:, 0] > 0).long())
        >>> run = train_method("forward", {}, lambda source: MLP(1, (8,), generator=source), data, epochs=8)
        >>> run.extra["transition"].shape
        torch.Size([2, 2])
    """
    method, params = _resolved(method, params)
    K = data.num_classes if num_classes is None else num_classes
    people = None if data.crowd is None else count_annotators(data)
    if people is not None and row_by_row(method, params, people):
        params, options = {**params, "sparse": True}, {"optimizer": optim.row_adam, **options}
    common: dict[str, Any] = {"seed": seed, "num_classes": K, "head_init": head_init, **options}
    given, extra = _first_stage(method, params, make_backbone, data, valid, common)
    stages = method.build(**{**params, **given})
    role = "-student" if method.needs == "teacher" else ""  # a start of its own, not that of its teacher
    if stages.labels == "vote":
        data, valid = voted(data, seed), None if valid is None else voted(valid, seed)
    model = assemble(
        stages, make_backbone, K, seed=seed, head_init=head_init, role=role, num_annotators=people
    )
    run = fit_stages(stages, model, data, valid, seed=seed, **options)
    run.extra.update(extra)
    return run


def assemble(
    stages: Stages,
    make_backbone: MakeBackbone,
    num_classes: int,
    *,
    seed: int,
    head_init: str = "glorot",
    role: str = "",
    num_annotators: int | None = None,
) -> Model:
    """The untrained model of some stages; backbone and head start from generators keyed by seed and role."""
    backbone = make_backbone(generator(seed, 0, f"backbone{role}"))
    width = getattr(backbone, "out_features", None)
    if not isinstance(width, int):
        raise DubitoError(
            "a backbone must say how many features it makes",
            expected="an attribute out_features",
            got=type(backbone).__name__,
        )
    source = generator(seed, 0, f"head{role}")
    head = stages.make_head(width, num_classes, num_annotators, generator=source, init=head_init)
    begin(backbone, head)
    return Model(backbone, head, channel=stages.make_channel(num_classes, num_annotators), **stages.model)


def voted(data: LabelledData, seed: int) -> LabelledData:
    """Data with the majority label of every example, ties drawn by the seed; data without annotators unchanged."""
    if data.crowd is None:
        return data
    votes, _ = majority_vote(data.crowd_labels(), seed=seed)
    without = torch.bincount(data.crowd.item, minlength=len(data)) == 0
    return replace(data, labels=torch.where(without, -1, votes.to(data.device, torch.int64)), crowd=None)


def fit_stages(
    stages: Stages, model: Model, data: LabelledData, valid: LabelledData | None = None, **options: Any
) -> Run:
    """`fit` with the loss, target, penalty and procedure of some stages."""
    return fit(
        model,
        data,
        valid=valid,
        loss=stages.loss,
        target=stages.target,
        penalty=stages.penalty,
        procedure=stages.procedure,
        **options,
    )


def estimate_transition(
    train: Callable[[LabelledData], Model],
    data: LabelledData,
    *,
    percentile: float = 99.9,
    at: str = "percentile",
    folds: int = 0,
    seed: int = 0,
) -> Tensor:
    """T[true, observed], estimated from a network trained on the noisy labels as if they were clean.

    Its probabilities on the training inputs, in evaluation mode and without augmentation, go to
    `estimate.anchor_transition`. A network that has memorised its labels is too sure of them; with `folds` every
    example is judged by a network that did not see it.

    Arguments:
        train: data -> a model trained on it.
        percentile, at: which example is the anchor of a class: 99.9 "percentile", or 97 "below" as in the code of
            Patrini et al.
        folds, seed: for `estimate.out_of_fold`; 0 folds is one network trained on all examples.

    Returns:
        T ``(K, K)`` in float64.

    Reference:
        lukasik2020 table 7
        Patrini et al. 2017
    """
    if folds:
        log_p = out_of_fold(train, data, folds=folds, seed=seed)
    else:
        model = train(data)
        log_p = predict(model, data.to(next(model.parameters()).device)).log_p
    return anchor_transition(log_p.exp(), percentile, at)  # type: ignore[arg-type]


def transition_error(T: Tensor, data: LabelledData) -> float | None:
    """Squared error per row of T against the realised noise of the data; None where no clean labels are known.

    The realised matrix counts observed labels by clean ones; classes that do not occur are left out.
    """
    if data.clean is None:
        return None
    known = (data.clean >= 0) & (data.labels >= 0)
    counts = torch.zeros(T.shape, dtype=torch.float64)
    ones = torch.ones(int(known.sum()), dtype=torch.float64)
    counts.index_put_((data.clean[known].cpu(), data.labels[known].cpu()), ones, accumulate=True)
    seen = counts.sum(-1) > 0
    true = torch.where(seen.unsqueeze(-1), counts / counts.sum(-1, keepdim=True), T.cpu())
    return confusion_error(true, T) * len(T) / max(1, int(seen.sum()))


def search(
    method: Method | str,
    params: Mapping[str, Any],
    values: Sequence[Any] | None,
    make_backbone: MakeBackbone,
    data: LabelledData,
    valid: LabelledData,
    *,
    parameter: str = "temperature",
    out: str | Path | None = None,
    **options: Any,
) -> Run:
    """The best of several values of one parameter, by log-likelihood of the noisy validation labels.

    Log-likelihood chooses within one family of models; to compare methods take accuracy.

    Arguments:
        values: what to try; of equally good values the first wins. None is the method's own grid.
        parameter: which parameter of the method.
        out: a folder for the folders of all runs. The others as for `train_method`.

    Returns:
        the best run; `run.extra["search"]` is a list of ``{parameter: value, "log_likelihood": number}``.

    Reference:
        collier2020 sec. 5.1
    """
    method, params = _resolved(method, params)
    values = method.grid.get(parameter) if values is None else values
    if not values:
        raise DubitoError(
            "nothing to search over", where=f"{method.name}, {parameter}", remedy="pass values="
        )
    best: Run | None = None
    tried: list[dict[str, Any]] = []
    for value in values:
        place = None if out is None else Path(out) / f"{parameter}={value}"
        run = train_method(
            method, {**params, parameter: value}, make_backbone, data, valid, out=place, **options
        )
        found = evaluate(run.model, valid.to(next(run.model.parameters()).device))["log_likelihood"]
        if best is None or found > max(t["log_likelihood"] for t in tried):
            best = run
        tried.append({parameter: value, "log_likelihood": found})
    assert best is not None
    best.extra["search"] = tried
    return best


def _first_stage(
    method: Method,
    params: Mapping[str, Any],
    make_backbone: MakeBackbone,
    data: LabelledData,
    valid: LabelledData | None,
    common: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run what a method needs first: (parameters for the method, what to report in `run.extra`)."""
    if common.get("out") is not None:
        common = {**common, "out": f"{common['out']}-first"}
    given = {name: params.get(name) for name in ("transition", "alpha")}
    if method.needs == "transition" and any(value is not None for value in given.values()):
        return {}, {"transition": _matrix(common["num_classes"], **given)}
    if method.needs == "transition":
        names = ("percentile", "at", "folds")
        chosen = {k: v for k, v in {**method.defaults, **params}.items() if k in names}
        if chosen.get("folds"):
            common = {**common, "out": None}
        runs: list[Run] = []

        def train(part: LabelledData) -> Model:
            runs.append(train_method(method.first or "ce", {}, make_backbone, part, valid, **common))
            return runs[-1].model

        T = estimate_transition(train, data, seed=common["seed"], **chosen)
        error = transition_error(T, data)
        extra = {"transition": T, "first": runs[-1]}
        return {"transition": T}, extra if error is None else {**extra, "transition_error": error}
    if method.needs == "teacher" and isinstance(params.get("teacher", "plain"), str):
        run = train_method(*_teacher(method, params), make_backbone, data, valid, **common)
        return {"teacher": Teacher(run.model)}, {"first": run}
    return {}, {}


def _teacher(method: Method, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method of a teacher; smoothing and correction share the student's alpha unless they have their own."""
    known = {**method.defaults, **params}
    name = str(known["teacher"])
    if name == "plain":
        return method.first or "ce", {}
    return name, {"alpha": known["alpha"]} if name in ("smooth", "forward", "backward") else {}


def _resolved(method: Method | str, params: Mapping[str, Any]) -> tuple[Method, dict[str, Any]]:
    """The method and its parameters; those given override those in the text."""
    if isinstance(method, Method):
        return method, dict(params)
    found, spelled = (METHODS[method], {}) if method in METHODS else parse(method)
    return found, {**spelled, **params}
