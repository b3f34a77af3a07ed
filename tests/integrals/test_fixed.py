"""The rule with a fixed number of nodes: near the refined one, mapped and compiled like any tensor function."""

from __future__ import annotations

import pytest
import softmax_rows as families
import torch

from dubito import DubitoError
from dubito.integrals import expected_log_softmax, expected_softmax_nll
from dubito.integrals.fixed import fixed_rule
from dubito.integrals.quadrature import solve

# What networks make over the papers' temperatures: largest error of log p, and of the gradient over its norm.
BOUNDS = {0.025: (2e-4, 1e-2), 0.1: (1e-4, 1e-2), 0.5: (2e-5, 1e-4), 1.0: (1e-5, 1e-5), 100.0: (1e-5, 1e-5)}


@pytest.mark.parametrize("tau", BOUNDS)
def test_error_over_the_range_of_training(tau):
    mean, scale, temperature, target = families.rows("ordinary", tau, 10, 512)
    inputs = mean.float(), scale.float() + 1e-3, temperature.float()
    found = fixed_rule(*inputs, target)
    truth, _ = solve(*(x.double() for x in inputs), target, 1e-8)
    off = (found.log_p.double() - truth.log_p).abs()
    got, right = (torch.cat([a.d_mean, a.d_scale], -1).double() for a in (found, truth))
    assert float(off.max()) < BOUNDS[tau][0]
    assert float(((got - right).norm(dim=-1) / (right.norm(dim=-1) + 1e-3)).max()) < BOUNDS[tau][1]


def test_wide_ranges_of_scale_are_flagged_or_right():
    """What the rule says of its own error: rows of scales from 0.01 to 50 that it calls good are within 2e-3."""
    mean, scale, temperature, target = families.rows("lognormal", 0.05, 10, 512)
    found = fixed_rule(mean.float(), scale.float(), temperature.float(), target)
    truth, _ = solve(
        mean.float().double(), scale.float().double(), temperature.float().double(), target, 1e-8
    )
    off = (found.log_p.double() - truth.log_p).abs()
    assert float(off[found.error < 1e-3].max()) < 2e-3


def test_mapped_runs_equal_each_other_one_by_one():
    """Three runs with their own temperature under vmap: values and all gradients."""
    g = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(3, 8, 5, generator=g), torch.rand(3, 8, 5, generator=g)
    tau, y = torch.tensor([0.1, 1.0, 10.0]), torch.randint(5, (3, 8), generator=g)
    inputs = [x.requires_grad_() for x in (mean, scale, tau)]

    def loss(m, s, t, y):
        return expected_softmax_nll(m, s, y, temperature=t, method="fixed", ignore_index=4)

    mapped = torch.vmap(loss)(*inputs, y)
    single = torch.stack(
        [expected_softmax_nll(mean[i], scale[i], y[i], temperature=tau[i], ignore_index=4) for i in range(3)]
    )
    torch.testing.assert_close(mapped, single, rtol=1e-5, atol=1e-6)
    for a, b in zip(torch.autograd.grad(mapped.sum(), inputs), torch.autograd.grad(single.sum(), inputs)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_all_classes_sum_to_one_without_being_made_to():
    mean, scale, _, _ = families.rows("ordinary", 0.3, 21, 64)
    reports = []
    log_p = expected_log_softmax(mean, scale, temperature=0.3, method="fixed", report=reports.append)
    assert float((log_p.exp().sum(-1) - 1).abs().max()) < 1e-6
    exact = expected_log_softmax(mean, scale, temperature=0.3, method="quadrature", tol=1e-8)
    torch.testing.assert_close(log_p.exp(), exact.exp(), rtol=0, atol=1e-6)
    assert reports[0].method == "fixed"


def test_nothing_depends_on_values():
    """On the meta device there are none."""
    mean = torch.zeros(4, 10, device="meta")
    y = torch.zeros(4, dtype=torch.int64, device="meta")
    from unittest import mock

    from dubito.integrals import rows as rows_module
    from dubito.integrals.table import table

    real = table(torch.device("cpu"), torch.float32)
    empty = type(real)(real.degree, *[_on_meta(part) for part in real[1:]])
    with mock.patch.object(rows_module, "table", return_value=empty):
        found = fixed_rule(mean, mean + 1, mean[:, :1] + 1, y)
    assert found.log_p.shape == (4,)
    assert found.log_p.device.type == "meta"


def _on_meta(part):
    return tuple(x.to("meta") for x in part) if isinstance(part, tuple) else part.to("meta")


@pytest.mark.parametrize("more", [{"factors": torch.ones(2, 3, 1)}, {"noise": "gumbel"}])
def test_what_it_is_not_for(more):
    y = torch.tensor([0, 1])
    with pytest.raises(DubitoError):
        expected_softmax_nll(torch.zeros(2, 3), 1.0, y, method="fixed", **more)


def test_only_the_scale_or_only_the_temperature_mapped():
    mean = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    target, several = torch.tensor([0, 1, 2]), torch.tensor([0.5, 1.0, 2.0])

    def by_scale(s):
        return expected_softmax_nll(mean, s.expand(3, 5), target, method="fixed")

    def by_temperature(tau):
        return expected_softmax_nll(mean, torch.ones(3, 5), target, temperature=tau, method="fixed")

    for one in (by_scale, by_temperature):
        torch.testing.assert_close(torch.vmap(one)(several), torch.stack([one(x) for x in several]))
