"""Every public formula once more: how it is called, with which inputs in float64, and its equation on lists.

One entry per public name of losses, links, channels, heads, targets and penalties. Settings are typical, none at a
limit; the stages' own tests have the many others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import naive_formulas as naive
import torch
from naive_formulas import BANK, LOG_P, MATRIX, MEAN, NOISE, SCALE, SIDE, TEACHER, WHO, H, K, Y, Z
from torch import Tensor, nn

from dubito import channels, heads, links, losses, penalties, targets

R, D = naive.R, naive.D


@dataclass(frozen=True)
class Formula:
    """A call, its inputs, the equation on lists, the parameters if there are any, and why there is no gradient."""

    call: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    naive: Callable[..., list[Any]]
    module: nn.Module | None = None
    no_gradient: str = ""
    no_graph: str = ""


def loss(
    function: Callable[..., Tensor], one: Callable[..., float], *inputs: Tensor, **options: Any
) -> Formula:
    return Formula(lambda *x: function(*x, Y, reduction="none", **options), inputs or (Z,), naive.each(one))


def head(made: Any, equation: Callable[[list[Any]], list[Any]]) -> Formula:
    return Formula(lambda x: naive.joined(made(x)), (H,), equation, made)


def channel(made: Any, matrix: Callable[[int], list[Any]]) -> Formula:
    call = (lambda p: made(p, WHO)) if made.per_annotator else made
    return Formula(call, (LOG_P,), naive.through(matrix), made)


def logs(rows: list[list[float]]) -> list[list[float]]:
    return [[math.log(v) for v in row] for row in rows]


def noisy(target: Tensor) -> Tensor:
    return targets.label_noise(target, K, 0.3, torch.Generator().manual_seed(9))


def noisy_naive(target: list[list[float]]) -> list[list[float]]:
    drawn = torch.randn(5, K, generator=torch.Generator().manual_seed(9), dtype=torch.float64).tolist()
    return [[w + 0.3 * e for w, e in zip(*rows)] for rows in zip(target, drawn)]


def inverse(T: list[list[float]]) -> list[list[float]]:
    columns = [naive.solve(T, [float(i == j) for i in range(K)])[0] for j in range(K)]
    return [[columns[j][i] for j in range(K)] for i in range(K)]


def mean_of(one: Callable[[list[list[float]]], float]) -> Callable[[list[Any]], list[float]]:
    return lambda A: [0.3 * math.fsum(map(one, A)) / len(A)]


def nearest_row(w: list[float]) -> list[float]:
    """max(w - theta, 0) with the theta of the largest set of entries that all stay positive."""
    order = sorted(w, reverse=True)
    thetas = [(math.fsum(order[:n]) - 1) / n for n in range(1, len(w) + 1)]
    theta = [t for t, v in zip(thetas, order) if v > t][-1]
    return [max(v - theta, 0.0) for v in w]


def given_way(target: list[list[float]]) -> list[list[float]]:
    """Labels of a low loss replaced by the prediction, in proportion."""
    rows = LOG_P.tolist()
    cost = [-math.fsum(w * v for w, v in zip(*pair)) for pair in zip(target, rows)]
    trust = [(c - min(cost)) / (max(cost) - min(cost)) for c in cost]
    own = [[float(v == max(row)) for v in row] for row in rows]
    return [[c * w + (1 - c) * o for w, o in zip(*pair)] for c, *pair in zip(trust, target, own)]


MADE = {
    "Point": naive.shaken(heads.Point(D, K, init="torch")),
    "Diagonal": naive.shaken(heads.Diagonal(D, K, init="torch")),
    "LowRank": naive.shaken(heads.LowRank(D, K, rank=2, init="torch")),
    "PreLogit": naive.shaken(heads.PreLogit(D, K, rank=2, init="torch")),
    "LogisticNormal": naive.shaken(heads.LogisticNormal(D, K, init="torch")),
    "learned": naive.shaken(channels.LearnedTransition(K)),
    "annotators": naive.shaken(channels.AnnotatorConfusion(R, K)),
    "pooled": naive.shaken(channels.PooledConfusion(R, K)),
}
WEIGHTS = torch.eye(K, dtype=torch.float64)[Y]
SOFT = TEACHER.softmax(-1)
CROWD = torch.stack([MATRIX, MATRIX.T.softmax(-1), MATRIX @ MATRIX])
PANELS = "panels are chosen by the data, so there is no fixed graph"
MADE_OF_LABELS = "makes targets of labels; not in the graph of a model"

FORMULAS = {
    "nll": loss(losses.nll, lambda z, y: -math.log(naive.softmax(z)[y])),
    "gce": loss(losses.gce, lambda z, y: (1 - naive.softmax(z)[y] ** 0.7) / 0.7),
    "truncated_gce": loss(losses.truncated_gce, naive.truncated, k=0.3),
    "bootstrap": loss(
        losses.bootstrap,
        lambda z, y: (
            -math.fsum((0.95 * (k == y) + 0.05 * p) * math.log(p) for k, p in enumerate(naive.softmax(z)))
        ),
    ),
    "bi_tempered": loss(losses.bi_tempered, naive.bi_tempered),
    "logistic_normal_nll": loss(losses.logistic_normal_nll, naive.logistic_normal, Z, TEACHER, lam=0.5),
    "distillation": Formula(
        lambda z: losses.distillation(z, TEACHER, smoothing=0.1, channel=MATRIX, reduction="none"),
        (Z,),
        lambda z: naive.each(naive.distillation)(z, TEACHER.tolist()),
    ),
    "tempered_softmax": Formula(
        partial(losses.tempered_softmax, t=1.4), (Z,), lambda z: [naive.tempered(row, 1.4) for row in z]
    ),
    "tempered_log_softmax": Formula(
        partial(losses.tempered_log_softmax, t=1.4),
        (Z,),
        lambda z: logs([naive.tempered(row, 1.4) for row in z]),
    ),
    "log_softmax": Formula(
        lambda z: links.log_softmax(z, 0.7), (Z,), lambda z: logs([naive.softmax(row, 0.7) for row in z])
    ),
    "centred_log_softmax": Formula(
        lambda z: links.centred_log_softmax(z, 0.7),
        (Z,),
        lambda z: logs([naive.softmax([*row, 0.0], 0.7) for row in z]),
    ),
    "centred_logits": Formula(
        lambda p: links.centred_logits(p, 0.7),
        (LOG_P,),
        lambda p: [[0.7 * (v - row[-1]) for v in row[:-1]] for row in p],
    ),
    "logistic_normal_log_softmax": Formula(
        lambda z: links.logistic_normal_log_softmax(z, 0.7),
        (Z,),
        lambda z: logs([naive.softmax(row, 0.7) for row in z]),
    ),
    "expected_sigmoid": Formula(
        lambda m, s: links.expected_sigmoid(m, s, temperature=1.5),
        (MEAN[:, 0], SCALE[:, 0]),
        naive.expected_sigmoid,
        no_graph=PANELS,
    ),
    "expected_log_sigmoid": Formula(
        lambda m, s: links.expected_log_sigmoid(m, s, temperature=1.5),
        (MEAN[:, 0], SCALE[:, 0]),
        lambda m, s: [math.log(v) for v in naive.expected_sigmoid(m, s)],
        no_graph=PANELS,
    ),
    "expected_log_softmax": Formula(
        lambda m, s: links.expected_log_softmax(m, s, tol=1e-11),
        (MEAN, SCALE),
        lambda m, s: logs([naive.expected(*row) for row in zip(m, s)]),
        no_graph=PANELS,
    ),
    "expected_softmax_nll": Formula(
        lambda m, s: links.expected_softmax_nll(m, s, SIDE, tol=1e-11, reduction="none"),
        (MEAN, SCALE),
        lambda m, s: [-math.log(naive.expected(*row)[y]) for *row, y in zip(m, s, SIDE.tolist())],
        no_graph=PANELS,
    ),
    "sampled_log_softmax": Formula(
        lambda m, s: links.sampled_log_softmax(m, s, NOISE, temperature=0.7),
        (MEAN, SCALE),
        lambda m, s: naive.sampled(m, s, NOISE.tolist()),
    ),
    "predictive_variance": Formula(
        lambda m, s: links.predictive_variance(
            m, s, temperature=0.7, samples=len(BANK), generator=torch.Generator().manual_seed(5)
        ),
        (MEAN, SCALE),
        naive.variance,
        no_gradient="documented to have none",
        no_graph="makes its own draws",
    ),
    "FixedTransition": channel(channels.FixedTransition(MATRIX), lambda r: MATRIX.tolist()),
    "LearnedTransition": channel(
        MADE["learned"], lambda r: [naive.confusion(row) for row in MADE["learned"].weight.tolist()]
    ),
    "AnnotatorConfusion": channel(
        MADE["annotators"], lambda r: [naive.confusion(row) for row in MADE["annotators"].weight.tolist()[r]]
    ),
    "PooledConfusion": channel(MADE["pooled"], lambda r: naive.pooled(MADE["pooled"], r)),
    "Point": head(MADE["Point"], lambda x: [naive.affine(MADE["Point"].mean, h) for h in x]),
    "Diagonal": head(
        MADE["Diagonal"],
        lambda x: [
            [*naive.affine(MADE["Diagonal"].mean, h), *naive.scales(MADE["Diagonal"].scale, h)] for h in x
        ],
    ),
    "LowRank": head(MADE["LowRank"], naive.low_rank(MADE["LowRank"])),
    "PreLogit": head(MADE["PreLogit"], naive.pre_logit(MADE["PreLogit"])),
    "LogisticNormal": head(
        MADE["LogisticNormal"],
        lambda x: [
            [*naive.affine(MADE["LogisticNormal"].mean, h), *naive.affine(MADE["LogisticNormal"].root, h)]
            for h in x
        ],
    ),
    "smooth": Formula(
        lambda w: targets.smooth(w, K, 0.1),
        (WEIGHTS,),
        lambda w: [[0.9 * v + 0.1 / K for v in row] for row in w],
        no_gradient=MADE_OF_LABELS,
    ),
    "smear": Formula(
        lambda w: targets.smear(w, MATRIX),
        (SOFT,),
        lambda w: [naive.times(row, MATRIX.tolist()) for row in w],
        no_gradient=MADE_OF_LABELS,
    ),
    "backward_matrix": Formula(
        targets.backward_matrix, (MATRIX,), inverse, no_gradient=MADE_OF_LABELS, no_graph=MADE_OF_LABELS
    ),
    "label_noise": Formula(
        noisy, (WEIGHTS,), noisy_naive, no_gradient=MADE_OF_LABELS, no_graph="makes its own draws"
    ),
    "corrected": Formula(
        lambda w: targets.corrected(w, LOG_P), (SOFT,), given_way, no_gradient=MADE_OF_LABELS
    ),
    "project_rows": Formula(channels.project_rows, (Z,), lambda z: [nearest_row(row) for row in z]),
    "trace": Formula(
        lambda A: penalties.trace(A, weight=0.3),
        (CROWD,),
        mean_of(lambda A: math.fsum(A[i][i] for i in range(K))),
    ),
    "frobenius": Formula(
        lambda A: penalties.frobenius(A, weight=0.3),
        (CROWD,),
        mean_of(lambda A: math.fsum(v * v for row in A for v in row)),
    ),
    "log_det": Formula(
        lambda A: penalties.log_det(A, weight=0.3, ridge=0.0),
        (CROWD,),
        mean_of(lambda A: naive.solve(A, [0.0] * K)[1]),
    ),
}
