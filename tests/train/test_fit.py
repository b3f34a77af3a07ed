"""The loop against one written out by hand, and every option of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import torch
from small import difference, naive, network, pixels, problem
from torch import Tensor, nn

from dubito import losses, optim, targets
from dubito._context import compiled
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.evaluate import evaluate
from dubito.procedures import Plain, Pruning
from dubito.train import Run, fit

adam = partial(torch.optim.Adam, lr=1e-3, eps=1e-7)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (optim.adam, adam),
        (partial(optim.adam, lr=0.01, eps=1e-3), partial(torch.optim.Adam, lr=0.01, eps=1e-3)),
        (partial(optim.sgd, lr=0.1), partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)),
        (partial(optim.adam, weight_decay=0.1), partial(adam, weight_decay=0.1)),
    ],
)
def test_plain_training_is_the_loop_written_by_hand(ours: Any, theirs: Any) -> None:
    data, model = problem(50), network()
    expected = naive(copy.deepcopy(model), data, theirs, epochs=3, batch_size=16)
    run = fit(model, data, optimizer=ours, epochs=3, batch_size=16)
    assert run.steps == 3 * 4
    assert difference(run.model, expected) < 1e-6
    assert difference(run.model, network()) > 1e-3


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        (partial(optim.milestones, at=(4, 8)), lambda s: 0.1 ** ((s >= 4) + (s >= 8))),
        (optim.cosine, lambda s: 0.5 * (1 + math.cos(math.pi * s / 12))),
        (
            partial(optim.cosine, warmup=3),
            lambda s: (s + 1) / 3 if s < 3 else 0.5 * (1 + math.cos(math.pi * (s - 3) / 9)),
        ),
        (optim.polynomial, lambda s: (1 - s / 12) ** 0.9),
    ],
)
def test_schedules(schedule: Any, factor: Callable[[int], float]) -> None:
    data, model = problem(50), network()
    expected = naive(copy.deepcopy(model), data, adam, epochs=3, batch_size=16, factor=factor)
    run = fit(model, data, schedule=schedule, epochs=3, batch_size=16)
    assert difference(run.model, expected) < 1e-6


def test_full_batch_gradient_descent() -> None:
    data, model = problem(30), network()
    plain = partial(torch.optim.SGD, lr=0.3)
    expected = naive(copy.deepcopy(model), data, plain, epochs=5, batch_size=30)
    run = fit(
        model,
        data,
        optimizer=partial(optim.sgd, lr=0.3, momentum=0.0, nesterov=False),
        batch_size=None,
        epochs=5,
    )
    assert run.steps == 5
    assert difference(run.model, expected) < 1e-6


def test_clipping() -> None:
    data, model = problem(40), network()
    plain = partial(torch.optim.SGD, lr=1.0)
    expected = naive(copy.deepcopy(model), data, plain, epochs=2, batch_size=16, clip=0.05)
    ours = partial(optim.sgd, lr=1.0, momentum=0.0, nesterov=False)
    assert (
        difference(fit(model, data, optimizer=ours, epochs=2, batch_size=16, clip=0.05).model, expected)
        < 1e-6
    )


def test_labels_that_were_not_given_are_left_out() -> None:
    data = problem(50)
    data.labels[::3] = -1
    model = network()
    expected = naive(copy.deepcopy(model), data, adam, epochs=3, batch_size=16)
    assert difference(fit(model, data, epochs=3, batch_size=16).model, expected) < 1e-6


def test_pixels_are_examples_and_void_ones_are_left_out() -> None:
    data, model = pixels()
    expected = copy.deepcopy(model)
    opt = adam(expected.parameters())
    for _ in range(3):
        opt.zero_grad()
        total, count = torch.zeros(()), 0
        log_p = expected(data.inputs)
        for place in (data.labels >= 0).nonzero().tolist():
            total, count = total - log_p[(*place, int(data.labels[tuple(place)]))], count + 1
        (total / count).backward()
        opt.step()
    run = fit(model, data, epochs=3, batch_size=None, valid=data)
    assert difference(run.model, expected) < 1e-5
    assert run.history[-1]["valid_accuracy"] == evaluate(model, data)["accuracy"]
    fit(model, data, epochs=2, batch_size=1)  # a batch that is void throughout moves nothing and is no error


@pytest.mark.parametrize(
    ("batching", "sizes"), [("epoch", [4, 4, 2] * 2), ("drop", [4, 4] * 2), ("stream", [4] * 5)]
)
def test_batching(batching: str, sizes: list[int]) -> None:
    data, seen, epochs = problem(10), [], []

    def look(x: Tensor, seed: int, epoch: int, index: Tensor) -> Tensor:
        assert (x == data.inputs[index]).all()  # type: ignore[index]
        seen.append(index.tolist())
        epochs.append(epoch)
        return x

    run = fit(network(), data, epochs=2, batch_size=4, batching=batching, augment=look, seed=3)
    assert [len(rows) for rows in seen] == sizes
    assert epochs == sorted(epochs)
    assert run.steps == len(sizes)
    assert [r["epoch"] for r in run.history] == [1, 2]
    flat = [i for rows in seen for i in rows]
    assert len(set(flat[:8])) == 8
    if batching == "stream":
        assert sorted(flat[:10]) == sorted(flat[10:]) == list(range(10))


def test_the_length_of_a_run_in_steps() -> None:
    run = fit(network(), problem(40), steps=7, batch_size=16)
    assert run.steps == 7
    assert [r["epoch"] for r in run.history] == [1, 2, 3]


def test_early_stopping_and_the_best_epoch() -> None:
    train, valid = problem(60, rate=0.6), problem(200, seed=9)
    run = fit(
        network(width=64),
        train,
        valid=valid,
        optimizer=partial(optim.adam, lr=0.05),
        epochs=60,
        batch_size=16,
        select="best",
        patience=4,
    )
    scores = [r["valid_accuracy"] for r in run.history]
    best = scores.index(max(scores))
    assert run.best_epoch == best + 1
    assert len(scores) == best + 1 + 4 < 60
    assert evaluate(run.model, valid)["accuracy"] == max(scores)
    last = fit(
        network(width=64), train, optimizer=partial(optim.adam, lr=0.05), epochs=len(scores), batch_size=16
    )
    assert difference(run.model, last.model) > 1e-4


def test_evaluation_every_few_epochs() -> None:
    run = fit(network(), problem(), valid=problem(seed=2), epochs=7, evaluate_every=3)
    assert [r["epoch"] for r in run.history] == [3, 6, 7]
    assert set(run.history[0]) == {
        "epoch",
        "loss",
        "valid_accuracy",
        "valid_log_likelihood",
        "valid_clean_accuracy",
        "valid_clean_log_likelihood",
    }


def test_the_recorded_loss_is_the_mean_over_the_epoch() -> None:
    data, model = problem(32), network()
    still = partial(optim.sgd, lr=0.0)
    run = fit(model, data, optimizer=still, epochs=1, batch_size=8)
    logits = model.head(model.backbone(data.inputs)).mean
    assert run.history[0]["loss"] == pytest.approx(
        float(nn.functional.cross_entropy(logits, data.labels).detach()), rel=1e-6
    )


def test_mixed_precision_comes_close() -> None:
    data = problem(64)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.ones(2, 2) @ torch.ones(2, 2)
    except RuntimeError as error:
        pytest.skip(f"no bfloat16 on this processor: {error}")
    one = fit(network(), data, epochs=2, batch_size=16)
    two = fit(network(), data, epochs=2, batch_size=16, amp=True)
    assert 1e-7 < difference(one.model, two.model) < 1e-2
    assert all(p.dtype == torch.float32 for p in two.model.parameters())


def test_compiled_is_the_same() -> None:
    data = problem(64)
    one = fit(network(dropout=0.3), data, valid=data, epochs=2, batch_size=16, ema=0.5)
    two = fit(network(dropout=0.3), data, valid=data, epochs=2, batch_size=16, ema=0.5, compile="aot_eager")
    assert difference(one.model, two.model) < 1e-6
    assert "latent" not in two.procedure.model.__dict__


def test_float64_stays() -> None:
    data = problem(30)
    wide = LabelledData(data.inputs.double(), data.labels)  # type: ignore[union-attr]
    run = fit(network().double(), wide, valid=wide, epochs=1)
    assert all(p.dtype == torch.float64 for p in run.model.parameters())


def test_settings_and_modes_are_put_back() -> None:
    model = network(dropout=0.5)
    model.backbone[2].train()
    before = torch.are_deterministic_algorithms_enabled()
    run = fit(model, problem(), epochs=1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled() == before
    assert not run.model.training
    with pytest.raises(ZeroDivisionError):
        fit(model, problem(), epochs=1, deterministic=True, schedule=lambda s, n: 1 / 0)
    assert torch.are_deterministic_algorithms_enabled() == before


def test_a_target_gets_what_it_names() -> None:
    seen = []

    def mine(y: Tensor, num_classes: int, *, positions: Tensor, generator: torch.Generator) -> Tensor:
        seen.append((positions.tolist(), float(torch.rand((), generator=generator))))
        return targets.smooth(y, num_classes, alpha=0.1)

    run = fit(network(), problem(20), target=mine, epochs=1, batch_size=10, seed=4)
    again = fit(network(), problem(20), target=mine, epochs=1, batch_size=10, seed=4)
    assert seen[:2] == seen[2:]
    assert seen[0][1] != seen[1][1]
    assert difference(run.model, again.model) == 0


def test_a_foreign_loss() -> None:
    def mine(logits: Tensor, target: Tensor, reduction: str) -> Tensor:
        return nn.functional.cross_entropy(logits, target, reduction=reduction)

    one = fit(network(), problem(), loss=mine, epochs=1)
    two = fit(network(), problem(), loss=losses.nll, epochs=1)
    assert difference(one.model, two.model) < 1e-6


def test_lambdas_are_refused_with_a_folder(tmp_path: Any) -> None:
    with pytest.raises(DubitoError, match="only importable functions"):
        fit(network(), problem(), schedule=lambda s, n: 1.0, epochs=1, out=tmp_path / "run")


def test_a_run_has_the_model_of_the_type_that_was_given() -> None:
    """For type checkers: `score_masks(run.model, ...)` wants the `SegmentationModel` that was trained."""
    hints = get_type_hints(fit)
    assert get_origin(hints["return"]) is Run
    assert get_args(hints["return"]) == (hints["model"],)
    assert get_type_hints(Run)["model"] in Run.__parameters__  # type: ignore[attr-defined]


class Frozen(nn.BatchNorm1d):
    """A batch norm that keeps to evaluation mode, as the docstring of `fit` tells users to write it."""

    def train(self, mode: bool = True) -> Frozen:
        return super().train(False)


@pytest.mark.parametrize(("norm", "kept"), [(nn.BatchNorm1d, False), (Frozen, True)])
def test_a_frozen_batch_norm_stays_so_by_a_train_of_its_own(norm: type[nn.BatchNorm1d], kept: bool) -> None:
    model = network()
    model.backbone = nn.Sequential(norm(6).eval(), model.backbone)
    fit(model, problem(), epochs=1)
    assert bool((model.backbone[0].running_mean == 0).all()) == kept


def test_a_copy_of_a_compiled_model_reads_its_own_weights() -> None:
    """Pruning judges by a copy with the best weights so far, in evaluation mode."""
    model, x = network(dropout=0.5), problem(8).inputs
    with compiled(Plain(model), "eager"):
        twin = copy.deepcopy(model).eval()
        with torch.no_grad():
            for p in twin.parameters():
                p.zero_()
        assert torch.allclose(twin(x).exp(), torch.tensor(1 / 3))
    options: dict[str, Any] = {"loss": losses.gce, "procedure": partial(Pruning, k=0.4, start=1, every=1)}
    options |= {
        "epochs": 6,
        "batch_size": 8,
        "optimizer": partial(optim.adam, lr=0.3),
        "valid": problem(30, seed=5),
    }
    runs = [fit(network(dropout=0.5), problem(64), compile=c, **options) for c in (False, "eager")]
    assert runs[0].best_epoch != 6
    assert torch.equal(runs[0].procedure.kept, runs[1].procedure.kept)  # type: ignore[arg-type]
