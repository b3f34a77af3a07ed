"""The nightly set: every table and figure at smoke size, trained, printed in every form, drawn and judged.

`DUBITO_SMOKE_OUT` names a folder to keep; what is finished there is not repeated. `DUBITO_SMOKE_WORKERS` is the
number of processes. ``python tools/smoke_set.py FOLDER`` sums a kept folder up, a line for each table and figure.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
import smoke_runs

from dubito.papers import PAPERS, figures, item, items
from dubito.papers.claims import check, claims, report
from dubito.papers.collect import collect
from dubito.papers.render import FORMATS, render
from dubito.papers.results import Result, read
from dubito.papers.sweep import Report, sweep

pytestmark = pytest.mark.nightly

ALL = [f"{p}.{i}" for p in PAPERS for i in items(p)]


class Done(NamedTuple):
    folder: Path
    report: Report
    results: list[Result]


@pytest.fixture(scope="module")
def done(tiny_data, tmp_path_factory) -> Done:
    kept = os.environ.get("DUBITO_SMOKE_OUT")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("smoke")
    options = {"root": str(tiny_data), "device": "cpu"}
    configs = smoke_runs.everything()
    workers = int(os.environ.get("DUBITO_SMOKE_WORKERS") or os.cpu_count() or 1)
    found = sweep(configs, folder / "results", workers=workers, run=smoke_runs.train, options=options)
    (folder / "failed.txt").write_text(found.text() + "\n".join(f.trace for f in found.failed))
    return Done(folder, found, read(folder / "results"))


def wanted(name: str) -> int:
    return len(item(name).make("smoke", smoke_runs.SHAPES.get(name), None))


def test_no_run_fails(done):
    assert not done.report.failed, done.report.text()
    assert not done.report.diverged, done.report.text()
    assert len(done.report.finished) == len(smoke_runs.everything()) > 1000


@pytest.mark.parametrize("name", ALL)
def test_the_table_of_every_item_is_printed_in_every_form(name, done):
    entry = item(name)
    table = collect(name, entry, done.results, size="smoke", data=smoke_runs.SHAPES.get(name))
    if not wanted(name):
        return
    assert any(e.ours is not None for e in table.entries)
    for form in FORMATS:
        text = render(table, form)
        (done.folder / f"{name}.{form}.txt").write_text(text)
        assert len(text) > 100
    assert table.facts[0].startswith(f"{wanted(name)} of ")
    assert not any(e.verdict in ("agrees", "differs") for e in table.entries)  # one seed judges nothing


@pytest.mark.parametrize("name", [n for n in ALL if n in figures.FIGURES])
def test_every_figure_is_drawn(name, done):
    how = {"size": "smoke", "data": smoke_runs.SHAPES.get(name)}
    for path in figures.draw(name, done.results, done.folder / "figures", **how):
        assert path.stat().st_size > 5_000


@pytest.mark.parametrize("name", PAPERS)
def test_every_claim_is_judged(name, done):
    found = check(name, done.results, size="smoke")
    assert len(found) == len(claims(name))
    text = report(name, found)
    (done.folder / f"{name}.claims.txt").write_text(text)
    assert "cannot tell" in text
