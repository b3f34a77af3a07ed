"""Which of several equal ways is taken, and how often: blocks, shared reads, sparse gradients, draws by hand.

Each was found by a mutant that no other test noticed (docs/mutation.md).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito import channels, metrics, noise
from dubito.errors import DubitoError
from dubito.metrics import statistics


def test_resamples_are_drawn_in_blocks_and_all_of_them_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_BLOCK", 10)
    shapes: list[tuple[int, ...]] = []

    def mean(x: np.ndarray, axis: int) -> np.ndarray:
        shapes.append(x.shape)
        return np.mean(x, axis=axis)

    for n, resamples, wanted in ((3, 7, [(3, 3), (3, 3), (1, 3)]), (20, 2, [(1, 20)] * 2), (5, 2, [(2, 5)])):
        shapes.clear()
        found = metrics.bootstrap_interval(
            list(range(n)), mean, torch.Generator().manual_seed(0), resamples=resamples
        )
        assert shapes == [*wanted, (n,)]
        assert found.estimate == (n - 1) / 2
    g, again = (torch.Generator().manual_seed(3) for _ in range(2))
    pair = [float(np.arange(5.0)[torch.randint(5, (1, 5), generator=g).numpy()].mean()) for _ in range(2)]
    monkeypatch.setattr(statistics, "_BLOCK", 5)
    found = metrics.bootstrap_interval(np.arange(5.0), np.mean, again, resamples=2, level=0.5)
    assert found.error == pytest.approx(abs(pair[0] - pair[1]) / math.sqrt(2)), "one degree of freedom less"
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(pair, [0.25, 0.75])))
    one = metrics.bootstrap_interval([1.0, 2.0], np.mean, torch.Generator().manual_seed(0), resamples=1)
    assert one.error == 0.0
    for level, resamples in ((0.0, 10), (1.0, 10), (0.5, 0)):
        with pytest.raises(DubitoError, match="level"):
            metrics.bootstrap_interval([1.0, 2.0], np.mean, g, level=level, resamples=resamples)


def test_equal_differences_of_either_sign() -> None:
    for shift, t in ((0.0, 0.0), (0.5, math.inf), (-0.5, -math.inf)):
        found = metrics.paired_t_test([1.0 + shift, 2.0 + shift], [1.0, 2.0])
        assert found.t == t
        assert found.p == (1.0 if shift == 0 else 0.0)
    with pytest.raises(DubitoError, match="seed 1"):
        metrics.paired_t_test({0: 1.0, 1: 2.0}, {0: 1.0, 3: 2.0})


def test_a_hidden_feature_by_hand() -> None:
    g, again = (torch.Generator().manual_seed(5) for _ in range(2))
    task = noise.hidden_feature_task(50, g, num_features=3, slope=0.4, base=0.7)
    draws = torch.randn(50, 4, generator=again, dtype=torch.float64)
    spread = 0.7 * (0.4 * draws[:, 1]).exp()
    assert torch.equal(task.features, draws[:, :3])
    torch.testing.assert_close(task.hidden, draws[:, 0] + spread * draws[:, 3], rtol=1e-12, atol=0)
    assert task.labels.tolist() == (draws[:, 0] + task.hidden > 0).long().tolist()
    wanted = torch.distributions.Normal(0.0, 1.0).cdf(-2 * draws[:, 0].abs() / spread)
    torch.testing.assert_close(task.noise, wanted, rtol=1e-6, atol=1e-12)


def shaken(sparse: bool) -> channels.AnnotatorConfusion:
    channel = channels.AnnotatorConfusion(5, 3, sparse=sparse).double()
    with torch.no_grad():
        channel.weight.add_(
            torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        )
    return channel


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_sparse_where_asked_for_and_nowhere_else(sparse: bool) -> None:
    who, labels = torch.tensor([3, 1, 3]), torch.tensor([0, 2, 1])
    log_p = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).log_softmax(-1)
    uses = {
        "diagonals": lambda c: c.diagonals(who),
        "labels": lambda c: c.log_given(log_p, who, labels),
        "labels of pairs": lambda c: c.log_given(
            log_p.expand(2, 3, 3), who.expand(2, 3), labels.expand(2, 3)
        ),
        "all classes": lambda c: c(log_p, who),
    }
    for name, use in uses.items():
        channel = shaken(sparse)
        use(channel).sum().backward()
        assert channel.weight.grad is not None
        assert channel.weight.grad.is_sparse == sparse, name
    whole = shaken(sparse)
    whole.diagonals().sum().backward()
    assert not whole.weight.grad.is_sparse, "of everybody"
    dense = shaken(False)
    naive = dense(log_p, who).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    for name in ("labels", "labels of pairs"):
        torch.testing.assert_close(uses[name](shaken(sparse)), naive.expand(uses[name](dense).shape))


def test_matrices_are_read_once_for_a_batch() -> None:
    channel, who = shaken(True), torch.tensor([3, 1, 3])
    with channel.sharing(who):
        first = channel._reading(who)
        assert channel._reading(who) is first
        assert channel._reading(who.clone()) is not first, "another batch"
    assert channel._reading(who) is not first


def test_one_matrix_for_all_or_one_for_each() -> None:
    one = torch.full((3, 3), 0.1, dtype=torch.float64) + 0.7 * torch.eye(3, dtype=torch.float64)
    for init in (one, one.expand(1, 3, 3), one.expand(2, 3, 3)):
        torch.testing.assert_close(
            channels.AnnotatorConfusion(2, 3, init=init).matrices().double(),
            one.expand(2, 3, 3),
            atol=1e-6,
            rtol=0,
        )
    for bad in (one.expand(3, 3, 3), one.expand(1, 2, 3, 3)):
        with pytest.raises(DubitoError, match="one per annotator"):
            channels.AnnotatorConfusion(2, 3, init=bad)
