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
