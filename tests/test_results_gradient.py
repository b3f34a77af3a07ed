"""Results pages: a method that was run with the gradient of another library."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from dubito.papers import item
from dubito.papers.results import Result

TOOLS = Path(__file__).resolve().parents[1] / "tools"
pytestmark = pytest.mark.skipif(not (TOOLS / "results_cells.py").is_file(), reason="the tools are not here")


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


def test_a_method_with_the_gradient_of_another_library_has_a_table_of_its_own_and_is_not_ranked(tool):
    """NAN with centred noise: judged beside the paper's numbers, apart from NAN as `dubito.methods` has it."""
    accuracy = {"ce": 0.7, "nan": 0.95}
    configs = [
        c
        for name in ("table1-mnist", "table1-mnist-nan")
        for c in item(f"englesson2023.{name}").make("paper", None, None)
        if c.method in accuracy and c.rate == 0.4 and c.noise == "resample" and c.seed < 3
    ]
    made = [Result(c, {"test_accuracy": 0.9 if c.reading else accuracy[c.method]}) for c in configs]
    found = tool("results_cells").sections("englesson2023", made)
    assert [(s.item.id, s.changes, len(s.runs)) for s in found] == [
        ("table1-mnist", (), 6),
        ("table1-mnist-nan", (), 3),
    ]
    (centred,) = [e for e in found[1].table.entries if e.ours]
    assert (centred.ours.mean, centred.paper.value, centred.verdict) == (90.0, 90.03, "agrees")
    (place,) = tool("results_groups").places(tool("results_cells").current("englesson2023", made))
    assert [(m.name, m.summary.mean) for m in place.methods] == [("nan", 95.0), ("ce", 70.0)]


def open_words(tool, runs):
    found = tool("results_cells").sections("englesson2023", runs)
    page = tool("results_paper").paper_page("englesson2023", runs, found)
    return page, page.partition("### Open")[2].partition("|")[0]


def test_what_another_gradient_explains_is_said_with_its_results_and_not_without(tool, monkeypatch):
    monkeypatch.setattr(tool("results_paper"), "statements", lambda *_: ())  # the slow part
    configs = [
        c
        for name in ("table1-mnist", "table1-mnist-nan")
        for c in item(f"englesson2023.{name}").make("paper", None, None)
        if c.method == "nan" and c.rate == 0.4 and c.noise == "resample" and c.seed < 3
    ]
    runs = [Result(c, {"test_accuracy": (0.9 if c.reading else 0.95) + 0.001 * c.seed}) for c in configs]
    _, words = open_words(tool, runs)
    assert "with the gradient of the code 1 of 1 judged cells agree (`table1-mnist-nan`)" in words
    _, words = open_words(tool, [r for r in runs if not r.config.reading])
    assert "with the gradient of the code nothing has been run" in words


def test_cells_that_agree_while_their_means_differ_are_named(tool, monkeypatch):
    """NAN, symmetric 60 %: printed 74.00 ± 2.92 over five seeds."""
    from scipy import stats

    monkeypatch.setattr(tool("results_paper"), "statements", lambda *_: ())
    configs = [
        c for c in item("englesson2023.table1-mnist").make("paper", None, None)
        if (c.method, c.noise, c.rate) == ("nan", "resample", 0.6)
    ]  # fmt: skip
    values = (77.5, 84.2, 81.7, 82.2, 82.8)
    page, _ = open_words(tool, [Result(c, {"test_accuracy": v / 100}) for c, v in zip(configs, values)])
    p = stats.ttest_ind_from_stats(
        sum(values) / 5, stats.tstd(values), 5, 74.0, 2.92, 5, equal_var=False
    ).pvalue
    assert "- 1 cells are judged: 1 agree" in page
    assert "the means of 1 differ at p < .05" in page
    assert f"nan, symmetric 60 %: 81.68 against 74.00, p = {p:.3f}." in page


def test_runs_that_replaced_others_say_so(tool):
    """The later of two runs of one config is in the table: then the earlier had been seen."""
    configs = [
        c for c in item("englesson2023.table1-mnist").make("paper", None, None)
        if c.method == "ln" and c.noise == "asymmetric" and c.seed < 3
    ]  # fmt: skip

    def runs(kind, day):
        facts = {"hardware": f"a GPU, convolutions in {kind}", "date": f"2026-01-0{day}T00:00:00Z"}
        return [Result(c, {"test_accuracy": 0.98 + 0.001 * c.seed}, **facts) for c in configs]

    page = tool("results_precision").precision_page
    said = "Those in bfloat16 were made before and had been seen when they were replaced: beside the paper 4 of 4"
    assert said in page(runs("bfloat16", 1), runs("float32", 2))
    assert "made before" not in page(runs("bfloat16", 3), runs("float32", 2))
