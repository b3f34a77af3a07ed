"""How products and matrices are made: blocks of observed classes, and which annotators are normalised."""

from __future__ import annotations

import pytest
import torch

from dubito import DubitoError
from dubito._matrices import check_invertible, check_stochastic
from dubito.channels import AnnotatorConfusion, _core, annotators


@pytest.mark.parametrize(("rows", "parts"), [(1 << 20, None), (1 << 21, [2, 1]), (1 << 22, [1, 1, 1])])
def test_blocks_of_observed_classes(monkeypatch, rows, parts):
    """At most 2^24 products at a time; all at once, and not again on the way back, where they fit."""
    seen = []
    monkeypatch.setattr(_core, "_through", lambda log_p, log_T: log_T.new_zeros(1, log_T.shape[-1]))
    monkeypatch.setattr(_core, "checkpoint", lambda f, p, T, **_: seen.append(T.shape[-1]) or f(p, T))
    log_p, log_T = torch.zeros(1, 4).expand(rows, 4), torch.zeros(4, 3)
    assert _core.through(log_p, log_T).shape == (1, 3)
    assert seen == (parts or [])
    seen.clear()
    _core.through(log_p, log_T[:, :1])
    assert seen == []


@pytest.mark.parametrize("count", [2, 3, 5])
def test_whichever_is_less_to_normalise(monkeypatch, count):
    """All matrices where as many labels as annotators come; else those of the labels."""
    channel = AnnotatorConfusion(num_annotators=3, num_classes=2)
    seen, gather = [], annotators._rows
    monkeypatch.setattr(
        annotators, "_rows", lambda table, who: seen.append(table is channel.weight) or gather(table, who)
    )
    who = torch.arange(count) % 3
    found = channel.log_matrices(who)
    assert seen == [count < 3]
    torch.testing.assert_close(found, channel.log_matrices()[who])


def test_borders_of_the_checks():
    """A matrix of one number is checked too; a condition number exactly at the limit is allowed."""
    check_stochastic(torch.ones(1, 1))
    with pytest.raises(DubitoError, match="not stochastic"):
        check_stochastic(torch.full((1, 1), 0.5))
    check_invertible(torch.eye(3), limit=1.0)
    with pytest.raises(DubitoError, match="cannot be inverted"):
        check_invertible(torch.diag(torch.tensor([1.0, 2.0])), limit=1.0)


def test_a_given_start_has_the_size_of_the_others():
    """softplus of the free parameters is the matrix times softplus(1), entries of at least 1e-6."""
    matrix = torch.tensor([[0.9, 0.1], [0.0, 1.0]], dtype=torch.float64)
    found = torch.nn.functional.softplus(_core.start(2, matrix, 0.5)) / torch.nn.functional.softplus(
        torch.ones(())
    )
    torch.testing.assert_close(found, matrix.clamp(min=1e-6), rtol=1e-6, atol=1e-12)
