"""Configs as lanes: the same numbers as the plain runner, left and taken up again, matrices of a first stage."""

import dataclasses

import pytest
import torch

from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.papers import collier2020, englesson2023, lukasik2020, prepare, runner, stacked, streamed
from dubito.papers.results import Result

BASE = {"network": "lenet5", "train": 96, "validation": 32, "test": 64, "pool": 128, "batch": 32, "epochs": 3}


@pytest.fixture(autouse=True)
def images(monkeypatch):
    """Noise in place of digits: nothing here depends on what is seen."""

    def read(name: str, split: str, root: str | None) -> LabelledData:
        g = torch.Generator().manual_seed(len(split))
        pixels = torch.randint(0, 256, (200, 1, 28, 28), generator=g, dtype=torch.uint8)
        return LabelledData(pixels, torch.arange(200) % 10, classes=tuple("0123456789"))

    monkeypatch.setattr(prepare, "_read", read)


def config(method: str, **more):
    found = englesson2023.TABLES["table1-mnist"].make("paper", None, None)
    one = next(c for c in found if c.method == method and c.noise == "asymmetric" and c.rate == 0.4)
    return dataclasses.replace(one, size="small", **{**BASE, **more})


def test_a_lane_gives_the_result_of_the_plain_runner(tmp_path):
    wanted = config("ln")
    (ours,) = streamed.run([wanted], folder=tmp_path, device="cpu")
    theirs = runner.run(wanted, device="cpu")
    assert ours.config == theirs.config
    for name in ("test_accuracy", "validation_accuracy"):
        assert ours.metrics[name] == pytest.approx(theirs.metrics[name], abs=1e-12)


def student(**params):
    found = lukasik2020.TABLES["table5"].make("paper", "mnist", None)
    one = next(c for c in found if c.param("teacher") == "plain" and c.param("student") == "plain")
    more = {**BASE, "epochs": 0, "steps": 9, "validation": 0}
    return dataclasses.replace(one, size="small", **more).with_params(**params)


@pytest.mark.parametrize(
    "params",
    [{}, *({who: how, "alpha": 0.2} for who in ("teacher", "student") for how in ("smooth", "forward"))],
)
def test_a_student_is_taught_as_by_the_plain_runner(tmp_path, params):
    wanted = student(**params)
    assert streamed.streamable(wanted)
    (ours,) = streamed.run([wanted], folder=tmp_path, device="cpu")
    theirs = runner.run(wanted, device="cpu")
    assert ours.config == theirs.config
    for a, b in (
        (ours.metrics["test_accuracy"], theirs.metrics["test_accuracy"]),
        (ours.metrics["test_log_likelihood"], theirs.metrics["test_log_likelihood"]),
        (ours.history["teacher_test_accuracy"], theirs.history["teacher_test_accuracy"]),
    ):
        assert a == pytest.approx(b, abs=1e-6)
    assert ours.seconds > ours.history["teacher_seconds"] > 0


@pytest.mark.parametrize("method", ["ce", "het"])
def test_a_run_that_diverged_leaves_its_neighbours_alone(tmp_path, method):
    told, wild = [], config(method, lr=1e30)
    with pytest.raises(DubitoError, match=r"^(training diverged|mean is not finite)"):
        streamed.run([wild, config("gce")], folder=tmp_path, device="cpu", report=told.extend)
    assert [r.config.method for r in told] == ["gce"]


@pytest.mark.parametrize("make", [lambda: config("gce"), student], ids=["alone", "taught"])
def test_a_run_cut_short_goes_on(tmp_path, make):
    wanted = make()
    (whole,) = streamed.run([wanted], folder=tmp_path / "whole", device="cpu")
    calls = []
    while not calls or not calls[-1]:  # no call has time for more than one epoch
        calls.append(streamed.run([wanted], folder=tmp_path / "cut", device="cpu", seconds=1e-3))
    # Three epochs each, and the student begins where the teacher ends; a call may have no time for any.
    assert len(calls) >= (wanted.epochs or 5)
    (done,) = calls[-1]
    assert done.metrics == whole.metrics
    drop = {"teacher_seconds": 0}
    assert {**done.history, **drop} == {**whole.history, **drop}


def test_forward_takes_the_matrix_of_cross_entropy(tmp_path):
    first = streamed.run([config("ce")], folder=tmp_path, device="cpu")
    matrix = torch.tensor(first[0].history["transition"])
    torch.testing.assert_close(matrix.sum(1), torch.ones(10, dtype=matrix.dtype))
    (second,) = streamed.run([config("forward")], folder=tmp_path, device="cpu", known=first)
    assert second.config.method == "forward"
    assert streamed.run([config("ce")], folder=tmp_path, device="cpu", known=first) == []


def test_a_matrix_comes_from_training_on_the_same_labels():
    """Five sets of labels on the same images, and other lengths of training, are other places."""
    found = englesson2023.TABLES["table2"].make("paper", "cifar10n", None)
    plain = [c for c in found if c.method == "ce" and c.seed == 0]
    corrected = [c for c in found if c.method == "forward" and c.seed == 0]
    assert len({stacked.place(c) for c in plain}) == len(plain) == 5
    assert {stacked.place(c) for c in corrected} == {stacked.place(c) for c in plain}
    shorter = dataclasses.replace(plain[0], epochs=100, size="small")
    assert stacked.place(shorter) != stacked.place(plain[0])
    # A matrix read from a network trained otherwise is another matrix.
    for change in (
        {"lr": 0.05},
        {"batch": 64},
        {"augment": "none"},
        {"weight_decay": 0.0},
        {"exact": "redrawn"},
    ):
        assert stacked.place(dataclasses.replace(plain[0], **change)) != stacked.place(plain[0]), change


def test_a_matrix_read_at_another_percentile_is_refused():
    wanted = config("forward")
    first = {stacked.place(wanted): Result(config("ce"), {}, history={"transition": torch.eye(10).tolist()})}
    assert torch.equal(stacked.estimated_matrix(first, wanted), torch.eye(10, dtype=torch.float64))
    with pytest.raises(DubitoError, match="another percentile"):
        stacked.estimated_matrix(first, wanted.with_params(percentile=100.0))


def test_runs_that_are_analysed_are_not_stacked():
    """A stack leaves scores alone: residuals would be missing and never made up for."""
    found = englesson2023.FIGURES["figure7"].make("paper", None, None)
    assert not any(stacked.stackable(c) for c in found if c.data == "mnist")
    assert stacked.stackable(config("ln", network="lenet5"))


def test_what_can_be_a_lane():
    assert streamed.streamable(config("ln"))
    assert streamed.streamable(dataclasses.replace(config("ce"), selection="best", patience=5))
    assert not streamed.streamable(dataclasses.replace(config("ce"), balanced=5))


def lukasik(method: str, **params):
    found = lukasik2020.TABLES["table7"].make("paper", None, None)
    one = next(c for c in found if c.method == method and (not params or dict(c.params) == params))
    small = {"network": "lenet5", "train": 96, "test": 64, "pool": 96, "batch": 40, "steps": 7}
    plain = {"data": "mnist", "augment": "none", "normalise": "unit", "size": "small"}
    return dataclasses.replace(one, **small, **plain)


@pytest.mark.parametrize("method", ["ce", "forward", "backward"])
def test_a_run_counted_in_steps_ends_within_an_epoch(tmp_path, method):
    """Given matrices, analyses of the training set, milestones: all as the plain runner has them."""
    wanted = lukasik(method)
    (ours,) = streamed.run([wanted], folder=tmp_path, device="cpu")
    theirs = runner.run(wanted, device="cpu")
    assert set(theirs.metrics) <= set(ours.metrics)
    for name, value in theirs.metrics.items():
        assert ours.metrics[name] == pytest.approx(value, abs=1e-6), name
    assert ours.history["probabilities"] == theirs.history["probabilities"]


def test_an_estimated_matrix_that_cannot_be_inverted_is_mixed_with_the_identity(tmp_path):
    first = streamed.run([lukasik("ce")], folder=tmp_path, device="cpu")
    wanted = lukasik("backward", percentile=99.9, transition="estimated")
    (ours,) = streamed.run([wanted], folder=tmp_path, device="cpu", known=first)
    theirs = runner.run(wanted, device="cpu")
    assert ours.history["mixed_with_identity"] == theirs.history["mixed_with_identity"] > 0
    torch.testing.assert_close(
        torch.tensor(ours.history["transition"]),
        torch.tensor(theirs.history["transition"]),
        atol=1e-6,
        rtol=0,
    )


def test_the_best_epoch_is_kept_as_the_plain_runner_keeps_it(tmp_path):
    wanted = config("ce", selection="best", patience=2, epochs=8, lr=0.01)
    (ours,) = streamed.run([wanted], folder=tmp_path, device="cpu")
    theirs = runner.run(wanted, device="cpu")
    for name in ("test_accuracy", "test_log_likelihood", "validation_accuracy"):
        assert ours.metrics[name] == pytest.approx(theirs.metrics[name], abs=1e-6), name
    assert len(ours.history["validation_accuracy"]) < 8  # stopped early
    assert ours.history["best_epoch"] == len(ours.history["validation_accuracy"]) - 2


@pytest.mark.parametrize("method", ["coteaching", "mentornet"])
def test_methods_that_choose_examples_are_told_the_share_of_wrong_labels(tmp_path, method):
    """Ramp and burn-in within the run, the first network judged, the best epoch kept: as by the plain runner."""
    found = collier2020.TABLES["table1"].make("paper", "mnist", None)
    short = {"coteaching": {"ramp": 3}, "mentornet": {"burn_in": 2, "lambda2": 0.5}}[method]
    small = {**BASE, "size": "small", "network_options": (), "epochs": 6, "patience": 2, "pool": 0}
    wanted = dataclasses.replace(next(c for c in found if c.method == method).with_params(**short), **small)
    assert streamed.streamable(wanted)
    (ours,) = streamed.run([wanted], folder=tmp_path, device="cpu")
    theirs = runner.run(wanted, device="cpu")
    assert ours.history["noise_rate"] == theirs.history["noise_rate"] > 0.1
    assert ours.history["best_epoch"] == theirs.history["best_epoch"]
    for name in set(theirs.metrics) - {"ece"}:
        assert ours.metrics[name] == pytest.approx(theirs.metrics[name], abs=1e-5), name


def test_as_a_run_ends_the_next_begins_and_time_is_shared(tmp_path):
    configs = [config("ce", epochs=1), config("gce"), config("ln", epochs=2), config("nan")]
    seen = []
    results = streamed.run(
        configs, folder=tmp_path, device="cpu", at_once=2, report=lambda r: seen.append(r[0].config.method)
    )
    assert sorted(seen) == sorted(c.method for c in configs)
    assert seen[0] == "ce"
    alone = [runner.run(c, device="cpu").metrics["test_accuracy"] for c in configs[:3]]
    by_method = {r.config.method: r.metrics["test_accuracy"] for r in results}
    assert [by_method[c.method] for c in configs[:3]] == pytest.approx(alone, abs=1e-12)
