"""The doctor net: both stages, where the second begins, who is left out."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from simulated import crowd_data
from torch import nn

from dubito import heads, optim
from dubito._batches import Batches
from dubito.errors import DubitoError
from dubito.model import Model
from dubito.procedures import DoctorHeads, DoctorNet
from dubito.train import fit


def doctor(data, R=4, **options):
    model = Model(nn.Identity(), DoctorHeads(3, 3, num_annotators=R))
    procedure = DoctorNet(model, **options)
    procedure.begin(data)
    procedure.epochs = 10
    return procedure


def test_doctor_net_judges_a_head_only_by_items_that_it_did_not_label():
    data, _ = crowd_data(25, 2)
    net = doctor(data)
    with torch.no_grad():
        net.head.weight.normal_(generator=torch.Generator().manual_seed(0))
        net.head.opinion.copy_(torch.tensor([0.3, -0.5, 0.9, 0.0]))
    net.epoch = 9
    total = net(Batches(data)(torch.arange(25)), lambda _: torch.Generator())
    p = net.head.everyone(data.inputs).exp()
    w, wanted = net.head.opinion.softmax(0), 0.0
    for n in range(25):
        mine = data.crowd.item == n
        rest = [r for r in range(4) if r not in data.crowd.annotator[mine].tolist()]
        mixed = sum(w[r] * p[n, r] for r in rest) / sum(w[r] for r in rest)
        wanted = wanted - mixed.log()[data.crowd.label[mine]].mean() / 25
    torch.testing.assert_close(total, wanted)
    total.backward()
    assert net.head.opinion.grad is not None
    assert net.head.weight.grad is None


def test_doctor_net_first_stage_is_the_mean_over_an_items_labels():
    data, _ = crowd_data(25, 2)
    net = doctor(data)
    total = net(Batches(data)(torch.arange(25)), lambda _: torch.Generator())
    log_p, wanted = net.head.everyone(data.inputs), 0.0
    for n, r, y in zip(*(t.tolist() for t in data.crowd)):
        wanted = wanted - log_p[n, r, y] / 2 / 25
    torch.testing.assert_close(total, wanted)
    total.backward()
    assert net.head.opinion.grad is None


def test_doctor_net_averages_the_heads_of_its_best_epoch():
    """Stage 2 starts from the best epoch of stage 1, moves the average alone, and is what is handed out."""
    data, _ = crowd_data(200, 2, gap=1.0, skill=0.5)
    valid, _ = crowd_data(60, 1, gap=1.0, seed=1)
    model = Model(nn.Identity(), DoctorHeads(3, 3, num_annotators=4))
    held = {}

    class Watched(DoctorNet):
        def begin_epoch(self, epoch, data):
            if epoch == self.averages_from:
                held["best"] = {k: v.clone() for k, v in self.best.items()}
                held["last"] = {k: v.clone() for k, v in self.model.state_dict().items()}
            super().begin_epoch(epoch, data)

    run = fit(
        model, data, valid=valid, procedure=partial(Watched, averaging=0.4), epochs=10, batch_size=20, device="cpu",
        optimizer=partial(optim.adam, lr=0.3), select="best", progress=False, seed=2,
    )  # fmt: skip
    assert run.best_epoch > 6
    moved = {k for k, v in run.model.state_dict().items() if not torch.equal(v, held["best"][k])}
    assert moved == {"head.opinion"}
    assert not torch.equal(held["best"]["head.weight"], held["last"]["head.weight"])  # or nothing is tested


@pytest.mark.parametrize("batching", ["epoch", "stream"])
def test_doctor_net_that_stops_early_still_learns_its_average(batching):
    """Patience ends stage 1, not the run: stage 2 follows from the best epoch, in the epochs it would have had."""
    data, _ = crowd_data(200, 2, gap=1.0, skill=0.5)
    valid, _ = crowd_data(60, 1, gap=1.0, seed=1)
    kept = {}

    class Watched(DoctorNet):
        def begin_epoch(self, epoch, data):
            super().begin_epoch(epoch, data)
            if epoch == self.averages_from:
                kept.update({k: v.clone() for k, v in self.model.state_dict().items()})

    def run(epochs, averaging, **options):
        model = Model(nn.Identity(), DoctorHeads(3, 3, num_annotators=4))
        return fit(
            model, data, valid=valid, procedure=partial(Watched, averaging=averaging), epochs=epochs, batch_size=30,
            batching=batching, device="cpu", optimizer=partial(optim.adam, lr=0.3), select="best", progress=False,
            seed=2, **options,
        )  # fmt: skip

    found = run(40, 0.25, patience=3)
    epochs = [r["epoch"] for r in found.history]
    first = [e for e in epochs if e <= 30]
    assert 3 < len(first) < 30  # or nothing is tested
    assert epochs[len(first)] == 31
    assert found.best_epoch > 30
    scores = [r["valid_accuracy"] for r in found.history[: len(first)]]
    best = 1 + scores.index(max(scores))
    wanted = run(best, 1e-3).procedure.model.state_dict()  # one stage, to the best epoch
    torch.testing.assert_close(kept, dict(wanted))
    moved = {k for k, v in found.model.state_dict().items() if not torch.equal(v, kept[k])}
    assert moved == {"head.opinion"}


def test_doctor_net_without_a_second_stage_stops_for_good():
    """Of two epochs none goes to the average: early stopping ends the run."""
    net = doctor(crowd_data(10, 2)[0])
    assert [(setattr(net, "epoch", e), net.later)[1] for e in (0, 7, 8, 9)] == [8, 8, None, None]
    net.epochs, net.epoch = 2, 0
    assert (net.averages_from, net.later) == (2, None)


def test_doctor_net_when_everybody_labels_everything_and_when_somebody_labels_nothing():
    data, _ = crowd_data(10, 4)
    net = doctor(data)
    log_q = net.head.everyone(data.inputs)
    everyone = torch.ones(10, 4, dtype=torch.bool)
    torch.testing.assert_close(net.head.average(log_q, everyone), net.head.average(log_q))
    silent = doctor(crowd_data(10, 2, R=3)[0], R=4)
    with torch.no_grad():
        silent.head.bias[3] = 50 * torch.eye(3)[0]
    assert silent.model(data.inputs).exp().sub(1 / 3).abs().max() < 0.9
    assert silent.head.heard.tolist() == [True, True, True, False]
    with pytest.raises(DubitoError, match="DoctorHeads"):
        DoctorNet(Model(nn.Identity(), heads.Point(3, 3)))
