"""How much a small network is held back, or whether trees do better, by noisy labels that were not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ._batches import WEIGHT
from .data import LabelledData
from .estimate import fold_numbers
from .evaluate import predict
from .train import Run

DECAYS = (0.0, 0.01, 0.03)
LIGHT = (0.0, 0.001, 0.003)  # of `SMALL` examples and more
FEWEST, SMALL, LARGE = 30, 2000, 50_000  # the decay is searched from the first to the last
FOLDS = 5
PERCEPTRON, FOREST = "perceptron", "forest"
ENOUGH = 1000  # held-out labels to judge by, where a fold or two have as many

Option = TypeVar("Option")
Array = np.ndarray[Any, Any]


def last_near_best(scores: Mapping[Option, Array]) -> Option:
    """The last option whose mean score is within one standard error, that of the paired difference, of the best.

    Scores are per example, the options in the order of preference: the one to take in doubt is last.

    Example:
        >>> last_near_best({"a": np.array([1.0, 1, 1, 0]), "b": np.array([1.0, 1, 0, 1]), "c": np.zeros(4)})
        'b'
    """
    best = max(scores, key=lambda option: scores[option].mean())
    near = best
    for option, mine in scores.items():
        behind = scores[best] - mine
        if behind.mean() <= behind.std() / len(behind) ** 0.5:
            near = option
    return near


def decay_for(train: Callable[..., Run], data: LabelledData, seed: int) -> tuple[str, float]:
    """The network, perceptron or forest, and the weight decay with the best accuracy on noisy labels out of fold.

    The accuracy on noisy labels of examples that were held out falls where wrong labels are learned by heart, and
    also where a network is held back too much; where it cannot tell, as with few labels, the former is likelier,
    and the strongest decay within one standard error of the best is taken. Fewer than `FEWEST` examples cannot tell
    at all, and `LARGE` sets need it less. A forest, which has no decay, is taken where it is better than that.

    Arguments:
        train: data, ``network=`` and ``weight_decay=`` -> a run.
    """
    if not FEWEST <= len(data) < LARGE:
        return PERCEPTRON, DECAYS[0]
    few = len(data) < SMALL
    judged = FOLDS if few else min(FOLDS, math.ceil(FOLDS * ENOUGH / len(data)))
    number = fold_numbers(data, folds=FOLDS, seed=seed)
    folds = [number == fold for fold in number.unique()[:judged].tolist()]
    order = torch.cat([fold.nonzero().flatten() for fold in folds])
    weight = data.extra.get(WEIGHT, torch.ones(len(data)))[order]

    def score(network: str, decay: float) -> Array:
        one = partial(train, network=network, weight_decay=decay)
        return (torch.cat([_hits(one, data, fold) for fold in folds]) * weight).double().numpy()

    scores = {decay: score(PERCEPTRON, decay) for decay in (DECAYS if few else LIGHT)}
    best = last_near_best(scores) if few else max(scores, key=lambda decay: scores[decay].mean())
    if score(FOREST, 0.0).mean() > scores[best].mean():
        return FOREST, 0.0
    return PERCEPTRON, best


def _hits(train: Callable[..., Run], data: LabelledData, out: Tensor) -> Tensor:
    """Whether each example left out is given its noisy label."""
    inside, rest = (data.subset(part.nonzero().flatten()) for part in (out, ~out))
    return predict(train(rest).model.cpu(), inside).log_p.argmax(-1) == inside.labels
