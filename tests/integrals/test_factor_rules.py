"""Rules over few factors: products of Gauss and Hermite, replicates of Sobol sets, and their errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from dubito.integrals import factors as module
from dubito.integrals.noise import sobol_bank

F64 = torch.float64
LIKE = torch.zeros(1, dtype=F64)


def close(found, wanted, rtol=1e-9, atol=1e-11):
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=F64), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("rank", "order"), [(1, 2), (1, 7), (2, 4), (3, 3), (2, 20)])
def test_products_of_gauss_and_hermite(rank, order):
    """Every combination of nodes with the product of their weights, but for those 60 nats below the heaviest."""
    x, w = np.polynomial.hermite_e.hermegauss(order)
    places = np.stack([p.ravel() for p in np.meshgrid(*[x] * rank, indexing="ij")], -1)
    logs = np.log(w / w.sum())
    total = sum(p.ravel() for p in np.meshgrid(*[logs] * rank, indexing="ij"))
    kept = total > total.max() - 60
    rule = module.hermite_rule(rank, order, LIKE)
    assert rule.replicated is False
    close(rule.points, places[kept], 1e-8, 1e-8)
    close(rule.log_weight, total[kept], 1e-6, 1e-6)


def test_which_corners_are_left_out():
    """Counted for many orders: as many as lie within 60 nats of the heaviest."""
    for order in range(30, 64):
        _, w = np.polynomial.hermite_e.hermegauss(order)
        depth = np.log(w) - np.log(w.max())
        assert len(module.hermite_rule(1, order, LIKE).points) == int((depth > -60).sum())
    assert module.hermite_rule(2, 4, LIKE.float()).points.dtype == torch.float32


@pytest.mark.parametrize(("count", "each"), [(64, 8), (4, 1), (20, 2)])
def test_replicates_of_sobol_sets(count, each):
    """Eight sets of an eighth of the points, each from the next seed, all of equal weight."""
    rule = module.sobol_rule(count, 3, 5, LIKE)
    banks = [sobol_bank(each, 3, 0, 5 + r, "normal", torch.device("cpu"), F64)[0] for r in range(8)]
    assert torch.equal(rule.points, torch.cat(banks))
    close(rule.log_weight, [-math.log(8 * each)] * (8 * each))
    assert rule.replicated is True


def test_rules_of_rising_size():
    """Products for up to three factors, of as many points as orders allow; Sobol sets beyond."""
    orders = {1: (6, 12, 24, 48), 2: (4, 7, 12, 20), 3: (3, 5, 8, 13)}
    sets = (64, 256, 1024, 4096)
    for rank in (1, 2, 3, 4):
        rules = module.rules(rank, 3, LIKE)
        made = (
            [module.hermite_rule(rank, order, LIKE) for order in orders[rank]]
            if rank < 4
            else [module.sobol_rule(count, 4, 3, LIKE) for count in sets]
        )
        assert all(torch.equal(a.points, b.points) for a, b in zip(rules, made, strict=True))
        sizes = [len(rule.points) for rule in rules]
        assert all(1.5 * a < b for a, b in itertools.pairwise(sizes))
        assert all(rule.points.shape[1] == rank for rule in rules)
        assert {rule.replicated for rule in rules} == {rank > 3}
    assert max(module._ORDERS) == module.PRODUCT_RANK


def test_errors_of_rules():
    """Of products the change; of replicates their standard error relative to the whole."""
    terms = torch.randn(32, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    log_p = terms.logsumexp(0)
    product, sets = module.Rule(terms, terms[:, 0], False), module.Rule(terms, terms[:, 0], True)
    assert bool((module.rule_error(product, terms, log_p, None) == math.inf).all())
    before = log_p + torch.tensor([0.25, -0.5, 0.0], dtype=F64)
    close(module.rule_error(product, terms, log_p, before), [0.25, 0.5, 0.0])
    lost = torch.full((3,), -math.inf, dtype=F64)
    close(module.rule_error(product, terms, lost, lost), [0.0] * 3)
    means = terms.exp().reshape(8, 4, 3).sum(1) / terms.exp().sum(0) * 8
    close(module.rule_error(sets, terms, log_p, None), means.std(0) / math.sqrt(8))
    close(module.rule_error(sets, terms - math.inf, lost, None), [0.0] * 3)
