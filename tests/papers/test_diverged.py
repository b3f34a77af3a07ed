"""Runs that diverged: they leave a result without scores, lose every search, and are no number of a table."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math

import pytest
import torch

from dubito.errors import NotFiniteError
from dubito.papers import claims, item, jobs, records, runner
from dubito.papers.choose import choose, searched
from dubito.papers.collect import collect
from dubito.papers.jobs import Job
from dubito.papers.render import render
from dubito.papers.results import DIVERGED, Result, path_of, read, write_result
from dubito.papers.sweep import report

NAME = "englesson2023.table1-mnist"
ITEM = item(NAME)
PLACE = ("asymmetric", 0.4)


def lost(config) -> Result:
    return Result(config, {}, history={DIVERGED: "training diverged: predictions are not numbers"})


def scored(config, value) -> Result:
    return Result(config, {"test_accuracy": value, "validation_accuracy": value})


def gce(made, seeds=(0,)):
    return [c for c in made if c.method == "gce" and (c.noise, c.rate) == PLACE and c.seed in seeds]


@pytest.mark.parametrize("method", ["gce", "het"])
def test_a_run_that_diverges_is_finished_without_scores(tiny_data, tmp_path, monkeypatch, method):
    (config, *_) = [c for c in ITEM.make("smoke", None, None) if c.method == method]
    config = dataclasses.replace(config, optimizer="sgd", lr=1e30)
    with pytest.raises(NotFiniteError):
        runner.run(config, root=tiny_data, device="cpu")
    found = runner.run(config, root=tiny_data, out=tmp_path, device="cpu")
    assert dict(found.metrics) == {}
    assert "not finite" in found.diverged or "not numbers" in found.diverged
    monkeypatch.setattr(runner, "trained", None)  # it is not trained again
    assert runner.run(config, root=tiny_data, out=tmp_path, device="cpu").diverged == found.diverged
    told = report([config], tmp_path)
    assert (told.finished, told.failed, told.diverged) == ((config,), (), (config,))
    assert told.text().startswith("diverged: ")
    assert told.text().endswith("1 finished (1 diverged), 0 failed\n")


def test_predictions_that_are_no_numbers(tiny_data, tmp_path, monkeypatch):
    """Weights may be finite and what they make of an image not."""
    real = records.predict
    monkeypatch.setattr(
        records, "predict", lambda *given: real(*given)._replace(log_p=torch.tensor([[math.nan]]))
    )
    (config, *_) = gce(ITEM.make("smoke", None, None))
    found = runner.run(config, root=tiny_data, out=tmp_path, device="cpu")
    assert found.diverged == f"training diverged: predictions are not numbers at gce: q={config.param('q')}"


def test_a_point_that_diverged_is_the_worst_of_a_search():
    points = gce(ITEM.search("paper", None, None))
    best = points[3].params
    results = [lost(points[0]), *(scored(c, 0.9 if c.params == best else 0.5) for c in points[1:])]
    assert list(searched(ITEM, results).values()) == [dict(best)]
    assert list(choose([lost(points[0]), scored(points[1], -5.0)]).values()) == [dict(points[1].params)]
    assert choose(lost(c) for c in points) == {}
    assert choose(scored(c, math.nan) for c in points) == {}


def test_a_search_with_a_point_that_diverged_goes_on_to_the_runs(tmp_path, monkeypatch):
    trained, said = [], []

    def execute(configs, out, **_):
        wild = min(c.param("q") for c in configs)
        for config in configs:
            if not path_of(out, config).is_file():
                trained.append(config)
                searching = len({c.param("q") for c in configs}) > 1
                write_result(
                    lost(config) if searching and config.param("q") == wild else scored(config, 0.7), out
                )
        return report(configs, out)

    monkeypatch.setattr(jobs, "execute", execute)
    job = Job(NAME, "smoke", None, ["gce"], ["noise=asymmetric", "rate=0.4"], tmp_path)
    assert not job.run(search=True, say=said.append)
    first, other = sorted(job.searches(), key=lambda c: c.param("q"))
    assert any(line.startswith("chosen for") and f"q={other.param('q')}" in line for line in said)
    assert any(line.startswith("diverged:") and f"q={first.param('q')}" in line for line in said)
    assert {c.param("q") for c in job.configs(searched(ITEM, read(tmp_path), "smoke"))} == {other.param("q")}
    before = len(trained)
    assert not job.run(search=True, say=said.append)
    assert len(trained) == before


def test_a_table_says_how_many_runs_diverged_and_judges_none_of_their_cells():
    made = gce(ITEM.make("paper", None, None), seeds=range(5))
    results = [lost(made[0]), *(scored(c, 0.9859) for c in made[1:])]
    table = collect(NAME, ITEM, results, methods=["gce"])
    (cell,) = [e for e in table.entries if e.ours]
    assert (cell.ours.mean, cell.ours.seeds, cell.lost) == (pytest.approx(98.59), 4, 1)
    assert cell.verdict == "not judged"
    assert "98.59 ± 0.00 (4, 1 diverged)" in render(table)
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert [r["diverged"] for r in rows if r["seeds"] == "4"] == ["1"]
    nothing = collect(NAME, ITEM, [lost(c) for c in made], methods=["gce"])
    assert "5 diverged" in render(nothing)
    assert not any(e.ours for e in nothing.entries)


def test_a_statement_is_not_told_by_the_runs_that_did_not_diverge():
    own = next(c for c in item("tanno2019.figure7").make("paper", None, None) if c.method == "trace")
    runs = [Result(dataclasses.replace(own, seed=s), {"skill_correlation": 0.9}) for s in range(3)]

    def outcome(results):
        return next(f.outcome for f in claims.check("tanno2019", results) if f.claim.number == 12)

    assert outcome(runs) == "holds"
    assert outcome([*runs, lost(dataclasses.replace(own, seed=3))]) == "cannot tell"


def test_the_file_of_such_a_run_says_why(tmp_path):
    (config, *_) = gce(ITEM.make("paper", None, None))
    content = json.loads(write_result(lost(config), tmp_path).read_text())
    assert content["metrics"] == {}
    assert content["history"]["diverged"].startswith("training diverged")
    (again,) = read(tmp_path)
    assert again.diverged
    assert not scored(config, 0.5).diverged
