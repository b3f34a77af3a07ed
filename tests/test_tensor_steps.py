"""What every loss shares, at its borders: autocast, values not to be looked at, single numbers, infinities."""

from __future__ import annotations

import math

import pytest
import torch

from dubito import DubitoError, bi_tempered
from dubito._tensors import (
    check_distribution,
    check_indices,
    checks_values,
    expect,
    full_precision,
    prepare,
)


def test_full_precision_under_autocast():
    @full_precision
    def product(x):
        return torch.is_autocast_enabled("cpu"), (x @ x).dtype

    x = torch.ones(2, 2)
    assert product(x) == (False, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert product(x) == (False, torch.float32)


def test_values_elsewhere_are_not_looked_at():
    """On a device that has none to show, nothing is refused for its values."""
    z, target = torch.zeros(2, 3, device="meta"), torch.zeros(2, dtype=torch.int64, device="meta")
    assert not checks_values(z)
    assert checks_values(torch.zeros(2))
    check_indices(target, z, -100)
    check_distribution(z)


def test_ignored_labels_stand_as_class_zero():
    z, target, kept = prepare(torch.zeros(3, 4), torch.tensor([2, -1, 3]), dim=-1, ignore_index=-1)
    assert target.tolist() == [2, 0, 3]
    assert kept.tolist() == [True, False, True]
    assert z.shape == (3, 4)


def test_a_single_number_is_checked():
    check_indices(torch.tensor([0]), torch.zeros(1, 1), -100)
    with pytest.raises(DubitoError, match="out of range"):
        check_indices(torch.tensor([5]), torch.zeros(1, 3), -100)
    check_distribution(torch.ones(1, 1))
    with pytest.raises(DubitoError, match="distribution"):
        check_distribution(torch.full((1, 1), 0.5))


def test_weights_that_are_no_distribution():
    """Any negative one; sums off by more than a thousandth, of which the worst is named."""
    with pytest.raises(DubitoError, match="negative"):
        check_distribution(torch.tensor([[0.5, 0.5], [1.5, -0.5]]))
    check_distribution(torch.tensor([[0.5, 0.5008], [0.5, 0.4992]]))
    with pytest.raises(DubitoError, match=r"1\.001"):
        check_distribution(torch.tensor([[0.5, 0.5012], [0.5, 0.5]]))
    for sums, worst in (([0.5, 1.2], "0.5"), ([0.75, 1.5], "1.5")):
        with pytest.raises(DubitoError, match=worst):
            check_distribution(torch.tensor(sums).unsqueeze(-1).expand(2, 2) / 2)


def test_nothing_times_infinity_is_nothing():
    """And anything else times infinity is infinite."""
    values = torch.tensor([[-math.inf, -2.0, -3.0], [-1.0, -math.inf, -3.0], [-1.0, -2.0, -math.inf]])
    weights = torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert expect(values, weights).tolist() == [-2.5, -math.inf, -math.inf]
    assert expect(values, torch.tensor([1, 0, 2])).tolist() == [-2.0, -1.0, -math.inf]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_softmax_in_half_precision_is_a_distribution(dtype, classes):
    """No rounded row is further from a sum of 1 than its dtype allows, and the loss takes it, on any axis."""
    g = torch.Generator().manual_seed(0)
    target = (3 * torch.randn(1000, classes, generator=g)).softmax(-1).to(dtype)
    losses = bi_tempered(torch.zeros(classes, 1000), target.T, dim=0, reduction="none")
    w, p = target.double(), 1 / classes
    tempered = 5 * (w**1.2 - w * p**0.2)  # w (log_t w - log_t p) at t = 0.8
    expected = (tempered - (w**1.2 - p**1.2) / 1.2).sum(-1)
    torch.testing.assert_close(losses.double(), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(DubitoError, match=r"1\.0156"):
        check_distribution(torch.tensor([0.5, 0.515625], dtype=dtype))
