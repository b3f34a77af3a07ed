"""Compositions of fits: two stages, distillation, search; and pruning, which one of the methods needs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dubito import compose, estimate, heads, losses, methods, noise, optim
from dubito._batches import WEIGHT, Batches
from dubito._random import generator
from dubito.backbones import MLP
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.evaluate import evaluate, predict
from dubito.model import Model
from dubito.procedures import CoTeaching, Distillation, Plain, Pruning, SelfPaced
from dubito.train import fit

QUICK = {"epochs": 4, "batch_size": 64, "progress": False, "device": "cpu"}
TRUE_T = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]], dtype=torch.float64)


def small(source: torch.Generator) -> MLP:
    return MLP(2, (12,), generator=source)


def clusters(n: int = 600, seed: int = 0) -> LabelledData:
    """Three well separated clusters whose labels went through TRUE_T."""
    source = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]])[y] + 0.5 * torch.randn(n, 2, generator=source)
    return LabelledData(x, noise.corrupt(y, TRUE_T, generator=source), clean=y, classes=("a", "b", "c"))


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())


def test_a_method_of_one_stage_is_a_fit_with_its_stages() -> None:
    data = clusters(120)
    run = compose.train_method("gce:q=0.4", {}, small, data, seed=3, **QUICK)
    head = heads.Point(12, 3, generator=generator(3, 0, "head"))
    by_hand = fit(
        Model(small(generator(3, 0, "backbone")), head),
        data,
        loss=partial(losses.gce, q=0.4),
        seed=3,
        **QUICK,
    )
    assert equal(run.model, by_hand.model)
    assert run.extra == {}


@pytest.mark.paper("lukasik2020 table 7")
def test_two_stages_estimate_the_transition_matrix() -> None:
    data = clusters(900)
    run = compose.train_method("forward", {}, small, data, **QUICK | {"epochs": 15})
    T = run.extra["transition"]
    np.testing.assert_allclose(T.numpy(), TRUE_T.numpy(), atol=0.13)
    # It is read from the first network's view of the inputs as they are, at the asked percentile.
    first = run.extra["first"].model
    assert torch.equal(T, estimate.anchor_transition(predict(first, data).log_p.exp(), 99.9))
    torch.testing.assert_close(run.model.channel.matrices(), T)
    counts = np.zeros((3, 3))
    np.add.at(counts, (data.clean.numpy(), data.labels.numpy()), 1)
    realised = counts / counts.sum(1, keepdims=True)
    assert run.extra["transition_error"] == pytest.approx(((realised - T.numpy()) ** 2).sum() / 3)
    assert evaluate(run.model, data)["clean_accuracy"] > 0.97


def test_clean_labels_train_nothing() -> None:
    data = clusters(150)
    blind = LabelledData(data.inputs, data.labels, classes=data.classes)
    known, unknown = (compose.train_method("forward", {}, small, d, **QUICK) for d in (data, blind))
    assert equal(known.model, unknown.model)
    assert "transition_error" not in unknown.extra


def test_augmentation_does_not_reach_the_estimate() -> None:
    data = clusters(150)
    run = compose.train_method("backward", {}, small, data, augment=halved, **QUICK)
    expected = estimate.anchor_transition(predict(run.extra["first"].model, data).log_p.exp(), 99.9)
    assert torch.equal(run.extra["transition"], expected)


def halved(x: Tensor, *, seed: int, epoch: int, index: Tensor) -> Tensor:
    return x / 2


def test_percentile_rule_folds_and_given_matrices() -> None:
    data = clusters(150)
    below = compose.train_method("forward:percentile=97,at=below", {}, small, data, **QUICK)
    p = predict(below.extra["first"].model, data).log_p.exp()
    assert torch.equal(below.extra["transition"], estimate.anchor_transition(p, 97.0, "below"))
    folded = compose.train_method("forward:folds=3", {}, small, data, **QUICK)
    assert not torch.equal(folded.extra["transition"], estimate.anchor_transition(p, 99.9))
    given = compose.train_method("forward", {"transition": TRUE_T}, small, data, **QUICK)
    assert list(given.extra) == ["transition"]  # no stage before it, no error to report
    torch.testing.assert_close(given.model.channel.matrices(), TRUE_T)
    symmetric = compose.train_method("forward:alpha=0.3", {}, small, data, **QUICK)
    torch.testing.assert_close(symmetric.model.channel.matrices(), noise.resample(3, 0.3))


@pytest.mark.paper("lukasik2020 table 5")
@pytest.mark.parametrize(("smoothing", "correction"), [(0.0, 0.0), (0.2, 0.0), (0.0, 0.3)])
def test_distillation_equals_the_definition(smoothing: float, correction: float) -> None:
    data = clusters(20)
    teacher, student = (Model(small(generator(s, 0, "b")), heads.Point(12, 3)) for s in (1, 2))
    step = Distillation(student, teacher=teacher, temperature=2.0, smoothing=smoothing, correction=correction)
    batch = Batches(data)(torch.arange(20))
    found = float(step(batch, partial(generator, 0, 0)).detach())
    with torch.no_grad():
        z_t, z_s = (m.latent(batch.x).mean.double().numpy() for m in (teacher, student))
    q, r = (np.exp(z / 2) / np.exp(z / 2).sum(-1, keepdims=True) for z in (z_t, z_s))
    q = (1 - smoothing) * q + smoothing / 3
    r = (1 - correction) * r + correction / 3
    assert found == pytest.approx(-(q * np.log(r)).sum(-1).mean(), rel=1e-5)


@pytest.mark.paper("lukasik2020 table 5")
@pytest.mark.parametrize(
    ("text", "teacher"),
    [
        ("distill", "ce"),
        ("distill:teacher=smooth,alpha=0.2", "smooth:alpha=0.2"),
        ("distill:teacher=forward,alpha=0.2", "forward:alpha=0.2"),
        ("distill:student=smooth", "ce"),
        ("distill:teacher=ln", "ln"),
    ],
)
def test_teachers_are_trained_by_their_method(text: str, teacher: str) -> None:
    data = clusters(120)
    fast = {**QUICK, "epochs": 20, "optimizer": partial(optim.adam, lr=0.05)}
    run = compose.train_method(text, {}, small, data, seed=1, **fast)
    alone = compose.train_method(teacher, {}, small, data, seed=1, **fast)
    assert equal(run.extra["first"].model, alone.model)
    agree = predict(run.model, data).labels == predict(alone.model, data).labels
    assert float(agree.float().mean()) > 0.9


def test_students_see_no_label_and_start_on_their_own() -> None:
    data = clusters(120)
    teacher = compose.train_method("ce", {}, small, data, **QUICK).model
    other = data.with_labels(torch.zeros_like(data.labels))
    a, b = (compose.train_method("distill", {"teacher": teacher}, small, d, **QUICK) for d in (data, other))
    assert equal(a.model, b.model)
    untaught = compose.assemble(methods.METHODS["ce"].build(), small, 3, seed=0)
    student = compose.train_method(
        "distill", {"teacher": untaught}, small, data, **QUICK | {"epochs": 1}
    ).model
    assert not torch.allclose(
        student.backbone.layers[0].weight, untaught.backbone.layers[0].weight, atol=0.05
    )


def test_search_takes_the_best_noisy_likelihood() -> None:
    data, valid = clusters(200), clusters(100, seed=5)
    run = compose.search(
        "het:integration=mc,samples=10", {}, (0.2, 1.0, 30.0), small, data, valid, seed=0, **QUICK
    )
    tried = run.extra["search"]
    assert [t["temperature"] for t in tried] == [0.2, 1.0, 30.0]
    best = max(tried, key=lambda t: t["log_likelihood"])
    assert run.model.temperature == best["temperature"]
    assert evaluate(run.model, valid)["log_likelihood"] == pytest.approx(best["log_likelihood"])
    with pytest.raises(DubitoError, match="nothing to search"):
        compose.search("ce", {}, None, small, data, valid)


def test_two_stages_on_disk(tmp_path: Path) -> None:
    data = clusters(90)
    for text in ("forward", "distill"):
        out = tmp_path / text
        run = compose.train_method(text, {}, small, data, out=out, **QUICK)
        assert run.folder == out
        assert (tmp_path / f"{text}-first" / "result.json").is_file()
        again = compose.train_method(
            text, {}, small, data, out=out, **QUICK
        )  # finished: nothing is trained anew
        assert equal(again.model, run.model)


def test_pruning_leaves_out_what_the_best_model_finds_improbable() -> None:
    data = clusters(60)
    model = Model(small(generator(0, 0, "b")), heads.Point(12, 3))
    better = Model(small(generator(1, 0, "b")), heads.Point(12, 3, generator=generator(1, 0, "h")))
    step = Pruning(model, loss=partial(losses.gce, q=0.7), q=0.7, k=0.3, start=2, every=3)
    step.begin(data)
    step.best = better.state_dict()
    step.begin_epoch(1, data)
    assert step.kept.tolist() == [1.0] * 60  # before its time everything counts
    step.begin_epoch(2, data)
    p = predict(better, data).log_p.exp().gather(1, data.labels[:, None]).flatten()
    assert torch.equal(step.kept, (p > 0.3).float())
    assert 0 < float(step.kept.mean()) < 1
    step.best = None
    step.begin_epoch(4, data)
    assert torch.equal(step.kept, (p > 0.3).float())  # no choice in between
    batch = Batches(data)(torch.arange(7, 27))
    found = float(step(batch, partial(generator, 0, 0)).detach())
    mine = predict(model, data).log_p.exp().double().gather(1, data.labels[:, None]).flatten().numpy()
    kept = step.kept.numpy()
    expected = [kept[i] * ((1 - mine[i] ** 0.7) / 0.7 - (1 - 0.3**0.7) / 0.7) for i in range(7, 27)]
    assert found == pytest.approx(np.mean(expected), rel=1e-5)
    step.begin_epoch(5, data)  # without validation data the present model chooses
    assert torch.equal(step.kept, torch.from_numpy(mine > 0.3).float())
    assert "kept" in step.state_dict()


def test_pruning_counts_labels_that_were_given() -> None:
    data = clusters(60)
    model = Model(small(generator(0, 0, "b")), heads.Point(12, 3))
    step = Pruning(model, loss=losses.gce)
    labels = data.labels.clone()
    labels[::4] = -1
    found = []
    for part in (data.with_labels(labels), data.subset((labels >= 0).nonzero().flatten())):
        step.begin(part)
        found.append(float(step(Batches(part)(torch.arange(len(part))), partial(generator, 0, 0)).detach()))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_pruning_helps_after_it_has_begun() -> None:
    data, valid = clusters(600), clusters(200, seed=4)
    run = compose.train_method(
        "truncated-gce:start=6,every=2", {}, small, data, valid, **QUICK | {"epochs": 12, "batch_size": 32}
    )
    kept = run.procedure.kept.bool()
    wrong = data.labels != data.clean
    assert float(kept[wrong].float().mean()) < 0.1
    assert float(kept[~wrong].float().mean()) > 0.8


INTERRUPT_AT: list[int] = []


def interrupted(x: Tensor, *, seed: int, epoch: int, index: Tensor) -> Tensor:
    if INTERRUPT_AT and epoch == INTERRUPT_AT[0] and len(index) < 20:  # in the last batch of that epoch
        raise RuntimeError("stop here")
    return x


@pytest.mark.parametrize(
    "text", ["truncated-gce:start=1,every=2", "coteaching:rate=0.3", "mentornet:rate=0.3,burn_in=1"]
)
def test_resumed_within_an_epoch(tmp_path: Path, text: str) -> None:
    """The chosen examples, the forget rate and the count of epochs are those of a run that was never stopped."""
    data = clusters(70)
    options = {**QUICK, "batch_size": 20, "augment": interrupted, "checkpoint_every": 1}
    train = partial(compose.train_method, text, {}, small, data, data, **options)
    whole = train(out=tmp_path / "whole").model
    INTERRUPT_AT.append(3)
    try:
        with pytest.raises(RuntimeError, match="stop here"):
            train(out=tmp_path / "stopped")
    finally:
        INTERRUPT_AT.clear()
    assert equal(train(out=tmp_path / "stopped").model, whole)


@pytest.mark.parametrize(
    "procedure", [Plain, partial(CoTeaching, rate=0.0), partial(SelfPaced, rate=0.1, burn_in=5), Pruning]
)
def test_weights_of_examples_multiply_their_losses(procedure) -> None:
    data = clusters(12)
    weight = torch.linspace(0, 2, 12)
    weighted = LabelledData(data.inputs, data.labels, extra={WEIGHT: weight})
    step = procedure(Model(small(generator(0, 0, "b")), heads.Point(12, 3)))
    step.begin(data)
    draw = partial(generator, 0, 0)
    with torch.no_grad():
        whole = step(Batches(weighted)(torch.arange(12)), draw)
        alone = [float(step(Batches(data)(torch.tensor([i])), draw)) for i in range(12)]
    assert float(whole) == pytest.approx(np.mean(np.array(alone) * weight.numpy()), rel=1e-4)


def test_refusals() -> None:
    data = clusters(30)
    model = Model(small(generator(0, 0, "b")), heads.Point(12, 3))
    with pytest.raises(DubitoError, match="out_features"):
        compose.train_method("ce", {}, lambda source: nn.Identity(), data)
    with pytest.raises(DubitoError, match="needs a teacher"):
        Distillation(model, teacher="smooth")
    with pytest.raises(DubitoError, match="no such student"):
        methods.parse("distill:student=smoth")
    with pytest.raises(DubitoError, match="pruning needs"):
        Pruning(model, k=1.0)
    with pytest.raises(DubitoError, match="one label per example"):
        Pruning(model).begin(LabelledData(torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64)))
    with pytest.raises(DubitoError, match="transition matrix"):
        methods.METHODS["forward"].build().channel(3)
