"""The race of methods, on scores that are written down instead of trained for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from product_tables import dubito, read

from dubito._product.choice import BASELINE, Diagnosis, Race, _rungs, portfolio, scores
from dubito._product.training import budget
from dubito.data import LabelledData, Triplets


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


def race(skills, **options):
    folds = Written(skills, **options)
    winner, entries = Race(folds, 0).run({name: {} for name in skills})
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
    assert len(names("none", 0.005)) < len(names("symmetric", 0.3))


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
