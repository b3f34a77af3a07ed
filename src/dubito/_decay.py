"""How much a small network is held back, chosen by noisy labels that it did not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ._batches import WEIGHT
from .data import LabelledData
from .estimate import out_of_fold
from .evaluate import predict
from .train import Run

DECAYS = (0.0, 0.01, 0.03)
FEWEST, SMALL = 30, 2000  # the decay is searched in between: fewer examples cannot tell, more need it less
FOLDS = 5

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


def decay_for(train: Callable[..., Run], data: LabelledData, seed: int) -> float:
    """The strongest weight decay within one standard error of the best accuracy on noisy labels out of fold.

    The accuracy on noisy labels of examples that were held out falls where wrong labels are learned by heart, and
    also where a network is held back too much; where it cannot tell, as with few labels, the former is likelier.
    """
    if not FEWEST <= len(data) < SMALL:
        return DECAYS[0]
    weight = data.extra.get(WEIGHT, torch.ones(len(data)))
    scores = {}
    for decay in DECAYS:
        fit = partial(train, weight_decay=decay)
        log_p = out_of_fold(fit, data, folds=FOLDS, seed=seed, predict=_judge)
        scores[decay] = ((log_p.argmax(-1) == data.labels) * weight).double().numpy()
    return last_near_best(scores)


def _judge(run: Run, part: LabelledData) -> Tensor:
    return predict(run.model.cpu(), part).log_p
