"""The matrix product in logs: orientation, zeros, extremes, blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from dubito.channels import (
    IMPOSSIBLE,
    AnnotatorConfusion,
    FixedTransition,
    LearnedTransition,
    PooledConfusion,
    _core,
)
from dubito.penalties import trace


def logits(*shape, seed=0, scale=3.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def asymmetric(K=4):
    return (logits(K, K, seed=9) + 3 * torch.eye(K)).softmax(-1)


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 eq. 5")
def test_orientation():
    """Scorecard 1: q_j = sum_i p_i T[i, j] with a matrix that is not symmetric."""
    T, z = asymmetric(), logits(3, 4)
    p = z.softmax(-1)
    wanted = torch.tensor(
        [[sum(float(p[n, i] * T[i, j]) for i in range(4)) for j in range(4)] for n in range(3)],
        dtype=torch.float64,
    )
    found = FixedTransition(T)(z.log_softmax(-1))
    torch.testing.assert_close(found, wanted.log(), rtol=1e-10, atol=1e-12)
    assert (FixedTransition(T.T / T.T.sum(-1, keepdim=True))(z.log_softmax(-1)) - found).abs().max() > 0.1


@pytest.mark.rel
def test_published_values():
    """Scorecard 1: symmetric forward correction at alpha .2 on two rows: .363636, 1.321490."""
    z, y = torch.tensor([[2, -1, 0.5], [0.1, 0.3, -0.2]], dtype=torch.float64), torch.tensor([0, 2])
    T = 0.8 * torch.eye(3, dtype=torch.float64) + 0.2 / 3
    losses = F.nll_loss(FixedTransition(T)(z.log_softmax(-1)), y, reduction="none")
    torch.testing.assert_close(losses, torch.tensor([0.363636, 1.321490]).double(), rtol=0, atol=1e-6)


@pytest.mark.rel
@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identity_is_exact(size, dtype):
    """Scorecard 3: the identity channel changes nothing, at logits of +-1e4 too."""
    z = (size * torch.tensor([[1.0, 0, -1], [0, 0, 0], [-1, 1, 1]])).to(dtype).requires_grad_()
    channel, y = FixedTransition(torch.eye(3, dtype=dtype)), torch.tensor([2, 1, 0])
    found = F.nll_loss(channel(z.log_softmax(-1)), y, reduction="sum")
    plain = F.cross_entropy(z, y, reduction="sum")
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=0)
    (mine,) = torch.autograd.grad(found, z)
    (theirs,) = torch.autograd.grad(plain, z)
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.rel
def test_extreme_logits_are_exact():
    """Scorecard 4: log q = max of log p + log T where one term rules, to rounding, at +-1e4."""
    T = asymmetric()
    z = torch.tensor([1e4, -1e4, 0.0, -1e4], dtype=torch.float64)
    torch.testing.assert_close(FixedTransition(T)(z.log_softmax(-1)), T[0].log(), rtol=1e-12, atol=1e-12)


@pytest.mark.rel
def test_zeros_drop_out():
    """Scorecard 4: an entry T_ij = 0 is as if class i were not there, in value and gradient."""
    T = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.2, 0.8]], dtype=torch.float64)
    z = torch.tensor([800.0, -800.0, -900.0], dtype=torch.float64, requires_grad=True)
    log_p = z.log_softmax(-1)
    log_q = FixedTransition(T)(log_p)
    torch.testing.assert_close(log_q[2], log_p[2] + T[2, 2].log(), rtol=1e-12, atol=0)
    log_q[2].backward()
    torch.testing.assert_close(z.grad, torch.tensor([-1.0, 0, 1], dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.rel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_label(dtype):
    """Scorecard 4: a column of zeros has log-probability IMPOSSIBLE and zero gradient, the rest is untouched."""
    T = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.9, 0.0], [0.6, 0.4, 0.0]], dtype=dtype)
    z = torch.tensor([[3.0, -1, 0], [1e4, -1e4, 0]], dtype=dtype, requires_grad=True)
    log_q = FixedTransition(T)(z.log_softmax(-1))
    assert torch.equal(log_q[:, 2], torch.full((2,), IMPOSSIBLE, dtype=dtype))
    assert pytest.approx(-87.3365, abs=1e-4) == IMPOSSIBLE
    log_q[:, 2].sum().backward()
    assert torch.equal(z.grad, torch.zeros_like(z))
    torch.testing.assert_close(log_q.exp()[0, :2], z.detach()[0].softmax(-1) @ T[:, :2])
    weights = torch.tensor([0.5, 0.5, 0.0], dtype=dtype).expand(2, 3)
    (gradient,) = torch.autograd.grad((weights * FixedTransition(T)(z.log_softmax(-1))).sum(), z)
    assert gradient.isfinite().all()


@pytest.mark.rel
def test_impossible_class():
    """Scorecard 4: log p = -inf (an argmax link) is a class that is not there; 0 x -inf never appears."""
    log_p = torch.tensor([0.0, -torch.inf, -torch.inf], requires_grad=True)
    T = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    log_q = FixedTransition(T)(log_p)
    torch.testing.assert_close(log_q.detach().exp(), torch.tensor([0.7, 0.3, 0.0]))
    log_q.sum().backward()
    torch.testing.assert_close(log_p.grad, torch.tensor([2.0, 0, 0]))


@pytest.mark.rel
def test_sums_to_one(scorecard):
    """Scorecard 6: the observed probabilities sum to one in float32, through every channel."""
    off = []
    rows = st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=4, max_size=4), min_size=1, max_size=4)

    @given(rows=rows, sharpness=st.floats(0, 50))
    def check(rows, sharpness):
        weights = sharpness * logits(4, 4, seed=2)
        log_p = torch.tensor(rows, dtype=torch.float32).log_softmax(-1)
        people = torch.arange(len(rows)) % 3
        learned, crowd, pool = LearnedTransition(4), AnnotatorConfusion(3, 4), PooledConfusion(3, 4)
        with torch.no_grad():
            learned.weight.copy_(weights)
            crowd.weight.copy_(weights)
            pool.pool.copy_(weights)
            single = [FixedTransition(weights.softmax(-1).float())(log_p), learned(log_p)]
            found = torch.stack([*single, crowd(log_p, people), pool(log_p, people)])
        off.append(float((found.exp().sum(-1) - 1).abs().max()))
        assert off[-1] < 1e-5

    check()
    scorecard(6, deviation=max(off), cases=len(off))


@pytest.mark.rel
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 5e-3)])
def test_half_precision_by_value(dtype, tolerance):
    """Scorecard 5: half-precision log-probabilities give nearly the float64 answer."""
    log_p, channel = logits(50, 4).log_softmax(-1), FixedTransition(asymmetric())
    found, wanted = channel(log_p.to(dtype)).double(), channel(log_p)
    assert ((found - wanted).abs() / wanted.abs().clamp(min=1)).max() < tolerance


@pytest.mark.parametrize("shared", [True, False])
def test_blocks_change_nothing(monkeypatch, shared):
    """Large products are made block by block and recomputed: same values, same gradients."""
    log_T = logits(*(() if shared else (6,)), 5, 5).log_softmax(-1).requires_grad_()
    log_p = logits(6, 5, seed=1).log_softmax(-1).requires_grad_()
    weights = logits(6, 5, seed=2)
    whole = _core.through(log_p, log_T)
    wanted = torch.autograd.grad((weights * whole).sum(), (log_p, log_T))
    monkeypatch.setattr(_core, "BLOCK", 64)
    parts = _core.through(log_p, log_T)
    found = torch.autograd.grad((weights * parts).sum(), (log_p, log_T))
    assert torch.equal(parts, whole)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.rel
def test_learned_transcription():
    """Scorecard 1: T = log(1 + exp(W)) divided by row sums, for weights from -700 to 60."""
    channel = LearnedTransition(3).double()
    W = torch.tensor([[1.0, -5, 0.3], [-40, 2, -25], [60, -700, 19]], dtype=torch.float64)
    with torch.no_grad():
        channel.weight.copy_(W)
    positive = torch.log1p(W.exp())
    positive[2, 1] = W[2, 1].exp()
    wanted = positive.log() - positive.sum(-1, keepdim=True).log()
    torch.testing.assert_close(channel.log_matrices(), wanted, rtol=1e-10, atol=1e-12)


def test_learned_from_a_matrix():
    T = asymmetric()
    torch.testing.assert_close(LearnedTransition(4, init=T).matrices().double(), T, rtol=1e-5, atol=1e-6)


def test_state():
    """The given matrix travels with the state and is not trained; a copy is handed out."""
    T = asymmetric()
    channel = FixedTransition(T)
    assert not list(channel.parameters())
    assert torch.equal(channel.state_dict()["matrix"], T)
    channel.matrices().zero_()
    T.zero_()
    assert channel.matrices().sum() == pytest.approx(4)
    assert float(channel.skills()) == pytest.approx(float(asymmetric().diagonal().mean()))


@pytest.mark.rel
@pytest.mark.paper("tanno2019 listing 2")
def test_learned_transition_finds_the_truth():
    """With the posterior of the classes fixed and known, the likelihood finds T."""
    T, z = asymmetric(3), logits(4000, 3, seed=4)
    p = z.softmax(-1)
    q = p @ T
    channel = LearnedTransition(3).double()
    optimizer = torch.optim.LBFGS(channel.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = -(q * channel(p.log())).sum(-1).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert (channel.matrices() - T).abs().max() < 1e-3
    assert trace(channel, weight=1.0).item() == pytest.approx(float(T.trace()), abs=1e-3)
