"""Properties over hundreds of random cases: linearity, one-hot, permutations, independence, sums to one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_losses import LOSSES

from dubito import losses
from dubito.losses import tempered_softmax
from dubito.targets import smear, smooth

CASES = 500
FAST = sorted(LOSSES)
counted = settings(max_examples=CASES, deadline=None, database=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


def draw(seed, classes, rows=3):
    source = torch.Generator().manual_seed(seed)
    z = 5 * torch.randn(rows, classes, generator=source, dtype=torch.float64)
    return z, torch.randint(classes, (rows,), generator=source), source


@pytest.mark.rel
def test_nll_is_linear_in_the_target(scorecard):
    """Scorecard 7: nll(z, a u + b v) = a nll(z, u) + b nll(z, v), negative weights included; 500 cases."""
    tried = []

    @counted
    @given(seed=seeds, classes=st.integers(2, 9), a=st.floats(-3, 3), b=st.floats(-3, 3))
    def check(seed, classes, a, b):
        z, _, source = draw(seed, classes)
        u, v = torch.randn(2, 3, classes, generator=source, dtype=torch.float64)
        both = losses.nll(z, a * u + b * v, reduction="none")
        parts = a * losses.nll(z, u, reduction="none") + b * losses.nll(z, v, reduction="none")
        torch.testing.assert_close(both, parts, rtol=1e-9, atol=1e-9)
        tried.append(seed)

    check()
    scorecard(7, cases_each=len(tried))
    assert len(tried) >= CASES


@pytest.mark.rel
def test_index_equals_one_hot(scorecard):
    """Scorecard 7: a class index equals its one-hot weights, for every loss; 500 cases."""
    tried = []

    @counted
    @given(seed=seeds, classes=st.integers(2, 6), name=st.sampled_from(FAST))
    def check(seed, classes, name):
        z, y, _ = draw(seed, classes)
        loss = LOSSES[name][0]
        one_hot = torch.eye(classes, dtype=torch.float64)[y]
        torch.testing.assert_close(loss(z, one_hot), loss(z, y), rtol=1e-9, atol=1e-10)
        tried.append(seed)

    check()
    scorecard(7, cases_each=len(tried))
    assert len(tried) >= CASES


@pytest.mark.rel
def test_permutation_equivariance(scorecard):
    """Scorecard 7: renaming the classes changes nothing; 500 cases."""
    tried = []

    @counted
    @given(seed=seeds, classes=st.integers(2, 6), name=st.sampled_from(FAST))
    def check(seed, classes, name):
        z, y, source = draw(seed, classes)
        loss, order = LOSSES[name][0], torch.randperm(classes, generator=source)
        torch.testing.assert_close(loss(z[:, order], order.argsort()[y]), loss(z, y), rtol=1e-9, atol=1e-10)
        tried.append(seed)

    check()
    scorecard(7, cases_each=len(tried))
    assert len(tried) >= CASES


@pytest.mark.rel
def test_examples_are_independent(scorecard):
    """Scorecard 7: an example's loss does not depend on what else is in the batch; 500 cases."""
    tried = []

    @counted
    @given(seed=seeds, classes=st.integers(2, 6), name=st.sampled_from(FAST))
    def check(seed, classes, name):
        z, y, _ = draw(seed, classes)
        loss = LOSSES[name][0]
        together = loss(z, y, reduction="none")
        torch.testing.assert_close(
            loss(z[1:2], y[1:2], reduction="none"), together[1:2], rtol=1e-12, atol=1e-13
        )
        tried.append(seed)

    check()
    scorecard(7, cases_each=len(tried))
    assert len(tried) >= CASES


@pytest.mark.rel
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    seed=seeds, classes=st.integers(2, 30), t=st.floats(0.3, 5.0), spread=st.sampled_from([0.1, 3.0, 100.0])
)
def test_tempered_softmax_sums_to_one(seed, classes, t, spread):
    """Scorecard 6: property-based, float32, below 1e-5."""
    a = spread * torch.randn(4, classes, generator=torch.Generator().manual_seed(seed))
    p = tempered_softmax(a, t)
    assert float((p.sum(-1) - 1).abs().max()) < 1e-5
    assert bool((p >= 0).all())
    assert torch.equal(p.gather(-1, a.argmax(-1, keepdim=True)), p.amax(-1, keepdim=True))  # order is kept


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(seed=seeds, classes=st.integers(2, 9), alpha=st.floats(0, 1))
def test_targets_keep_the_mass(seed, classes, alpha):
    _, y, source = draw(seed, classes)
    weights = torch.randn(3, classes, generator=source, dtype=torch.float64)
    torch.testing.assert_close(smooth(weights, classes, alpha).sum(-1), weights.sum(-1))
    T = torch.rand(classes, classes, generator=source, dtype=torch.float64)
    T = T / T.sum(-1, keepdim=True)
    torch.testing.assert_close(smear(weights, T).sum(-1), weights.sum(-1))
    torch.testing.assert_close(smear(smooth(y, classes, alpha), T), smooth(y, classes, alpha) @ T)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(seed=seeds, classes=st.integers(2, 6), t1=st.floats(0, 1.5), t2=st.floats(1.0, 4.0))
def test_bi_tempered_is_a_divergence(seed, classes, t1, t2):
    """Non-negative, and zero exactly where the tempered softmax is the target."""
    z, _, source = draw(seed, classes)
    w = torch.randn(3, classes, generator=source, dtype=torch.float64).softmax(-1)
    assert float(losses.bi_tempered(z, w, t1=t1, t2=t2, reduction="none").min()) > -1e-12
    p = tempered_softmax(z / 5, t2)
    own = losses.bi_tempered(z / 5, p, t1=t1, t2=t2, reduction="none")
    torch.testing.assert_close(own, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)
