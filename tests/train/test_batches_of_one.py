"""Batch norm and a batch of one example: refused where it cannot train, taken where it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from small import crowd, problem
from torch import Tensor, nn

from dubito import heads
from dubito._batches import Order
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.model import Model
from dubito.train import fit


def features(n: int = 33) -> LabelledData:
    return problem(n)


def images(n: int = 33) -> LabelledData:
    x = torch.randn(n, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    return LabelledData(x, torch.arange(n) % 3)


def on_features(norm: Callable[..., nn.Module] = nn.BatchNorm1d, **options: Any) -> Model:
    return Model(nn.Sequential(nn.Linear(6, 4), norm(4, **options)), heads.Point(4, 3))


def on_maps(size: int) -> Model:
    """Batch norm over maps of so many pixels a side."""
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(size), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1))
    return Model(nn.Sequential(pooled, nn.Flatten()), heads.Point(2, 3))


class Frozen(nn.BatchNorm1d):
    """Statistics as they are, in training too."""

    def train(self, mode: bool = True) -> Frozen:
        return super().train(False)


REFUSED: dict[str, tuple[Callable[[], Model], Callable[[], LabelledData], dict[str, Any]]] = {
    "last batch": (on_features, features, {"batch_size": 32}),
    "of the second of several": (on_features, features, {"batch_size": 16, "epochs": 3}),
    "without statistics": (lambda: on_features(track_running_stats=False), features, {"batch_size": 32}),
    "maps of one pixel": (lambda: on_maps(1), images, {"batch_size": 32}),
    "a crowd": (on_features, lambda: crowd(33), {"batch_size": 32}),
    "balanced": (on_features, features, {"batch_size": 4, "balanced": 3}),
    "exactly so many steps": (on_features, features, {"batch_size": 32, "steps": 2}),
    "ones": (on_features, features, {"batch_size": 1}),
    "a stream of ones": (on_features, features, {"batch_size": 1, "batching": "stream"}),
    "one example": (on_features, lambda: features(1), {}),
}
TAKEN: dict[str, tuple[Callable[[], Model], Callable[[], LabelledData], dict[str, Any]]] = {
    "dropped": (on_features, features, {"batch_size": 32, "batching": "drop"}),
    "stream": (on_features, features, {"batch_size": 32, "batching": "stream"}),
    "two left": (on_features, lambda: features(34), {"batch_size": 32}),
    "it is not reached": (on_features, features, {"batch_size": 32, "steps": 1}),
    "maps": (lambda: on_maps(2), images, {"batch_size": 32}),
    "group norm": (lambda: on_features(lambda k: nn.GroupNorm(2, k)), features, {"batch_size": 32}),
    "frozen": (lambda: on_features(Frozen), features, {"batch_size": 32}),
}


def stepped(step: int, steps: int) -> float:
    raise AssertionError("the first step was taken")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_the_first_step(name: str) -> None:
    make, data, options = REFUSED[name]
    model, before = make(), make().state_dict()
    many = options.get("batch_size", 128) > 1 and len(data()) > 1
    remedy = 'take batching="drop" or another batch_size' if many else "take a larger batch_size"
    told = rf"^batch norm cannot train on a batch of one example at backbone\..*{remedy}$"
    with pytest.raises(DubitoError, match=told):
        fit(model, data(), schedule=stepped, **{"epochs": 1, **options})
    state = model.state_dict()
    assert all(torch.equal(state[k], before[k]) for k in before if "running" in k or "batches" in k)


@pytest.mark.parametrize("name", TAKEN)
def test_what_can_train_is_taken(name: str) -> None:
    make, data, options = TAKEN[name]
    run = fit(make(), data(), progress=False, **{"epochs": 1, **options})
    assert run.steps >= 1


@pytest.mark.parametrize("batching", ["epoch", "drop", "stream"])
@pytest.mark.parametrize(("n", "size"), [(7, 3), (6, 3), (7, 1), (1, 4), (5, None), (9, 8)])
def test_the_smallest_batch(batching: str, n: int, size: int | None) -> None:
    for steps in range(1, 9):
        order = Order(n, size, batching, seed=0)
        assert order.smallest(steps) == min(len(order.positions(step)) for step in range(steps))


def test_caller_sees_no_draw() -> None:
    """A network that draws is tried too, with generators of its own."""

    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand(())

    model = on_maps(2)
    model.backbone = nn.Sequential(Drawing(), model.backbone)
    before = torch.get_rng_state()
    fit(model, replace(images(), name="drawn"), batch_size=32, epochs=1, progress=False)
    assert torch.equal(torch.get_rng_state(), before)
