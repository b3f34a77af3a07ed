"""Arguments of a wrong kind are refused in a sentence, not by a TypeError from inside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.crowd import (
    CrowdLabels,
    aggregate,
    annotator_agreement,
    ask_next,
    compare,
    expected_gain,
    held_out,
    krippendorff_alpha,
    label_quality,
    majority_vote,
    pairwise_kappa,
    run,
    summarise,
    update,
    with_model,
)
from dubito.errors import DubitoError

CROWD = CrowdLabels([0, 0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0, 0])
FOUND = aggregate(CROWD)
WRONG = (None, "x", 1.5, [1], {}, object(), float("nan"))
TAKES_A_CROWD = {
    "aggregate": aggregate,
    "update": lambda v: update(FOUND, v),
    "alpha": krippendorff_alpha,
    "agreement": annotator_agreement,
    "kappa": pairwise_kappa,
    "ask": lambda v: ask_next(v, FOUND),
    "held out": held_out,
    "compare": compare,
    "quality": lambda v: label_quality(v, FOUND),
    "vote": majority_vote,
    "summary": lambda v: summarise(v, FOUND),
}
TAKES_AN_AGGREGATE = {
    "update": lambda v: update(v, CROWD),
    "ask": lambda v: ask_next(CROWD, v),
    "quality": lambda v: label_quality(CROWD, v),
    "model": lambda v: with_model(v, [[0.5, 0.5]] * 3),
    "summary": lambda v: summarise(CROWD, v),
}
TAKES_A_NUMBER = {
    "iterations": lambda v: aggregate(CROWD, iterations=v),
    "tolerance": lambda v: aggregate(CROWD, tolerance=v),
    "seed": lambda v: majority_vote(CROWD, seed=v),
    "folds": lambda v: held_out(CROWD, folds=v),
    "seed of folds": lambda v: held_out(CROWD, seed=v),
    "n": lambda v: ask_next(CROWD, FOUND, v),
    "questions": lambda v: summarise(CROWD, FOUND, questions=v),
    "level": FOUND.skill_intervals,
    "steps of an update": lambda v: update(FOUND, CROWD.append([3], [0], [1]), iterations=v),
}


@pytest.mark.parametrize("name", TAKES_A_CROWD)
def test_what_is_no_crowd(name):
    for wrong in (*WRONG, np.zeros((2, 2))):
        with pytest.raises(DubitoError, match="not the labels of a crowd: expected CrowdLabels"):
            TAKES_A_CROWD[name](wrong)


@pytest.mark.parametrize("name", TAKES_AN_AGGREGATE)
def test_what_is_no_aggregate(name):
    for wrong in WRONG:
        with pytest.raises(DubitoError, match="not an aggregate"):
            TAKES_AN_AGGREGATE[name](wrong)


@pytest.mark.parametrize("name", TAKES_A_NUMBER)
def test_what_is_no_number(name):
    for wrong in (None, "x", [1], {}, object()):
        with pytest.raises(DubitoError, match="must be"):
            TAKES_A_NUMBER[name](wrong)


def test_others():
    for wrong in (w for w in WRONG if w is not None):
        for refuses in (
            lambda v: aggregate(CROWD, start=v),
            lambda v: aggregate(CROWD, v),
            lambda v: compare(CROWD, v),
            lambda v: majority_vote(CROWD, counts=v),
            lambda v: expected_gain(v, torch.eye(2)),
            lambda v: CrowdLabels([0], [0], [0], duplicates=v),
            CrowdLabels.from_long,
            run,
        ):
            with pytest.raises(DubitoError):
                refuses(wrong)
    with pytest.raises(DubitoError, match="strength must be a number: got '2'"):
        aggregate(CROWD, strength="2")
    assert aggregate(CROWD, strength=np.float32(2.0), iterations=np.int64(5)).skills.numel() == 3
