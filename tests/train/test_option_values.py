"""Options of losses and methods that mean nothing are refused before the first step, in a sentence.

Training calls the bodies of losses, which take their options on trust; so a procedure asks their borders once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from small import network, problem

from dubito import heads, losses, optim, penalties
from dubito.errors import DubitoError
from dubito.methods import Method, Stages, parse
from dubito.procedures import Plain
from dubito.train import fit

ln = losses.logistic_normal_nll


@pytest.mark.rel
@pytest.mark.parametrize(
    ("loss", "head", "message"),
    [
        (partial(losses.gce, q=2.0), heads.Point, "q is out of range"),
        (partial(losses.gce, q="much"), heads.Point, "cannot be called with these options"),
        (partial(losses.truncated_gce, k=1.0), heads.Point, "k is out of range"),
        (partial(losses.bootstrap, kind="medium"), heads.Point, "unknown kind of bootstrap"),
        (partial(losses.bootstrap, beta=-0.1), heads.Diagonal, "beta is out of range"),
        (partial(losses.bi_tempered, t1=3.0), heads.Point, "t1 is out of range"),
        (partial(losses.bi_tempered, iterations=0), heads.Point, "iterations out of range"),
        (partial(ln, lam=0.0), heads.LogisticNormal, "lam is out of range"),
        (partial(ln, lam=0.5, smoothing=0.0), heads.LogisticNormal, "smoothing is out of range"),
        (partial(ln, lam=0.5, temperature=0.0), heads.LogisticNormal, "differ in temperature"),
        (partial(ln, lam=0.5, covariance="diagonal"), heads.LogisticNormal, "differ in covariance"),
        (partial(ln, lam=0.5, dummy=False), heads.LogisticNormal, "differ in dummy"),
    ],
)
def test_before_the_first_step(loss: Any, head: Any, message: str) -> None:
    """Scorecard 13: values of options."""
    model = network(head=head)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(DubitoError, match=message):
        fit(model, problem(), loss=loss, progress=False)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))


def short(x):
    return x


@pytest.mark.rel
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": torch.nn.CrossEntropyLoss()}, "pass a function with reduction="),
        ({"augment": short}, r"expected augment\(..., seed=, epoch=, index=\), got an unexpected keyword"),
        ({"schedule": short}, "schedule cannot be called"),
        ({"schedule": torch.optim.lr_scheduler.StepLR}, "schedule is not a function"),
        ({"target": short}, "target cannot be called"),
        ({"weight": 0.5}, "weight is not a function"),
        ({"procedure": "coteaching"}, "procedure is not a function"),
        ({"procedure": Plain(network())}, "procedure is not a function.*got an object of type Plain"),
        ({"optimizer": torch.optim.SGD(network().parameters())}, "optimizer is not a function"),
        ({"optimizer": partial(optim.lars, lr=-1.0)}, "must be at least 0"),
        ({"optimizer": partial(optim.adam, weight_decay=-1.0)}, "weight decay must be at least 0"),
        ({"penalty": penalties.trace}, "expected a model with a channel"),
        ({"amp": "yes"}, "amp is True or False"),
        ({"compile": "nonsense"}, "torch.compile has no such backend"),
        ({"compile": 3}, "compile is True, False or a backend's name"),
    ],
)
def test_functions_and_switches(options: dict[str, Any], message: str) -> None:
    """Scorecard 13: functions that the loop could not call."""
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(DubitoError, match=message):
        fit(model, problem(), progress=False, **options)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))


@pytest.mark.parametrize("dummy", [True, False])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic", "identity"])
def test_the_likelihood_has_the_covariance_of_its_head(covariance: str, dummy: bool) -> None:
    head = partial(heads.LogisticNormal, covariance=covariance, dummy=dummy)
    said = partial(ln, lam=0.5, covariance=covariance, dummy=dummy)
    one, two = (
        fit(network(head=head), problem(40), loss=loss, epochs=2, progress=False).model
        for loss in (said, partial(ln, lam=0.5))
    )
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gce:q=abc", "q of gce is of another kind: expected float, got 'abc'"),
        ("gce:q=True", "of another kind"),
        ("het:rank=2.0", "rank of het is of another kind: expected int"),
        ("ln:dummy=maybe", "dummy of ln is of another kind: expected bool"),
        ("mentornet:burn_in=5.5", "burn_in of mentornet"),
        ("truncated-gce:start=soon", "start of truncated-gce"),
    ],
)
def test_kinds_of_parameters(text: str, message: str) -> None:
    with pytest.raises(DubitoError, match=message):
        parse(text)


def test_values_as_people_write_them() -> None:
    assert parse("ln:dummy=false,lam=1e-1")[1] == {"dummy": False, "lam": 0.1}
    assert parse("ln:dummy=TRUE,temperature=1")[1] == {"dummy": True, "temperature": 1}
    assert parse("forward:alpha=none")[1] == {"alpha": None}


def anything(power=2, *, depth: int | None = None) -> Stages:
    return Stages()


def test_methods_of_users_may_leave_kinds_open() -> None:
    mine = Method("mine", anything, "mine")
    mine.build(power="two", depth=None)
    mine.build(power=torch.tensor(2.0), depth=torch.tensor(3))
    with pytest.raises(DubitoError, match="depth of mine is of another kind: expected int or None"):
        mine.build(depth=2.5)
