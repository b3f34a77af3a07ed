"""Every stage that is given to a procedure is read by it, or refused: none is left out in silence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small import crowd, network, problem
from torch import Tensor

from dubito import channels, heads, losses, optim, penalties, targets
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.links import BoundedTemperature
from dubito.model import Model
from dubito.procedures import (
    CoTeaching,
    CrossFittedEM,
    Distillation,
    DoctorHeads,
    DoctorNet,
    GeneralisedEM,
    Plain,
    Pruning,
    SelfPaced,
)
from dubito.train import Run, fit

HEAVY = partial(penalties.trace, weight=10.0)
sgd = partial(optim.sgd, lr=0.1, momentum=0.0, nesterov=False)  # whose step tells the size of a gradient


def trained(procedure: Callable[..., Plain], **options: Any) -> Run:
    model = network(channel=channels.LearnedTransition(3))
    return fit(model, problem(40), procedure=procedure, epochs=2, batch_size=8, optimizer=sgd, **options)


def weights(model: Model) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(
    "procedure",
    [partial(CoTeaching, rate=0.0), partial(SelfPaced, rate=0.0, burn_in=9), partial(Pruning, start=9)],
)
def test_a_procedure_that_leaves_nothing_out_is_plain_training_with_its_penalty(
    procedure: Callable[..., Plain],
) -> None:
    run, plain = (trained(p, penalty=HEAVY) for p in (procedure, Plain))
    torch.testing.assert_close(weights(run.model), weights(plain.model))
    assert not torch.allclose(weights(trained(procedure).model), weights(run.model))


def test_both_networks_of_co_teaching_are_penalised() -> None:
    twins = [
        trained(partial(CoTeaching, rate=0.2), penalty=p).procedure.twin.channel.skills().detach()
        for p in (None, HEAVY)
    ]
    assert float(twins[1]) < float(twins[0]) - 0.05


def doctors() -> Model:
    return network(head=partial(DoctorHeads, num_annotators=4))


@pytest.mark.parametrize(
    ("procedure", "build", "data", "unread"),
    [
        (lambda m, **o: Distillation(m, teacher=network(), **o), network, problem, "loss target penalty"),
        (GeneralisedEM, network, crowd, "target penalty"),
        (CrossFittedEM, network, crowd, "target penalty"),
        (DoctorNet, doctors, crowd, "loss target penalty"),
    ],
)
def test_a_stage_that_would_change_nothing_is_refused(
    procedure: Callable[..., Plain],
    build: Callable[[], Model],
    data: Callable[[int], LabelledData],
    unread: str,
) -> None:
    stages = {"loss": losses.gce, "target": partial(targets.smooth, alpha=0.5), "penalty": HEAVY}
    for name in unread.split():
        with pytest.raises(DubitoError, match=f"does not read {name}=, which would change nothing"):
            fit(build(), data(40), procedure=procedure, epochs=1, **{name: stages[name]})
    assert fit(build(), data(40), procedure=procedure, epochs=1).steps


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({"head": heads.Diagonal}, "the scale of Diagonal"),
        ({"temperature": 0.5}, "a temperature"),
        ({"temperature": BoundedTemperature()}, "a temperature"),
        ({"link": partial(torch.log_softmax, dim=-1)}, "a link"),
        ({"channel": channels.LearnedTransition(3)}, "a channel"),
    ],
)
def test_a_student_has_no_stage_that_its_logits_leave_untrained(options: dict[str, Any], got: str) -> None:
    with pytest.raises(DubitoError, match=f"a student learns its logits.*{got}"):
        Distillation(network(**options), teacher=network())
