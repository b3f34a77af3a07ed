"""Updates that would leave weights infinite or nan: told by step, neither saved nor handed out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import network, problem
from torch import Tensor, nn

from dubito import checkpoint, heads, optim
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.model import Model
from dubito.runs import read_result
from dubito.train import fit

LAST = 9  # of ten steps


def only_at(step: int, value: Any) -> Callable[[int, int], Any]:
    return lambda now, steps: value if now == step else 1.0


@pytest.mark.parametrize("step", [0, 3, LAST])
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -0.5, (-0.2) ** 0.9, None, "1", torch.ones(2), torch.tensor(math.nan)]
)
def test_a_schedule_gives_finite_factors(step: int, value: Any) -> None:
    with pytest.raises(DubitoError, match=f"schedule must return a factor .* at step {step} of 10: expected"):
        fit(network(), problem(40), schedule=only_at(step, value), epochs=2, batch_size=8, progress=False)


@pytest.mark.parametrize("value", [1, 0, np.float32(0.5), torch.tensor(0.5)])
def test_factors_of_any_kind_of_number(value: Any) -> None:
    runs = [
        fit(network(), problem(40), schedule=only_at(LAST, v), epochs=2, batch_size=8, progress=False)
        for v in (value, float(value))
    ]
    one, two = (run.model.state_dict() for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)


HUGE = partial(optim.sgd, lr=3e38, momentum=0.9, nesterov=False)


def steep() -> tuple[Model, LabelledData]:
    """A linear model and inputs so large that the first gradient is far above 1."""
    data = problem(40)
    assert isinstance(data.inputs, Tensor)
    return Model(nn.Identity(), heads.Point(6, 3)), replace(data, inputs=1000 * data.inputs)


@pytest.mark.parametrize("options", [{}, {"ema": 0.9}, {"checkpoint_every": 1}, {"select": "best"}], ids=str)
def test_infinite_weights_are_neither_saved_nor_handed_out(options: dict[str, Any], tmp_path: Path) -> None:
    """The only step: its loss and gradient are finite, what it makes of the weights is not."""
    (model, data), out = steep(), tmp_path / "run"
    with pytest.raises(DubitoError, match=r"the weights are no longer finite.* at step 0 or before; lower"):
        fit(
            model, data, valid=data, optimizer=HUGE, steps=1, batch_size=8, out=out, progress=False, **options
        )
    assert not all(bool(p.isfinite().all()) for p in model.parameters())
    assert checkpoint.steps(out / "checkpoints") == []
    assert read_result(out) is None


def test_a_loss_that_infinite_weights_made_is_not_told_as_one_of_the_data() -> None:
    """Step 0 makes them infinite, step 1 notices."""
    model, data = steep()
    with pytest.raises(DubitoError, match=r"no longer finite.* at step 0 or before") as caught:
        fit(model, data, optimizer=HUGE, epochs=2, batch_size=8, progress=False)
    assert "left as they were" not in str(caught.value)


def test_weights_whose_sum_overflows_are_no_fault() -> None:
    model = network(width=64)
    with torch.no_grad():
        model.backbone[0].bias.fill_(3e38)
    fit(model, problem(40), epochs=1, progress=False)
