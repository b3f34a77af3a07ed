"""Options that are names: what is no text at all is refused in a sentence, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dubito import DubitoError, channels, heads, losses, weights
from dubito._batches import Order
from dubito.errors import nearest
from dubito.integrals import expected_log_softmax, expected_softmax_nll, predictive_variance

Z, Y, SCALE = torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(2, 3)
CALLS: dict[str, Callable[..., object]] = {
    "covariance": lambda name: heads.LogisticNormal(4, 3, covariance=name),
    "init": lambda name: heads.Point(4, 3, init=name),
    "covariance of a loss": lambda name: losses.logistic_normal_nll(Z, Z, Y, lam=1.0, covariance=name),
    "kind of bootstrap": lambda name: losses.bootstrap(Z, Y, kind=name),
    "init of a channel": lambda name: channels.LearnedTransition(3, init=name),
    "projection": lambda name: channels.project_rows(Z, how=name),
    "schedule": lambda name: weights.forget_rate(1, 0.2, schedule=name),
    "batching": lambda name: Order(10, 4, name, seed=0),
    "method of all classes": lambda name: expected_log_softmax(Z, SCALE, method=name),
    "method": lambda name: expected_softmax_nll(Z, SCALE, Y, method=name),
    "noise": lambda name: expected_softmax_nll(Z, SCALE, Y, method="qmc", noise=name),
    "method of draws": lambda name: predictive_variance(Z, SCALE, method=name),
}


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("name", ["no such name", None, 3])
def test_what_is_no_choice_is_refused_in_a_sentence(what, name):
    with pytest.raises(DubitoError) as refused:
        CALLS[what](name)
    assert str(refused.value).startswith(f"unknown {what.split(' of a')[0].removesuffix(' of draws')}")
    assert repr(name) in str(refused.value)


def test_a_remedy_for_what_is_no_text():
    assert nearest(3, ["smooth", "gce"]) == "choose from gce, smooth"
