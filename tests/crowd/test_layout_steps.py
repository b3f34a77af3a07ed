"""Which way labels are laid out, and what counts and votes leave behind for an update."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, _layout, aggregate
from dubito.crowd._em import Shared, expectation_maximisation
from dubito.crowd._layout import _number, lay_out, vote_shares
from dubito.crowd._rules import Full

F64 = torch.float64


def test_labels_in_order_are_not_sorted(monkeypatch, simulate):
    """Several labels of one item beside each other are in order."""
    crowd, *_ = simulate(2, items=5, annotators=3, each=2)
    turned = crowd.select(torch.arange(len(crowd)).flip(0))
    wanted = lay_out(crowd, dtype=F64)

    def refused(*_, **__):
        raise AssertionError

    monkeypatch.setattr(torch, "sort", refused)
    lay_out(crowd, dtype=F64)
    with pytest.raises(AssertionError):
        lay_out(turned, dtype=F64)
    monkeypatch.undo()
    for a, b in zip(lay_out(turned, dtype=F64).blocks, wanted.blocks):
        assert torch.equal(a.items, b.items)


@pytest.mark.parametrize("keys", [6, 70_000])
def test_labels_of_a_block(monkeypatch, keys):
    """2^18 labels on a CPU, or four for each key where these are more."""
    seen = []
    monkeypatch.setattr(_layout, "_cut", lambda key, first, count, size: seen.append((count, size)) or [])
    who = np.arange(keys)
    lay_out(CrowdLabels(who % 5, who, who * 0, classes=2), dtype=F64)
    lay_out(CrowdLabels(who % 5, who, who * 0, classes=2), dtype=F64, block=9)
    assert seen == [(keys, max(1 << 18, 4 * keys)), (keys, 9)]


def test_two_ways_to_number_keys(monkeypatch):
    """By sorting only where a table of all keys would be more than 8 times the labels and 1,024."""
    sorted_, unique = [], torch.unique
    monkeypatch.setattr(torch, "unique", lambda *x, **named: sorted_.append(1) or unique(*x, **named))
    key = torch.tensor([30, 4])
    for most, present, ways in (
        (1040, None, 0),
        (1041, None, 1),
        (1041, torch.zeros(1041, dtype=torch.bool), 0),
    ):
        sorted_.clear()
        number, values = _number(key, most, present)
        assert (number.tolist(), values.tolist()) == ([1, 0], [4, 30])
        assert len(sorted_) == ways


def test_no_labels_in_the_smallest_blocks():
    none = np.zeros(0, dtype=np.int64)
    crowd = CrowdLabels(none, none, none, classes=2, item_ids=3, annotator_ids=2)
    layout = lay_out(crowd, dtype=F64, block=1)
    assert [(b.start, b.stop) for b in layout.blocks] == [(0, 3)]
    shares = vote_shares(layout)
    assert shares.prior.tolist() == [1.5, 1.5]
    assert shares.posterior.numel() == shares.squares.numel() == 0
    assert vote_shares(layout, keep=True).posterior.shape == (3, 2)


def test_no_steps_have_not_converged(simulate):
    crowd, *_ = simulate(4, items=6, annotators=4)
    layout = lay_out(crowd, dtype=F64)
    settings = {"pseudo": 0.5, "tolerance": 1e9, "shared": Shared(False)}
    found = expectation_maximisation(layout, Full(1.0), iterations=0, **settings)
    assert not found.converged
    assert len(found.trace) == 1
    assert expectation_maximisation(layout, Full(1.0), iterations=9, **settings).converged


@pytest.mark.parametrize("method", ["vote", "soft-vote", "glad"])
def test_what_a_vote_leaves_behind(simulate, method):
    """Expected items of each class, errors spread over the other classes, no penalty and no strength."""
    crowd, *_ = simulate(5, items=12, annotators=4)
    found = aggregate(crowd, method=method)
    torch.testing.assert_close(found.state.items, 12 * found.class_prior.double())
    assert found.state.fitted.pattern.tolist() == [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]
    assert (found.state.fitted.penalty, found.state.strength) == (0.0, 0.0)
    assert found.state.counts.shape == (0, 3)
