"""Weights by hand: forget schedules, small losses, self-paced learning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito import DubitoError, weights


def losses(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_forget_rate_of_the_paper():
    """R(T) = 1 - rate min(T / T_k, 1); with an exponent rate min(T^c / T_k, 1)."""
    found = [weights.forget_rate(epoch, 0.18, ramp=10) for epoch in (0, 1, 5, 9, 10, 11, 200)]
    assert found == pytest.approx([0.0, 0.018, 0.09, 0.162, 0.18, 0.18, 0.18])
    squared = [weights.forget_rate(epoch, 0.2, 10, 2) for epoch in (1, 2, 3, 4)]
    assert squared == pytest.approx([0.02, 0.08, 0.18, 0.2])


@pytest.mark.parametrize("exponent", [0.5, 1, 2])
def test_forget_rate_of_the_code(exponent):
    """linspace(0, rate^c, T_k) for epochs 0 ... T_k - 1, then rate."""
    schedule = np.full(30, 0.2)
    schedule[:10] = np.linspace(0, 0.2**exponent, 10)
    found = [weights.forget_rate(epoch, 0.2, 10, exponent, schedule="code") for epoch in range(30)]
    assert found == pytest.approx(schedule.tolist())


def test_the_ends_of_a_schedule():
    assert weights.forget_rate(7, 0.0) == 0.0
    assert [weights.forget_rate(e, 0.2, 2, schedule="code") for e in (0, 1, 2)] == [0.0, 0.2, 0.2]
    assert weights.forget_rate(0, 0.2, 1, schedule="code") == 0.0
    for bad in ({"rate": 1.0}, {"exponent": 0.0}, {"ramp": 0}, {"epoch": -1}):
        with pytest.raises(DubitoError):
            weights.forget_rate(**{"epoch": 1, "rate": 0.2, **bad})


def test_a_state_must_fit_the_losses():
    batches = torch.arange(6.0).view(2, 3)
    found = weights.moving_quantile(torch.zeros(2), batches, quantile=0.5, decay=0.5)
    assert found.tolist() == [0.5, 2.0]
    with pytest.raises(DubitoError):
        weights.moving_quantile(torch.zeros(3), batches, quantile=0.5)


def test_the_two_schedules_are_close_for_exponent_one():
    gaps = [
        abs(weights.forget_rate(e, 0.18) - weights.forget_rate(e, 0.18, schedule="code"))
        for e in range(1, 20)
    ]
    assert max(gaps) == pytest.approx(0.018)


@pytest.mark.parametrize(
    ("size", "forget", "count"), [(128, 0.2, 102), (128, 0.0, 128), (10, 0.45, 5), (3, 0.9, 0), (0, 0.2, 0)]
)
def test_keep_count_rounds_down(size, forget, count):
    assert weights.keep_count(size, forget) == count


@pytest.mark.rel
def test_small_loss_transcription():
    """Scorecard 1: 1 for the int((1 - f) B) smallest, by sorting."""
    for seed in range(20):
        batch = losses(17, seed=seed)
        chosen = sorted(range(17), key=lambda i: float(batch[i]))[: int(0.7 * 17)]
        assert weights.small_loss(batch, 0.3).nonzero().flatten().tolist() == sorted(chosen)


def test_small_loss_ties_and_nan():
    assert weights.small_loss(torch.ones(6), 0.5).tolist() == [1, 1, 1, 0, 0, 0]
    batch = torch.tensor([float("nan"), 2.0, float("inf"), 1.0])
    assert weights.small_loss(batch, 0.25).tolist() == [0, 1, 1, 1]
    assert weights.small_loss(batch, 0.5).tolist() == [0, 1, 0, 1]


@pytest.mark.rel
def test_small_loss_shapes():
    """Scorecard 11: leading axes are separate batches; an empty batch has no weights."""
    batch = losses(2, 3, 8)
    found = weights.small_loss(batch, 0.4)
    loop = torch.stack([torch.stack([weights.small_loss(row, 0.4) for row in block]) for block in batch])
    assert torch.equal(found, loop)
    assert weights.small_loss(torch.zeros(0), 0.4).shape == (0,)
    assert weights.small_loss(torch.zeros(1), 0.4).tolist() == [0.0]


def test_small_loss_count_may_be_a_tensor():
    """So that a captured graph can follow the schedule."""
    batch = losses(8)
    assert torch.equal(weights._small_loss(batch, torch.tensor(5)), weights._small_loss(batch, 5))


@pytest.mark.rel
def test_mean_over_chosen():
    """Scorecard 1, 11: the plain mean of the chosen; 0 with zero gradient over none; infinities left out."""
    batch = losses(8).requires_grad_()
    chosen = weights.small_loss(batch, 0.5)
    mean = weights.mean_over_chosen(batch, chosen)
    assert mean.item() == pytest.approx(batch.detach().sort().values[:4].mean().item())
    mean.backward()
    torch.testing.assert_close(batch.grad, chosen / 4)
    (gradient,) = torch.autograd.grad(weights.mean_over_chosen(batch, torch.zeros(8)), batch)
    assert not gradient.any()
    bad = torch.tensor([1.0, float("inf"), float("nan")])
    assert weights.mean_over_chosen(bad, torch.tensor([1.0, 0, 0])).item() == 1.0


@pytest.mark.parametrize("given", [[0.25, 0.25, 0.0], [0.5, 0.1, 0.3], [2.0, 1.0, 0.0]])
def test_mean_over_chosen_of_weights_between(given):
    """sum w l / sum w, also where the weights sum to less than one example."""
    batch, shares = losses(3), torch.tensor(given)
    expected = sum(w * float(x) for w, x in zip(given, batch)) / sum(given)
    assert weights.mean_over_chosen(batch, shares).item() == pytest.approx(expected)


@pytest.mark.rel
def test_forgetting_nothing_is_the_plain_mean():
    """Scorecard 3: forget rate 0 weighs every example alike."""
    batch = losses(9)
    chosen = weights.small_loss(batch, 0.0)
    assert weights.mean_over_chosen(batch, chosen).item() == pytest.approx(batch.mean().item())


@pytest.mark.rel
@pytest.mark.parametrize("quantile", [0.0, 0.18, 0.5, 0.7, 0.82, 1.0])
@pytest.mark.parametrize("size", [1, 2, 10, 128])
def test_quantile_is_the_nearest(quantile, size):
    """Scorecard 1: numpy's nearest order statistic."""
    batch = losses(size)
    found = weights.moving_quantile(torch.zeros(()), batch, quantile=quantile, decay=0.0)
    position = (size - 1) * quantile
    if abs(position % 1 - 0.5) > 1e-9:
        assert found.item() == np.percentile(batch.numpy(), 100 * quantile, method="nearest")
    assert found.item() in batch.tolist()


@pytest.mark.rel
def test_moving_quantile_by_hand():
    """Scorecard 1: m <- d m + (1 - d) q from m = 0, no bias correction."""
    state, by_hand = torch.zeros((), dtype=torch.float64), 0.0
    for step in range(5):
        batch = losses(11, seed=step)
        by_hand = 0.9 * by_hand + 0.1 * sorted(batch.tolist())[round(10 * 0.82)]
        state = weights.moving_quantile(state, batch, quantile=0.82, decay=0.9)
    assert state.item() == pytest.approx(by_hand, rel=1e-12)
    assert torch.equal(weights.moving_quantile(state, torch.zeros(0), quantile=0.5), state)


@pytest.mark.rel
@pytest.mark.parametrize("lambda2", [0.0, 0.5, 1.0, 2.0])
def test_self_paced_minimises_its_objective(lambda2):
    """Scorecard 1: v minimises v l + lambda2 v^2 / 2 - (lambda1 + lambda2) v over a fine grid of [0, 1]."""
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    for loss in (0.0, 0.3, 0.69, 0.71, 1.0, 1.5, 5.0):
        objective = grid * loss + lambda2 * grid.square() / 2 - (0.7 + lambda2) * grid
        found = weights.self_paced(torch.tensor([loss], dtype=torch.float64), 0.7, lambda2=lambda2)
        assert found.item() == pytest.approx(grid[objective.argmin()].item(), abs=5e-4)


def test_self_paced_at_the_threshold():
    """A loss equal to lambda1 counts fully, for lambda2 = 0 and above."""
    at = torch.tensor([0.7], dtype=torch.float64)
    assert weights.self_paced(at, 0.7).item() == 1.0
    assert weights.self_paced(at, 0.7, lambda2=1.0).item() == 1.0


@pytest.mark.rel
def test_self_paced_limit():
    """Scorecard 3: lambda2 -> 0 tends to the hard rule."""
    batch = losses(50)
    hard = weights.self_paced(batch, 0.5)
    torch.testing.assert_close(weights.self_paced(batch, 0.5, lambda2=1e-9), hard, rtol=0, atol=1e-6)


def test_mentornet_step():
    """The quantile takes in the batch before it is used, and during burn-in too."""
    batch, state = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.tensor(2.0)
    found, new = weights.mentornet(batch, state, quantile=1.0, lambda2=2.0, decay=0.5)
    assert new.item() == 6.0
    assert found.tolist() == [1, 1, 1, 0]
    burning, same = weights.mentornet(batch, state, quantile=1.0, lambda2=2.0, decay=0.5, epoch=4, burn_in=5)
    assert burning.tolist() == [1, 1, 1, 1]
    assert same.item() == 6.0
    after, _ = weights.mentornet(batch, state, quantile=1.0, lambda2=2.0, decay=0.5, epoch=5, burn_in=5)
    assert torch.equal(after, found)


def test_first_steps_weigh_almost_nothing():
    """m_0 = 0 without bias correction, as in the original."""
    found, state = weights.mentornet(losses(100) + 1, torch.zeros((), dtype=torch.float64), quantile=0.8)
    assert not found.any()
    assert 0 < state.item() < 0.2


@pytest.mark.rel
def test_no_gradient_through_weights():
    """Scorecard 2: weights and state are constants of the step."""
    batch = losses(6).requires_grad_()
    found, state = weights.mentornet(batch, torch.ones((), dtype=torch.float64), quantile=0.5, lambda2=1.0)
    assert not found.requires_grad
    assert not state.requires_grad
    assert not weights.small_loss(batch, 0.5).requires_grad
    (found * batch).mean().backward()
    torch.testing.assert_close(batch.grad, found / 6)


@pytest.mark.rel
def test_compiles_and_vmaps():
    """Scorecard 12: one graph, the same numbers; several runs at once."""
    batch, state = losses(3, 8), torch.full((3,), 0.5, dtype=torch.float64)

    def step(batch, state):
        chosen = weights.small_loss(batch, 0.3)
        paced, state = weights.mentornet(batch, state, quantile=0.7, lambda2=0.5)
        return chosen, paced, state

    wanted = step(batch, state)
    graph = torch.compile(step, fullgraph=True, backend="aot_eager")
    for found in (graph(batch, state), torch.vmap(step)(batch, state)):
        for a, b in zip(found, wanted):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: weights.forget_rate(1, 1.0), "below 1"),
        (lambda: weights.forget_rate(1, -0.1), "at least 0"),
        (lambda: weights.forget_rate(-1, 0.1), "epoch >= 0"),
        (lambda: weights.forget_rate(1, 0.1, ramp=0), "ramp >= 1"),
        (lambda: weights.forget_rate(1, 0.1, schedule="papper"), "did you mean 'paper'"),
        (lambda: weights.small_loss(torch.ones(3), 1.0), "below 1"),
        (lambda: weights.small_loss(torch.ones(3).long(), 0.1), "floating"),
        (lambda: weights.moving_quantile(torch.zeros(()), torch.ones(3), quantile=1.5), "quantile"),
        (lambda: weights.moving_quantile(torch.zeros(()), torch.ones(3), quantile=0.5, decay=1.0), "decay"),
        (lambda: weights.self_paced(torch.ones(3), 1.0, lambda2=-1.0), "lambda2"),
    ],
)
def test_refusals(call, words):
    """Scorecard 13: parameters out of range are refused in a sentence."""
    with pytest.raises(DubitoError, match=words):
        call()
