"""The stacked back end of crowds against the plain runner, on a few real digits."""

import dataclasses
import time

import pytest
import torch

from dubito.papers import runner, stacked_crowds, tanno2019
from dubito.papers.configs import smoke
from dubito.papers.results import device_hours


def config_of(method, per_item=1, **more):
    made = (tanno2019.FIGURES[f].make("smoke", None, None) for f in ("figure3", "figure6", "figure11"))
    found = next(
        c
        for several in made
        for c in several
        if (c.method, c.skill, c.per_item, c.noise, c.seed) == (method, 0.7, per_item, "pairwise_flippers", 0)
    )
    few = {"epochs": 2, "train": 128, "validation": 64, "test": 64}
    if "rounds" in dict(found.params):
        found = found.with_params(rounds=2)
    return dataclasses.replace(found, **few, **more)


OFTEN = ("trace", "mbem", "wdn", "single-cm")  # one of each kind of step
METHODS = [pytest.param(m, marks=() if m in OFTEN else pytest.mark.nightly) for m in stacked_crowds.METHODS]


@pytest.mark.parametrize("method", METHODS)
def test_results_are_those_of_the_plain_runner(method, shared_data):
    first = config_of(method)
    configs = [first, dataclasses.replace(first, seed=1, noise="hammer_spammers", dominant=False)]
    assert all(stacked_crowds.stackable(c) for c in configs)
    assert len(stacked_crowds.group(configs)) == 1
    found = stacked_crowds.run(configs, root=str(shared_data / "images"), device="cpu")
    plain = runner.run(configs[1], root=shared_data / "images", device="cpu")
    assert found[1].id == plain.id
    assert found[1].history["best_epoch"] == plain.history["best_epoch"]
    for name in ("test_accuracy", "validation_accuracy", "cm_error"):
        if name in plain.metrics or name in found[1].metrics:
            assert found[1].metrics[name] == pytest.approx(plain.metrics[name], abs=1e-4), name


def test_stacks_side_by_side_share_the_time(shared_data):
    longer = dataclasses.replace(config_of("trace"), train=256)
    configs = [config_of("trace"), longer, config_of("single-cm")]
    begun = time.monotonic()
    found = stacked_crowds.run(configs, root=str(shared_data / "images"), device="cpu")
    passed = time.monotonic() - begun
    assert len(stacked_crowds.group(configs)) == 3
    assert 0 < sum(r.seconds for r in found) <= passed
    assert device_hours(found) * 3600 == pytest.approx(sum(r.seconds for r in found))


@pytest.mark.parametrize("epochs", [5, 22])
def test_the_last_epoch_of_a_doctor_net_is_that_of_the_plain_runner(epochs, shared_data):
    """Stage 2 begins from the best of the evaluated epochs of stage 1 though the last weights are handed out."""
    first = dataclasses.replace(config_of("wdn", selection="last"), epochs=epochs, lr=0.01)
    configs = [first, dataclasses.replace(first, seed=1)]
    stack = stacked_crowds.CrowdRuns(configs, stacked_crowds.Data(str(shared_data / "images"), "cpu"))
    for _ in stack.steps():
        pass
    found = stack.results()
    for i, config in enumerate(configs):
        done = runner.trained(config, root=shared_data / "images", device="cpu")
        assert stack.epochs == [r["epoch"] for r in done.run.history]
        assert found[i].history["best_epoch"] == done.run.best_epoch
        for name, value in done.model.state_dict().items():
            torch.testing.assert_close(stack.best[name][i], value, rtol=1e-3, atol=1e-4)


def test_every_method_of_the_figures_has_a_place():
    """Five digits' figures can be stacked in full; sweeps of flippers are dominant where five can be."""
    for name in ("figure3", "figure5", "figure6", "figure9", "figure10", "figure11"):
        for size in ("small", "paper"):
            made = tanno2019.FIGURES[name].make(size, None, None)
            assert made
            assert all(stacked_crowds.stackable(c) for c in made)
    assert all(c.dominant == (c.skill >= 0.3) for c in tanno2019.FIGURES["figure3"].make("small", None, None))
    assert not stacked_crowds.stackable(smoke(tanno2019.TABLES["table1a"].make("paper", None, None)[0]))


def test_a_deadline_gives_up(shared_data):
    assert (
        stacked_crowds.run([config_of("trace")], root=str(shared_data / "images"), device="cpu", until=0.0)
        == []
    )
