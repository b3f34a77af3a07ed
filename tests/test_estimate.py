"""The anchor estimate of a transition matrix: transcriptions of its three rules, traps, recovery, hostile input."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from dubito import noise
from dubito.errors import DubitoError
from dubito.estimate import anchor_transition


def drawn(seed, n=400, K=4, sharpness=3.0):
    return (
        sharpness * torch.randn(n, K, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ).softmax(-1)


def normalised(rows):
    T = torch.stack(rows)
    return T / T.sum(-1, keepdim=True)


@pytest.mark.rel
@pytest.mark.parametrize("seed", range(5))
def test_the_three_rules_equal_loops(seed):
    """Scorecard 1: sorted columns by hand."""
    p = drawn(seed)
    ranked = [sorted(range(400), key=lambda n, c=c: float(p[n, c])) for c in range(4)]
    largest = [p[order[-1]] for order in ranked]
    at = [p[order[math.floor(0.999 * 399)]] for order in ranked]
    # The threshold is the next higher value; it and all above it are left out.
    below = [p[order[math.ceil(0.97 * 399) - 1]] for order in ranked]
    for arguments, rows in (((), largest), ((99.9,), at), ((97, "below"), below)):
        torch.testing.assert_close(anchor_transition(p, *arguments), normalised(rows), rtol=1e-12, atol=0)
    torch.testing.assert_close(anchor_transition(p.numpy(), 99.9), normalised(at), rtol=1e-12, atol=0)


@pytest.mark.paper("lukasik2020 table 7")
def test_of_fifty_thousand_the_999_permille_is_the_51st_highest():
    column = torch.linspace(0.0, 1.0, 50_000, dtype=torch.float64)[
        torch.randperm(50_000, generator=torch.Generator().manual_seed(0))
    ]
    p = torch.stack([column, 1 - column], -1)
    T = anchor_transition(p, 99.9)
    assert T[0, 0] == column.sort(descending=True).values[50]
    assert anchor_transition(p)[0, 0] == 1.0


def test_the_filter_of_one_class_does_not_reach_the_next():
    """Zeroing outliers in place, as released code does, would put zeros into rows of later classes."""
    p = torch.tensor(
        [[0.90, 0.05, 0.05], [0.50, 0.45, 0.05], [0.44, 0.46, 0.10], [0.10, 0.10, 0.80], [0.2, 0.2, 0.6]]
    )
    kept = p.clone()
    T = anchor_transition(p.double(), 80, "below")
    assert torch.equal(p, kept)
    assert bool((T > 0).all())
    # Class 0: 0.90 is left out, so row 1; class 1: 0.46 is left out, so row 1 again; class 2: 0.80, so row 4.
    torch.testing.assert_close(T, p.double()[[1, 1, 4]], rtol=1e-6, atol=1e-7)


def test_ties_go_to_the_first_example():
    p = torch.tensor([[0.6, 0.3, 0.1], [0.6, 0.1, 0.3], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    assert anchor_transition(p)[0].tolist() == pytest.approx([0.6, 0.3, 0.1])
    assert anchor_transition(p, 100, "below")[0].tolist() == pytest.approx([0.2, 0.2, 0.6])


@pytest.mark.rel
@pytest.mark.parametrize(("percentile", "at"), [(100, "percentile"), (99.9, "percentile"), (97, "below")])
def test_a_transition_matrix_is_recovered(percentile, at):
    """Scorecard 10: with clean posteriors that reach certainty, noisy posteriors T' p give T back."""
    T = noise.asymmetric("mnist", 0.3)
    clean = drawn(1, n=20_000, K=10, sharpness=12.0)
    estimate = anchor_transition(clean @ T, percentile, at)
    assert float((estimate - T).square().sum() / 10) < 0.02
    torch.testing.assert_close(estimate.sum(-1), torch.ones(10, dtype=torch.float64))


@pytest.mark.parametrize("at", ["percentile", "below"])
def test_a_class_that_no_example_has_is_named(at):
    """Its row is that of the first example, as by any largest entry among equal ones, and means nothing."""
    p = torch.tensor(
        [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.3, 0.6, 0.1]], dtype=torch.float64
    )
    rows = p if at == "below" else p[:3]  # below the highest, the third class has no example either
    with pytest.warns(RuntimeWarning, match="no anchor example at class 2: .* probability 0") as caught:
        T = anchor_transition(rows, 100.0, at)
    assert T[2].tolist() == pytest.approx([0.9, 0.1, 0.0])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anchor_transition(p)


def test_precision_and_sizes():
    p = drawn(3)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        T = anchor_transition(p.to(dtype))
        assert T.dtype == torch.float64
        torch.testing.assert_close(T, anchor_transition(p), rtol=0, atol=2e-2)
        torch.testing.assert_close(T.sum(-1), torch.ones(4, dtype=torch.float64))
    assert torch.equal(anchor_transition(torch.ones(1, 1)), torch.ones(1, 1, dtype=torch.float64))
    assert anchor_transition(np.array([[0.25, 0.75]])).tolist() == [[0.25, 0.75], [0.25, 0.75]]


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: anchor_transition(torch.rand(4)), "table"),
        (lambda: anchor_transition(torch.empty(0, 3)), "table"),
        (lambda: anchor_transition(torch.tensor([[0.5, 0.5], [2.0, -1.0]])), r"probs\[1\]"),
        (lambda: anchor_transition(torch.tensor([[0.5, math.nan]])), r"probs\[0\]"),
        (lambda: anchor_transition(torch.randn(5, 3)), "softmax"),
        (lambda: anchor_transition(drawn(0), 101), "percentile"),
        (lambda: anchor_transition(drawn(0), math.nan), "percentile"),
        (lambda: anchor_transition(drawn(0), 97, "above"), "at"),
        (lambda: anchor_transition(torch.full((5, 2), 0.5), 97, "below"), "no example of class 0"),
    ],
)
def test_bad_input_is_refused(call, word):
    """Scorecard 13 and 15."""
    with pytest.raises(DubitoError, match=word):
        call()
