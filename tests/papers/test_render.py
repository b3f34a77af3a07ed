"""Tables from result files, in every format, with hostile names made harmless."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from dubito.errors import DubitoError
from dubito.papers import PAPERS, collier2020, englesson2023, item, items, run_id
from dubito.papers.choose import label, pick_methods
from dubito.papers.collect import Entry, collect
from dubito.papers.render import FORMATS, bounds, interval_text, render
from dubito.papers.results import Result
from dubito.papers.statistics import Summary
from dubito.papers.tables import METRICS

NAME = "englesson2023.table1-mnist"
ITEM = item(NAME)
CONFIGS = ITEM.make("paper", None, None)


def fake(config, base: float) -> Result:
    metrics = {"test_accuracy": base + 0.001 * config.seed, "validation_accuracy": base}
    facts = {"commit": "abcdef0123456789", "date": "2026-01-02T00:00:00Z", "hardware": "one CPU"}
    return Result(config, metrics, seconds=36.0, dirty=False, **facts)


def some_results() -> list[Result]:
    wanted = [c for c in CONFIGS if (c.noise, c.rate) == ("asymmetric", 0.4)]
    base = {"ce": 0.80, "ln": 0.95}
    return [fake(c, base[c.method]) for c in wanted if c.method in base]


def test_cells_hold_ours_paper_and_verdict():
    table = collect(NAME, ITEM, some_results())
    assert len(table.rows) == 9
    assert len(table.columns) == 9
    cells = {(e.row[0], *e.column): e for e in table.entries}
    ln, ce = cells["ln", "asymmetric", "0.4"], cells["ce", "asymmetric", "0.4"]
    assert ln.ours.mean == pytest.approx(95.2)
    assert (ln.paper.printed, ln.paper.spread) == ("96.54", 1.2)
    assert ln.difference == pytest.approx(95.2 - 96.54)
    assert ln.verdict == ce.verdict == "agrees"
    assert dict(ln.params)["lam"] == 0.1
    empty = cells["gce", "none", "0"]
    assert (empty.ours, empty.verdict, empty.paper.printed) == (None, "-", "99.22")
    assert table.facts[0] == "10 of 405 runs, 0.1 hours"


def test_two_seeds_are_not_judged():
    table = collect(NAME, ITEM, [r for r in some_results() if r.config.seed < 2])
    assert {e.verdict for e in table.entries} == {"-", "not judged"}


def test_a_table_without_printed_numbers_says_so():
    table = collect("x", item("englesson2023.table3"), [], data="mnist")
    assert all(e.paper is None and e.verdict == "-" for e in table.entries)
    assert "no paper value" in render(table)
    assert "- / - / - / -" in render(table, "markdown")


@pytest.mark.parametrize("form", FORMATS)
def test_formats_show_ours_and_the_papers(form):
    shown = render(collect(NAME, ITEM, some_results()), form)
    assert "96.54" in shown
    assert (",95.2," if form == "csv" else "95.20") in shown
    assert shown.endswith("\n")


def test_text_cell():
    shown = render(collect(NAME, ITEM, some_results()))
    assert re.search(r"95\.20 ± 0\.16 \(5\)  95\.\d\d to 95\.\d\d  96\.54 ± 1\.20  -1\.34 +agrees", shown)
    assert " judged cells agree\n" in shown
    assert "  ln: covariance=full, dummy=True, smoothing=0.01\n" in shown
    assert "    asymmetric 0.4: lam=0.1, temperature=0.5\n" in shown
    with pytest.raises(DubitoError, match="did you mean 'markdown'"):
        render(collect(NAME, ITEM, []), "markdwon")


def test_markdown_has_equal_columns():
    lines = [
        x for x in render(collect(NAME, ITEM, some_results()), "markdown").splitlines() if x.startswith("|")
    ]
    assert len({line.count("|") for line in lines}) == 1


def test_csv_is_complete_and_precise():
    rows = list(csv.DictReader(io.StringIO(render(collect(NAME, ITEM, some_results()), "csv"))))
    assert len(rows) == 81
    ln = next(r for r in rows if (r["row"], r["column"]) == ("ln", "asymmetric 0.4"))
    assert float(ln["ours"]) == pytest.approx(95.2)
    assert (ln["seeds"], ln["paper"], ln["verdict"]) == ("5", "96.54", "agrees")


def test_names_from_outside_are_harmless(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = "=cmd|'<script>alert(1).py:f"
    Path(evil.partition(":")[0]).write_text("def f(**options): ...\n", encoding="utf-8")
    hostile = [fake(dataclasses.replace(c, method=evil), 0.5) for c in CONFIGS if c.method == "ce"]
    table = collect(NAME, ITEM, hostile, methods=["ce", evil])
    assert evil in [r[0] for r in table.rows]
    assert "<script>" not in render(table, "html")
    assert "\n=cmd" not in render(table, "csv")
    lines = [x for x in render(table, "markdown").splitlines() if x.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert r"{\_}" not in render(table, "latex")


def test_the_reference_method_is_tested_by_seed():
    made = collier2020.TABLES["table1"].make("small", "mnist", None)
    level = {"ce": -0.9, "het": -0.8, "het-tau": -0.7}
    results = [
        Result(c, {"noisy_test_log_likelihood": level[c.method] + 0.01 * c.seed + 0.001 * (c.seed % 2)})
        for c in made
        if c.method in level
    ]
    results = [
        dataclasses.replace(r, metrics={k: v + (0.002 * r.config.seed if r.config.method == "ce" else 0)
                                        for k, v in r.metrics.items()})
        for r in results
    ]  # fmt: skip
    table = collect("collier2020.table1", item("collier2020.table1"), results, size="small", data="mnist")
    marks = {e.row[0]: e.mark for e in table.entries if e.metric.ours == "noisy_test_log_likelihood"}
    assert marks["ce"] == "‡"
    assert marks["het-tau"] == marks["mentornet"] == ""
    assert all(e.mark == "" for e in collect("t", item("collier2020.table1"), results, size="small", data="mnist",
                                             reference="").entries)  # fmt: skip


def test_an_empty_table_says_of_which_size_the_runs_are():
    smoke = [fake(c, 0.5) for c in ITEM.make("smoke", None, None)[:2]]
    assert collect(NAME, ITEM, smoke).facts == ("0 of 405 runs", "2 runs are of size smoke: --size smoke")
    assert collect(NAME, ITEM, some_results() + smoke).facts[0] == "10 of 405 runs, 0.1 hours"
    assert not any("of size" in fact for fact in collect(NAME, ITEM, some_results() + smoke).facts)


def test_any_row_can_be_the_one_that_others_are_tested_against():
    uneven = [
        fake(
            r.config,
            r.metrics["validation_accuracy"] + 0.001 * (r.config.method == "ln" and r.config.seed % 2),
        )
        for r in some_results()
    ]
    marks = {e.row[0]: e.mark for e in collect(NAME, ITEM, uneven, reference="ce").entries if e.ours}
    assert marks == {"ce": "", "ln": "‡"}
    assert not any(e.mark for e in collect(NAME, ITEM, uneven).entries)
    with pytest.raises(DubitoError, match="did you mean 'gce'"):
        collect(NAME, ITEM, uneven, reference="gcee")


def test_agreement_that_rests_on_spread_is_named():
    at = [c for c in CONFIGS if c.method == "ln" and c.noise == "asymmetric" and c.rate == 0.1]
    wide = [fake(c, value) for c, value in zip(at, (0.80, 0.92, 0.99))]
    shown = render(collect(NAME, ITEM, wide))
    assert "1 of them by more than 2 points, within twice the joint spread: ln at asymmetric 0.1" in shown
    narrow = [fake(c, value) for c, value in zip(at, (0.90, 0.902, 0.901))]
    assert "differ: ln at asymmetric 0.1" in render(collect(NAME, ITEM, narrow))


def test_methods_join_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("mine = 1\n")
    picked = pick_methods(CONFIGS, ["ce", "ln:covariance=diagonal,lam=2", "smooth:alpha=0.3", "mine.py:mine"])
    by_method = {c.method: c for c in picked}
    assert len(picked) == 4 * 45
    assert by_method["ln"].param("covariance") == "diagonal"
    assert by_method["ln"].param("lam") == 2
    assert by_method["smooth"].params == (("alpha", 0.3),)
    assert by_method["mine.py:mine"].network == "lenet5"
    before = run_id(by_method["mine.py:mine"])
    (tmp_path / "mine.py").write_text("mine = 2\n")
    assert run_id(pick_methods(CONFIGS, ["mine.py:mine"])[-1]) != before  # an edited method is another run
    assert pick_methods(CONFIGS, None) == CONFIGS
    with pytest.raises(DubitoError, match="plain training"):
        pick_methods([c for c in CONFIGS if c.method == "ln"], ["other"])


@pytest.mark.parametrize(
    ("name", "spelled", "rows"),
    [
        (NAME, ["gce:q=0.3", "gce:q=0.9"], ["gce:q=0.3", "gce:q=0.9"]),
        (NAME, ["gce:q=0.9", "gce:q=0.3", "ln"], ["gce:q=0.9", "gce:q=0.3", "ln"]),
        ("lukasik2020.table7", ["smooth:alpha=0.3", "smooth:alpha=0.4"], None),
        ("englesson2023.table3", ["ln:lam=0.3", "ln:lam=2.0"], None),
    ],
)
def test_settings_of_one_method_are_rows_of_their_own(name, spelled, rows):
    """Wherever the method stands: in rows, in columns, or nowhere, as in a table of forms of one method."""
    made = item(name).make("paper", None, None)
    value = {text: (number + 1) / 8 for number, text in enumerate(spelled)}
    results = [Result(c, {"test_accuracy": v}) for t, v in value.items() for c in pick_methods(made, [t])]
    table = collect(name, item(name), results, methods=spelled)
    found = {(next(t for t in spelled if t in e.row + e.column), e.ours.mean) for e in table.entries}
    assert found == {(text, 100 * v) for text, v in value.items()}
    assert rows is None or [r[0] for r in table.rows] == rows
    lines = render(table).splitlines()
    assert all(any(t in line for line in lines) for t in spelled)


@pytest.mark.parametrize("name", [f"{p}.{i}" for p in PAPERS for i in items(p)])
def test_a_cell_of_an_item_is_one_setting(name):
    cells: dict[tuple[object, object], set[object]] = {}
    for config in item(name).make("paper", None, None):
        place = label(config, item(name).rows), label(config, item(name).columns)
        cells.setdefault(place, set()).add(config.cell)
    assert all(len(found) == 1 for found in cells.values())


def test_results_of_other_tables_do_not_leak():
    other = [fake(c, 0.1) for c in englesson2023.TABLES["table1-cifar10"].make("paper", None, None)]
    assert all(e.ours is None for e in collect(NAME, ITEM, other).entries)


def test_intervals_over_seeds_are_students_and_shown():
    """A percentile bootstrap of three seeds, called 95 %, holds the mean in two cases of three."""
    table = collect(NAME, ITEM, some_results())
    entry = next(e for e in table.entries if e.ours is not None and e.ours.seeds == 5)
    values = list(entry.ours.values.values())
    half = 2.7764451051977987 * stdev(values) / 5**0.5  # t of .975 with four degrees of freedom
    shown = [f"{fmean(values) - half:.2f}", f"{fmean(values) + half:.2f}"]
    assert interval_text(entry).split(" to ") == shown
    assert interval_text(entry) in render(table)
    assert "95 % interval" in render(table)
    assert "95 % Student interval of the mean" in render(table)
    rows = [row for row in csv.DictReader(io.StringIO(render(table, "csv"))) if row["low"]]
    assert any([f"{float(row['low']):.2f}", f"{float(row['high']):.2f}"] == shown for row in rows)
    alone = collect(NAME, ITEM, [r for r in some_results() if r.config.seed == 0])
    assert "95 % interval" not in render(alone)


def test_intervals_stay_within_what_a_share_can_be_and_errors_of_matrices_above_it():
    def around(metric: str, *values: float) -> str:
        ours = Summary(dict(enumerate(values)))
        return interval_text(Entry(("gem",), (), METRICS[metric], ours, None, "-"))

    assert around("crowd_accuracy", 99.0, 99.5, 98.0).endswith(" to 100.00")
    assert around("crowd_accuracy", 0.5, 2.0, 0.1).startswith("0.00 to ")
    # The stated error of one annotator reaches 2, as for a permutation: 112 of 200 is no share.
    assert around("cm_error_stated", 110.0, 112.0, 115.0) == "106.08 to 118.58"
    assert around("noisy_log_likelihood", -0.7, -0.8, -0.9) == "-1.048 to -0.552"


def test_every_form_says_what_was_chosen_and_the_interval():
    table = collect(NAME, ITEM, some_results())
    entry = next(e for e in table.entries if e.ours is not None and e.ours.seeds > 1)
    for form in FORMATS:
        text = render(table, form)
        assert "temperature=" in text, form
        if form == "csv":
            assert str(bounds(entry)[0]) in text
        else:
            assert interval_text(entry) in text, form


def test_verdicts_are_those_of_the_pages():
    """Agreement by our spread alone, and a gain turned into a loss, are told apart."""
    at = [c for c in CONFIGS if (c.noise, c.rate) == ("asymmetric", 0.4)]
    ln, ce = ([c for c in at if c.method == name][:3] for name in ("ln", "ce"))
    plain = [fake(c, value) for c, value in zip(ce, (0.80, 0.802, 0.801))]  # the paper: LN 96.54, plain 80.31
    wide = collect(NAME, ITEM, [*plain, *(fake(c, v) for c, v in zip(ln, (0.86, 0.90, 0.99)))])
    lost = collect(NAME, ITEM, [*plain, *(fake(c, v) for c, v in zip(ln, (0.70, 0.701, 0.702)))])
    verdicts = [next(e.verdict for e in t.entries if e.ours and e.row == ("ln",)) for t in (wide, lost)]
    assert verdicts == ["agrees, wide spread", "opposite"]
    assert "2 of 2 judged cells agree" in render(wide)
    assert "differ: ln at asymmetric 0.4" in render(lost)
    assert 'class="agrees-wide-spread"' in render(wide, "html")


def test_a_table_of_picked_and_of_changed_runs():
    """key=value picks rows and columns; a changed protocol has a table too, and says what was changed."""
    picked = collect(NAME, ITEM, some_results(), overrides=["noise=asymmetric", "rate=0.4", "method=ce,ln"])
    assert [(e.row, e.column) for e in picked.entries] == [
        (("ce",), ("asymmetric", "0.4")),
        (("ln",), ("asymmetric", "0.4")),
    ]
    assert picked.facts[0] == "10 of 10 runs, 0.1 hours"
    short = [dataclasses.replace(r, config=dataclasses.replace(r.config, epochs=7)) for r in some_results()]
    assert not any(e.ours for e in collect(NAME, ITEM, short).entries)
    changed = collect(NAME, ITEM, short, overrides=["epochs=7"])
    assert sum(e.ours is not None for e in changed.entries) == 2
    assert changed.facts[0] == "405 of 405 runs differ from the item's own: epochs=7"
