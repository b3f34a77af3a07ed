"""The race of methods, on scores that are written down instead of trained for."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from product_tables import dubito, read, write

from dubito._product.choice import Race, _rungs, scores
from dubito._product.portfolio import BASELINE, Diagnosis, closest, portfolio, told
from dubito._product.training import budget, slug
from dubito.data import LabelledData, Triplets
from dubito.papers.which import table


class Written:
    """Folds whose predictions are right with a given chance, in place of networks."""

    def __init__(self, skills: dict[str, float], n: int = 2000, folds: int = 5) -> None:
        rng = np.random.default_rng(0)
        labels = torch.from_numpy(rng.integers(0, 3, n))
        self.data = LabelledData(torch.zeros(n, 1), labels, classes=("a", "b", "c"))
        self.number, self.count = torch.arange(n) % folds, folds
        luck = torch.from_numpy(rng.random(n))  # the same for all: methods differ as pairs do
        self.asked: list[tuple[str, int]] = []
        self.skills, self.luck = skills, luck

    def log_p(self, method, params, fold):
        self.asked.append((method, fold))
        rows = self.number == fold
        right = self.luck[rows] < self.skills[method]
        said = torch.where(right, self.data.labels[rows], (self.data.labels[rows] + 1) % 3)
        return torch.nn.functional.one_hot(said, 3).double()


def race(skills, *, best_wins=False, **options):
    folds = Written(skills, **options)
    winner, entries = Race(folds, 0).run({name: {} for name in skills}, best_wins=best_wins)
    return winner, {e.method: e for e in entries}, folds


def test_the_best_wins_when_it_is_clearly_better():
    winner, entries, _ = race({"ce": 0.6, "b": 0.62, "c": 0.75, "d": 0.5})
    assert winner == "c"
    assert entries["c"].behind == 0
    assert entries["ce"].behind == pytest.approx(0.15, abs=0.03)


def test_within_one_standard_error_the_simplest_wins():
    skills = {"ce": 0.7, "b": 0.7005}
    winner, entries, _ = race(skills)
    assert entries["ce"].behind <= entries["ce"].error
    assert winner == "ce"


def test_the_baseline_is_never_dropped_and_losers_are_not_trained_on():
    _, entries, folds = race({"ce": 0.1, "b": 0.5, "c": 0.6, "d": 0.7, "e": 0.8, "f": 0.2})
    assert entries["ce"].folds == 5
    assert entries["f"].folds == 1
    assert ("f", 1) not in folds.asked
    assert entries["e"].folds == 5


def test_among_many_wrong_labels_the_best_wins():
    luck = Written({}).luck
    skills = {"ce": 0.7, "b": float(luck[luck >= 0.7].min()) + 1e-9}  # b is right once more
    assert race(skills)[0] == "ce"
    winner, entries, _ = race(skills, best_wins=True)
    assert entries["ce"].behind == pytest.approx(1 / 2000)
    assert entries["ce"].behind <= entries["ce"].error
    assert winner == "b"


def test_the_baseline_takes_no_place_of_another():
    """Two others reach the last rung beside the baseline, also where that is the best."""
    _, entries, _ = race({"ce": 0.9, "b": 0.5, "c": 0.6, "d": 0.7, "e": 0.8, "f": 0.2})
    assert [name for name, e in entries.items() if e.folds == 5] == ["ce", "d", "e"]


def test_of_few_items_every_method_is_judged_on_every_fold():
    _, entries, _ = race({"ce": 0.1, "b": 0.5, "c": 0.6, "d": 0.7, "e": 0.8, "f": 0.2}, n=1000)
    assert {e.folds for e in entries.values()} == {5}


@pytest.mark.parametrize("candidates", [1, 2, 3, 5, 8])
def test_rungs_halve(candidates):
    rungs = _rungs(candidates, 5)
    stays = [keep for _, keep in rungs]
    assert stays == sorted(stays, reverse=True)
    assert all(folds < 5 for folds, _ in rungs)
    assert not rungs or stays[-1] >= 2


def test_the_portfolio_follows_the_diagnosis():
    def names(kind, rate, crowd=False, per_item=1.0):
        return portfolio(Diagnosis(kind, rate, torch.eye(3), per_item, crowd))

    assert all(next(iter(names(k, r))) == BASELINE for k, r in (("none", 0.0), ("pairwise", 0.3)))
    assert "forward" in names("pairwise", 0.3)
    assert torch.equal(names("class-dependent", 0.3)["forward"]["transition"], torch.eye(3))
    assert "forward" not in names("symmetric", 0.3)
    assert "gem" in names("annotator-specific", 0.3, True, 3.0)
    assert "mbem" in names("annotator-specific", 0.3, True, 1.0)
    assert "smooth:alpha=0.1" in names("none", 0.005)
    assert "smooth:alpha=0.1" not in names("symmetric", 0.3)


def test_the_order_is_that_of_the_recorded_experiments(monkeypatch):
    """Whatever the results say of a kind of noise, the robust losses race in that order, and the page tells it."""
    from dubito._product import portfolio as module
    from dubito.papers.which import Evidence

    def says(method, gap, standing, **params):
        params = tuple(sorted(params.items()))
        return Evidence("mnist", "resample", 0.3, method, params, 90 - gap, None, 3, standing, gap)

    found = [says("ln", 0.0, "first"), says("nan", 1.0, "level", sigma=0.5), says("gce", 4.0, "below")]
    monkeypatch.setattr(module, "evidence", lambda kind, rate, within: tuple(found))
    d = Diagnosis("symmetric", 0.3, torch.eye(3), 1.0, False)
    names = list(portfolio(d))
    assert names == ["ce", "ln", "ln:temperature=0.5,lam=1.0", "nan:sigma=0.5", "gce:q=0.7"]
    assert "ln 0.0, nan 1.0, gce 4.0" in told(d, names)
    found[:] = [says("gce", 0.0, "first"), says("ln", 2.0, "below"), says("nan", 3.0, "below")]
    assert list(portfolio(d)) == ["ce", "gce:q=0.7", "ln", "ln:temperature=0.5,lam=1.0"]
    found.clear()  # of this kind nothing was measured: any other noise near the rate
    assert len(portfolio(d)) >= 4


def test_every_candidate_is_a_method_that_can_be_built():
    from dubito.methods import parse

    for kind in ("none", "symmetric", "pairwise", "class-dependent", "input-dependent"):
        for rate in (0.0, 0.05, 0.2, 0.4, 0.7):
            for name, params in portfolio(Diagnosis(kind, rate, torch.eye(3), 1.0, False)).items():
                method, spelled = parse(name)
                method.build(**{**spelled, **params})


def test_scores_of_a_crowd_are_shares_of_labels():
    crowd = Triplets(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 0, 1]), torch.tensor([1, 0, 1, 0]))
    data = LabelledData(torch.zeros(3, 1), torch.full((3,), -1), classes=("x", "y"), crowd=crowd)
    log_p = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    assert scores(data, log_p, torch.arange(3)).tolist() == [0.5, 1.0, 0.0]
    assert scores(data, log_p[:2], torch.tensor([2, 0])).tolist() == [0.0, 0.5]


def test_budget_is_by_steps():
    assert budget(64, 64) == 400
    assert budget(1797, 64) == 50
    assert budget(60_000, 64) == 10


def test_auto_explains_its_choice(table, tmp_path):
    said = dubito(
        "fit", table, "--out", tmp_path / "run", "--epochs", "12", "--folds", "3", "--device", "cpu"
    )
    assert "racing ce, " in said
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "They raced over folds" in page
    assert "standard error" in page
    assert len(read(tmp_path / "run" / "predictions.csv")) == 180


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Two clouds in ten columns, of which three tell them apart, and many labels wrong: a network that can learn
    those by heart does."""
    rng = np.random.default_rng(3)
    true = rng.integers(0, 2, 150)
    x = rng.normal(size=(150, 10)) + np.outer(2 * true - 1, [1.2] * 3 + [0] * 7)
    given = np.where(rng.random(150) < 0.3, 1 - true, true)
    rows = [(f"r{i}", *x[i].round(4), "ab"[given[i]]) for i in range(150)]
    head = ["id", *(f"x{k}" for k in range(10)), "label"]
    return write(tmp_path_factory.mktemp("straight") / "labels.csv", head, rows), true


def test_a_small_noisy_table_may_get_a_linear_network(straight, tmp_path):
    data, true = straight
    run = tmp_path / "run"
    said = dubito("fit", data, "--out", run, "--folds", "3", "--device", "cpu")
    assert "on a linear network" in said
    facts = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert "gce:q=0.7 (linear)" in [e["method"] for e in facts["race"]]
    assert "On a linear network" in (run / "report.html").read_text(encoding="utf-8")
    dubito("predict", run, data, "--out", tmp_path / "new.csv")
    found = [row["predicted"] for row in read(tmp_path / "new.csv")]
    assert found == [row["predicted"] for row in read(run / "predictions.csv")]
    # Four in ten labels came out wrong: the wide network says 0.6 of the true classes.
    assert np.mean([said == "ab"[k] for said, k in zip(found, true)]) > 0.7
    gold = write(tmp_path / "gold.csv", ["id", "gold"], [("r0", "ab"[true[0]]), ("r1", "ab"[true[1]])])
    dubito("fit", run, "--gold", gold)


def test_a_larger_noisy_table_may_get_weight_decay(straight, tmp_path, monkeypatch):
    """150 rows, as if that were many: then a network is held back by its decay, and stays wide."""
    monkeypatch.setattr("dubito._product.choice.SMALL", 100)
    data, _ = straight
    run = tmp_path / "run"
    said = dubito("fit", data, "--out", run, "--folds", "2", "--device", "cpu")
    facts = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    held = [e["method"] for e in facts["race"] if e["method"].endswith("(weight decay)")]
    assert "gce:q=0.7 (weight decay)" in held
    assert "With a weight decay of 0.003" in (run / "report.html").read_text(encoding="utf-8")
    assert "linear" not in said
    folder = run / "training" / "first" / "0.003"
    assert {p.name for p in folder.iterdir()} == {slug(name.removesuffix(" (weight decay)")) for name in held}
    dubito("predict", run, data, "--out", tmp_path / "new.csv")
    assert read(tmp_path / "new.csv") == read(run / "predictions.csv")


def test_a_network_that_is_asked_for_stays(straight, tmp_path):
    data, _ = straight
    said = dubito(
        "fit", data, "--out", tmp_path / "run", "--folds", "2", "--backbone", "mlp", "--epochs", "5"
    )
    assert "linear" not in said


def test_places_without_a_racing_method_say_nothing():
    """Collier's class-dependent noise was run with methods that do not race, at .18 and .29 wrong labels."""
    assert {round(e.rate, 2) for e in table() if e.noise == "class_dependent"} == {0.18, 0.29}
    for rate in (0.04, 0.18, 0.29):
        d = Diagnosis("class-dependent", rate, torch.eye(3), 1.0, False)
        assert {e.noise for e in closest(d)} == {"asymmetric"}
        assert "asymmetric noise at" in told(d, list(portfolio(d)))
