"""dubito.audit from end to end: ranking, probabilities, rates, kinds, plan, files, refusals."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from dubito._audit import audit
from dubito.crowd import CrowdLabels
from dubito.errors import DubitoError


@pytest.fixture(scope="module")
def found(symmetric):
    return audit(symmetric.labels, symmetric.probs, bootstrap=10)


def test_wrong_labels_come_first_and_probabilities_mean_what_they_say(symmetric, found):
    wrong = symmetric.labels != symmetric.true
    own = 1 - symmetric.probs[np.arange(len(wrong)), symmetric.labels]
    ours = average_precision_score(wrong, found.p_wrong)
    assert ours > 0.9
    assert ours > average_precision_score(wrong, own) - 0.01
    for low in np.arange(0, 1, 0.2):
        inside = (found.p_wrong >= low) & (found.p_wrong < low + 0.2)
        if inside.sum() > 50:
            assert abs(found.p_wrong[inside].mean() - wrong[inside].mean()) < 0.12


def test_pairwise_errors_are_found_where_confidence_alone_fails(pairwise):
    wrong = pairwise.labels != pairwise.true
    result = audit(pairwise.labels, pairwise.probs, bootstrap=0)
    own = 1 - pairwise.probs[np.arange(len(wrong)), pairwise.labels]
    assert average_precision_score(wrong, result.p_wrong) > average_precision_score(wrong, own) + 0.05
    assert np.abs(result.transition - pairwise.T).max() < 0.06
    assert result.kind.name == "pairwise"
    right = pairwise.true[result.order[:100]] == result.suggested[result.order[:100]]
    assert right.mean() > 0.9


def test_rate_and_matrix_lie_within_their_intervals(symmetric, found):
    true = (symmetric.labels != symmetric.true).mean()
    assert found.noise_rate.low < true < found.noise_rate.high
    assert found.noise_rate.high - found.noise_rate.low < 0.06
    low, high = found.transition_interval[..., 0], found.transition_interval[..., 1]
    assert ((low <= found.transition) & (found.transition <= high)).all()
    assert ((low - 0.02 <= symmetric.T) & (high + 0.02 >= symmetric.T)).mean() > 0.8
    assert found.kind.name == "symmetric"
    assert str(found.kind) in repr(found)


def test_plan_tells_how_many_errors_a_check_finds(symmetric, found):
    wrong = (symmetric.labels != symmetric.true)[found.order]
    for step in found.plan:
        assert step.found.low - 8 <= wrong[: step.checked].sum() <= step.found.high + 8
        assert step.left.low - 0.01 <= wrong[step.checked :].sum() / len(wrong) <= step.left.high + 0.01
    assert found.plan[-1].checked == len(wrong)
    assert found.plan[-1].left.value == pytest.approx(0)


def test_why_adds_up_to_the_log_odds(symmetric, found):
    rows = np.arange(len(symmetric.labels))
    odds = np.log(found.probabilities[rows, found.suggested] / found.probabilities[rows, found.given])
    np.testing.assert_allclose(found.why.sum(1), odds, atol=0.5)  # the label's own share in T apart
    assert np.median(np.abs(found.why.sum(1) - odds)) < 0.01


def test_clean_labels_are_left_alone(problem):
    clean = problem(np.eye(3), N=1500, sharp=8.0)
    result = audit(clean.labels, clean.probs, bootstrap=0)
    assert result.kind.name == "none"
    assert result.noise_rate.value < 0.01
    assert result.noise_rate.low == result.noise_rate.high == result.noise_rate.value


@pytest.mark.parametrize("N", [4, 60, 700])
def test_no_interval_is_surer_than_so_many_labels_allow(N):
    """None of N wrong: the share has by the rule of succession a standard deviation of about 1 / (N + 2)."""
    labels = np.arange(N) % 2
    found = audit(labels, 0.98 * np.eye(2)[labels] + 0.01, bootstrap=5).noise_rate
    assert found.low == 0
    assert found.high >= 1.95 / (N + 2)


def test_two_classes_and_class_rates(problem):
    noisy = problem([[0.98, 0.02], [0.35, 0.65]], sharp=5.0)
    result = audit(noisy.labels, noisy.probs, bootstrap=0)
    assert result.kind.name == "class-dependent"
    assert np.abs(result.transition - noisy.T).max() < 0.05


def test_annotators_of_different_skill_are_told_apart(symmetric):
    rng = np.random.default_rng(5)
    who = rng.integers(0, 3, len(symmetric.true))
    rate = np.array([0.02, 0.2, 0.5])[who]
    shift = rng.integers(1, 4, len(who))
    labels = np.where(rng.random(len(who)) < rate, (symmetric.true + shift) % 4, symmetric.true)
    names = np.array(["ann", "bob", "cid"], dtype=object)[who]
    result = audit(labels, symmetric.probs, annotators=names, bootstrap=0)
    assert result.kind.name == "annotator-specific"
    group = result.kind.groups[-1]
    assert group.names == ("ann", "bob", "cid")
    np.testing.assert_allclose(group.rates, [0.02, 0.2, 0.5], atol=0.05)
    same = audit(symmetric.labels, symmetric.probs, annotators=names, bootstrap=0)
    assert same.kind.name == "symmetric"


def test_noise_that_follows_the_input_is_recognised(symmetric):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(len(symmetric.true), 4))
    rate = 0.6 / (1 + np.exp(-3 * (x[:, 0] - 0.5)))
    shift = rng.integers(1, 4, len(x))
    labels = np.where(rng.random(len(x)) < rate, (symmetric.true + shift) % 4, symmetric.true)
    assert audit(labels, symmetric.probs, features=x, bootstrap=0).kind.name == "input-dependent"
    result = audit(symmetric.labels, symmetric.probs, features=x, bootstrap=0, neighbours=3)
    assert result.kind.name == "symmetric"
    suspect = result.suspicious(1)[0]
    z = (x - x.mean(0)) / x.std(0)
    nearest = np.argsort(((z - z[suspect.row]) ** 2).sum(1))[1:4]
    assert [i for i, _ in suspect.neighbours] == nearest.tolist()


def test_names_ids_and_the_csv_file_are_safe(tmp_path, symmetric):
    rows = slice(0, 200)
    classes = ["=1+1", "@b", "dog, cat", 'quo"te']
    labels = [classes[k] for k in symmetric.labels[rows]]
    ids = [f"-img{i}.png" for i in range(200)]
    result = audit(labels, symmetric.probs[rows], classes=classes, ids=ids, bootstrap=0)
    path = result.to_csv(tmp_path / "out.csv", 20)
    with path.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 20
    assert not any(cell[:1] in "=+-@" for r in table for cell in (r["id"], r["given"], r["suggested"]))
    first = result.suspicious(1)[0]
    assert table[0]["id"] == "'" + first.id
    assert float(table[0]["p_wrong"]) == pytest.approx(first.p_wrong, rel=1e-5)
    assert result.suspicious(0) == []
    with pytest.raises(DubitoError, match="refusing to write"):
        result.to_csv(tmp_path)


def test_a_crowd_is_judged_label_by_label():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 300)
    skills = [0.95, 0.9, 0.4]
    table = np.stack(
        [np.where(rng.random(300) < s, true, (true + rng.integers(1, 3, 300)) % 3) for s in skills], 1
    )
    crowd = CrowdLabels.from_dense(table)
    probs = 0.7 * np.eye(3)[true] + 0.1
    result = audit(crowd, probs)
    item, label = crowd.item.numpy(), crowd.label.numpy()
    wrong = label != true[item]
    assert average_precision_score(wrong, result.p_wrong) > 0.95
    assert result.kind.name == "annotator-specific"
    assert result.suspicious(1)[0].annotator in (0, 1, 2)
    rows = np.arange(len(label))
    sure = (result.probabilities > 1e-12).all(1)
    odds = np.log(result.probabilities[rows, result.suggested] / result.probabilities[rows, label])
    np.testing.assert_allclose(result.why.sum(1)[sure], odds[sure], rtol=1e-4, atol=1e-3)
    with pytest.raises(DubitoError, match="brings its own"):
        audit(crowd, probs, ids=[1])


def test_nothing_global_moves_and_inputs_stay(symmetric):
    rows = slice(0, 200)
    labels, probs = symmetric.labels[rows].copy(), symmetric.probs[rows].copy()
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    one = audit(labels, probs, bootstrap=3, seed=1)
    two = audit(labels, probs, bootstrap=3, seed=1)
    assert (np.random.get_state()[1] == before).all()
    assert (labels == symmetric.labels[rows]).all()
    assert (probs == symmetric.probs[rows]).all()
    assert one.noise_rate == two.noise_rate
    assert (one.p_wrong == two.p_wrong).all()


def test_absent_class_and_certain_model_stay_finite():
    probs = np.eye(3)[[0, 0, 1, 1, 0, 1, 0, 1] * 5]
    labels = np.array([0, 0, 1, 1, 0, 1, 1, 1] * 5)
    result = audit(labels, probs, bootstrap=2)
    for name in ("p_wrong", "probabilities", "why", "transition", "transition_interval", "class_prior"):
        assert np.isfinite(getattr(result, name)).all(), name
    assert result.notes


P = [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]]


@pytest.mark.rel
@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (([0, 1], P), {}, "one length"),
        (([0, 1, 2], P), {}, "unknown label 2"),
        ((["a", "b", "c"], P), {"classes": ["a", "b"]}, "unknown label 'c'"),
        (([0, 1, 0], P), {"classes": ["a"]}, "name the columns"),
        (([0, 1, 0], P), {"classes": ["a", "a"]}, "repeated"),
        (([0, 1, 0], [0.1, 0.2, 0.7]), {}, "must be a table"),
        (([0, 1, 0], [[0.5, 0.6]] * 3), {}, "must hold probabilities"),
        (([0, 1, 0], [[np.nan, 1.0]] * 3), {}, "must hold probabilities"),
        (([0, 1, 0], [["a", "b"]] * 3), {}, "must hold numbers"),
        (([0, 1, 0], P), {"ids": [1]}, "one length"),
        (([0, 1, 0], P), {"annotators": [1]}, "one length"),
        (([0, 1, 0], P), {"features": [1, 2, 3]}, "one row per label"),
        (([0, 1, 0], P), {"features": [[1.0], [np.inf], [0.0]]}, "must be finite"),
        (([0, 1, 0], P), {"bootstrap": 1}, "bootstrap must be a count"),
        (([0, 1, 0], P), {"neighbours": -1}, "neighbours must be a count"),
        (([0, 1, None], P), {}, "integers or text"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(args, options, message):
    """Scorecard 13: bad labels, probabilities and lengths are refused before any work."""
    with pytest.raises(DubitoError, match=message):
        audit(*args, **options)


def test_suspicious_wants_a_count(found):
    with pytest.raises(DubitoError, match="must be a count"):
        found.suspicious(-1)
