"""Labels that were checked: they correct the probabilities of the others, and only if these need it."""

from __future__ import annotations

import numpy as np
import pytest

from dubito._audit import audit
from dubito._audit.checked import KNOTS, correct, moved_to, spot_check
from dubito.crowd import CrowdLabels
from dubito.errors import DubitoError


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def naive_value(theta, p, wrong):
    """Negative log posterior of the function at the knots, label by label."""
    distance = np.subtract.outer(KNOTS, KNOTS)
    prior = 4 * np.exp(-(distance**2) / 8) + 1e-4 * np.eye(len(KNOTS))
    total = theta @ np.linalg.solve(prior, theta) / 2
    for one, y in zip(p, wrong):
        z = np.log(one / (1 - one))
        right = sigmoid(z + np.interp(z, KNOTS, theta))
        total -= np.log(right if y else 1 - right)
    return total


def test_the_correction_is_the_maximum_and_is_believed_only_where_needed():
    generator = np.random.default_rng(0)
    p = generator.uniform(0.01, 0.99, 400)
    truth = sigmoid(1.2 + 0.6 * np.log(p / (1 - p)))
    off = generator.random(400) < truth
    found = correct(p, off)
    best = naive_value(found.theta, p, off)
    for step in generator.normal(0, 0.1, (20, len(KNOTS))):
        assert naive_value(found.theta + step, p, off) > best
    assert found.odds > 0.99
    assert np.abs(found(p) - truth).mean() < 0.05 < np.abs(p - truth).mean()
    right = correct(p, generator.random(400) < p)
    assert right.odds < 0.4
    assert np.abs(right(p) - p).max() < 0.05


def test_checks_of_the_most_suspicious_say_nothing_about_the_others():
    top = np.linspace(0.9, 0.99, 100)
    found = correct(top, np.arange(100) % 2 == 0)
    low = np.array([1e-6, 1e-4, 1e-3, 0.003])
    assert found(top).mean() < 0.7
    np.testing.assert_allclose(found(low), low, rtol=0.15)
    assert (np.diff(found(np.linspace(0.001, 0.999, 500))) >= 0).all()


def test_few_checks_leave_more_open_than_many():
    generator = np.random.default_rng(1)
    p = generator.uniform(0.01, 0.99, 1000)
    wrong = generator.random(1000) < sigmoid(2 + np.log(p / (1 - p)))
    few, many = (correct(p[:n], wrong[:n]) for n in (20, 1000))
    assert few.spread(p, 0) > 2 * many.spread(p, 0) > 0


def hard(seed=0, n=2000, K=4):
    """People err where the model doubts, and in its direction: nothing in the labels tells that from difficulty."""
    generator = np.random.default_rng(seed)
    logits = 2.0 * generator.standard_normal((n, K))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = np.array([generator.choice(K, p=row) for row in p])
    flip = generator.random(n) < 0.7 * (1 - p[np.arange(n), true])
    others = p.copy()
    others[np.arange(n), true] = 0
    others /= others.sum(1, keepdims=True)
    labels = np.where(flip, [generator.choice(K, p=row) for row in others], true)
    return labels, true, p


def gap(found, labels, true):
    """Calibration error over ten bins, of the labels that were not checked."""
    rest = np.ones(len(labels), bool) if found.checked is None else found.checked < 0
    p, wrong = found.p_wrong[rest], (labels != true)[rest]
    place = np.minimum((10 * p).astype(int), 9)
    return sum(abs(p[place == b].sum() - wrong[place == b].sum()) for b in range(10)) / len(p)


@pytest.fixture(scope="module")
def checked_runs():
    """Given and true labels, the audit without checks and the one with a hundred, for some seeds."""
    runs = []
    for seed in range(6):
        labels, true, probs = hard(seed, n=1000)
        blind = audit(labels, probs, bootstrap=0)
        known = [None] * len(labels)
        for row in blind.spot_check(100):
            known[row] = int(true[row])
        runs.append((labels, true, blind, audit(labels, probs, checked=known, bootstrap=4)))
    return runs


def test_a_hundred_checks_put_the_numbers_right(checked_runs):
    """A hundred checks are a draw: what they bring is judged on average, and what must never happen one by one."""
    before = np.array([gap(blind, labels, true) for labels, true, blind, _ in checked_runs])
    after = np.array([gap(seen, labels, true) for labels, true, _, seen in checked_runs])
    assert before.min() > 0.2
    assert after.mean() < 0.08
    assert (after < 0.5 * before).all()
    rates = [(labels != true)[seen.checked < 0].mean() for labels, true, _, seen in checked_runs]
    said = [seen.noise_rate for *_, seen in checked_runs]
    assert sum(r.low < rate < r.high for r, rate in zip(said, rates)) >= len(rates) - 1
    assert max(abs(r.value - rate) for r, rate in zip(said, rates)) < 0.15
    assert min(rate - blind.noise_rate.value for rate, (_, _, blind, _) in zip(rates, checked_runs)) > 0.2


def test_what_was_checked_is_settled_and_the_others_keep_their_order(checked_runs):
    labels, _, blind, seen = checked_runs[0]
    rest = seen.checked < 0
    assert set(np.unique(seen.p_wrong[~rest])) <= {0.0, 1.0}
    assert sorted(seen.order[-100:].tolist()) == sorted(blind.spot_check(100))
    assert seen.order[:-100].tolist() == [r for r in blind.order.tolist() if rest[r]]
    np.testing.assert_allclose(seen.probabilities.sum(1), 1)
    assert any("could be wrong without showing" in n for n in blind.notes)
    assert not any("could be wrong without showing" in n for n in seen.notes)
    assert seen.unchecked == len(labels) - 100
    assert not set(seen.spot_check(50)) & set(blind.spot_check(100))


def test_all_labels_checked_leave_nothing_to_do():
    labels, true, probs = hard(n=60)
    found = audit(labels, probs, checked=true.tolist(), bootstrap=2)
    assert (found.unchecked, found.plan, found.noise_rate.value) == (0, (), 0)
    np.testing.assert_array_equal(found.p_wrong, (labels != true).astype(float))


def test_a_part_keeps_its_order_and_its_neighbours():
    labels, _, probs = hard(n=80)
    whole = audit(labels, probs, features=probs, bootstrap=0)
    rows = [5, 3, 70, 11]
    some = whole.part(rows)
    np.testing.assert_array_equal(some.p_wrong, whole.p_wrong[rows])
    assert [rows[i] for i in some.order] == [r for r in whole.order.tolist() if r in rows]
    for row, near in some.nearby.items():
        assert {rows[i] for i in near} <= set(whole.nearby[rows[row]])


@pytest.mark.rel
@pytest.mark.parametrize(
    ("checked", "message"),
    [
        ([0, None], "one length"),
        ([None, None, 7, None], "label|checked"),
        (["a", None, None, None], "checked"),
    ],
)
def test_bad_checks_are_refused(checked, message):
    """Scorecard 13: a class that is not there, or the wrong number of them."""
    with pytest.raises(DubitoError, match=message):
        audit([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8]] * 2, checked=checked, bootstrap=0)


def test_a_crowd_takes_no_checks():
    crowd = CrowdLabels([0, 0, 1, 1], ["a", "b", "a", "b"], [0, 1, 1, 1])
    with pytest.raises(DubitoError, match="leave out"):
        audit(crowd, [[0.5, 0.5]] * 2, checked=[0, None])


def test_moved_probabilities_and_the_sample():
    q = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]])
    moved = moved_to(q, np.array([0, 0]), np.array([0.6, 0.5]))
    np.testing.assert_allclose(moved, [[0.4, 0.4, 0.2], [0.5, 0.25, 0.25]])
    assert spot_check(np.arange(5), 9).tolist() == [0, 1, 2, 3, 4]
    assert spot_check(np.arange(0), 9).tolist() == []


def test_the_sample_hardly_changes_where_neighbours_of_the_ranking_change_places():
    """The last digits of a fit differ between machines; which labels are to be checked must not hang on them."""
    order = np.random.default_rng(0).permutation(3000)
    swapped = order.reshape(-1, 2)[:, ::-1].ravel()
    sample = spot_check(order, 100)
    assert len(set(sample.tolist()) & set(spot_check(swapped, 100).tolist())) >= 98
    place = np.argsort(order)[sample]
    assert (place // 30 == np.arange(100)).all(), "one of each thirty of the ranking"


def test_the_sample_has_nothing_to_do_with_simulated_noise():
    """Who simulates noise draws numbers as well, with 0 for a seed more often than not."""
    order = np.random.default_rng(1).permutation(4000)
    for seed in range(20):
        wrong = np.random.default_rng(seed).random(4000) < 0.2
        assert 0.05 < wrong[spot_check(order, 100)].mean() < 0.4
