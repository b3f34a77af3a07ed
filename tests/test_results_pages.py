"""The results pages: up to date, deterministic, and saying the right thing about made-up results."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import pytest

from dubito.papers import item
from dubito.papers.results import Result, write_result

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"
pytestmark = pytest.mark.skipif(not (TOOLS / "results_pages.py").is_file(), reason="the tools are not here")


@pytest.fixture(scope="module")
def tool():
    before = list(sys.path)
    sys.path.insert(0, str(TOOLS))
    yield importlib.import_module
    sys.path[:] = before


def made(name: str = "englesson2023.table1-mnist", seeds: int = 3, **accuracy: float) -> list[Result]:
    """Results of some methods under one noise, the accuracy given by method (a percentage) plus a little."""
    found = []
    for config in item(name).make("paper", None, None):
        at_place = (config.noise, config.rate) == ("asymmetric", 0.4)
        if at_place and config.seed < seeds and config.method in accuracy:
            value = accuracy[config.method] / 100 + 0.001 * (config.seed - 1)
            metrics = {"test_accuracy": value, "validation_accuracy": value / 2}
            history = {"every": 10, "test_accuracy": [value / 2, value + 0.1, value]}
            found.append(
                Result(config, metrics, 36.0, history, hardware="a GPU", date="2026-01-02T00:00:00Z")
            )
    return found


def repository(folder: Path, results: list[Result]) -> Path:
    for result in results:
        write_result(result, folder / "results")
    (folder / "README.md").write_text(
        "# x\n<!-- results:begin -->\nold\n<!-- results:end -->\nend\n", encoding="utf-8"
    )
    return folder


@pytest.mark.rel
def test_the_committed_pages_are_the_ones_the_results_give(tool):
    """Scorecard 38: no hand-typed numbers."""
    assert tool("results_pages").stale(ROOT) == [], "run: make results"


def test_writing_makes_the_pages_current_and_a_changed_number_makes_them_stale(tool, tmp_path):
    pages = tool("results_pages")
    root = repository(tmp_path, made(ce=80.0, ln=96.5, gce=79.0))
    assert "docs/results/englesson2023.md" in pages.stale(root)
    pages.write(root)
    assert pages.stale(root) == []
    for suffix in ("png", "svg"):
        for name in ("table1-mnist", "gain-one-label"):
            assert (root / "docs/results" / f"{name}.{suffix}").stat().st_size > 1000
    file = next((root / "results").rglob("*.json"))
    content = json.loads(file.read_text())
    content["metrics"]["test_accuracy"] += 0.01
    file.write_text(json.dumps(content))
    assert set(pages.stale(root)) >= {"docs/results/englesson2023.md", "docs/which-method.md"}


def test_notes_beside_the_lines_are_on_the_page(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool("results_paper"), "statements", lambda *_: ())  # the slow part
    root = repository(tmp_path, made(ce=80.0, ln=96.5))
    (root / "results/englesson2023/notes.txt").write_text("A line was taken out.\nAnd another.\n")
    made_pages = tool("results_pages").everything(root)
    text = made_pages[Path("docs/results/englesson2023.md")]
    assert "- A line was taken out.\n- And another.\n" in text.partition("## How the runs were made")[2]


def test_a_page_begins_with_what_was_found(tool, monkeypatch):
    said = ["| 1 | a statement | holds | 3 | 0 | 0 |", "1 hold, 0 fail, 0 cannot be told."]
    monkeypatch.setattr(tool("results_paper"), "statements", lambda *_: iter(said))
    results = made(ce=80.0, ln=96.5)
    text = tool("results_paper").paper_page(
        "englesson2023", results, tool("results_cells").sections("englesson2023", results), ["a note"]
    )
    start = text.partition("## table1")[0]
    assert "- 2 cells are judged: 2 agree" in start
    assert "- Orderings and statements of the paper: 1 hold, 0 fail, 0 cannot be told.\n" in start
    assert "a note" not in start
    assert "- Hardware: a GPU.\n" in text.partition("## How the runs were made")[2]
    assert "`test_accuracy`, in brackets the paper's:" in text
    assert "| ln |  |  |  |  |  |  |  |  | 96.50 ✓ (96.54) |" in text


def test_readme_changes_only_between_its_markers(tool, tmp_path):
    pages = tool("results_pages")
    root = repository(tmp_path, made(ce=80.0, ln=96.5))
    pages.write(root)
    text = (root / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# x\n<!-- results:begin -->\nAccuracy")
    assert text.endswith("<!-- results:end -->\nend\n")
    assert "(docs/results/table1-mnist.png)" in text
    assert pages.readme("no markers", "table") == "no markers"


def entry(tool, results, method):
    (section,) = tool("results_cells").sections("englesson2023", results)
    cells = [e for e in section.table.entries if e.row == (method,) and e.ours]
    assert len(cells) == 1
    return section, cells[0]


@pytest.mark.parametrize(
    ("ln", "expected"), [(96.5, "agrees"), (90.0, "differs"), (79.0, "opposite")]
)  # the paper: LN 96.54 ± 1.20, plain training 80.31 ± 1.81
def test_verdicts(tool, ln, expected):
    assert entry(tool, made(ce=82.0, ln=ln), "ln")[1].verdict == expected


def test_two_seeds_are_not_judged(tool):
    assert entry(tool, made(seeds=2, ce=82.0, ln=96.5), "ln")[1].verdict == "not judged"


def test_agreement_by_spread_alone_is_named(tool):
    results = made(ce=80.0, ln=90.0)
    wild = [
        dataclasses.replace(r, metrics={**r.metrics, "test_accuracy": 0.9 + 0.05 * (r.config.seed - 1)})
        if r.config.method == "ln" else r
        for r in results
    ]  # fmt: skip
    assert entry(tool, wild, "ln")[1].verdict == "agrees, wide spread"


def test_plain_training_is_found_where_methods_are_columns(tool):
    """Lukasik table 7, CIFAR-10, ResNet-32: CE 80.44, smoothing 83.95; ours the other way round."""
    runs = []
    for config in item("lukasik2020.table7").make("paper", None, None):
        if (config.data, config.network) == ("cifar10", "resnet32") and config.seed < 3:
            value = {"ce": 0.83, "smooth": 0.70}.get(config.method, 0.8) + 0.0005 * config.seed
            runs.append(Result(config, {"test_accuracy": value}))
    sections = tool("results_cells").sections("lukasik2020", runs)
    (table7,) = [s for s in sections if s.item.id == "table7"]
    cells = {e.column: e for e in table7.table.entries if e.ours}
    assert cells["smooth",].verdict == "opposite"
    text = tool("results_paper").paper_page("lukasik2020", runs, sections)
    assert "| opposite |" in text


def test_runs_that_belong_to_several_items_stand_beside_the_papers_numbers_first(tool):
    """The runs of Lukasik's sweep fill tables 3 and 4 on other data too; the paper's numbers are in table 7."""
    names = (
        "test_accuracy",
        "ece",
        "train_full_true",
        "train_clean_true",
        "train_noisy_true",
        "train_noisy_given",
    )
    runs = [
        Result(c, dict.fromkeys(names, 0.8 + 0.001 * c.seed))
        for c in item("lukasik2020.table7").make("paper", "cifar10", None)
        if (c.network, c.item) == ("resnet32", "figure2") and c.seed < 2
    ]
    sections = tool("results_cells").sections("lukasik2020", runs)
    assert {s.item.id for s in sections} == {"table3", "table4", "table7"}
    text = tool("results_paper").paper_page("lukasik2020", runs, sections)
    assert text.index("## table7") < text.index("## table3")
    assert "| CIFAR-10 resnet32 | 80.05 ± 0.07 | 2 | 79.41 to 80.69 | 80.44" in text
    assert "- No cell is judged yet: 4 have fewer than three seeds." in text


def test_items_without_printed_numbers_show_means_and_spread(tool):
    configs = item("tanno2019.figure3").make("paper", None, None)
    runs = [Result(c, {"test_accuracy": 0.5 + 0.01 * c.seed}) for c in configs if c.skill == 0.3]
    text = tool("results_paper").paper_page(
        "tanno2019", runs, tool("results_cells").sections("tanno2019", runs)
    )
    assert "51.00 ± 1.00 (3)" in text
    assert "no paper value" in text


def test_a_finished_search_is_reported_beside_the_papers_choice(tool):
    table = item("englesson2023.table1-mnist")
    place = [
        c for c in table.search("paper", None, None)
        if (c.method, c.noise, c.rate) == ("gce", "asymmetric", 0.4)
    ]  # fmt: skip
    scores = [{"validation_accuracy": float(c.param("q")), "test_accuracy": 0.5} for c in place]
    runs = made(gce=79.0) + [Result(c, found) for c, found in zip(place, scores)]
    runs = list({r.id: r for r in runs}.values())
    sections = tool("results_cells").sections("englesson2023", runs)
    text = tool("results_paper").paper_page("englesson2023", runs, sections)
    assert "### Our own search" in text
    assert "| gce | asymmetric noise, 40 % | 5 | q=0.9 (90.00; 50.00) | q=0.3 (30.00; 50.00) |" in text
    kept = tool("results_cells").current("englesson2023", runs)
    assert {r.config.param("q") for r in kept} == {0.3}, "other points of a search are no cells"


def test_interval_is_students(tool):
    from scipy import stats

    from dubito.papers.statistics import Summary, student_interval

    values = [1.0, 2.0, 4.0]
    low, high = student_interval(Summary(dict(enumerate(values))))
    expected = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    assert (low, high) == pytest.approx(expected)
    assert student_interval(Summary({0: 1.0})) is None
    wide = Summary({0: 90.0, 1: 99.0, 2: 70.0})
    assert tool("results_cells").interval_text(wide, 1, share=True).endswith(" to 100.0")


def test_reduced_runs_are_shown_apart_with_what_was_changed(tool):
    results = made(ce=80.0, ln=96.5)
    shorter = [dataclasses.replace(r, config=dataclasses.replace(r.config, epochs=50)) for r in results]
    full, reduced = tool("results_cells").sections("englesson2023", [*results, *shorter])
    assert full.changes == ()
    assert reduced.changes == ("epochs 50 for 100",)
    assert len(full.runs) == len(reduced.runs) == 6
    page = tool("results_paper").paper_page("englesson2023", results + shorter, [full, reduced])
    assert "Changed from the paper's protocol: epochs 50 for 100." in page


def test_runs_of_a_search_are_not_taken_for_reduced_ones(tool):
    config = item("englesson2023.table1-mnist").search("paper", None, None)[0]
    run = Result(config, {"test_accuracy": 0.5})
    assert all(not s.changes for s in tool("results_cells").sections("englesson2023", [run]))


def test_open_cells_show_seeds_and_their_course(tool):
    page = tool("results_paper").paper_page
    results = made(ce=80.0, ln=90.0)
    text = page("englesson2023", results, tool("results_cells").sections("englesson2023", results))
    assert "1 cell lies more than 2 points from the paper, 1 of them below it. No cause" in text
    assert "89.90 (99.90 at 20); 90.00 (100.00 at 20); 90.10 (100.10 at 20)" in text
    assert "6 runs, 0.06 GPU hours" in text


def test_every_result_line_is_on_a_page(tool):
    """Nothing is dropped: each run of results/ belongs to a section or to a search."""
    cells = tool("results_cells")
    for paper, results in cells.read_all(ROOT / "results").items():
        shown = {r.id for s in cells.sections(paper, results) for r in s.runs}
        left = [r for r in results if r.id not in shown]
        assert all(r.id in cells.searched_ids(paper, r.config.item, r.config.size) for r in left)


def test_benchmarks_are_no_results(tool, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "x.jsonl").write_text('{"a": 1}\n')
    assert tool("results_cells").read_all(tmp_path) == {}


def test_a_last_epoch_beside_the_epochs_before_it(tool):
    """At a constant rate the last epoch is one draw: the last fifth of the evaluations stands beside it."""
    course = [0.5] * 20 + [0.97, 0.96, 0.97, 0.96, 0.90]
    results = [dataclasses.replace(r, history={"test_accuracy": course}) for r in made(ln=90.0)]
    page, sections = tool("results_paper").paper_page, tool("results_cells").sections
    text = page("englesson2023", results, sections("englesson2023", results))
    assert "lie 0 of 1 cells by the last epoch, 1 by that mean" in text
    assert "| asymmetric 40 % | ln | 0 | 89.90 | 95.20 ± 2.95 | 90.00 | 97.00 | 96.54 |" in text
    short = [dataclasses.replace(r, history={"test_accuracy": course[1:]}) for r in results]
    assert "those before it" not in page("englesson2023", short, sections("englesson2023", short))


def test_pairs_of_runs_tell_what_the_arithmetic_changes(tool):
    """By column and over the columns; a method's run of the table may be the one of either precision."""
    named = [dataclasses.replace(r, hardware="a GPU, convolutions in bfloat16") for r in made(gce=80.0)]
    other = dataclasses.replace(named[0].config, rate=0.2)
    named += [dataclasses.replace(named[0], config=dataclasses.replace(other, seed=s)) for s in (0, 1)]
    again = [
        dataclasses.replace(r, hardware="a GPU, convolutions in float32", metrics={"test_accuracy": value})
        for r, value in zip([named[0], named[1], named[3]], (0.81, 0.83, 0.799))
    ]
    page = tool("results_precision").precision_page(again, named)
    assert "3 runs on MNIST" in page
    assert "The table has the runs in bfloat16." in page
    assert "| 2 | 79.95 ± 0.07 | 82.00 ± 1.41 | +2.05 | 0.10 |" in page
    assert "| 1 | 79.90 | 79.90 | +0.00 | 0.00 |" in page
    assert "Over the columns: +1.02 on average, -12.00 to +14.05" in page
