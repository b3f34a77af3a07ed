"""Results pages where a paper is silent: runs of an earlier reading stand apart, readings have a table."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

from dubito.papers import collier2020, item
from dubito.papers.results import Result

TOOLS = Path(__file__).resolve().parents[1] / "tools"
pytestmark = pytest.mark.skipif(not (TOOLS / "results_lines.py").is_file(), reason="the tools are not here")


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


def page(tool, results: list[Result]) -> str:
    found, pages = tool("results_cells").sections("collier2020", results), tool("results_paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "statements", lambda *_: ())  # not what is tested, and the slow part
        return pages.paper_page("collier2020", results, found)


def runs(**changes) -> list[Result]:
    """Three seeds of plain training in table 6 on CIFAR-10, with clean accuracy .8."""
    configs = collier2020.TABLES["table6"].make("paper", "cifar10", None)
    made = [dataclasses.replace(c, **changes) for c in configs if c.method == "ce" and c.seed < 3]
    names = ("test_accuracy", "noisy_test_accuracy", "noisy_test_log_likelihood", "validation_accuracy")
    return [Result(c, dict.fromkeys(names, 0.8 - 0.001 * c.seed), 1.0, {}) for c in made]


def test_runs_of_an_earlier_reading_are_shown_and_not_counted(tool):
    text = page(tool, runs() + runs(batch=77))
    assert "- 3 cells are judged: 1 agree" in text
    assert "- 3 more, of runs with an earlier reading" in text
    assert "Read differently where the paper is silent, here and now: batch 77 for" in text
    assert text.index("\n## table6: increased class-dependent noise\n") < text.index(", an earlier reading\n")
    earlier = text[text.index(", an earlier reading\n") :]
    assert "dubito paper run" not in earlier  # it would make other runs
    assert "No results yet" not in earlier


def test_runs_made_before_the_protocol_was_mended_stand_apart(tool):
    """Tanno's single matrix once started elsewhere: shown, and not one more method of a summary."""
    configs = item("tanno2019.figure6").make("small", None, None)
    now = next(c for c in configs if c.method == "single-cm" and c.per_item == 1 and c.seed == 0)
    before = dataclasses.replace(now, params=(("trace", 0.01),))
    made = [Result(c, {"test_accuracy": 0.9}) for c in (now, before)]
    cells, pages = tool("results_cells"), tool("results_paper")
    assert [s.earlier for s in cells.sections("tanno2019", made)] == [False, True]
    assert cells.current("tanno2019", made) == made[:1]
    text = "\n".join(pages._reduced(cells.sections("tanno2019", made)[1]))
    assert "mended, then for now: params trace=0.01 for init=paper, trace=0.01." in text
    assert "silent" not in text


@pytest.mark.parametrize(
    ("home", "other", "changes"),
    [
        ("englesson2023.figure3", "englesson2023.table1-mnist", {"optimizer": "gd"}),
        ("tanno2019.figure6", "tanno2019.figure3", {"params": (("trace", 0.7),)}),
        ("tanno2019.figure6", "tanno2019.table1b", {"params": (("trace", 0.7),)}),
    ],
)
def test_what_was_mended_in_one_item_is_a_change_in_another(tool, home, other, changes):
    """Only the item whose protocol was mended has earlier readings; elsewhere the same field was changed."""
    paper, (field,) = home.partition(".")[0], changes
    made = []
    for name in (home, other):
        id_ = name.partition(".")[2]
        ours = next(c for c in item(name).make("paper", None, None) if c.item == id_)
        made.append(Result(dataclasses.replace(ours, **changes), {"test_accuracy": 0.9}))
    found = {s.item.id: s for s in tool("results_cells").sections(paper, made)}
    kept = [found[name.partition(".")[2]] for name in (home, other)]
    assert all(s.changes[0].startswith(f"{field} ") for s in kept)
    assert [s.earlier for s in kept] == [True, False]


def test_a_reading_that_is_a_run_of_the_table_too(tool, tmp_path):
    ours = runs()[0]
    names = ("validation_accuracy", "noisy_test_accuracy", "test_accuracy")
    twin = {"id": ours.id, "metrics": dict.fromkeys(names, 0.75)}
    rows = [
        {"kind": "about", "round": 1, "command": "c", "hardware": "h"},
        {"kind": "end", "round": 1, "reading": "a", "why": "x", "result": twin},
        {"kind": "end", "round": 1, "reading": "b", "why": "x", "result": None},
    ]
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shown = "\n".join(tool("results_lines").silent_points(path, [ours]))
    assert shown.count("0.7500 and 0.8000 in") == 3
    assert '"b"' not in shown


def test_a_change_of_what_the_paper_states_is_no_reading(tool):
    text = page(tool, runs(lr=0.5, batch=77))
    assert "earlier reading" not in text
    assert "Changed from the paper's protocol: lr 0.5 for 0.001; batch 77 for" in text


def test_summaries_are_of_the_present_reading(tool):
    cells = tool("results_cells")
    found = cells.current("collier2020", runs() + runs(init="he"))
    assert {r.config.init for r in found} == {runs()[0].config.init}
    assert len(found) == 3


def test_readings_by_their_best_epoch(tool, tmp_path):
    def line(reading, epoch, accuracy):
        scores = {"validation_accuracy": accuracy, "validation_log_likelihood": -accuracy}
        return {"kind": "epoch", "round": 1, "reading": reading, "epoch": epoch, **scores}

    end = {"kind": "end", "round": 1, "reading": "b", "why": "x"}
    about = {"kind": "about", "round": 1, "command": "c", "hardware": "h"}
    lines = [about, line("a", 1, 0.3), line("b", 1, 0.5), line("a", 2, 0.4), end]
    path = tmp_path / "lines.jsonl"
    assert list(tool("results_lines").silent_points(path)) == []
    path.write_text("".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8")
    scores = {"validation_accuracy": [0.1, 0.6], "validation_log_likelihood": [-3.0, -2.0]}
    options = (("norm_eps", 1e-5), ("padded", False))
    old = [dataclasses.replace(r, history=scores) for r in runs(network_options=options, batch=128)]
    shown = list(tool("results_lines").silent_points(path, old))
    first = "| the first reading, a run of table 6 | 0.6000 | -2.000 | 2 | 2 | ended by early stopping |"
    assert shown.count(first) == 1
    rows = [r for r in shown if r.startswith(("| a |", "| b |"))]
    assert rows == [
        "| b | 0.5000 | -0.500 | 1 | 1 | x |",
        "| a | 0.4000 | -0.400 | 2 | 2 | cut by time, still rising |",
    ]


def test_what_few_seeds_can_tell(tool):
    def noisy(c, seed):
        return -1.4 - (0.05 if c.method == "ce" else 0.0) + 0.01 * seed * (c.method == "ce")

    configs = [c for c in collier2020.TABLES["table6"].make("paper", "cifar10", None) if c.seed < 3]
    some = [c for c in configs if c.method in ("ce", "het-tau")]
    made = [Result(c, {"noisy_test_log_likelihood": noisy(c, c.seed)}) for c in some]
    (section,) = tool("results_cells").sections("collier2020", made)
    lines = [t for t in tool("results_verdicts").tellable(section) if t.startswith("- ")]
    # Differences .05, .04, .03: spread .01, Student's quantiles with two degrees of freedom 4.303 and 1.061.
    least = (4.302653 + 1.060660) * 0.01 / 3**0.5
    told = f"- CIFAR-10, `noisy_test_log_likelihood`: 3 seeds tell {least:.3f}; the paper's are 0.053."
    assert lines == [told]


def test_one_more_seed_than_asked_for_belongs_to_its_cell(tool):
    from dubito.papers import item

    configs = item("tanno2019.figure3").make("small", None, None)
    first = next(c for c in configs if c.seed == 0)
    found = [Result(dataclasses.replace(first, seed=s), {"test_accuracy": 0.9}) for s in range(3)]
    (section,) = tool("results_cells").sections("tanno2019", found)
    assert section.changes == ()
    assert [e.ours.seeds for e in section.table.entries if e.ours] == [3]
    text = "\n".join(tool("results_paper")._reduced(section))
    assert "Seeds: 3 per cell, where 2 are asked for" in text
    assert "size 'small'; " in text
    assert "epochs" in text


def shortened(table: str, data: str, **changes) -> list[Result]:
    """Two methods, three seeds."""
    configs = [
        c for c in item(table).make("paper", data, None) if c.method in ("ce", "smooth", "gce") and c.seed < 3
    ]
    kept = [
        c
        for c in configs
        if (c.noise, c.rate) == (configs[0].noise, configs[0].rate) and c.network == configs[0].network
    ]
    return [Result(dataclasses.replace(c, **changes), {"test_accuracy": 0.9}) for c in kept]


def test_a_place_says_where_it_is_not_the_papers(tool):
    """Length of training, and data that the paper does not have, in the decision table and at the place."""
    which = tool("results_which").which_method
    text = which({"lukasik2020": shortened("lukasik2020.table7", "mnist", steps=500)})
    assert "| 20 % moved to another class \\* |" in text
    assert (
        "Not as in the paper: 500 of the paper's 64000 steps; the paper has no results on this data" in text
    )
    text = which({"englesson2023": shortened("englesson2023.table1-mnist", "mnist")})
    assert "Not as in the paper" not in text
    assert "\\*" not in text


def test_runs_that_give_up_a_class_are_named(tool):
    """From the recorded histogram of p(true) on rightly labelled examples."""
    kept = shortened("lukasik2020.table7", "mnist")
    counts = {r.config.seed: [90 * r.config.seed, 0, 1000 - 90 * r.config.seed] for r in kept}
    seen = [
        dataclasses.replace(r, history={"probabilities": {"clean_true": counts[r.config.seed]}})
        if r.config.method == "ce" else r
        for r in kept
    ]  # fmt: skip
    sections = tool("results_cells").sections("lukasik2020", seen)
    lines = [line for s in sections for line in tool("results_course").lost(s)]
    assert [line for line in lines if line.startswith("| ce")] == [
        "| ce (plain training) |  | 1 | 9.0 % | 90.00 |",
        "| ce (plain training) |  | 2 | 18.0 % | 90.00 |",
    ]
    assert list(tool("results_course").lost(tool("results_cells").sections("lukasik2020", kept)[0])) == []


def test_hours_on_a_gpu_and_on_a_cpu_are_told_apart(tool):
    gpu, cpu = (
        dataclasses.replace(runs()[0], seconds=s, hardware=h)
        for s, h in ((360.0, "H200, b"), (720.0, "x86 CPU, 2"))
    )
    hours = tool("results_paper")._hours
    assert hours([gpu, cpu]) == "0.10 GPU hours and 0.20 hours on a CPU"
    assert hours([cpu]) == "0.20 hours on a CPU"
    assert hours([]) == "0.00 GPU hours"


def test_parts_of_a_method_are_not_ranked_among_methods(tool):
    """Table 3 takes the covariance apart on the data of table 2, where the method itself stands."""
    whole, parts = (
        [c for c in item(f"englesson2023.{name}").make("paper", None, None) if c.labels == "worst"]
        for name in ("table2", "table3")
    )
    shared = [c for c in parts if c in whole]
    assert {(c.param("covariance"), c.param("dummy")) for c in shared} == {("full", True)}
    found = [Result(c, {"test_accuracy": 0.7}) for c in whole]
    found += [Result(c, {"test_accuracy": 0.6}) for c in parts if c not in whole]
    (place,) = tool("results_groups").places(found)
    assert [m.summary.mean for m in place.methods if m.name == "ln"] == [pytest.approx(70.0)]


def test_points_in_the_plane_are_looked_at_and_not_chosen_by(tool):
    configs = item("englesson2023.figure3").make("paper", None, None)
    plane = [Result(c, {"test_accuracy": 0.9}) for c in configs if c.data == "two-moons"]
    assert len(plane) == 2
    assert tool("results_groups").places(plane) == []
    digits = shortened("englesson2023.table1-mnist", "mnist")
    assert len(tool("results_groups").places(digits + plane)) == 1
    readme = tool("results_readme").readme_table
    assert "(two-moons.png)" in readme({"englesson2023": digits + plane})
    assert "(table1-mnist.png)" in readme({"englesson2023": digits})


def test_the_table_of_the_readme_starts_with_plain_training_and_goes_on_by_accuracy_under_noise(tool):
    """By hand: over the noisy columns gce has .85 and ln .95; het is best on clean labels, last under noise."""
    values = {"ce": (0.9, 0.6, 0.6), "het": (0.99, 0.7, 0.5), "gce": (0.9, 0.8, 0.9), "ln": (0.9, 0.95, 0.95)}
    columns = [("none", 0.0), ("resample", 0.4), ("asymmetric", 0.4)]
    made = [c for c in item("englesson2023.table1-mnist").make("paper", None, None) if c.seed == 0]
    runs = [
        Result(c, {"test_accuracy": values[c.method][columns.index((c.noise, c.rate))]})
        for c in made
        if c.method in values and (c.noise, c.rate) in columns
    ]
    assert len(runs) == 12
    lines = tool("results_readme").readme_table({"englesson2023": runs}).splitlines()
    rows = [line.split(" | ")[0] for line in lines if line.startswith("| ") and "method" not in line]
    assert rows == ["| ce (plain training)", "| ln", "| gce", "| het"]


def test_statements_on_printed_numbers_in_doubt_say_so(tool):
    """In their row and below the table, with how many comparisons are concerned; other papers have no such list."""
    lines = list(tool("results_statements").statements("lukasik2020", []))
    assert [line[:5] for line in lines if "(partly in doubt, see below)" in line] == ["| 9 |"]
    at = lines.index(
        "Partly in doubt, since they rest on printed numbers that do not fit the rest of the paper:"
    )
    assert lines[at + 2 :] == [
        "- 9, 12 of 34 comparisons: table 5 prints for plain distillation on CIFAR-10 the numbers of undistilled "
        "training."
    ]
    assert "doubt" not in "\n".join(tool("results_statements").statements("collier2020", []))


def test_shortened_runs_say_what_they_can_of_the_statements(tool):
    configs = [c for c in item("tanno2019.figure4").make("small", None, None) if c.method == "trace"]
    runs = [
        Result(dataclasses.replace(c, seed=s), {"cm_error": 0.01 if c.skill == 0.3 else 0.04})
        for c in configs[::2]
        for s in range(3)
    ]
    text = "\n".join(tool("results_statements").statements("tanno2019", runs))
    head, tail = text.split("### By shortened runs")
    assert "cannot tell" in next(line for line in head.splitlines() if line.startswith("| 7 |"))
    (row,) = (line for line in tail.splitlines() if line.startswith("| 7 |"))
    assert row.endswith("| fails | 1 | 1 | 0 |")
    assert "By shortened runs" not in "\n".join(tool("results_statements").statements("tanno2019", []))
