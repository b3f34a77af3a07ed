"""Runs that stop and go on: in the middle of an epoch, for every procedure, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from small import crowd, network, problem
from torch import Tensor, nn

from dubito import channels, heads, losses, optim, penalties, targets
from dubito._identity import digest
from dubito.errors import DubitoError
from dubito.procedures import CoTeaching, DoctorHeads, DoctorNet, Pruning, SelfPaced
from dubito.runs import read_metrics, read_result
from dubito.train import Run, fit

STOP = {"at": -1}


class Killed(BaseException):
    pass


def constant(step: int, steps: int) -> float:
    """A schedule that falls dead at a chosen step."""
    if step == STOP["at"]:
        raise Killed
    return 1.0


def labelled(**options: Any) -> Callable[..., Run]:
    model = {k: options.pop(k) for k in ("head", "channel", "integration", "samples") if k in options}
    return lambda out, **more: fit(
        network(dropout=0.2, **{k: v() if k == "channel" else v for k, v in model.items()}),
        options.get("data", problem(50)),
        valid=problem(40, seed=3),
        schedule=constant,
        batch_size=16,
        seed=2,
        out=out,
        checkpoint_every=2,
        **{"epochs": 3, **{k: v for k, v in options.items() if k != "data"}},
        **more,
    )


RUNS: dict[str, Callable[..., Run]] = {
    "plain": labelled(),
    "stream": labelled(batching="stream"),
    "coteaching": labelled(procedure=partial(CoTeaching, rate=0.3, ramp=3)),
    "mentornet": labelled(procedure=partial(SelfPaced, rate=0.3, burn_in=1)),
    "pruning": labelled(loss=losses.gce, procedure=partial(Pruning, start=1, every=1)),
    "ema and best": labelled(ema=0.9, select="best", patience=2),
    "sgd": labelled(optimizer=partial(optim.sgd, lr=0.1), clip=0.5, select="best"),
    "lars": labelled(optimizer=partial(optim.lars, lr=1.0)),
    "label noise": labelled(target=partial(targets.label_noise, sigma=0.3)),
    "het": labelled(head=heads.Diagonal, integration="mc", samples=3),
    "crowd": labelled(
        channel=partial(channels.AnnotatorConfusion, 4, 3), data=crowd(50), penalty=penalties.trace
    ),
    "doctor net": labelled(
        head=partial(DoctorHeads, num_annotators=4), procedure=partial(DoctorNet, averaging=0.7),
        data=crowd(50), select="best",
    ),
    "doctor net that stops": labelled(
        head=partial(DoctorHeads, num_annotators=4), procedure=partial(DoctorNet, averaging=0.2),
        data=crowd(50), select="best", patience=1, epochs=10, optimizer=partial(optim.adam, lr=1e-9),
    ),
}  # fmt: skip


class Restless(nn.Module):
    """Draws from torch's default generator whenever it is called, in evaluation too."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.rand(())


def erratic(step: int, steps: int) -> float:
    """A schedule that draws from torch's default generator."""
    return constant(step, steps) * float(0.5 + torch.rand(()))


def test_functions_that_draw_carelessly_draw_from_the_run(tmp_path: Path) -> None:
    """Whatever a run calls, between steps too, leaves the caller's generator alone and is the same when resumed."""

    def start(out: Path) -> Run:
        model = network()
        model.backbone = nn.Sequential(Restless(), model.backbone)
        return fit(
            model, problem(50), valid=problem(40, seed=3), schedule=erratic, epochs=3, batch_size=16,
            select="best", out=out, checkpoint_every=2, progress=False,
        )  # fmt: skip

    with torch.random.fork_rng():
        torch.manual_seed(0)
        before = torch.get_rng_state()
        alone = start(tmp_path / "alone")
        STOP["at"] = 7
        with pytest.raises(Killed):
            start(tmp_path / "stopped")
        STOP["at"] = -1
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(1)
        resumed = start(tmp_path / "stopped")
    assert digest(resumed.model.state_dict()) == digest(alone.model.state_dict())
    assert resumed.history == alone.history


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_stops_twice_ends_as_one_that_does_not(name: str, tmp_path: Path) -> None:
    STOP["at"] = -1
    alone = RUNS[name](tmp_path / "alone")
    for stop in (3, 7):  # in the middle of an epoch, a step after a checkpoint
        STOP["at"] = stop
        with pytest.raises(Killed):
            RUNS[name](tmp_path / "stopped")
    STOP["at"] = -1
    resumed = RUNS[name](tmp_path / "stopped")
    assert digest(resumed.procedure.state_dict()) == digest(alone.procedure.state_dict())
    assert digest(resumed.model.state_dict()) == digest(alone.model.state_dict())
    assert resumed.history == alone.history
    assert (resumed.steps, resumed.best_epoch) == (alone.steps, alone.best_epoch)
    for file in ("metrics.jsonl", "result.json"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()


@pytest.mark.parametrize("stop", [32, 35])
def test_a_run_that_left_epochs_out_goes_on_behind_them(stop: int, tmp_path: Path) -> None:
    """A doctor net whose first stage stops after two of eight epochs of four steps: the next step is number 32."""
    STOP["at"] = -1
    start = RUNS["doctor net that stops"]
    alone = start(tmp_path / "alone")
    assert [r["epoch"] for r in alone.history] == [1, 2, 9, 10]
    assert (alone.best_epoch, alone.steps) == (9, 40)
    STOP["at"] = stop
    with pytest.raises(Killed):
        start(tmp_path / "stopped")
    STOP["at"] = -1
    resumed = start(tmp_path / "stopped")
    assert digest(resumed.procedure.state_dict()) == digest(alone.procedure.state_dict())
    assert resumed.history == alone.history == read_metrics(tmp_path / "stopped")


@pytest.mark.parametrize("name", ["plain", "ema and best", "coteaching"])
def test_a_finished_run_is_taken_up_without_training(name: str, tmp_path: Path) -> None:
    STOP["at"] = -1
    first = RUNS[name](tmp_path / "run")
    result = read_result(tmp_path / "run")
    assert result is not None
    assert result["weights"] == digest(first.model.state_dict())
    assert result["history"] == first.history == read_metrics(tmp_path / "run")
    assert result["steps"] == first.steps
    before = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    STOP["at"] = 0
    again = RUNS[name](tmp_path / "run")
    STOP["at"] = -1
    assert digest(again.model.state_dict()) == digest(first.model.state_dict())
    assert (again.history, again.steps, again.best_epoch) == (first.history, first.steps, first.best_epoch)
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == before
    assert not again.model.training


def test_other_data_is_another_run(tmp_path: Path) -> None:
    fit(network(), problem(20), epochs=1, out=tmp_path / "run")
    other = problem(20)
    other.inputs[0, 0] += 1  # type: ignore[index]
    for changed in ({"data": other}, {"data": problem(20), "valid": problem(9)}, {"data": problem(21)}):
        with pytest.raises(DubitoError, match="another configuration"):
            fit(network(), epochs=1, out=tmp_path / "run", **changed)
    fit(network(), problem(20), epochs=1, out=tmp_path / "run", checkpoint_every=3, progress=False)


def test_a_broken_checkpoint_is_skipped_and_the_run_ends_the_same(tmp_path: Path) -> None:
    STOP["at"] = -1
    alone = RUNS["plain"](tmp_path / "alone")
    STOP["at"] = 7
    with pytest.raises(Killed):
        RUNS["plain"](tmp_path / "stopped")
    STOP["at"] = -1
    file = sorted((tmp_path / "stopped" / "checkpoints").iterdir())[-1] / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 4
    file.write_bytes(data)
    resumed = RUNS["plain"](tmp_path / "stopped")
    assert digest(resumed.model.state_dict()) == digest(alone.model.state_dict())
