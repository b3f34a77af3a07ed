"""Methods that read every annotator's labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from . import channels, heads, penalties
from ._method import Method, Stages
from .channels._core import Channel
from .errors import DubitoError, nearest
from .procedures import (
    CrossFittedEM,
    DoctorHeads,
    DoctorNet,
    GeneralisedEM,
    ModelBootstrappedEM,
    Plain,
    SparseAnnotators,
)
from .procedures.annotators import MANY

MATRICES = ("full", "pooled")


def _trace(
    trace: float = 0.01,
    log_det: float = 0.0,
    frobenius: float = 0.0,
    matrices: str = "full",
    rank: int | None = None,
    init: str = "diagonal",
    diagonal: float = 0.9,
    sparse: bool = False,
) -> Stages:
    return _joint(heads.Point, {}, trace, log_det, frobenius, matrices, rank, init, diagonal, sparse)


def _no_trace(init: str = "diagonal", diagonal: float = 0.9, sparse: bool = False) -> Stages:
    return _joint(heads.Point, {}, 0.0, 0.0, 0.0, "full", None, init, diagonal, sparse)


def _het_trace(
    trace: float = 0.01,
    temperature: float = 1.0,
    head_rank: int = 0,
    integration: str = "auto",
    samples: int = 1000,
    matrices: str = "full",
    rank: int | None = None,
    init: str = "diagonal",
    diagonal: float = 0.9,
) -> Stages:
    head: Callable[..., nn.Module] = partial(heads.LowRank, rank=head_rank) if head_rank else heads.Diagonal
    model = {"temperature": temperature, "integration": integration, "samples": samples}
    return _joint(head, model, trace, 0.0, 0.0, matrices, rank, init, diagonal, False)


def _joint(
    head: Callable[..., nn.Module],
    model: Mapping[str, Any],
    trace: float,
    log_det: float,
    frobenius: float,
    matrices: str,
    rank: int | None,
    init: str,
    diagonal: float,
    sparse: bool,
) -> Stages:
    if matrices not in MATRICES:
        raise DubitoError("unknown matrices", got=repr(matrices), remedy=nearest(matrices, MATRICES))
    if sparse and (log_det or frobenius or matrices == "pooled"):
        raise DubitoError(
            "row-sparse updates know the trace of full matrices only", remedy="use sparse=False"
        )
    return Stages(
        head=head,
        model=dict(model),
        channel=partial(_full, init=init, diagonal=diagonal, sparse=sparse)
        if matrices == "full"
        else partial(_pooled, rank=rank, diagonal=diagonal),
        penalty=_penalty(trace, log_det, frobenius, sparse),
        procedure=SparseAnnotators if sparse else Plain,
        per_annotator=("channel",),
        labels="all",
    )


def _penalty(trace: float, log_det: float, frobenius: float, sparse: bool) -> Callable[..., Tensor] | None:
    if not (trace or log_det or frobenius):
        return None
    if sparse or not (log_det or frobenius):
        return partial(penalties.trace, weight=trace)
    return partial(_penalties, trace=trace, log_det=log_det, frobenius=frobenius)


def _penalties(channel: Channel, *, trace: float, log_det: float, frobenius: float) -> Tensor:
    total = penalties.trace(channel, weight=trace) + penalties.frobenius(channel, weight=frobenius)
    return total + penalties.log_det(channel, weight=log_det)


def _full(num_classes: int, *, num_annotators: int, **options: Any) -> nn.Module:
    return channels.AnnotatorConfusion(num_annotators, num_classes, **options)


def _pooled(num_classes: int, *, num_annotators: int, **options: Any) -> nn.Module:
    return channels.PooledConfusion(num_annotators, num_classes, **options)


def _oracle(transition: Tensor | None = None) -> Stages:
    return Stages(channel=partial(_known, transition=transition), labels="all")


def _known(num_classes: int, *, transition: Tensor | None) -> nn.Module:
    if transition is None:
        raise DubitoError("this method needs the annotators' matrices", remedy="pass transition=, (R, K, K)")
    fixed = channels.AnnotatorConfusion(len(transition), num_classes, init=transition)
    return fixed.requires_grad_(False)


def _gem(rounds: int = 10, strength: float = 0.0) -> Stages:
    return Stages(procedure=partial(GeneralisedEM, rounds=rounds, strength=strength), labels="all")


def _mbem(rounds: int = 10, strength: float = 0.0, class_prior: bool = True) -> Stages:
    options: dict[str, Any] = {"rounds": rounds, "strength": strength, "class_prior": class_prior}
    return Stages(procedure=partial(ModelBootstrappedEM, **options), labels="all")


def _crossfit_em(rounds: int = 10, strength: float = 1.0, folds: int = 5, seed: int = 0) -> Stages:
    options: dict[str, Any] = {"rounds": rounds, "strength": strength, "folds": folds, "seed": seed}
    return Stages(procedure=partial(CrossFittedEM, **options), labels="all")


def _wdn(averaging: float = 0.2) -> Stages:
    return Stages(
        head=DoctorHeads,
        procedure=partial(DoctorNet, averaging=averaging),
        per_annotator=("head",),
        labels="all",
    )


def row_by_row(method: Method, params: Mapping[str, Any], num_annotators: int) -> bool:
    """Whether matrices should be updated row by row: above a thousand annotators, if the parameters are silent."""
    settled = {"sparse", "log_det", "frobenius"} & set(params) or params.get("matrices", "full") != "full"
    return num_annotators > MANY and "sparse" in method.defaults and not settled


_CROWD = ("crowd",)
CROWD: tuple[Method, ...] = (
    Method("trace", _trace, "A matrix per annotator learned with the network: one label per example is enough.",
           grid={"trace": (0.001, 0.01, 0.1)}, valid=_CROWD),
    Method("no-trace", _no_trace, "As trace without the penalty: for annotators who are mostly right.",
           valid=_CROWD),
    Method("het-trace", _het_trace, "As trace, where annotators err more on some inputs than on others.",
           grid={"temperature": (0.2, 0.5, 1.0, 2.0)}, valid=_CROWD),
    Method("gem", _gem, "Generalised EM: several labels per example; stands still with one.", valid=_CROWD),
    Method("mbem", _mbem, "Model-bootstrapped EM: one label per example and a strong network.", valid=_CROWD),
    Method("crossfit-em", _crossfit_em, "Few examples or a network that could learn its labels by heart.",
           valid=_CROWD),
    Method("wdn", _wdn, "Weighted doctor net: annotators who disagree for reasons of their own.", valid=_CROWD),
    Method("oracle", _oracle, "Known matrices of the annotators, kept fixed: the ceiling in simulations.",
           valid=_CROWD),
)  # fmt: skip
