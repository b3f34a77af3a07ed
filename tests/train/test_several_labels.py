"""Crowd batches, chosen examples, and evaluation against loops over single labels."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from small import crowd, difference, network, pixels, problem
from torch import Tensor

from dubito import channels, heads, penalties, weights
from dubito._batches import Batches, Order
from dubito._random import generator
from dubito.evaluate import evaluate, predict, scores
from dubito.model import Model
from dubito.procedures import CoTeaching, Plain, SelfPaced, fresh
from dubito.train import fit


def draw(purpose: str) -> torch.Generator:
    return generator(0, 0, purpose)


def test_a_crowd_batch_holds_the_labels_of_its_items() -> None:
    data = crowd(30)
    assert data.crowd is not None
    positions = torch.tensor([7, 3, 29, 11])
    batch = Batches(data)(positions)
    assert batch.row is not None
    assert batch.annotators is not None
    found = {(int(positions[r]), int(a), int(y)) for r, a, y in zip(batch.row, batch.annotators, batch.y)}
    expected = {(int(i), int(a), int(y)) for i, a, y in zip(*data.crowd) if int(i) in positions.tolist()}
    assert found == expected
    assert len(found) == len(batch.y)


@pytest.mark.paper("tanno2019 eq. 4", "tanno2019 alg. 1")
def test_the_loss_of_a_crowd_is_the_sum_over_labels_and_the_mean_over_items() -> None:
    data = crowd(30)
    assert data.crowd is not None
    g = torch.Generator().manual_seed(8)
    start = torch.rand(4, 3, 3, generator=g, dtype=torch.float64) + 3 * torch.eye(3)
    channel = channels.AnnotatorConfusion(4, 3, init=start / start.sum(-1, keepdim=True))
    model = network(channel=channel).double()
    procedure = Plain(model, penalty=partial(penalties.trace, weight=0.01))
    positions = torch.tensor([7, 3, 29, 11, 0])
    batch = Batches(data)(positions)
    batch = batch._replace(x=batch.x.double())
    A, p = channel.matrices().detach().double(), model(batch.x).detach().exp()
    total = 0.0
    for item, annotator, label in zip(*(t.tolist() for t in data.crowd)):
        if item in positions.tolist():
            of_item = p[positions.tolist().index(item)]
            total -= math.log(sum(float(of_item[c] * A[annotator, c, label]) for c in range(3)))
    trace = sum(float(A[r, c, c]) for r in range(4) for c in range(3)) / 4
    assert float(procedure(batch, draw).detach()) == pytest.approx(total / 5 + 0.01 * trace, rel=1e-10)


def test_a_channel_without_annotators_serves_a_crowd() -> None:
    run = fit(
        network(channel=channels.LearnedTransition(3)), crowd(), epochs=2, batch_size=8, valid=crowd(seed=3)
    )
    assert math.isfinite(run.history[-1]["valid_log_likelihood"])


@pytest.mark.parametrize("head", [heads.Diagonal, heads.LowRank, heads.PreLogit])
def test_noisy_heads_draw_from_the_step(head: Any) -> None:
    def train(seed: int) -> Model:
        options: dict[str, Any] = {"integration": "mc", "samples": 4}
        return fit(network(head=head, **options), problem(20), epochs=1, batch_size=10, seed=seed).model

    assert difference(train(1), train(1)) == 0
    assert difference(train(1), train(2)) > 0


def small_loss_by_hand(losses: list[float], given: list[bool], forget: float) -> list[int]:
    """Places of the kept examples."""
    places = sorted((i for i, g in enumerate(given) if g), key=lambda i: losses[i])
    return places[: int((1 - forget) * len(places))]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("epoch", [0, 4, 30])
def test_co_teaching_exchanges_small_losses(missing: bool, epoch: int) -> None:
    data = problem(24)
    if missing:
        data.labels[::4] = -1
    procedure = CoTeaching(network().double(), rate=0.4, ramp=5)
    procedure.epoch = epoch
    batch = Batches(data)(torch.arange(24))
    batch = batch._replace(x=batch.x.double())
    given = (data.labels >= 0).tolist()
    losses = [
        [-float(model(batch.x).detach()[i, y]) if y >= 0 else 0.0 for i, y in enumerate(data.labels.tolist())]
        for model in (procedure.model, procedure.twin)
    ]
    forget = min((epoch + 1) / 5, 1) * 0.4
    total = 0.0
    for mine, other in ((0, 1), (1, 0)):
        kept = small_loss_by_hand(losses[other], given, forget)
        total += sum(losses[mine][i] for i in kept) / len(kept)
    assert float(procedure(batch, draw).detach()) == pytest.approx(total, rel=1e-9)


def test_the_twin_starts_elsewhere_but_its_channel_does_not() -> None:
    model = network(channel=channels.LearnedTransition(3))
    twin = fresh(model)
    assert torch.equal(twin.channel.weight, model.channel.weight)  # type: ignore[union-attr]
    one, two = model.backbone[0].weight, twin.backbone[0].weight
    assert not torch.equal(one, two)
    assert torch.equal(one.flatten().sort().values, two.flatten().sort().values)


def test_self_paced_weights_by_hand() -> None:
    data = problem(20)
    data.labels[::5] = -1
    procedure = SelfPaced(network(), rate=0.25, lambda2=1.0, burn_in=1, decay=0.5)
    batch = Batches(data)(torch.arange(20))
    y = data.labels.tolist()
    losses = [-float(procedure.model(batch.x).detach()[i, k]) for i, k in enumerate(y) if k >= 0]
    threshold = 0.0
    for epoch in (0, 1, 2):
        procedure.epoch = epoch
        threshold = 0.5 * threshold + 0.5 * sorted(losses)[round(0.75 * (len(losses) - 1))]
        v = [1.0 if epoch < 1 else min(1.0, max(0.0, 1 - (loss - threshold))) for loss in losses]
        expected = sum(a * b for a, b in zip(v, losses)) / len(losses)
        assert float(procedure(batch, draw).detach()) == pytest.approx(expected, rel=1e-5)
        assert float(procedure.threshold) == pytest.approx(threshold, rel=1e-5)


@pytest.mark.parametrize("make", [partial(CoTeaching, rate=0.3), partial(SelfPaced, rate=0.3)])
def test_chosen_examples_of_a_crowd(make: Any) -> None:
    run = fit(
        network(channel=channels.AnnotatorConfusion(4, 3)), crowd(), procedure=make, epochs=2, batch_size=16
    )
    assert all(math.isfinite(r["loss"]) for r in run.history)


def test_co_teaching_runs_along_its_ramp() -> None:
    data, model = problem(40), network()
    run = fit(
        copy.deepcopy(model), data, procedure=partial(CoTeaching, rate=0.3, ramp=3), epochs=4, batch_size=16
    )
    expected = CoTeaching(model, rate=0.3, ramp=3)
    opt = torch.optim.Adam(expected.parameters(), lr=1e-3, eps=1e-7)
    order = Order(40, 16, seed=0)
    for step in range(order.steps(4)):
        rows = order.positions(step)
        forget = weights.forget_rate(order.epoch(step) + 1, 0.3, 3)
        one, two = (
            -m(data.inputs[rows]).gather(1, data.labels[rows, None])[:, 0]  # type: ignore[index]
            for m in (expected.model, expected.twin)
        )
        total = weights.mean_over_chosen(one, weights.small_loss(two, forget))
        total = total + weights.mean_over_chosen(two, weights.small_loss(one, forget))
        opt.zero_grad()
        total.backward()
        opt.step()
    assert difference(run.procedure, expected) < 1e-6


def naive_scores(log_p: Tensor, labels: Tensor) -> tuple[float, float]:
    given = [(p, int(y)) for p, y in zip(log_p.reshape(-1, log_p.shape[-1]), labels.flatten()) if y >= 0]
    right = sum(int(p.argmax()) == y for p, y in given)
    return right / len(given), math.fsum(float(p[y]) for p, y in given) / len(given)


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_evaluation_by_hand(batch_size: int) -> None:
    data, model = problem(50), network()
    data.labels[3] = -1
    found = evaluate(model, data, batch_size=batch_size)
    log_p = predict(model, data).log_p
    assert data.clean is not None
    for prefix, labels in (("", data.labels), ("clean_", data.clean)):
        accuracy, likelihood = naive_scores(log_p, labels)
        assert found[f"{prefix}accuracy"] == accuracy
        assert found[f"{prefix}log_likelihood"] == pytest.approx(likelihood, rel=1e-6)
    assert scores(log_p, data.labels)["accuracy"] == found["accuracy"]


def test_evaluation_of_pixels_and_of_a_crowd() -> None:
    data, model = pixels()
    accuracy, likelihood = naive_scores(predict(model, data).log_p, data.labels)
    found = evaluate(model, data, batch_size=4)
    assert found == pytest.approx({"accuracy": accuracy, "log_likelihood": likelihood}, rel=1e-6)

    people = crowd()
    assert people.crowd is not None
    model = network(channel=channels.AnnotatorConfusion(4, 3, diagonal=0.6))
    log_p = predict(model, people).log_p[people.crowd.item]
    found = evaluate(model, people, batch_size=9)
    assert found["accuracy"] == naive_scores(log_p, people.crowd.label)[0]
    observed = model.observed(log_p, people.crowd.annotator).detach()
    assert found["log_likelihood"] == pytest.approx(naive_scores(observed, people.crowd.label)[1], rel=1e-6)


def test_evaluation_leaves_modes_alone() -> None:
    model = network(dropout=0.5)
    model.train()
    model.backbone[0].eval()
    evaluate(model, problem(10))
    predict(model, problem(10))
    assert model.training
    assert not model.backbone[0].training
