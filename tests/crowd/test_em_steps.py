"""Single steps of EM, and of an update with new labels, against loops over items and labels."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate, update
from dubito.crowd._em import Base, Shared, expectation_maximisation
from dubito.crowd._hierarchical import Hierarchical
from dubito.crowd._layout import e_step, lay_out, vote_shares
from dubito.crowd._rules import Full, OneCoin, Skill, matrices
from dubito.crowd._warm import carry_over, changed_part, move, spread_out
from dubito.errors import DubitoError

RULES = [Full(0.0), Full(1.5), OneCoin(2.0), Hierarchical(4.0)]


def triplets(crowd):
    return list(zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()))


def by_item(crowd, prior, A):
    """Posterior of every item, and the marginal log-likelihood."""
    joint = np.tile(prior, (crowd.num_items, 1))
    for n, r, y in triplets(crowd):
        joint[n] *= A[r, :, y]
    return joint / joint.sum(1, keepdims=True), np.log(joint.sum(1)).sum()


def em(crowd, rule, *, pseudo=0.7, iterations=4, tolerance=0.0, base=None):
    layout = lay_out(crowd, dtype=torch.float64)
    return layout, expectation_maximisation(
        layout,
        rule,
        pseudo=pseudo,
        iterations=iterations,
        tolerance=tolerance,
        base=base,
        shared=Shared(False),
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("based", [False, True])
def test_where_em_ends(simulate, rule, based):
    """Posteriors, counts, objective and likelihood at the last step, written out; the prior of the step before."""
    crowd, *_ = simulate(3, items=15, annotators=4)
    layout = lay_out(crowd, dtype=torch.float64)
    base = None
    if based:
        g = torch.Generator().manual_seed(0)
        base = Base(
            torch.rand(len(layout.key_label), 3, generator=g).double(),
            torch.tensor([4.0, 1.0, 2.5], dtype=torch.float64),
        )
    _, before = em(crowd, rule, iterations=3, base=base)
    layout, result = em(crowd, rule, base=base)
    fitted, prior = result.fitted, result.prior.numpy()
    items = before.sums.prior.numpy() + (base.prior.numpy() if base else 0)
    np.testing.assert_allclose(prior, (items + 0.7) / (items.sum() + 2.1), rtol=1e-12)
    A = matrices(layout, fitted).numpy()
    table = np.zeros((4, 3, 3))
    table[layout.key_annotator.numpy(), :, layout.key_label.numpy()] = fitted.table.numpy()
    q, bound = by_item(crowd, prior, np.exp(table))
    np.testing.assert_allclose(result.sums.posterior, q, atol=1e-12)
    np.testing.assert_allclose(result.sums.prior, q.sum(0), atol=1e-11)
    counts, squares = np.zeros((4, 3, 3)), np.zeros((4, 3, 3))
    for n, r, y in triplets(crowd):
        counts[r, :, y] += q[n]
        squares[r, :, y] += q[n] ** 2
    at_keys = (layout.key_annotator.numpy(), slice(None), layout.key_label.numpy())
    np.testing.assert_allclose(result.sums.counts, counts[at_keys], atol=1e-11)
    np.testing.assert_allclose(result.sums.squares, squares[at_keys], atol=1e-11)
    value = bound + fitted.penalty + 0.7 * np.log(prior).sum()
    if base:
        value += float((base.counts * fitted.table).sum()) + float((base.prior.numpy() * np.log(prior)).sum())
    assert result.trace[-1] == pytest.approx(value, abs=1e-9)
    assert len(result.trace) == 5
    assert not result.converged
    assert result.log_likelihood == pytest.approx(by_item(crowd, prior, A)[1], abs=1e-9)


def test_it_stops_once_a_label_gains_less_than_the_tolerance(simulate):
    crowd, *_ = simulate(4)
    trace = em(crowd, Full(1.0), iterations=60)[1].trace
    gains = [(b - a) / len(crowd) for a, b in itertools.pairwise(trace)]
    for tolerance in (0.03, 0.001):
        found = em(crowd, Full(1.0), iterations=60, tolerance=tolerance)[1]
        wanted = next(i for i, gain in enumerate(gains) if gain < tolerance)
        assert found.converged
        assert found.trace == pytest.approx(trace[: wanted + 2])
    one = CrowdLabels([0, 0, 1], [0, 1, 0], ["yes"] * 3)
    still = em(one, OneCoin(0.0), pseudo=0.0, iterations=4)[1]  # nothing ever changes: no gain is below 0
    assert (len(still.trace), still.converged) == (5, False)
    assert em(one, OneCoin(0.0), pseudo=0.0, tolerance=1e-9)[1].converged


def test_values_are_moved_by_annotator_and_label():
    crowd = CrowdLabels([0, 0, 1, 2], [0, 2, 2, 1], [1, 0, 1, 1], classes=2, annotator_ids=4)
    layout = lay_out(crowd, dtype=torch.float64)
    who, label = torch.tensor([2, 0, -1, 3, 2, 0]), torch.tensor([1, 1, 1, 0, 1, 0])
    values = torch.arange(1.0, 13.0, dtype=torch.float64).view(6, 2)
    found = move(layout, who, label, values)
    for u, key in enumerate(zip(layout.key_annotator.tolist(), layout.key_label.tolist())):
        wanted = [v for r, y, v in zip(who.tolist(), label.tolist(), values.numpy()) if (r, y) == key]
        np.testing.assert_allclose(found[u], np.sum(wanted, 0) if wanted else [0.0, 0.0])
    nothing = lay_out(CrowdLabels([], [], [], classes=2, annotator_ids=2), dtype=torch.float64)
    assert move(nothing, who, label, values).shape == (0, 2)


def two_crowds(simulate):
    """A crowd, and the same with labels on items 1 and 4, on a new item and by new annotators."""
    crowd, *_ = simulate(6, items=20, annotators=4, each=3)
    return crowd, crowd.append([1, 4, 4, 20, 20], [9, 9, 8, 2, 9], [0, 1, 2, 1, 1])


@pytest.mark.parametrize("method", ["dawid-skene", "one-coin", "skill", "hierarchical"])
def test_what_an_update_leaves_alone(simulate, method):
    old, new = two_crowds(simulate)
    before = aggregate(old, method)
    part = changed_part(before, new)
    assert part.touched.tolist() == [1, 4, 20]
    wanted = [t for t in triplets(new) if t[0] in (1, 4, 20)]
    places = {1: 0, 4: 1, 20: 2}
    assert sorted(triplets(part.crowd)) == sorted((places[n], r, y) for n, r, y in wanted)
    assert part.crowd.item_ids.tolist() == [1, 4, 20]
    layout = lay_out(part.crowd, dtype=torch.float64, present=part.present)
    q = before.probabilities.numpy()
    counts, squares = np.zeros((6, 3, 3)), np.zeros((6, 3, 3))
    for n, r, y in triplets(old):
        if n not in (1, 4):
            counts[r, :, y] += q[n]
            squares[r, :, y] += q[n] ** 2
    at_keys = (layout.key_annotator.numpy(), slice(None), layout.key_label.numpy())
    occurring = {(r, y) for _, r, y in triplets(new)}
    assert set(zip(layout.key_annotator.tolist(), layout.key_label.tolist())) == occurring
    np.testing.assert_allclose(part.rest(layout), counts[at_keys], atol=1e-9)
    np.testing.assert_allclose(part.rest_squares(layout), squares[at_keys], atol=1e-9)
    np.testing.assert_allclose(part.items, q[[n for n in range(20) if n not in (1, 4)]].sum(0), atol=1e-9)
    after = update(before, new)
    kept = [n for n in range(20) if n not in (1, 4)]
    assert torch.equal(after.probabilities[kept], before.probabilities[kept])
    assert after.state.given[0] is new.item


def test_the_last_posteriors_are_spread_over_all_items(simulate):
    old, new = two_crowds(simulate)
    new.item_ids = np.append(new.item_ids, 99)  # an item without labels
    before = aggregate(old)
    part = changed_part(before, new)
    fresh = torch.full((4, 3), 0.25, dtype=torch.float64)
    found = spread_out(before, part, fresh)
    for n in range(22):
        torch.testing.assert_close(found[n], fresh[0] if n in (1, 4, 20, 21) else before.probabilities[n])
    after = update(before, new)
    torch.testing.assert_close(after.probabilities[21], after.class_prior)


@pytest.mark.parametrize("method", ["dawid-skene", "one-coin", "skill", "hierarchical"])
def test_a_start_is_matched_by_the_names_of_annotators(simulate, method):
    crowd, *_ = simulate(8, items=40, annotators=5)
    first = aggregate(crowd, method, iterations=3)
    same = CrowdLabels(
        crowd.item.numpy(),
        crowd.annotator.numpy(),
        crowd.label.numpy(),
        classes=3,
        annotator_ids=[4, 2, 0, 1, 3],
    )
    layout = lay_out(same, dtype=torch.float64)
    rule = {"dawid-skene": Full, "one-coin": OneCoin, "skill": Skill, "hierarchical": Hierarchical}[method]
    fitted, prior = carry_over(first, same, layout, rule(first.state.strength))
    again, _ = carry_over(first, crowd, lay_out(crowd, dtype=torch.float64), rule(first.state.strength))
    straight = matrices(lay_out(crowd, dtype=torch.float64), again)
    torch.testing.assert_close(matrices(layout, fitted), straight[[4, 2, 0, 1, 3]], atol=1e-9, rtol=0)
    torch.testing.assert_close(prior, first.class_prior)
    assert math.isfinite(fitted.penalty)


def test_the_prior_settles_before_the_objective_is_recorded(simulate):
    crowd, *_ = simulate(9)
    rule, layout = Full(2.0), lay_out(crowd, dtype=torch.float64)
    fitted, items = None, vote_shares(layout)
    for _ in range(1 + rule.burn_in):
        prior = (items.prior + 0.7) / (items.prior.sum() + 2.1)
        fitted = rule.fit(layout, items.counts, fitted, burning=True)
        items = e_step(layout, fitted.table, prior.log())
    result = em(crowd, rule, iterations=3)[1]
    torch.testing.assert_close(result.fitted.hyper["pooled"], fitted.hyper["pooled"], atol=1e-12, rtol=0)
    assert result.trace[0] == pytest.approx(
        items.log_likelihood + fitted.penalty + 0.7 * float(prior.log().sum()), abs=1e-9
    )


def test_one_label_is_enough_to_start_from():
    one = CrowdLabels([0], ["a"], [1], classes=2)
    first = aggregate(one, "dawid-skene")
    assert aggregate(one, "dawid-skene", start=first).codes.tolist() == [1]
    with pytest.raises(DubitoError, match="no matrices"):
        aggregate(one, "dawid-skene", start=aggregate(one, "vote"))


def test_fewer_items_than_one_are_left_of_a_class():
    crowd = CrowdLabels.from_dense([[0, 0, 0], [1, 1, 1], [0, 0, 1]])
    before = aggregate(crowd, "dawid-skene")
    part = changed_part(before, crowd.append([1], [9], [1]))
    left = before.probabilities[[0, 2]].sum(0)
    assert float(left.min()) < 1
    torch.testing.assert_close(part.items, left, atol=1e-9, rtol=0)
