"""Balanced epochs: as many examples of every class, drawn anew."""

from __future__ import annotations

import pytest
import torch

from dubito._batches import Order
from dubito.data import LabelledData, balanced
from dubito.errors import DubitoError
from dubito.heads import Point
from dubito.model import Model
from dubito.train import _order, fit


def data() -> LabelledData:
    labels = torch.tensor([0] * 40 + [1] * 8 + [2] * 4)
    x = torch.nn.functional.one_hot(labels, 3).float() + 0.1 * torch.randn(
        52, 3, generator=torch.Generator().manual_seed(0)
    )
    return LabelledData(x, labels, classes=("a", "b", "c"))


def test_the_order_is_that_of_the_sampler():
    order = _order(data(), 3, 4, 5, "stream", seed=7)
    assert (order.n, order.steps(3)) == (12, 8)
    seen = torch.cat([order.positions(step) for step in range(order.steps(2))])[:24]
    shown = [balanced(data().labels, 3, 4, seed=7, epoch=e) for e in range(2)]
    assert torch.equal(seen, torch.cat(shown))
    for epoch in range(2):
        counts = torch.bincount(data().labels[seen[12 * epoch : 12 * epoch + 12]], minlength=3)
        assert counts.tolist() == [4, 4, 4]
    assert not torch.equal(seen[:12].sort().values, seen[12:].sort().values)
    assert torch.equal(
        Order(52, 5, "stream", seed=7).positions(3), _order(data(), 3, None, 5, "stream", 7).positions(3)
    )


def test_a_folder_changes_no_bit_of_a_balanced_run(tmp_path):
    def run(steps: int, out=None):
        model = Model(torch.nn.Identity(), Point(3, 3, generator=torch.Generator().manual_seed(0)))
        return fit(
            model, data(), steps=steps, batch_size=5, batching="stream", balanced=4, out=out, progress=False
        )

    whole = run(9)
    kept = run(9, tmp_path / "run")
    for a, b in zip(whole.model.parameters(), kept.model.parameters()):
        assert torch.equal(a, b)
    assert whole.steps == 9


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
def test_a_wrong_number_is_refused(wrong):
    model = Model(torch.nn.Identity(), Point(3, 3))
    with pytest.raises(DubitoError, match="balanced"):
        fit(model, data(), balanced=wrong)
