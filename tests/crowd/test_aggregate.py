"""Models of a crowd: recovery, sparse annotators, gold, warm start, updates, real sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dubito.crowd import METHODS, CrowdLabels, aggregate, majority_vote, summarise, update
from dubito.errors import DubitoError

MATRIX = ("hierarchical", "dawid-skene", "one-coin", "skill")


@pytest.mark.rel
@pytest.mark.parametrize("method", ["auto", "dawid-skene"])
def test_matrices_are_recovered(simulate, method, scorecard):
    """Scorecard 10: confusion error < 0.02 with 20k labels, 5 seeds."""
    for seed in range(5):
        crowd, _, A = simulate(seed, items=4000, annotators=10, classes=4, each=5)
        found = aggregate(crowd, method).confusion_matrices.numpy()
        error = ((found - A) ** 2).sum() / (len(A) * A.shape[1])
        assert len(crowd) == 20_000
        scorecard(10, confusion_error=float(error))
        assert error < 0.02


def test_orientation_is_true_then_given():
    """An annotator who calls every dog a cat: row dog, column cat."""
    truth = np.arange(40) % 2
    columns = [truth, truth, truth, np.zeros(40, int)]
    crowd = CrowdLabels.from_dense(np.stack(columns, 1), classes=2)
    for method in ("auto", "dawid-skene"):
        A = aggregate(crowd, method).confusion_of(3)
        assert A[1, 0] > 0.8
        assert A[0, 1] < 0.2
        torch.testing.assert_close(A.sum(1), torch.ones(2, dtype=A.dtype))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_returns_distributions(simulate, method):
    crowd, truth, _ = simulate(0, items=200, annotators=12, each=5)
    result = aggregate(crowd, method)
    torch.testing.assert_close(
        result.probabilities.double().sum(1), torch.ones(200, dtype=torch.float64), atol=1e-6, rtol=0
    )
    A = result.confusion_matrices
    torch.testing.assert_close(A.sum(2), torch.ones(12, 3, dtype=A.dtype), atol=1e-9, rtol=0)
    torch.testing.assert_close(result.skills, A.diagonal(dim1=1, dim2=2).mean(1).double())
    torch.testing.assert_close(result.confusion_of(5), A[5])
    assert (result.codes.numpy() == truth).mean() > 0.7
    assert result.labels.tolist() == result.codes.tolist()
    assert float(result.class_prior.sum()) == pytest.approx(1)


def test_annotators_with_five_labels_do_not_ruin_it(simulate):
    crowd, truth, _ = simulate(0, items=2000, annotators=2000, classes=4, each=5)
    vote = np.mean([(majority_vote(crowd, seed=s)[0].numpy() == truth).mean() for s in range(5)])
    for method in ("auto", "dawid-skene", "skill"):
        assert (aggregate(crowd, method).codes.numpy() == truth).mean() >= vote - 0.002


def test_vote_ties_are_seeded_and_even():
    crowd = CrowdLabels.from_dense(np.tile([[0, 1, 2]], (3000, 1)))
    codes, tied = majority_vote(crowd, seed=1)
    assert bool(tied.all())
    assert torch.equal(codes, majority_vote(crowd, seed=1)[0])
    assert not torch.equal(codes, majority_vote(crowd, seed=2)[0])
    assert (torch.bincount(codes) > 900).all()
    soft = aggregate(crowd, "soft-vote")
    torch.testing.assert_close(soft.probabilities, torch.full((3000, 3), 1 / 3, dtype=torch.float64))
    # Other items' labels do not change an item's draw.
    more = crowd.append([2999] * 2, ["x", "y"], [1, 1])
    assert torch.equal(majority_vote(more, seed=1)[0][:2999], codes[:2999])


def test_vote_leaves_global_generators_alone():
    crowd = CrowdLabels.from_dense([[0, 1], [1, 0]])
    state = torch.get_rng_state()
    aggregate(crowd, "vote", seed=3)
    assert torch.equal(state, torch.get_rng_state())


def test_gold_is_kept_and_teaches(simulate):
    crowd, truth, _ = simulate(2, items=120, annotators=6, classes=3, each=3)
    gold = {n: int((truth[n] + 1) % 3) for n in range(3)} | {n: int(truth[n]) for n in range(3, 90)}
    for method in METHODS:
        result = aggregate(crowd, method, gold=gold)
        assert all(int(result.codes[n]) == k for n, k in gold.items())
    gain = []
    for seed in range(10):
        crowd, truth, _ = simulate(seed, items=120, annotators=6, classes=3, each=3)
        plain, taught = aggregate(crowd), aggregate(crowd, gold={n: int(truth[n]) for n in range(90)})
        gain.append(
            float(((taught.codes.numpy() == truth) * 1.0 - (plain.codes.numpy() == truth))[90:].mean())
        )
    assert np.mean(gain) > 0.01


def test_gold_refusals(simulate):
    crowd, *_ = simulate(0)
    for gold in ({999: 0}, {0: 7}, [1, 2, 3], ([0, 0], [0, 1]), ([0], [0, 1])):
        with pytest.raises(DubitoError):
            aggregate(crowd, gold=gold)


@pytest.mark.parametrize("method", MATRIX)
def test_warm_start_reaches_the_same_place_sooner(simulate, method):
    crowd, *_ = simulate(3, items=400, annotators=15)
    cold = aggregate(crowd, method, tolerance=1e-9, iterations=1000)
    warm = aggregate(crowd, method, start=cold, tolerance=1e-9)
    assert len(warm.trace) < max(len(cold.trace), 4)
    torch.testing.assert_close(warm.probabilities, cold.probabilities, atol=2e-2, rtol=0)


@pytest.mark.parametrize("method", MATRIX)
def test_update_follows_new_labels(simulate, method):
    crowd, truth, _ = simulate(4, items=600, annotators=15, each=5)
    first = crowd.item < 550
    before = crowd.select(first)
    kept = CrowdLabels(before.item.numpy(), before.annotator.numpy(), before.label.numpy(), classes=3)
    late = crowd.select(~first)
    whole = kept.append(late.item.numpy(), late.annotator.numpy(), late.label.numpy())
    whole = whole.append([0], ["newcomer"], [int(truth[0])])
    old = aggregate(kept, method)
    new = update(old, whole)
    full = aggregate(whole, method)
    assert len(new.skills) == 16
    assert (new.codes == full.codes).double().mean() > 0.98
    # The newcomer has a single label: nothing but its neighbourhood can be asked of the skill.
    torch.testing.assert_close(new.skills[:15], full.skills[:15], atol=0.03, rtol=0)
    assert abs(float(new.skills[15] - full.skills[15])) < 0.1
    assert float(new.trace.diff().min()) > -1e-9
    expected = torch.bincount(whole.annotator, minlength=16).double()
    torch.testing.assert_close(new.state.layout.by_annotator(new.state.counts).sum(1), expected)
    assert update(old, kept) is old


def test_known_classes_stay_known_in_an_update(simulate):
    crowd, truth, _ = simulate(5, items=200, annotators=8, each=4)
    lonely = crowd.append(["x", "y"], [0, 1], [0, 1])
    gold = {0: int(truth[0]), "x": 2, "y": 1}
    old = aggregate(lonely, gold=gold)
    more = lonely.append(["x", "z"], [3, 3], [0, 1])
    new, full = update(old, more), aggregate(more, gold=gold)
    at = more.item_ids.tolist().index("x")
    assert new.codes[at] == 2
    assert float(new.probabilities[at, 2]) == 1.0
    torch.testing.assert_close(new.state.company, full.state.company)
    torch.testing.assert_close(new.state.gold, full.state.gold)
    again = update(new, more.append(["x"], [4], [1]))
    assert float(again.probabilities[at, 2]) == 1.0


def test_update_refuses_another_crowd(simulate):
    crowd, *_ = simulate(0)
    other, *_ = simulate(1, items=10)
    with pytest.raises(DubitoError, match="appended"):
        update(aggregate(crowd), other)
    with pytest.raises(DubitoError, match="nothing to update"):
        update(aggregate(crowd, "vote"), crowd)


def test_one_label_per_item_and_one_annotator():
    single = CrowdLabels(range(6), [0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2])
    alone = CrowdLabels(range(4), ["a"] * 4, [0, 1, 1, 0])
    for method in METHODS:
        for crowd in (single, alone):
            result = aggregate(crowd, method)
            assert result.codes.tolist() == crowd.label.tolist()
            assert bool(result.probabilities.isfinite().all())


def test_one_class_and_no_labels():
    one = CrowdLabels([0, 0, 1], [0, 1, 0], ["yes"] * 3)
    none = CrowdLabels([], [], [], classes=3, item_ids=4, annotator_ids=2)
    for method in METHODS:
        assert aggregate(one, method).labels.tolist() == ["yes", "yes"]
        empty = aggregate(none, method)
        assert bool(empty.probabilities.isfinite().all())
        assert bool(empty.skills.isfinite().all())


def test_refusals(simulate):
    crowd, *_ = simulate(0)
    with pytest.raises(DubitoError, match="did you mean 'dawid-skene'"):
        aggregate(crowd, "dawid_skene")
    for bad in (
        {"strength": -1.0},
        {"strength": float("nan")},
        {"method": "hierarchical", "strength": 0.0},
        {"iterations": 0},
        {"tolerance": -1.0},
        {"dtype": torch.float16},
        {"distributed": True},
        {"method": "vote", "start": aggregate(crowd)},
    ):
        with pytest.raises(DubitoError):
            aggregate(crowd, **bad)
    with pytest.raises(DubitoError, match="expected CrowdLabels"):
        aggregate([[0, 1]])


def test_a_group_of_one_process_answers_as_no_group_does(simulate):
    crowd, *_ = simulate(1, items=40, annotators=5, each=2)
    lonely = crowd.append(["x"], [0], [1])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        shared = aggregate(lonely, distributed=True)
    finally:
        dist.destroy_process_group()
    alone = aggregate(lonely)
    torch.testing.assert_close(shared.state.company, alone.state.company)
    assert shared.state.told == alone.state.told < 1
    torch.testing.assert_close(shared.skill_intervals(), alone.skill_intervals())


def test_full_agreement_and_a_single_annotator_settle(simulate):
    truth = np.arange(30) % 3
    for table in (np.stack([truth] * 4, 1), truth[:, None], (np.arange(10) % 2)[:, None].repeat(2, 1)):
        crowd = CrowdLabels.from_dense(table)
        found = aggregate(crowd)
        assert found.converged
        assert not any("settled" in note for note in summarise(crowd, found).notes)
        assert not aggregate(crowd, tolerance=0.0, iterations=3).converged
    hard, *_ = simulate(3, items=60, annotators=20, each=2)
    assert not aggregate(hard, "skill", iterations=5).converged
