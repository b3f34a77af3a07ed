"""A run with one more seed than was asked for belongs to its cell: in tables, curves and statements."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dubito.papers import claims, item, jobs
from dubito.papers.collect import collect
from dubito.papers.figures import _points
from dubito.papers.results import Result, runs_of

NAME = "englesson2023.table1-mnist"
OWN = item(NAME).make("small", None, None)


def with_seeds(seeds, configs, **metrics):
    return [Result(dataclasses.replace(c, seed=s), metrics) for c in configs for s in seeds]


def test_the_order_is_that_of_the_configs_and_then_of_the_seeds():
    first, second = (
        c for c in OWN if (c.seed, c.method, c.noise) == (0, "ce", "resample") and c.rate in (0.2, 0.4)
    )
    found = with_seeds((9, 0, 4), [second, first], test_accuracy=0.5)
    kept = runs_of([first, second], [*found, found[0], *with_seeds((0,), OWN[-1:], test_accuracy=0.1)])
    assert [(r.config.rate, r.config.seed) for r in kept] == [(x, s) for x in (0.2, 0.4) for s in (0, 4, 9)]


def test_tables_and_curves_take_further_seeds():
    first = OWN[0]
    runs = with_seeds(range(7), [first], test_accuracy=0.5)
    table = collect(NAME, item(NAME), runs, size="small")
    assert [e.ours.seeds for e in table.entries if e.ours] == [7]
    assert len(_points.runs_of(NAME, runs, "small", None)) == 7


def test_further_seeds_of_one_cell_are_no_runs_of_another():
    """Three seeds of one panel and one of two others once read "5 of 5 runs", with two panels missing."""
    panels = item("lukasik2020.figure8").make("paper", None, None)
    runs = with_seeds((0, 1, 2), panels[2:3], test_accuracy=0.5) + with_seeds(
        (0,), panels[3:], test_accuracy=0.5
    )
    table = collect("lukasik2020.figure8", item("lukasik2020.figure8"), runs)
    assert table.facts[0] == "3 of 5 runs and 2 of further seeds, 0.0 hours"


def test_a_statement_is_told_by_three_seeds_where_two_were_asked_for():
    own = [c for c in item("tanno2019.figure7").make("paper", None, None) if c.method == "trace"][:1]

    def outcome(seeds):
        runs = with_seeds(seeds, own, skill_correlation=0.9)
        return next(f.outcome for f in claims.check("tanno2019", runs) if f.claim.number == 12)

    assert outcome((0, 1)) == "cannot tell"
    assert outcome((0, 1, 17)) == "holds"


def test_the_runner_calls_no_seed_foreign(monkeypatch):
    said = []
    monkeypatch.setattr(jobs.Job, "_run", lambda self, configs, *rest, **how: jobs.Report([], []))
    for override, foreign in ((["seed=0..9"], 0), (["epochs=3"], 1)):
        said.clear()
        jobs.Job(NAME, "small", None, None, override, Path("none")).run(say=said.append)
        assert sum("not part of its table" in line for line in said) == foreign
